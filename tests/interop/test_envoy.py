"""A real Envoy on the transport under its streams: much to carry, little room, and an end in the middle."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.tagged import peers
from tests.support import envoy as envoys
from tests.support.control_plane import ControlPlane
from tests.support.lab import Lab
from tests.support.resources import Document, eds_cluster, endpoints, listener, routes, to
from tests.support.waiting import becomes, eventually

pytestmark = pytest.mark.usefixtures("engine")

ADS: Document = {"ads": {}, "resource_api_version": "V3"}
PARTS = 7
EACH = 900  # routes
BODY = 3_300  # bytes of each: 21 MB in all, and no part above what fits into a delta response
STREAMS = 100


def with_little_room(config: dict[str, Any], keepalive: str) -> dict[str, Any]:
    """The smallest windows that Envoy takes, and PINGs."""
    (cluster,) = config["static_resources"]["clusters"]
    (options,) = cluster["typed_extension_protocol_options"].values()
    options["explicit_http_config"]["http2_protocol_options"] = {
        "initial_stream_window_size": 65_535,
        "initial_connection_window_size": 65_535,
        "connection_keepalive": {"interval": keepalive, "timeout": "5s"},
    }
    return config


def bootstrap(server: ControlPlane, mode: str) -> dict[str, Any]:
    # grpcio takes PINGs that come more often than it was told for an attack; ours counts them.
    keepalive = "0.1s" if server.engine == "h2" else "6s"
    return with_little_room(envoys.bootstrap(mode, server.port, {"id": "envoy", "cluster": "lab"}), keepalive)


def bulk(number: int, tag: str) -> Document:
    """Routes that say who they are."""
    direct = [
        {
            "match": {"path": f"/{route}"},
            "direct_response": {"status": 200, "body": {"inline_string": f"{tag} {route} ".ljust(BODY, ".")}},
        }
        for route in range(EACH)
    ]
    return routes(f"bulk-{number}", *direct)


def said(envoy: envoys.Envoy, number: int) -> str:
    """By the last route of a part."""
    return envoy.get(f"/{EACH - 1}", f"bulk-{number}").rstrip(". ")


def on_its_own_stream(found: Any, source: Document) -> Any:
    """The same resource, whose references are not for ADS."""
    if found == ADS:
        return source
    if isinstance(found, dict):
        return {key: on_its_own_stream(value, source) for key, value in found.items()}
    return [on_its_own_stream(each, source) for each in found] if isinstance(found, list) else found


# OPS-9, DLT-21. In SotW it is one message.
@pytest.mark.parametrize(("engine", "mode"), [("h2", "delta"), ("h2", "sotw"), ("grpcio", "sotw")], indirect=["engine"])
def test_twenty_megabytes_through_small_windows_and_a_drain(lab: Lab, mode: str) -> None:
    server = lab.control_plane()
    server.write("listeners", *(listener(f"bulk-{number}", f"bulk-{number}") for number in range(PARTS)))
    for number in range(PARTS):
        server.write_json(f"bulk-{number}", bulk(number, "old"))
    server.start()
    envoy = lab.start_envoy(bootstrap(server, mode))
    for number in range(PARTS):
        becomes(lambda: said(envoy, number), f"old {EACH - 1}")  # noqa: B023
    server.write_json("bulk-0", bulk(0, "new"))
    becomes(lambda: said(envoy, 0), f"new {EACH - 1}")
    assert envoy.stat("cluster.control_plane.upstream_cx_total") == 1
    assert envoy.stat("cluster.control_plane.http2.keepalive_timeout") == 0

    with envoy.traffic("/0", "bulk-1") as traffic:
        assert server.stop() == 0
        becomes(lambda: envoy.stat("control_plane.connected_state"), 0)
        server.write_json("bulk-1", bulk(1, "newer"))
        server.start()
        becomes(lambda: said(envoy, 1), f"newer {EACH - 1}")
        becomes(lambda: [answer.rstrip(". ") for answer in traffic.answers[-1:]], ["newer 0"])
    assert {answer.rstrip(". ") for answer in traffic.answers} == {"old 0", "newer 0"}
    assert said(envoy, PARTS - 1) == f"old {EACH - 1}"


# OPS-9
@pytest.mark.parametrize(
    ("engine", "mode"), [("h2", "delta"), ("h2", "sotw"), ("grpcio", "delta")], indirect=["engine"]
)
def test_a_stream_for_every_cluster_on_one_connection(lab: Lab, mode: str) -> None:
    """Without ADS there is one for each type, and one for the endpoints of each cluster."""
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    server = lab.control_plane()
    config = envoys.bootstrap(mode, 1, {})
    source = {"api_config_source": config["dynamic_resources"]["ads_config"], "resource_api_version": "V3"}
    names = [f"cluster-{number}" for number in range(STREAMS)]
    documents = [listener("web", "main"), routes("main", to(names[-1])), *map(eds_cluster, names)]
    server.write("config", *on_its_own_stream(documents, source))
    server.write("endpoints", *(endpoints(name, blue.port) for name in names))
    server.start()
    config = bootstrap(server, mode)
    config["dynamic_resources"] = {"lds_config": source, "cds_config": source}
    envoy = lab.start_envoy(config)
    becomes(lambda: envoy.get("/"), "blue")
    assert len(server.clients("envoy")) == STREAMS + 3
    assert peers(server, "envoy") == 1

    with envoy.traffic() as traffic:
        assert server.stop() == 0
        server.write("endpoints", *(endpoints(name, green.port) for name in names))
        server.start()
        becomes(lambda: traffic.answers[-1:], ["green"])
        eventually(lambda: len(server.clients("envoy")), lambda streams: streams == STREAMS + 3)
    assert set(traffic.answers) == {"blue", "green"}
    assert peers(server, "envoy") == 1
