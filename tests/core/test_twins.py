"""The names that types have in the two versions of the API, and what is encoded in each."""

from __future__ import annotations

import pytest
from envoy.api.v2 import discovery_pb2 as v2
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb

from xdsprism.core.codec.resources import variant_of
from xdsprism.core.codec.server_responses import Encoder
from xdsprism.core.model.constraints import TRUE
from xdsprism.core.model.events import Absence, Send
from xdsprism.core.model.expr import parse
from xdsprism.core.model.type_versions import RESOURCE, TypeNames, as_v2, as_v3, wrapper_of
from xdsprism.core.model.types import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LB_ENDPOINT_COLLECTION,
    PREFIX,
    TYPES,
    Variant,
)
from xdsprism.messages.api_versions import v2_name

OLD = as_v2(CLUSTER)
UNKNOWN = PREFIX + "nobody.has.This"


def shout(type_url: str, body: bytes) -> bytes:
    """In place of a conversion: what it was given can be told."""
    return b"!" + type_url.rpartition(".")[2].encode() + body


def cluster(name: str = "a", **options) -> Variant:
    return variant_of(Cluster(name=name), **options)


def delta(**parts) -> Send:
    return Send(CLUSTER, True, "1", "7", **parts)


def sotw(**parts) -> Send:
    return Send(CLUSTER, False, "1", "7", **parts)


# -- names


@pytest.mark.parametrize("url", [*[spec.url for spec in TYPES], RESOURCE], ids=lambda url: url.rpartition(".")[2])
def test_a_type_is_called_what_the_protos_say_it_was_called(url: str):
    # VER-2, VER-4, VHD-17
    previous = v2_name(url.removeprefix(PREFIX))
    assert as_v2(url) == (PREFIX + previous if previous else url)
    assert as_v3(as_v2(url)) == url


def test_only_types_newer_than_v2_have_no_v2_name():
    """So that the comparison above can't be one of nothing with nothing."""
    # VER-4
    assert [spec.url for spec in TYPES if as_v2(spec.url) == spec.url] == [LB_ENDPOINT_COLLECTION, EXTENSION_CONFIG]


def test_a_resource_is_wrapped_in_its_own_version():
    # VER-2
    assert wrapper_of(OLD) == PREFIX + "envoy.api.v2.Resource"
    assert wrapper_of(CLUSTER) == wrapper_of(UNKNOWN) == RESOURCE


def test_each_type_has_the_version_of_its_last_request():
    # VER-3
    names = TypeNames()
    assert [names.note_url(url) for url in (OLD, ENDPOINT, UNKNOWN)] == [CLUSTER, ENDPOINT, UNKNOWN]
    assert [url for url in (CLUSTER, ENDPOINT, UNKNOWN) if names.is_v2(url)] == [CLUSTER]
    assert names.note_url(CLUSTER) == CLUSTER
    assert not names.is_v2(CLUSTER)


@pytest.mark.parametrize("old", [False, True])
def test_a_request_without_a_type_has_the_version_of_its_service(old: bool):
    # VER-3, SRV-3
    names = TypeNames(CLUSTER, v2=old)
    assert names.note_url("") == ""
    assert names.is_v2(CLUSTER) is old
    names.note_url(CLUSTER)
    names.note_url("")
    assert not names.is_v2(CLUSTER)


# -- responses


def test_a_delta_response_in_v2_has_no_name_of_v3():
    # VER-2, VER-4
    extras = pb.Resource(cache_control={"do_not_cache": True}).SerializeToString()
    plain, located = cluster("a", extras=extras), cluster("b", constraint=parse("env=prod"))
    encoded = Encoder("here", shout).encode(delta(plain=(plain,), located=(located,), removed=("c",)))
    found = v2.DeltaDiscoveryResponse.FromString(encoded)
    assert (found.type_url, found.nonce, list(found.removed_resources)) == (OLD, "1", ["c"])
    assert [each.resource.type_url for each in found.resources] == [OLD, OLD]
    assert [each.version for each in found.resources] == [plain.version, located.version]
    assert found.resources[0].resource.value == b"!Cluster" + plain.body
    assert b"!Resource" + extras in encoded
    assert found.resources[0].name == "a"


def test_a_sotw_response_in_v2_has_no_name_of_v3():
    # VER-2, VER-4
    plain, located = cluster("a"), cluster("b", constraint=parse("env=prod"))
    encoded = Encoder("here", shout).encode(sotw(plain=(plain,), located=(located,)))
    found = v2.DiscoveryResponse.FromString(encoded)
    assert (found.type_url, found.control_plane.identifier) == (OLD, "here")
    first, second = found.resources
    assert (first.type_url, first.value) == (OLD, b"!Cluster" + plain.body)
    assert second.type_url == as_v2(RESOURCE)
    assert v2.Resource.FromString(second.value).resource.type_url == OLD


def test_contents_without_a_difference_are_the_same_bytes_in_both_versions():
    # VER-2
    one = cluster()
    old = v2.DiscoveryResponse.FromString(Encoder("here", lambda _, body: body).encode(sotw(plain=(one,))))
    new = pb.DiscoveryResponse.FromString(Encoder("here").encode(sotw(plain=(one,))))
    assert old.resources[0].value == new.resources[0].value == one.body
    assert old.version_info == new.version_info


def test_removals_are_the_same_in_both_versions():
    # VER-13
    send = delta(withdrawn=(Absence("e", parse("env=prod")), Absence("f", TRUE)))
    old = pb.DeltaDiscoveryResponse.FromString(Encoder("here", shout).encode(send))
    new = pb.DeltaDiscoveryResponse.FromString(Encoder("here").encode(send))
    assert (old.type_url, new.type_url) == (OLD, CLUSTER)
    old.type_url = CLUSTER
    assert old == new


@pytest.mark.parametrize("speak", [delta, sotw])
def test_contents_are_converted_once_and_not_at_all_for_v3(speak):
    # VER-4, VER-15
    asked: list[str] = []

    def to_v2(type_url: str, body: bytes) -> bytes:
        asked.append(type_url)
        return body

    one = cluster()
    Encoder("here").encode(speak(plain=(one,)))
    assert asked == []
    before = dict(one.frames)
    for encoder in (Encoder("here", to_v2), Encoder("there", to_v2)):
        encoder.encode(speak(plain=(one,)))
        encoder.forget()
        encoder.encode(speak(plain=(one,)))
    assert asked == [CLUSTER]
    assert before.items() <= one.frames.items()
