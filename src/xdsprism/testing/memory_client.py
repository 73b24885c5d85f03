"""A delta ADS client of a store: its requests pass through hub and codec, and only the network is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse, ResourceLocator
from google.protobuf.any_pb2 import Any
from google.rpc.status_pb2 import Status

from ..argument_types import expect_named, expect_string_map
from ..core.model.settings import Settings
from ..core.model.store import Store
from ..core.model.type_names import TypeName, resolve_type
from ..core.model.types import TypeUrl
from ..server.calls import Peer
from ..server.hub import Hub


class MemoryClient:
    """Shows what a client of a store would get.

        client = MemoryClient(store, metadata={"env": "prod"})
        client.subscribe(xdsprism.CLUSTER)
        client.poll()
        assert "checkout" in client.view(xdsprism.CLUSTER)

    Its time stands still unless a test changes `now`; so a removal that waits for an ACK is sent once `now` is
    `settings.ack_timeout` later.
    """

    def __init__(self, store: Store, *, metadata: Mapping[str, str] | None = None, settings: Settings | None = None):
        expect_named("store", store, Store)
        self.now = 0.0
        self._types = store.types
        self._turns: list[Callable[[], None]] = []
        self._hub = Hub(store, settings or Settings(), lambda: self.now, self._turns.append)
        self._call = self._hub.open("memory", Peer("memory"), delta=True, only_type=None)
        self._node = Node(id="memory-client")
        self._node.metadata.update(dict(metadata or {}))
        self._views: dict[TypeUrl, dict[str, Any]] = {}

    def subscribe(self, type_url: TypeName, *names: str, params: Mapping[str, str] | None = None) -> None:
        """Subscribe by plain names, or by locators if `params` is given; without names, to the wildcard."""
        request = DeltaDiscoveryRequest(node=self._node, type_url=resolve_type(type_url, self._types))
        if params is None:
            request.resource_names_subscribe.extend(names or ("*",))
        else:
            locators = (
                ResourceLocator(name=name, dynamic_parameters=expect_string_map("params", params))
                for name in names or ("*",)
            )
            request.resource_locators_subscribe.extend(locators)
        self._call.receive(request.SerializeToString())

    def unsubscribe(self, type_url: TypeName, *names: str) -> None:
        """Unsubscribe from plain names."""
        request = DeltaDiscoveryRequest(type_url=resolve_type(type_url, self._types), resource_names_unsubscribe=names)
        self._call.receive(request.SerializeToString())

    def poll(self, *, reject: str | None = None) -> list[DeltaDiscoveryResponse]:
        """Receive responses until there are no more. ACK each, or NACK it with the text in `reject`."""
        received = []
        while messages := [DeltaDiscoveryResponse.FromString(message) for message in self._poll()]:
            received += messages
            for response in messages:
                self._answer(response, reject)
        return received

    def view(self, type_url: TypeName) -> dict[str, Any]:
        """Return the resources that the client has now, by name; of several variants of a name, the last received."""
        return self._views.get(resolve_type(type_url, self._types), {})

    def close(self) -> None:
        """End the stream, and release the store."""
        self._call.close()
        self._hub.close()

    def _poll(self) -> list[bytes]:
        while self._turns:
            self._turns.pop()()
        return list(self._call.poll())

    def _answer(self, response: DeltaDiscoveryResponse, reject: str | None) -> None:
        """ACK a response and apply it, or NACK it."""
        request = DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        if reject is not None:
            request.error_detail.CopyFrom(Status(code=3, message=reject))
        else:
            self._apply(response)
        self._call.receive(request.SerializeToString())

    def _apply(self, response: DeltaDiscoveryResponse) -> None:
        view = self._views.setdefault(response.type_url, {})
        for name in (*response.removed_resources, *(gone.name for gone in response.removed_resource_names)):
            view.pop(name, None)
        for resource in response.resources:
            view[resource.name or resource.resource_name.name] = resource.resource
