"""Bad files under a running server: each is refused with file, line and reason, and the old configuration is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import Lab
from tests.support.resources import routes, to
from tests.support.waiting import eventually

ROUTES = '"@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: main\n'

# Eleven pigeons, ten holes: each has a place, and no two share one. That both can't be is hard to prove.
PIGEONS, HOLES = range(11), range(10)
PLACED = " and ".join(f"({' or '.join(f'p{p}h{h} exists' for h in HOLES)})" for p in PIGEONS)
APART = " and ".join(f"not (p{p}h{h} exists and p{q}h{h} exists)" for h in HOLES for p in PIGEONS for q in range(p))

BAD = {
    "truncated": (
        ROUTES + "virtual_hosts:\n- name: shop\n  domains: [",
        5,
        "not valid YAML",
    ),
    "wrong-typed": (
        ROUTES + "virtual_hosts:\n- name: shop\n  domains: 7\n",
        5,
        "expected a string",
    ),
    "unknown-field": (
        ROUTES + "virtual_hosts:\n- name: shop\n  domainz: ['*']\n",
        5,
        "no such field",
    ),
    "what Envoy refuses": (
        ROUTES + "virtual_hosts:\n- name: shop\n  domains: []\n",
        5,
        "must not be empty",
    ),
    "overlapping": (
        ROUTES + "$when: env in (prod, test)\n---\n" + ROUTES + "$when: env in (qa, test)\n",
        1,
        "both match env=test",
    ),
    "over-complex": (
        f"{ROUTES}$when: {PLACED}\n---\n{ROUTES}$when: {APART}\n",
        1,
        "too complex to prove disjoint",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_refused_with_place_and_reason_and_the_old_one_is_served(lab: Lab, tmp_path: Path, kind: str):
    # OPS-8, DYN-33, DYN-37, DYN-39
    text, line, reason = BAD[kind]
    server = lab.control_plane()
    server.write("routes", routes("main", to("shop")))
    server.start()
    before = server.get("/api/resources")
    draft = tmp_path / "draft"
    draft.write_text(text)
    draft.replace(server.config / "routes.yaml")

    def refused() -> Any:
        return json.loads(server.get("/api/config"))["last_load"]

    (problem,) = eventually(refused, lambda load: not load["ok"])["errors"]
    assert Path(problem["file"]).name == "routes.yaml"
    assert problem["line"] == line
    assert reason in problem["message"]
    assert server.get("/api/resources") == before
