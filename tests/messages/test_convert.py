from __future__ import annotations

from random import Random
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import DataSource, Metadata, RuntimeFeatureFlag
from envoy.config.endpoint.v3.load_report_pb2 import UpstreamLocalityStats
from envoy.data.accesslog.v3.accesslog_pb2 import AccessLogCommon
from envoy.extensions.filters.network.dubbo_proxy.v3.route_pb2 import MethodMatch
from envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3 import (
    client_side_weighted_round_robin_pb2 as weighted,
)
from envoy.service.discovery.v3.discovery_pb2 import DynamicParameterConstraints
from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages.samples import random_message
from tests.support.examples import examples
from xdsprism.errors import show_path
from xdsprism.messages.convert import UnknownField, to_message
from xdsprism.messages.document import AmbiguousScalar
from xdsprism.messages.faults import Faults
from xdsprism.messages.protos import pool


def faults_of(value: object, kind: type[Message]) -> list[str]:
    """Of a value with a fault no message is made, unless all that is wrong are fields that are not known."""
    faults: Faults = []
    message = to_message(value, kind, faults)
    assert (message is None) == any(not isinstance(text, UnknownField) for _, text in faults)
    return [f"{show_path(path)}: {message}" for path, message in faults]


def made(value: object, kind: type[Message]) -> Any:
    faults: Faults = []
    message = to_message(value, kind, faults)
    assert not faults
    return message


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32), st.booleans())
def test_every_message_is_read_as_json_format_reads_it(seed: int, proto_names: bool) -> None:
    message = random_message(Random(seed))
    written = json_format.MessageToDict(message, preserving_proto_field_name=proto_names, descriptor_pool=pool())
    expected = json_format.ParseDict(written, type(message)(), descriptor_pool=pool())
    assert made(written, type(message)) == expected


def test_contents_of_typed_configs_are_encoded_the_same_every_time() -> None:
    """Versions are hashes (OPS-12), and maps inside an Any come in any order from json_format."""
    entries = {f"key-{n}": {"value": n} for n in range(20)}
    kind = "type.googleapis.com/envoy.config.core.v3.Metadata"
    bodies = set()
    for names in (sorted(entries), sorted(entries, reverse=True)):
        metadata = {"@type": kind, "filter_metadata": {name: entries[name] for name in names}}
        cluster = made({"typed_extension_protocol_options": {"x": metadata}}, Cluster)
        bodies.add(cluster.typed_extension_protocol_options["x"].value)
    assert len(bodies) == 1


LB = "envoy.config.cluster.v3.Cluster.LbPolicy"
BYTES = "per_connection_buffer_limit_bytes"
OPTIONS = "typed_extension_protocol_options"
HEALTH = "expected a mapping (envoy.config.core.v3.HealthCheck), got"
DURATION = "expected a duration such as 0.25s or 15s, got"
REMOVAL = "ignore_health_on_host_removal"
SECOND = "no such field in google.protobuf.Duration; did you mean seconds?"
QUOTE = "a key must be a string, got"


