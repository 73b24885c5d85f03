"""A server of another make, whose every word a test chooses."""

from __future__ import annotations

from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb

import xdsprism as xp
from tests.client.rig import MAKE
from xdsprism.testing import PeerStream

NOT_FOUND, UNAVAILABLE = 5, 14


class Stranger:
    """A server by hand, of one type, that names no constraints where there is nothing unless it is told to."""

    def __init__(self, stream: PeerStream, identifier: str = "stranger", type_url: str = xp.ENDPOINT) -> None:
        self.stream = stream
        self._type_url = type_url
        self._identifier = identifier
        self._count = 0

    def says(self, *found: Any, absent: str | None = None, way: str = "names", when: str | None = None) -> None:
        response = self._response()
        for each in found:
            if self.stream.is_delta:
                response.resources.append(each)
            else:
                response.resources.add().Pack(each)
        if absent is not None and way == "removed":
            response.removed_resources.append(absent)
        elif absent is not None:
            about = pb.ResourceName(name=absent)
            if when is not None:
                about.dynamic_parameter_constraints.CopyFrom(xp.parse(when).to_proto())
            if way == "names":
                response.removed_resource_names.append(about)
            else:
                _add_error(response, about, NOT_FOUND, "none")
        self.stream.send(response)

    def fails(self, name: str) -> None:
        """Report that the resource is not known, since nobody can be asked for it (TP3)."""
        response = self._response()
        _add_error(response, pb.ResourceName(name=name), UNAVAILABLE, "nobody can be asked")
        self.stream.send(response)

    def _response(self) -> Any:
        self._count += 1
        count = str(self._count)
        delta = self.stream.is_delta
        response: Any = pb.DeltaDiscoveryResponse() if delta else pb.DiscoveryResponse(version_info=count)
        response.type_url, response.nonce = self._type_url, f"n{count}"
        response.control_plane.identifier = self._identifier
        return response

    def asked(self) -> list[dict[str, str]]:
        """The params of what was asked since the last look: in SotW, of all that the last request lists."""
        requests = self.stream.pending()
        if self.stream.is_delta:
            located = [each for request in requests for each in request.resource_locators_subscribe]
        else:
            located = [*requests[-1].resource_locators] if requests else []
        return [dict(each.dynamic_parameters) for each in located]


def _add_error(response: Any, about: pb.ResourceName, code: int, message: str) -> None:
    error = response.resource_errors.add(resource_name=about)
    error.error_detail.code, error.error_detail.message = code, message


def variant(mark: str, when: str, type_url: str = xp.ENDPOINT, name: str = "a") -> Any:
    made = pb.Resource(version=mark)
    made.resource_name.name = name
    made.resource_name.dynamic_parameter_constraints.CopyFrom(xp.parse(when).to_proto())
    made.resource.Pack(MAKE[type_url](name, mark))
    return made
