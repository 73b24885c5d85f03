"""What a real Envoy needs of the protocol beyond plain delivery: NACKs, warming, reconnects, variants."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.lab import Lab
from tests.support.resources import Document, eds_cluster, endpoints, listener, routes, static_cluster, to
from tests.support.waiting import becomes, eventually

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

both_modes = pytest.mark.parametrize("mode", ["delta", "sotw"])


def _serve(lab: Lab, *documents: Document) -> ControlPlane:
    server = lab.control_plane()
    server.write("main", *documents)
    server.write("listener", listener("web", "main"))
    server.start()
    return server


# Both pass every check a control plane can make. The first fails in Envoy when the cluster is built, and the good
# ones of its response are used nevertheless; the second fails when the response is read, and none of it is used.
BAD_CLUSTERS = {
    "when built": eds_cluster("bad", eds_cluster_config=None),
    "when read": eds_cluster("bad", eds_cluster_config={"eds_config": {"api_config_source": {"cluster_names": ["x"]}}}),
}


class Scene(NamedTuple):
    """An Envoy with one cluster, `blue`, and two more documents to be added."""

    server: ControlPlane
    envoy: Envoy
    blue: Document
    green: Document
    mended: Document


def _scene(lab: Lab, mode: str) -> Scene:
    ports = [lab.http_backend(name).port for name in ("blue", "green", "mended")]
    blue, green, mended = (
        static_cluster(name, "127.0.0.1", port) for name, port in zip(("blue", "green", "bad"), ports, strict=True)
    )
    server = _serve(lab, routes("main", to("blue")), blue)
    envoy = lab.envoy(server, mode)
    becomes(lambda: envoy.get("/"), "blue")
    return Scene(server, envoy, blue, green, mended)


# NAK-29, NAK-3, NAK-4, NAK-6, NAK-12, NAK-13
@pytest.mark.parametrize("bad", BAD_CLUSTERS.values(), ids=BAD_CLUSTERS)
def test_delta_one_bad_cluster_holds_back_neither_the_good_one_nor_later_news(lab: Lab, bad: Document):
    server, envoy, blue, green, mended = _scene(lab, "delta")
    server.write("main", routes("main", to("green")), blue, green, bad)
    becomes(lambda: envoy.get("/"), "green")
    becomes(lambda: set(server.types()["cds"]["rejected"]), {"bad"})
    assert set(envoy.clusters()) == {"blue", "green"}

    server.write("main", routes("main", to("bad")), blue, green, mended)
    becomes(lambda: envoy.get("/"), "mended")
    becomes(lambda: server.types()["cds"]["state"], "SYNCED")
    assert set(envoy.clusters()) == {"blue", "green", "bad"}
    assert server.counter("nacks", "cds") == 2, "once with the good one, once alone, and then not again"


# NAK-3, NAK-4, NAK-6, NAK-12, NAK-13. A SotW response of clusters can't be split: Envoy itself sets this one apart.
def test_sotw_one_bad_cluster_holds_back_neither_the_good_one_nor_later_news(lab: Lab):
    server, envoy, blue, green, mended = _scene(lab, "sotw")
    server.write("main", routes("main", to("green")), blue, green, BAD_CLUSTERS["when built"])
    becomes(lambda: envoy.get("/"), "green")
    becomes(lambda: server.types()["cds"]["state"], "NACKED")

    server.write("main", routes("main", to("bad")), blue, green, mended)
    becomes(lambda: envoy.get("/"), "mended")
    becomes(lambda: server.types()["cds"]["state"], "SYNCED")
    assert server.counter("nacks", "cds") == 1


# ORD-5, ORD-11, DLT-23. No timeout ends the wait for endpoints here: without them the cluster would warm for ever.
@both_modes
def test_a_changed_cluster_gets_its_unchanged_endpoints_again_and_does_not_stay_warming(lab: Lab, mode: str):
    patient = {"eds_config": {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}}
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    server = _serve(lab, routes("main", to("blue")), eds_cluster("blue", eds_cluster_config=patient))
    server.write("endpoints", endpoints("blue", blue.port))
    envoy = lab.envoy(server, mode)
    becomes(lambda: envoy.get("/"), "blue")

    changed = eds_cluster("blue", eds_cluster_config=patient, connect_timeout="7s")
    server.write("main", routes("main", to("blue")), changed)
    eventually(envoy.clusters, lambda active: active["blue"]["connect_timeout"] == "7s")
    assert envoy.clusters("dynamic_warming_clusters") == {}

    # The CDS ACK was not withheld for good either: a later cluster comes up.
    later = static_cluster("green", "127.0.0.1", green.port)
    server.write("main", routes("main", to("green")), changed, later)
    becomes(lambda: envoy.get("/"), "green")


# DYN-12, DYN-5, DYN-6, DYN-27, SRV-22: the example of the documentation.
@both_modes
def test_two_envoys_get_their_own_variants_of_one_route_configuration(lab: Lab, mode: str):
    names = ["shop", "shop-next", "checkout", "legacy"]
    clusters = [static_cluster(name, "127.0.0.1", lab.http_backend(name).port) for name in names]
    shop = {"$match": [{"when": "env in (canary, test)", "value": "shop-next"}, {"value": "shop"}]}
    main = routes(
        "main",
        {"$when": "env=prod", **to("checkout", "/checkout")},
        {"$when": "version=v1", **to("legacy", "/legacy")},
        to(shop),
    )
    server = _serve(lab, main, *clusters)
    prod = lab.envoy(server, mode, {"env": "prod", "team": "any"})
    canary = lab.envoy(server, mode, {"env": "canary", "version": "v1"})

    becomes(lambda: prod.get("/"), "shop")
    becomes(lambda: canary.get("/"), "shop-next")
    pages = ["/checkout", "/legacy", "/"]
    assert [prod.get(page) for page in pages] == ["checkout", "shop", "shop"]
    assert [canary.get(page) for page in pages] == ["shop-next", "legacy", "shop-next"]
