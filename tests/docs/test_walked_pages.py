"""Pages that a reader walks through from top to bottom: each command is run, and prints what the page says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.docs.walking import ROOT, Walk
from tests.support.waiting import becomes, eventually


def test_the_tutorial_is_true(walk: Walk) -> None:
    # DYN-12, OPS-8, PRX-3
    walk.follow((ROOT / "docs/tutorial.md").read_text())


@pytest.mark.parametrize("page", ["tp2.md"])
def test_the_commands_of_a_page_succeed(walk: Walk, page: str) -> None:
    walk.follow((ROOT / "docs" / page).read_text())


def test_the_commands_about_relays_succeed(walk: Walk) -> None:
    # PRX-28
    walk.serve("serve", "examples/config", "--listen", "127.0.0.1:18000", "--admin", "off")
    walk.follow((ROOT / "docs/relay.md").read_text())


# OPS-13
def test_the_commands_about_edits_that_are_held_back_let_them_through(walk: Walk) -> None:
    page = (ROOT / "docs/held-back.md").read_text()
    by_command, by_http = (line for line in page.splitlines() if line.startswith(("xdsprism confirm", "curl")))
    shown = "5d1c3ab0e2f4"
    config = walk.folder / "many"
    config.mkdir()

    def write(names: range) -> None:
        rows = [f'{{"@type": envoy.config.cluster.v3.Cluster, name: c{number}}}' for number in names]
        (config / "clusters.yaml").write_text("\n---\n".join(rows))

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(walk.run("curl http://127.0.0.1:18001/api/config"))
        return found

    write(range(40))
    walk.serve("serve", "many", "--listen", "127.0.0.1:18000", "--admin", "127.0.0.1:18001")
    for command, kept in (f".venv/bin/{by_command}", 19), (by_http, 4):
        write(range(kept))
        held = eventually(lambda: status()["held_back"])
        assert "cds" in walk.run(command.replace(shown, held["id"]))
        becomes(lambda: status()["held_back"], None)
