"""`xdsprism status` of a real Envoy that rejects a listener: the resource, its variant, and the file it came from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.rig import Daemon, run, write
from tests.cli.test_relay import bootstrap as relay_bootstrap
from tests.support.envoy import Envoy, bootstrap
from tests.support.resources import inline_listener, static_cluster, to
from tests.support.waiting import eventually

MODES = pytest.mark.parametrize("mode", ["delta", "sotw"])
NODE = {"id": "envoy-1", "cluster": "web", "metadata": {"env": "prod"}}
GOOD = inline_listener("good", to("shop"))
# Envoy has no such address, and `--validate off` does not look.
BAD = {**inline_listener("bad", to("shop")), "address": {"socket_address": {"address": "nowhere", "port_value": 0}}}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    write(folder, "clusters", static_cluster("shop", "127.0.0.1", 1))
    write(folder, "listeners", GOOD, {"$when": "env=prod", **BAD})
    return folder


@pytest.fixture(params=["serve", "relay"])
def role(request: pytest.FixtureRequest, tmp_path: Path, config: Path) -> Iterator[Daemon]:
    with ExitStack() as stack:
        server = stack.enter_context(Daemon(tmp_path, config, "--validate", "off"))
        if request.param == "serve":
            yield server
            return
        given = ["--bootstrap", relay_bootstrap(tmp_path, server.listen)]
        yield stack.enter_context(Daemon(tmp_path, *given, verb="relay"))


# NAK-12, NAK-29, SOT-4
@MODES
def test_what_envoy_rejects_is_named_with_its_variant_and_its_file(
    request: pytest.FixtureRequest, role: Daemon, mode: str, tmp_path: Path, config: Path
):
    envoy = Envoy(tmp_path, bootstrap(mode, int(role.listen.rpartition(":")[2]), NODE))
    try:
        rows = eventually(lambda: _rejected(role), lambda names: names == ["bad"])
        assert rows == ["bad"]
        whole = run("status", "--admin", role.admin)
        assert whole.exit_code == 1
        headers, row = (re.split(r" {3,}", line.strip()) for line in whole.stdout.splitlines())
        shown = dict(zip(headers, row, strict=True))
        assert (shown["NODE"], shown["CDS"], shown["LDS"]) == ("envoy-1", "SYNCED", "NACKED")
        one = run("status", "envoy-1", "--admin", role.admin)
        lines = one.stdout.splitlines()
        assert one.exit_code == 1
        (bad,) = [line for line in lines if line.startswith("lds/bad (env=prod) was rejected: ")]
        assert "nowhere" in bad
        states = {line.split()[0]: line.split()[1] for line in lines if re.match("(lds|cds)/\\S+ +[A-Z]", line)}
        assert states == {"lds/bad": "NACKED", "lds/good": "SYNCED", "cds/shop": "SYNCED"}
        # a relay gets resources without the place where they were written
        is_server = request.node.callspec.params["role"] == "serve"
        assert (f"  from {config}/listeners.yaml:" in one.stdout) == is_server
        write(config, "listeners", GOOD)  # the remedy
        eventually(lambda: run("status", "--admin", role.admin), lambda done: done.exit_code == 0)
        assert "SYNCED" in run("status", "envoy-1", "--admin", role.admin).stdout
    finally:
        envoy.close()


def _rejected(role: Daemon) -> list[str]:
    if not role.page("/api/clients?node=envoy-1")["total"]:
        return []
    return [each["name"] for each in role.page("/api/client?node=envoy-1&state=NACKED")["resources"]]
