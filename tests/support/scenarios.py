"""What every gRPC implementation is to show with its own xDS client. One test per function and implementation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.lab import Lab
from tests.support.resources import Document, api_listener, eds_cluster, endpoints, routes, to
from tests.support.waiting import eventually

Argv = Sequence[str | Path]


def calls_reach_the_backend_and_an_update_moves_them(lab: Lab, client: Argv) -> None:
    """`xds:///svc` resolves; new endpoints, then a new route, move the calls, and none of them fails on the way."""
    blue, green, red = (lab.grpc_backend(name) for name in ("blue", "green", "red"))
    server = lab.control_plane()
    clusters = [eds_cluster("a"), eds_cluster("b")]
    # Both clusters are in the client's hands from the start: where a route is the first to name a cluster, grpc-go may
    # choose it for a call before its balancer has it ("unknown cluster selected for RPC"), which no server can prevent.
    other = to("b", "/echo.Echo/Other")
    server.write("main", api_listener("svc", "main"), routes("main", other, to("a")), *clusters)
    server.write("endpoints", endpoints("a", blue.port), endpoints("b", red.port))
    server.start()
    caller = lab.caller(client, server)
    caller.reaches("blue")

    server.write("endpoints", endpoints("a", green.port), endpoints("b", red.port))
    caller.reaches("green")
    server.write("main", api_listener("svc", "main"), routes("main", other, to("b")), *clusters)
    caller.reaches("red")
    replies = caller.replies()
    assert None not in replies[replies.index("blue") :]


def a_listener_moves_to_other_routes_and_no_call_fails(lab: Lab, client: Argv) -> None:
    """Each edit has another route configuration and another cluster in place of those before it."""
    blue, green = lab.grpc_backend("blue"), lab.grpc_backend("green")
    server = lab.control_plane()
    backends = [(blue, green)[number % 2] for number in range(8)]
    server.write("endpoints", *(endpoints(f"c{number}", each.port) for number, each in enumerate(backends)))

    def edit(number: int) -> list[Document]:
        route, cluster = f"r{number}", f"c{number}"
        return [api_listener("svc", route), routes(route, to(cluster)), eds_cluster(cluster)]

    server.write("main", *edit(0))
    server.start()
    caller = lab.caller(client, server)
    caller.reaches("blue")
    for number, backend in enumerate(backends[1:], 1):
        server.write("main", *edit(number))
        caller.reaches(backend.name)
    replies = caller.replies()
    assert None not in replies[replies.index("blue") :]


def a_removed_listener_fails_the_calls_and_they_recover(lab: Lab, client: Argv) -> None:
    """A SotW response that leaves out a listener removes it; its return is pushed.

    It comes back changed, since grpc-js 1.14 takes no notice of one that comes back as it was (grpc-node#3074).
    """
    blue, green = lab.grpc_backend("blue"), lab.grpc_backend("green")
    server = lab.control_plane()
    server.write("listener", api_listener("svc", "main"))
    server.write("main", routes("main", to("a")), eds_cluster("a"), endpoints("a", blue.port))
    server.write("next", routes("next", to("b")), eds_cluster("b"), endpoints("b", green.port))
    server.start()
    caller = lab.caller(client, server)
    caller.reaches("blue")

    server.remove("listener")
    caller.fails("Say")
    server.write("listener", api_listener("svc", "next"))
    caller.reaches("green")


def a_bad_cluster_does_not_hold_back_the_good_one(lab: Lab, client: Argv) -> None:
    """The client NACKs a response for one cluster and uses the other; news and the mended cluster still arrive."""
    blue, green, red = (lab.grpc_backend(name) for name in ("blue", "green", "red"))

    def config(route: str, other: str, *clusters: Document) -> list[Document]:
        table = routes("main", to(other, "/echo.Echo/Other"), to(route))
        return [api_listener("svc", "main"), table, *clusters]

    def ports(good: int) -> list[Document]:
        return [endpoints("first", blue.port), endpoints("good", good), endpoints("bad", red.port)]

    first = eds_cluster("first")
    server = lab.control_plane()
    server.write("main", *config("first", "first", first))
    server.write("endpoints", *ports(green.port))
    server.start()
    caller = lab.caller(client, server, methods=["Say", "Other"])
    caller.reaches("blue", "Say")
    caller.reaches("blue", "Other")

    # No gRPC implementation has Maglev; Envoy does, and so the control plane can't know better.
    bad = eds_cluster("bad", lb_policy="MAGLEV")
    server.write("main", *config("good", "bad", first, eds_cluster("good"), bad))
    caller.reaches("green", "Say")
    caller.fails("Other")
    eventually(lambda: server.counter("nacks", "cds"))

    server.write("endpoints", *ports(blue.port))
    caller.reaches("blue", "Say")
    server.write("main", *config("good", "bad", first, eds_cluster("good"), eds_cluster("bad")))
    caller.reaches("red", "Other")


def two_clients_get_their_own_variants(lab: Lab, client: Argv) -> None:
    """The node's metadata chooses the variant of one route configuration; a change of one variant moves one client."""
    blue, green, red = (lab.grpc_backend(name) for name in ("blue", "green", "red"))
    server = lab.control_plane()
    fixed = [api_listener("svc", "main"), *(eds_cluster(each.name) for each in (blue, green, red))]
    server.write("fixed", *fixed, *(endpoints(each.name, each.port) for each in (blue, green, red)))
    server.write("routes", routes("main", to({"$match": [{"when": "env=prod", "value": "blue"}, {"value": "green"}]})))
    server.start()
    prod = lab.caller(client, server, {"env": "prod", "team": "any"})
    other = lab.caller(client, server, {"team": "any"})
    prod.reaches("blue")
    other.reaches("green")

    server.write("routes", routes("main", to({"$match": [{"when": "env=prod", "value": "red"}, {"value": "green"}]})))
    prod.reaches("red")
    assert set(prod.replies()) <= {"blue", "red", None}
    assert set(other.replies()) <= {"green", None}
