"""Forms that Envoy's reader takes beyond proto3 JSON. That they mean the same to Envoy, interop/configs shows."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import RuntimeFeatureFlag
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from xdsprism.errors import show_path
from xdsprism.messages.convert import to_message
from xdsprism.messages.document import AmbiguousScalar
from xdsprism.messages.faults import Faults

YES = [
    "true",
    "True",
    "TRUE",
    "tRue",
    "t",
    "yes",
    "Y",
    "1",
    AmbiguousScalar("on"),
    AmbiguousScalar("On"),
    AmbiguousScalar("yes"),
    AmbiguousScalar("y"),
]
NO = ["false", "F", "no", "N", "0", AmbiguousScalar("off"), AmbiguousScalar("OFF"), AmbiguousScalar("n")]


def read(value: object, kind: type[Message] = Cluster) -> Any:
    faults: Faults = []
    message = to_message(value, kind, faults)
    assert not faults
    return message


def faults_of(value: object) -> list[str]:
    faults: Faults = []
    assert to_message(value, Cluster, faults) is None
    return [f"{show_path(path)}: {message}" for path, message in faults]


@pytest.mark.parametrize("written", ["STRICT_DNS", "strict_dns", "Strict_Dns", "1", 1])
def test_an_enum_value_may_be_in_any_case(written: object) -> None:
    assert read({"type": written}).type == Cluster.STRICT_DNS


def test_an_enum_value_in_another_spelling_is_refused() -> None:
    (fault,) = faults_of({"type": "strict-dns"})
    assert fault.endswith("did you mean STRICT_DNS?")


@pytest.mark.parametrize(("written", "value"), [(word, True) for word in YES] + [(word, False) for word in NO])
def test_a_boolean_may_be_a_word_in_quotes(written: str, value: bool) -> None:
    assert read({"ignore_health_on_host_removal": written}).ignore_health_on_host_removal is value
    assert read({"default_value": written}, RuntimeFeatureFlag).default_value.value is value


def test_on_and_off_are_booleans_without_quotes_alone() -> None:
    assert faults_of({"ignore_health_on_host_removal": "off"}) == [
        "ignore_health_on_host_removal: expected true or false, got the string off"
    ]


@pytest.mark.parametrize(
    ("written", "seconds", "nanos"),
    [
        ({"seconds": 5}, 5, 0),
        ({"seconds": "5", "nanos": 1}, 5, 1),
        ({"nanos": 1}, 0, 1),
        ({"seconds": 5.0}, 5, 0),
        ({"seconds": -1, "nanos": -999_999_999}, -1, -999_999_999),
        ({}, 0, 0),
    ],
)
def test_a_duration_may_be_a_mapping_of_its_fields(written: object, seconds: int, nanos: int) -> None:
    found = read({"connect_timeout": written})
    assert found.HasField("connect_timeout")
    assert (found.connect_timeout.seconds, found.connect_timeout.nanos) == (seconds, nanos)


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ({"seconds": 5, "nanos": -1}, "has 5 seconds and -1 nanos: both must have the same sign"),
        ({"seconds": 315_576_000_001}, "has 315576000001 seconds, which is more than the 315576000000"),
        ({"nanos": 1_000_000_000}, "has 1000000000 nanos, which is a second or more"),
        ({"nanos": "x"}, "expected a whole number, got the string x"),
    ],
)
def test_a_duration_out_of_range_is_refused(written: object, fault: str) -> None:
    (found,) = faults_of({"connect_timeout": written})
    assert fault in found


def test_a_wrapper_may_be_a_mapping_with_its_value() -> None:
    assert read({"per_connection_buffer_limit_bytes": {"value": 7}}).per_connection_buffer_limit_bytes.value == 7


def test_one_element_may_stand_in_place_of_a_list() -> None:
    selectors = {"keys": "a", "fallback_policy": "no_fallback"}
    alone = read({"lb_subset_config": {"subset_selectors": selectors}})
    listed = {"subset_selectors": [{"keys": ["a"], "fallback_policy": "NO_FALLBACK"}]}
    assert MessageToDict(alone, preserving_proto_field_name=True) == {"lb_subset_config": listed}


def test_a_fault_in_the_only_element_has_the_path_that_was_written() -> None:
    assert faults_of({"lb_subset_config": {"subset_selectors": {"keys": {}}}}) == [
        "lb_subset_config.subset_selectors.keys: expected a list, got a mapping"
    ]
