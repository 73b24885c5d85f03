"""A real Envoy whose users choose clusters by a header, with names that no server has to take (VHD-26, DYN-46).

Envoy subscribes to whatever bytes the header has. It reads no response in which these come back, so that a name which
is not UTF-8 has no answer that Envoy knows: its own timeout ends that request, and no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.lab import Lab
from tests.support.on_demand import STREAMS, WITH_AND_WITHOUT_RELAY, Client, Scene, listener, route_config, source
from tests.support.relay_process import RelayedLab
from tests.support.resources import static_cluster
from tests.support.waiting import becomes

NOT_UTF8 = "caf\xe9"  # headers are encoded in Latin-1
LONG = "x" * 4_097


pytestmark = WITH_AND_WITHOUT_RELAY


@pytest.fixture(params=STREAMS)
def scene(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Scene]:
    with Scene(lab, request.param) as running:
        on_demand = {"source": source(request.param), "timeout": "1s"}
        running.server.write("listener", listener("web", "main", odcds=on_demand))
        by_header = {"match": {"prefix": "/"}, "route": {"cluster_header": "cluster"}}
        chosen = {"name": "chosen", "domains": ["chosen.example"], "routes": [by_header]}
        running.server.write("routes", route_config("main", request.param, chosen))
        port = lab.http_backend("blue").port
        for name in ("before", "after", "restarted"):
            running.server.write(name, static_cluster(name, "127.0.0.1", port))
        yield running


def get(client: Client, cluster: str) -> str:
    return client.get("chosen.example", cluster=cluster)


def refused(scene: Scene) -> list[dict[str, int]]:
    return [each["refused"] for each in json.loads(scene.server.get("/api/clients"))["clients"]]


# VHD-26, DYN-46, PRX-35
def test_a_cluster_by_an_odd_name_is_503_and_all_else_goes_on_also_after_a_restart(scene: Scene, lab: Lab):
    client = scene.start()
    assert get(client, "before") == "blue"
    streams = dict(client.tap.streams)
    for name in (NOT_UTF8, LONG, NOT_UTF8):
        assert get(client, name) == "HTTP 503"
    assert get(client, "after") == "blue"
    assert client.tap.streams == streams, "no stream ended"
    assert client.nacks() == []
    if isinstance(lab, RelayedLab):
        assert not any(refused(scene)), "it did not get there"
    else:
        assert {"utf8": 1, "name_bytes": 1} in refused(scene)

    assert scene.server.stop() == 0
    scene.server.start()
    becomes(lambda: get(client, "restarted"), "blue")
    assert get(client, NOT_UTF8) == "HTTP 503"
    assert client.nacks() == []
    becomes(client.pending, 0)


# VHD-26. What docs/limits.md advises: what has not the form of a name is turned away before anything is asked for it.
def test_names_that_an_rbac_filter_turns_away_are_not_asked_for(scene: Scene):
    web = listener("web", "main", odcds={"source": source(scene.stream), "timeout": "1s"})
    manager = web["filter_chains"][0]["filters"][0]["typed_config"]
    a_name = {"name": "cluster", "string_match": {"safe_regex": {"regex": "[a-z0-9-]{1,20}"}}}
    policy = {"permissions": [{"header": a_name}], "principals": [{"any": True}]}
    rbac = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
        "rules": {"action": "ALLOW", "policies": {"names": policy}},
    }
    manager["http_filters"] = [{"name": "envoy.filters.http.rbac", "typed_config": rbac}, *manager["http_filters"]]
    scene.server.write("listener", web)
    client = scene.start()
    assert get(client, "before") == "blue"
    for name in ("*", NOT_UTF8, LONG, "xdstp://a/envoy.config.cluster.v3.Cluster/*"):
        assert get(client, name) == "HTTP 403"
    assert get(client, "after") == "blue"
    assert client.tap.subscribed("Cluster") == ["before", "after"]