@pytest.mark.parametrize(
    ("field", "given", "path", "message"),
    [
        ("nam", "x", "nam", "no such field in envoy.config.cluster.v3.Cluster; did you mean name?"),
        ("zzz", "x", "zzz", "no such field in envoy.config.cluster.v3.Cluster"),
        (5, "x", "[5]", f"{QUOTE} the number 5; quote it"),
        ("name", 5, "name", "expected a string, got the number 5; quote it"),
        ("name", 1.1, "name", "expected a string, got the number 1.1; quote it"),
        ("name", True, "name", "expected a string, got the boolean true; quote it"),
        ("name", ["x"], "name", "expected a string, got a list"),
        ("connect_timeout", 5, "connect_timeout", f"{DURATION} the number 5"),
        ("connectTimeout", "5", "connectTimeout", f"{DURATION} the string 5"),
        ("connect_timeout", ["5s"], "connect_timeout", f"{DURATION} a list"),
        ("connect_timeout", {"second": 5}, "connect_timeout.second", SECOND),
        ("connect_timeout", "999999999999s", "connect_timeout", f"{DURATION} the string 999999999999s"),
        ("health_checks", 5, "health_checks", "expected a list, got the number 5"),
        ("health_checks", [5], "health_checks[0]", f"{HEALTH} the number 5"),
        ("health_checks", [None], "health_checks[0]", f"{HEALTH} null"),
        ("lb_policy", "ROUND_ROBBIN", "lb_policy", f"ROUND_ROBBIN is not a value of {LB}; did you mean ROUND_ROBIN?"),
        ("lb_policy", True, "lb_policy", f"expected a name of {LB}, got the boolean true"),
        ("lb_policy", 2**31, "lb_policy", f"expected a name of {LB}, got the number 2147483648"),
        (BYTES, 2**32, BYTES, "4294967296 is out of range, 0 to 4294967295"),
        (BYTES, "a", BYTES, "expected a whole number, got the string a"),
        (BYTES, {"value": "x"}, f"{BYTES}.value", "expected a whole number, got the string x"),
        (BYTES, [5], BYTES, "expected a whole number, got a list"),
        (BYTES, True, BYTES, "expected a whole number, got the boolean true"),
        (BYTES, 1.5, BYTES, "expected a whole number, got the number 1.5"),
        (REMOVAL, "on", REMOVAL, "expected true or false, got the string on"),
        (REMOVAL, 1, REMOVAL, "expected true or false, got the number 1"),
        (REMOVAL, "", REMOVAL, "expected true or false, got the string "),
        (OPTIONS, [], OPTIONS, "expected a mapping, got a list"),
        (OPTIONS, {"a.b": 1}, f'{OPTIONS}["a.b"]', "expected a mapping with an @type, got the number 1"),
        (OPTIONS, {"a.b": {"x": 1}}, f'{OPTIONS}["a.b"]', "needs an @type"),
        (
            "metadata",
            {"filter_metadata": {"x": 5}},
            "metadata.filter_metadata.x",
            "expected a mapping, got the number 5",
        ),
        (
            "metadata",
            {"filter_metadata": {"x": {5: 5}}},
            "metadata.filter_metadata.x.5",
            f"{QUOTE} the number 5; quote it",
        ),
        (
            "metadata",
            {"filter_metadata": {7: {}}},
            "metadata.filter_metadata.7",
            "expected a string, got the number 7; quote it",
        ),
    ],
)
def test_a_fault_has_its_path_and_says_what_to_do(field: object, given: object, path: str, message: str) -> None:
    assert faults_of({field: given}, Cluster) == [f"{path}: {message}"]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"type": "EDS", "cluster_type": {}}, "cluster_type: can't be set together with type"),
        ({"altStatName": "a", "alt_stat_name": "b"}, "alt_stat_name: given twice: alt_stat_name is the same field"),
    ],
)
def test_fields_that_can_not_stand_together(value: object, fault: str) -> None:
    assert faults_of(value, Cluster) == [fault]


def test_all_faults_are_found_not_only_the_first() -> None:
    value = {"nam": 1, "health_checks": [{"timeout": 5}, {"interval": []}, {}], "lb_policy": "X"}
    assert [line.partition(":")[0] for line in faults_of(value, Cluster)] == [
        "nam",
        "health_checks[0].timeout",
        "health_checks[1].interval",
        "lb_policy",
    ]


