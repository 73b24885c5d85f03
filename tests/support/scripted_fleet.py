"""Clients that do what a script says: subscribe, read, ACK, NACK, or leave."""

from __future__ import annotations

from queue import Queue
from typing import Any, Self

import grpc
from envoy.service.discovery.v3 import discovery_pb2 as pb

ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"


class ScriptedClient:
    """One ADS stream by hand, delta or SotW, of a node with this id."""

    def __init__(self, address: str, node: str, *, delta: bool, **metadata: str) -> None:
        self._kind = pb.DeltaDiscoveryRequest if delta else pb.DiscoveryRequest
        response = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse
        self._delta = delta
        self._node, self._metadata = node, metadata
        self._wanted: dict[str, list[str]] = {}
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        method = self._channel.stream_stream(
            ADS + ("DeltaAggregatedResources" if delta else "StreamAggregatedResources"),
            request_serializer=self._kind.SerializeToString,
            response_deserializer=response.FromString,
        )
        self._requests: Queue[Any] = Queue()
        self._responses = method(iter(self._requests.get, None), timeout=120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.leave()

    def leave(self) -> None:
        self._requests.put(None)
        self._responses.cancel()
        self._channel.close()

    def subscribe(self, type_url: str, *names: str) -> Self:
        request = self._kind(type_url=type_url)
        if not self._wanted:
            request.node.id = self._node
            request.node.metadata.update(self._metadata)
        self._wanted[type_url] = [*names]
        request.MergeFrom(self._kind(**{"resource_names_subscribe" if self._delta else "resource_names": names}))
        self._requests.put(request)
        return self

    def read(self) -> Any:
        return next(self._responses)

    def ack(self, response: Any) -> None:
        self._answer(response)

    def nack(self, response: Any, message: str) -> None:
        self._answer(response, error_detail={"code": 3, "message": message})

    def _answer(self, response: Any, **more: Any) -> None:
        names = {} if self._delta else {"resource_names": self._wanted[response.type_url]}
        request = self._kind(type_url=response.type_url, response_nonce=response.nonce, **names, **more)
        if not self._delta and not more:
            request.version_info = response.version_info
        self._requests.put(request)
