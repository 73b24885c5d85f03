"""How callers name a resource type, and what they are told of names that are none."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from google.protobuf.struct_pb2 import Struct

from xdsprism.core.model.type_names import own_types, resolve_type
from xdsprism.core.model.types import CLUSTER, PREFIX, ROUTE, TYPES, TypeSpec
from xdsprism.errors import UsageError
from xdsprism.messages.protos import pool

CLUSTER_NAMES = ["cds", "CDS", "cluster", "clusters", CLUSTER, CLUSTER.removeprefix(PREFIX), Cluster, Cluster()]


@pytest.mark.parametrize("name", CLUSTER_NAMES, ids=repr)
def test_a_word_a_full_name_a_url_and_a_class_are_the_same_type(name: object) -> None:
    assert resolve_type(name) == CLUSTER


@pytest.mark.parametrize("name", ["acme.Widget", "type.example.com/acme.Widget", "x/y"])
def test_any_well_formed_name_is_a_type(name: str) -> None:
    assert resolve_type(name) == (name if "/" in name else PREFIX + name)


@pytest.mark.parametrize("name", ["", "pods", "a b", "acme.", ".acme", "acme..Widget", "/", PREFIX, "a/b c", "a/b\n"])
def test_what_is_no_name_of_a_type_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_type(name)
    assert str(caught.value).startswith(f"unknown resource type {name!r}: use one of cds, eds, ")
    assert "a message's full name, or a type URL" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cluser", "cluster"),
        ("listner", "listener"),
        ("envoy.config.cluster.v3.Clutser", "envoy.config.cluster.v3.Cluster"),
        (PREFIX + "envoy.config.route.v3.RouteConfigurations", "envoy.config.route.v3.RouteConfiguration"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=rf"; did you mean {meant}\?$"):
        resolve_type(name)


def test_no_message_of_envoy_counts_as_a_slip_of_another() -> None:
    files = {pool().FindFileContainingSymbol(spec.url.removeprefix(PREFIX)).name for spec in TYPES}
    packages = [pool().FindFileByName(name) for name in files]
    names = [f"{file.package}.{message}" for file in packages for message in file.message_types_by_name]
    assert len(names) > len(TYPES)
    assert [resolve_type(name) for name in names] == [PREFIX + name for name in names]


@pytest.mark.parametrize("name", [5, None, b"cds", object, ["cds"]])
def test_what_is_neither_text_nor_a_message_class_is_a_type_error(name: Any) -> None:
    with pytest.raises(TypeError, match="str object expected; got"):
        resolve_type(name)


def test_a_megabyte_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        resolve_type("x" * 1_000_000)
    assert len(str(caught.value)) < 600


def test_words_of_own_types_count_before_the_known_ones() -> None:
    (spec,) = own_types([TypeSpec("acme.Widget", ("Widget", "cds"), referrers=("rds", "acme.Widget"))])
    assert spec.url == PREFIX + "acme.Widget"
    assert spec.referrers == (ROUTE, PREFIX + "acme.Widget")
    assert resolve_type("widget", [spec]) == resolve_type("cds", [spec]) == PREFIX + "acme.Widget"
    assert resolve_type(Struct, [spec]) == PREFIX + "google.protobuf.Struct"
    with pytest.raises(UsageError, match=r"use one of .*ecds, widget, a message"):
        resolve_type("pods", [spec])
