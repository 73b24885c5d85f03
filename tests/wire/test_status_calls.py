"""Calls of CSDS without a transport: how many answers are in progress, and what is left of a call that ends."""

from __future__ import annotations

import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest
from envoy.service.status.v3.csds_pb2 import ClientStatusResponse

from tests.wire.test_slicing import Rig, filled, parsed
from xdsprism import ENDPOINT, Store
from xdsprism.core.model.limits import Limits
from xdsprism.core.model.settings import Settings
from xdsprism.core.policy.policy import Policy
from xdsprism.errors import PeerError
from xdsprism.server.calls import Call, Peer
from xdsprism.server.client_status import ANSWERS, ANSWERS_OF_A_CLIENT, StatusDesk
from xdsprism.server.hub import Hub


class Site:
    """A hub without slices, which makes each answer at once."""

    def __init__(self) -> None:
        self.hub = Hub(Store(), Settings(limits=Limits(fetches=1_000)), lambda: 0.0, lambda _: None)
        desk = StatusDesk(self.hub)
        self._fetch = desk.method("FetchClientStatus", is_stream=False)
        self._stream = desk.method("StreamClientStatus", is_stream=True)

    def fetch(self, host: str = "10.0.0.1") -> Call:
        return self._fetch.open(Peer(f"ipv4:{host}:40000"))

    def stream(self, host: str = "10.0.0.1") -> Call:
        return self._stream.open(Peer(f"ipv4:{host}:40000"))

    def asked(self, host: str = "10.0.0.1") -> Call:
        """A fetch whose answer is made, and waits until it is written."""
        call = self.fetch(host)
        call.receive(b"")
        return call


def test_one_client_has_so_many_answers_in_progress() -> None:
    # OPS-6
    site = Site()
    calls = [site.asked() for _ in range(ANSWERS_OF_A_CLIENT)]
    further = site.fetch()
    with pytest.raises(PeerError, match="too many answers") as caught:
        further.receive(b"")
    assert caught.value.status == "RESOURCE_EXHAUSTED"
    further.close()
    assert [*site.asked("10.0.0.2").poll()] == [b""]  # another client is served
    calls[0].close("cancelled")
    assert [*calls[1].poll()] == [b""]
    site.asked()
    site.asked()
    with pytest.raises(PeerError, match="too many answers"):
        site.asked()


def test_all_clients_together_have_so_many_answers_in_progress() -> None:
    # OPS-6
    site = Site()
    calls = [site.asked(f"10.0.0.{number // ANSWERS_OF_A_CLIENT}") for number in range(ANSWERS)]
    with pytest.raises(PeerError, match="too many answers"):
        site.asked("10.0.9.9")
    for call in calls:
        call.close("cancelled")
    site.asked("10.0.9.9")


def test_nothing_is_left_of_calls_that_end() -> None:
    # OPS-7
    site = Site()
    for call in (site.fetch(), site.asked(), site.stream()):
        call.close("cancelled")
    stream = site.stream()
    stream.receive(b"")
    stream.receive(b"")
    stream.close("cancelled")
    assert site.hub.clients.open == 0
    assert site.hub.policy_listeners == []
    for _ in range(2 * ANSWERS):
        site.asked().close("cancelled")


def test_a_stream_answers_one_request_after_the_other() -> None:
    # CSD-1
    stream = Site().stream()
    for _ in range(3):
        stream.receive(b"")
    stream.half_close()
    answers = 0
    while not stream.finished:
        answers += len([*stream.poll()])
    assert answers + len([*stream.poll()]) == 3


def test_a_server_that_stops_ends_a_stream_that_waits_and_answers_what_was_asked() -> None:
    # OPS-9
    site = Site()
    idle, busy, fetch = site.stream(), site.stream(), site.fetch()
    busy.receive(b"")
    for call in (idle, busy, fetch):
        call.drain(1.0)
    assert (idle.finished, [*idle.poll()]) == (True, [])
    assert (busy.finished, [*busy.poll()]) == (True, [b""])
    assert not fetch.finished
    fetch.receive(b"")
    assert (fetch.finished, [*fetch.poll()]) == (True, [b""])


def joining(node: str) -> bytes:
    """The first request of this node."""
    asked = DeltaDiscoveryRequest(node=Node(id=node), type_url=ENDPOINT, resource_names_subscribe=["n1"])
    return asked.SerializeToString()


def test_others_are_served_while_an_answer_about_many_clients_is_made() -> None:
    # CSD-1, OPS-10
    rig = Rig(filled())
    clients = [rig.open() for _ in range(200)]
    for number, client in enumerate(clients):
        client.receive(joining(f"envoy-{number}"))
        assert list(client.poll())
    other = rig.open()
    call = StatusDesk(rig.hub).method("FetchClientStatus", is_stream=False).open(Peer("x"))
    call.receive(b"")
    turns = 0
    while call.is_busy:
        rig.turn()
        turns += 1
        if turns == 3:
            assert not list(call.poll())
            other.receive(joining("other"))
            (answer,) = parsed(list(other.poll()))
            assert [resource.name for resource in answer.resources] == ["n1"]
    assert turns > 200 / 2  # a client takes some steps, and a turn has time for two
    (said,) = call.poll()
    assert len(ClientStatusResponse.FromString(said).config) == 200


def test_an_answer_is_made_anew_if_the_policy_changes_meanwhile() -> None:
    # CSD-1, OPS-2
    rig = Rig(filled())
    for number in range(50):
        client = rig.open()
        client.receive(joining(f"envoy-{number}"))
        assert list(client.poll())
    call = StatusDesk(rig.hub).method("FetchClientStatus", is_stream=False).open(Peer("x"))
    call.receive(b"")
    for _ in range(3):
        rig.turn()
    rig.hub.enforce(Policy())  # nobody may have anything
    while call.is_busy:
        rig.turn()
    with pytest.raises(PeerError, match="no rule of the policy") as caught:
        list(call.poll())
    assert caught.value.status == "PERMISSION_DENIED"
