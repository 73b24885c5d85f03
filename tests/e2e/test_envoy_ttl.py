"""A real Envoy drops what has a time to live when its server is gone, and not before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy, bootstrap
from tests.support.lab import Lab
from tests.support.resources import Document, static_cluster
from tests.support.waiting import becomes, eventually

FEATURES = ["xds.config.supports-resource-in-sotw", "xds.config.supports-resource-ttl"]
TTL = 2  # seconds


def _living(name: str, resource: Document) -> Document:
    return {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": name,
        "ttl": f"{TTL}s",
        "resource": resource,
    }


def _runtime(value: int) -> Document:
    return {
        "@type": "type.googleapis.com/envoy.service.runtime.v3.Runtime",
        "name": "limits",
        "layer": {"limits.most": value},
    }


@contextmanager
def _envoy(folder: Path, server: ControlPlane, mode: str) -> Iterator[Envoy]:
    config = bootstrap(mode, server.port, {"id": "e", "cluster": "lab", "client_features": FEATURES})
    layer = {"name": "limits", "rtds_config": {"ads": {}, "resource_api_version": "V3"}}
    config["layered_runtime"] = {"layers": [{"name": "limits", "rtds_layer": layer}]}
    running = Envoy(folder, config)
    try:
        yield running
    finally:
        running.close()


def _limit(envoy: Envoy) -> str | None:
    entries = json.loads(envoy.admin("/runtime?format=json"))["entries"]
    return entries.get("limits.most", {}).get("final_value")


# TTL-1, TTL-2. A cluster in SotW has no heartbeats: there the whole state is sent again.
@pytest.mark.parametrize("mode", ["delta", "sotw"])
def test_a_resource_with_a_ttl_stays_while_the_server_runs_and_expires_after_it(lab: Lab, tmp_path: Path, mode: str):
    server = lab.control_plane()
    server.write(
        "main",
        _living("limits", _runtime(7)),
        _living("blue", static_cluster("blue", "127.0.0.1", 80)),
        static_cluster("green", "127.0.0.1", 80),
    )
    server.start()
    with _envoy(tmp_path, server, mode) as envoy:
        becomes(lambda: _limit(envoy), "7")
        for word in ("rtds", "cds"):  # twice in the time to live: this is more than two of them
            eventually(lambda word=word: server.counter("acks", word) > 5)
            assert server.counter("nacks", word) == 0
            assert _limit(envoy) == "7"
            assert set(envoy.clusters()) == {"blue", "green"}

        server.write("main", _living("limits", _runtime(8)), static_cluster("green", "127.0.0.1", 80))
        becomes(lambda: (_limit(envoy), set(envoy.clusters())), ("8", {"green"}))
        server.stop()
        becomes(lambda: _limit(envoy), None)
        assert set(envoy.clusters()) == {"green"}, "what has no time to live stays"
