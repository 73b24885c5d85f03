"""Which answers a stream to a server owes: its silence about anything else means nothing."""

from __future__ import annotations

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb

from xdsprism.core.codec.client_side import Checked, ResponseDecoder
from xdsprism.core.model.events import Key
from xdsprism.core.model.types import CLUSTER
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Watch
from xdsprism.core.watch.subscriber import Subscriber
from xdsprism.errors import WatchError


def test_a_new_stream_owes_no_answer_for_the_members_of_a_wildcard_that_the_client_has() -> None:
    # CLI-11, CLI-12
    client = Subscriber()
    server = client.upstream("server", delta=True)
    client.watch(Watch(lambda: None), Authority("", [server]), CLUSTER, Key("*"))
    client.opened(server, 0.0)
    client.poll(server, 0.0)
    answer = pb.DeltaDiscoveryResponse(type_url=CLUSTER, nonce="1")
    answer.resources.add(name="a", version="1").resource.Pack(Cluster(name="a"))
    decoder = ResponseDecoder(lambda _url, _body: Checked(None, "", ()), delta=True)
    client.receive(server, decoder.decode(answer.SerializeToString()), 0.0)
    client.ended(server, WatchError("UNAVAILABLE", "gone"), 0.0, 0.5)
    client.opened(server, 0.0)
    client.poll(server, 0.0)
    assert [each.name for each in client.entries()] == ["*", "a"]
    assert server.pending.awaited == set()