def test_a_fault_inside_a_typed_config_has_the_whole_path() -> None:
    options = {"@type": "envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "upstream_http_protocol_option": {}}
    value = {"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}}
    (fault,) = faults_of(value, Cluster)
    path, _, message = fault.partition(": ")
    kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    assert path == f'typed_extension_protocol_options["{kind}"].upstream_http_protocol_option'
    assert message == f"no such field in {kind}; did you mean upstream_http_protocol_options?"


def test_an_unknown_type_inside_names_a_close_one() -> None:
    value = {"typed_config": {"@type": "envoy.extensions.filters.http.router.v3.Routr"}}
    (fault,) = faults_of({"transport_socket": value}, Cluster)
    right = "envoy.extensions.filters.http.router.v3.Router"
    assert fault == f"transport_socket.typed_config.@type: unknown type {right[:-2]}r; did you mean {right}?"


def test_a_full_name_alone_becomes_a_type_url() -> None:
    value = {"typed_config": {"@type": "envoy.extensions.filters.http.router.v3.Router"}}
    url = made({"transport_socket": value}, Cluster).transport_socket.typed_config.type_url
    assert url == "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


@pytest.mark.parametrize(
    "wrong", [{"@type": "google.protobuf.Duration"}, {"@type": "google.protobuf.Duration", "seconds": 1}]
)
def test_a_type_with_a_form_of_its_own_stands_under_value(wrong: dict[str, object]) -> None:
    (fault,) = faults_of({"transport_socket": {"typed_config": wrong}}, Cluster)
    assert "expected @type and value" in fault
    faulty = {"@type": "google.protobuf.Duration", "value": "1"}
    (fault,) = faults_of({"transport_socket": {"typed_config": faulty}}, Cluster)
    assert fault.startswith("transport_socket.typed_config.value: expected a duration")


@pytest.mark.parametrize("text", ["plain text", "ab=c", "a"])
def test_bytes_that_are_no_base64_are_refused(text: str) -> None:
    assert faults_of({"inline_bytes": text}, DataSource) == ["inline_bytes: expected base64"]


@pytest.mark.parametrize("text", ["-_8=", "-_8", "+/8="])
def test_bytes_come_in_either_alphabet_of_base64(text: str) -> None:
    assert made({"inline_bytes": text}, DataSource).inline_bytes == b"\xfb\xff"


def test_null_means_not_set() -> None:
    assert made({"name": None, "health_checks": None, "connect_timeout": None}, Cluster) == Cluster()


def test_numbers_may_be_strings_as_in_proto3_json() -> None:
    stats = made({"total_successful_requests": "18446744073709551615", "priority": 3.0}, UpstreamLocalityStats)
    assert stats.total_successful_requests == 2**64 - 1
    assert stats.priority == 3


def test_a_float_has_its_own_range() -> None:
    fault = "error_utilization_penalty: 1e+39 is out of range for a float"
    assert faults_of({"error_utilization_penalty": 1e39}, weighted.ClientSideWeightedRoundRobin) == [fault]
    message = made({"error_utilization_penalty": "Infinity"}, weighted.ClientSideWeightedRoundRobin)
    assert message.error_utilization_penalty.value == float("inf")
    assert (
        "expected a number" in faults_of({"error_utilization_penalty": "x"}, weighted.ClientSideWeightedRoundRobin)[0]
    )


def test_a_time_and_a_wrapped_bool() -> None:
    assert "2030-01-31T12:00:00Z" in faults_of({"start_time": "tomorrow"}, AccessLogCommon)[0]
    assert faults_of({"start_time": 5}, AccessLogCommon)
    assert made({"default_value": False}, RuntimeFeatureFlag).HasField("default_value")


@pytest.mark.parametrize("key", [7, "7"])
def test_numbers_as_keys_are_good_where_the_map_has_such_keys(key: object) -> None:
    match = made({"params_match": {key: {"exact_match": "x"}}}, MethodMatch)
    assert match.params_match[7].exact_match == "x"
    assert faults_of({"params_match": {"x": {}}}, MethodMatch) == [
        "params_match.x: expected a whole number, got the string x"
    ]


def test_a_struct_keeps_its_values() -> None:
    plain = {"a": 1, "b": [True, None, "x"], "c": {"d": 0.5}}
    assert json_format.MessageToDict(made(plain, Struct)) == plain
    assert made({"filter_metadata": {"x": plain}}, Metadata).filter_metadata["x"]["c"]["d"] == 0.5


@pytest.mark.parametrize("value", [AmbiguousScalar("no"), AmbiguousScalar("2024-01-31"), 1.1, 5, True, None])
@pytest.mark.parametrize("field", ["key", "value"])
def test_a_parameter_without_quotes_that_could_be_something_else_must_be_quoted(field: str, value: object) -> None:
    constraint = {"key": "env", "value": "prod"} | {field: value}
    (fault,) = faults_of({"constraint": constraint}, DynamicParameterConstraints)
    assert fault.startswith(f"constraint.{field}: expected a string")
    assert fault.endswith("; quote it")


def test_a_struct_that_is_nested_too_deeply_is_a_fault():
    value: dict[str, object] = {"x": 1}
    for _ in range(60):
        value = {"a": value}
    faults: Faults = []
    assert to_message({"name": "c", "metadata": {"filter_metadata": {"f": value}}}, Cluster, faults) is None
    assert faults == [((), "nested too deeply: no client could read it")]
