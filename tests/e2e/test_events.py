"""`xdsprism events --follow` and the log while a real Envoy rejects a listener and accepts its correction."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.following import follows
from tests.cli.rig import Daemon, write
from tests.support.envoy import Envoy, bootstrap
from tests.support.resources import inline_listener, static_cluster, to
from tests.support.waiting import eventually

NODE = {"id": "envoy-1", "cluster": "web", "metadata": {"env": "prod"}}
GOOD = inline_listener("good", to("shop"))
# Envoy has no such address, and `--validate off` does not look.
BAD = {**inline_listener("bad", to("shop")), "address": {"socket_address": {"address": "nowhere", "port_value": 0}}}


# NAK-12, NAK-13, NAK-29, SOT-4
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_what_envoy_rejects_and_accepts_again_is_told_with_its_variant_and_its_file(mode: str, tmp_path: Path):
    config = tmp_path / "config"
    write(config, "clusters", static_cluster("shop", "127.0.0.1", 1))
    write(config, "listeners", GOOD, {"$when": "env=prod", **BAD})
    with ExitStack() as stack:
        server = stack.enter_context(Daemon(tmp_path, config, "--validate", "off"))
        told = follows(stack, tmp_path)(server, "--since", 0)
        envoy = Envoy(tmp_path, bootstrap(mode, int(server.listen.rpartition(":")[2]), NODE))
        stack.callback(envoy.close)
        joined = told.next("client", event="joined")
        assert (joined["node"], joined["cluster"]) == ("envoy-1", "web")
        nack = told.next("nack")
        while [each["name"] for each in nack["resources"]] != ["bad"]:  # of several, until Envoy rejects it alone
            nack = told.next("nack")
        (bad,) = nack["resources"]
        assert (nack["node"], nack["type"], bad["constraint"]) == ("envoy-1", "lds", "env=prod")
        assert bad["origin"].startswith(f"{config}/listeners.yaml:")
        assert "nowhere" in nack["message"]
        line = f"lds/bad [env=prod] ({bad['origin']}), nonce "
        eventually(lambda: "WARNING envoy-1 NACKed " in server.stderr and line in server.stderr)

        write(config, "listeners", GOOD)  # the remedy
        (removed,) = told.next("revision", revision=2)["changes"]
        assert (removed["name"], removed["change"]) == ("bad", "removed")
        recovered = told.next("recovered")
        assert (recovered["node"], recovered["type"]) == ("envoy-1", "lds")
        eventually(lambda: "INFO envoy-1 accepts lds" in server.stderr)
