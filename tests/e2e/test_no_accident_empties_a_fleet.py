"""Accidents with the configuration, while real Envoys are connected: they keep what they have, and so do newcomers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import yaml

from tests.cli.rig import run
from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.lab import Lab
from tests.support.programs import ProgramDied
from tests.support.resources import Document, inline_listener, static_cluster, to
from tests.support.waiting import becomes, eventually

NAMES = [f"c{n:02}" for n in range(40)]


class Fleet(NamedTuple):
    """A server with a listener and 40 clusters, and two Envoys that have them."""

    server: ControlPlane
    clusters: list[Document]
    envoys: list[Envoy]


def _clusters_of(envoy: Envoy) -> list[str]:
    return sorted(envoy.clusters())


def _fleet(lab: Lab) -> Fleet:
    port = lab.http_backend("shop").port
    server = lab.control_plane()
    clusters = [static_cluster(name, "127.0.0.1", port) for name in NAMES]
    server.write("clusters", *clusters)
    server.write("listener", inline_listener("web", to("c00")))
    server.start()
    envoys = [lab.envoy(server, mode) for mode in ("delta", "sotw")]
    for envoy in envoys:
        becomes(lambda envoy=envoy: (_clusters_of(envoy), envoy.get("/")), (NAMES, "shop"))
    return Fleet(server, clusters, envoys)


def _config(server: ControlPlane) -> Any:
    return json.loads(server.get("/api/config"))


def _require_untouched(fleet: Fleet) -> None:
    """Nobody lost anything, not even for a moment."""
    for envoy in fleet.envoys:
        assert (_clusters_of(envoy), envoy.get("/")) == (NAMES, "shop")
        assert envoy.stat("cluster_manager.cluster_removed") == 0
        assert envoy.stat("listener_manager.listener_removed") == 0


def _empty(fleet: Fleet) -> None:
    for file in fleet.server.config.iterdir():
        file.unlink()


def _remove(fleet: Fleet) -> None:
    shutil.rmtree(fleet.server.config)


def _cut(fleet: Fleet) -> None:
    fleet.server.write("clusters", *fleet.clusters[:4])


ACCIDENTS: dict[str, tuple[Callable[[Fleet], None], str, list[str]]] = {
    "an emptied directory": (_empty, "nothing would be left of 41 resources", []),
    "a vanished directory": (_remove, "config does not exist any more", []),
    "36 of 40 resources gone": (_cut, "36 of 40 cds would be removed, which is more than 50%", NAMES[:4]),
}


# OPS-13
@pytest.mark.parametrize("accident", ACCIDENTS)
def test_envoys_and_newcomers_have_the_last_good_state_until_somebody_confirms(lab: Lab, accident: str):
    cause, why, left = ACCIDENTS[accident]
    fleet = _fleet(lab)
    server = fleet.server
    cause(fleet)
    held = eventually(lambda: _config(server)["held_back"])
    assert why in "; ".join(held["why"])
    assert server.program is not None
    program = server.program
    eventually(lambda: f"configuration held back ({held['id']})" in program.text())
    assert why in program.text()
    assert why in json.loads(server.get("/readyz"))["held_back"]

    newcomer = lab.envoy(server, "delta")
    becomes(lambda: (_clusters_of(newcomer), newcomer.get("/")), (NAMES, "shop"))
    _require_untouched(fleet)

    done = run("confirm", "--admin", server.admin, "--id", held["id"])
    assert done.exit_code == 0, done.stderr
    for envoy in [*fleet.envoys, newcomer]:
        becomes(lambda envoy=envoy: _clusters_of(envoy), left)
    assert _config(server)["held_back"] is None


# OPS-13
def test_a_file_that_is_truncated_and_written_again_in_parts_takes_nothing_away(lab: Lab):
    fleet = _fleet(lab)
    file = fleet.server.config / "clusters.yaml"
    parts = [yaml.safe_dump_all([each], explicit_start=True) for each in fleet.clusters]
    with file.open("w") as opened:  # which truncates it
        eventually(lambda: not _config(fleet.server)["last_load"]["ok"])  # it was seen empty, and is not taken
        for part in parts:
            opened.write(part)
            opened.flush()
        extra = static_cluster("extra", "127.0.0.1", 1)
        opened.write(yaml.safe_dump_all([extra], explicit_start=True))
    for envoy in fleet.envoys:
        becomes(lambda envoy=envoy: _clusters_of(envoy), [*NAMES, "extra"])
        assert envoy.stat("cluster_manager.cluster_removed") == 0


# OPS-13
def test_a_restart_with_an_empty_directory_fails_and_envoys_keep_what_they_have(lab: Lab):
    fleet = _fleet(lab)
    server = fleet.server
    server.stop()
    _empty(fleet)
    with pytest.raises(
        ProgramDied, match=r"status 1:\n(?s:.*)has no resources; to start with none, give --allow-empty"
    ):
        server.start()
    _require_untouched(fleet)

    server.write("clusters", *fleet.clusters, static_cluster("extra", "127.0.0.1", 1))
    server.write("listener", inline_listener("web", to("c00")))
    server.start()
    for envoy in fleet.envoys:
        becomes(lambda envoy=envoy: _clusters_of(envoy), [*NAMES, "extra"])
        assert envoy.stat("cluster_manager.cluster_removed") == 0
