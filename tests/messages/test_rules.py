from __future__ import annotations

from random import Random
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3 import base_pb2 as core
from envoy.config.core.v3.address_pb2 import Pipe
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.config.core.v3.health_check_pb2 import HealthCheck
from envoy.config.core.v3.protocol_pb2 import SchemeHeaderTransformation
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_components_pb2 import FilterChainMatch
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3 import route_components_pb2 as route
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from envoy.type.v3.percent_pb2 import Percent
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from validate import validate_pb2
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport
from xds.type.matcher.v3.matcher_pb2 import Matcher

from tests.messages.samples import all_types, empty, random_message
from tests.support.examples import examples
from xdsprism.errors import show_path
from xdsprism.messages import rule_kinds, rules


def faults_of(message: Message) -> list[str]:
    return [f"{show_path(path)}: {text}".removeprefix(": ") for path, text in rules.check(message)]


def test_every_rule_in_the_protos_is_known() -> None:
    unknown = [rule for descriptor in all_types() for rule in rules.checker(descriptor).unknown]
    assert unknown == []
    assert sum(_count(descriptor) for descriptor in all_types()) > 1_900


def _count(descriptor: Any) -> int:
    fields = [field.GetOptions() for field in descriptor.fields]
    oneofs = [oneof.GetOptions().Extensions[validate_pb2.required] for oneof in descriptor.oneofs]
    return sum(oneofs) + sum(len(_leaves(options.Extensions[validate_pb2.rules])) for options in fields)


def _leaves(rule: Any) -> list[str]:
    """The names of the rules that are set, however deep: `repeated.items.string.min_len` is one."""
    found = []
    for field, value in rule.ListFields():
        nested = field.message_type is not None and field.message_type.full_name.startswith("validate.")
        found += _leaves(value) if nested else [field.name]
    return found


@pytest.mark.parametrize(
    ("seconds", "nanos", "fault"),
    [
        (0, 1_000_000_000, "has 1000000000 nanos, which is a second or more"),
        (0, -1_000_000_000, "has -1000000000 nanos, which is a second or more"),
        (315_576_000_001, 0, "has 315576000001 seconds, which is more than the 315576000000"),
        (-315_576_000_001, 0, "has -315576000001 seconds, which is more than the 315576000000"),
        (1, -1, "has 1 seconds and -1 nanos: both must have the same sign"),
        (-1, 1, "has -1 seconds and 1 nanos: both must have the same sign"),
    ],
)
def test_a_duration_out_of_range_is_a_fault_wherever_it_stands(seconds: int, nanos: int, fault: str) -> None:
    duration = Duration(seconds=seconds, nanos=nanos)
    bare = Cluster(name="c", cleanup_interval=duration)
    listed = route.RetryPolicy(retry_back_off=route.RetryPolicy.RetryBackOff(base_interval=duration))
    packed = Cluster(name="c")
    packed.typed_extension_protocol_options["x"].Pack(listed)
    (found,) = [each for each in faults_of(bare) if fault in each]
    assert found.startswith("cleanup_interval: ")
    assert any(
        each.startswith("typed_extension_protocol_options.x.retry_back_off.base_interval: ") and fault in each
        for each in faults_of(packed)
    )


def test_the_longest_durations_are_good() -> None:
    for sign in (1, -1):
        longest = Duration(seconds=sign * 315_576_000_000, nanos=sign * 999_999_999)
        assert faults_of(Cluster(name="c", cleanup_interval=longest)) in (
            [],
            ["cleanup_interval: must be greater than 0s"],
        )


def test_it_takes_every_message_as_it_comes() -> None:
    for descriptor in all_types():
        rules.check(empty(descriptor))


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32))
def test_every_valid_message_passes(seed: int) -> None:
    for path, text in rules.check(random_message(Random(seed))):
        assert show_path(path) or text.startswith("one of these is required")


ACTION = "one of these is required: route, redirect, direct_response, filter_action, non_forwarding_action"
CHECKS = "one of these is required: http_health_check, tcp_health_check, grpc_health_check, custom_health_check"


def listener(manager: hcm.HttpConnectionManager) -> Listener:
    found = Listener(name="l", address={"pipe": {"path": "/run/l"}})
    chain = found.filter_chains.add().filters.add(name="http")
    chain.typed_config.Pack(manager)
    return found


def test_faults_of_a_listener_are_found_down_to_its_routes() -> None:
    manager = hcm.HttpConnectionManager(
        route_config=RouteConfiguration(
            virtual_hosts=[{"domains": [], "routes": [{"route": {"cluster": "a"}}, {"match": {"prefix": "/"}}]}]
        ),
        max_request_headers_kb={"value": 9000},
    )
    assert sorted(faults_of(listener(manager))) == [
        "filter_chains[0].filters[0].typed_config.max_request_headers_kb: must be at most 8192",
        "filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].domains: must not be empty",
        "filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].name: must not be empty",
        "filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[0].match: is required",
        f"filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[1]: {ACTION}",
        "filter_chains[0].filters[0].typed_config.stat_prefix: must not be empty",
    ]


DEFINED = "must be a value that envoy.config.cluster.v3.Cluster.LbPolicy defines"
LARGE_RING = {"maximum_ring_size": {"value": 8388609}}
UNKNOWN = {"x": {"type_url": "t/no.such.Type"}}
FACTOR = {"overprovisioning_factor": {}}
TWICE = "must not hold the same element twice"
PORTS = ["source_ports[1]: must be at least 1", "source_ports[2]: must be at most 65535"]

CASES: list[tuple[Message, list[str]]] = [
    (Cluster(name="a", connect_timeout={"seconds": 1}), []),
    (Cluster(), ["name: must not be empty"]),
    (Cluster(name="a", lb_policy=99), [f"lb_policy: {DEFINED}"]),
    (Cluster(name="a", connect_timeout={}), ["connect_timeout: must be greater than 0s"]),
    (Cluster(name="a", connect_timeout={"seconds": -1, "nanos": -1}), ["connect_timeout: must be greater than 0s"]),
    (Cluster(name="a", connect_timeout={"nanos": 1}), []),
    (
        Cluster(name="a", health_checks=[{}]),
        [
            "health_checks[0].timeout: is required",
            "health_checks[0].interval: is required",
            "health_checks[0].unhealthy_threshold: is required",
            "health_checks[0].healthy_threshold: is required",
            f"health_checks[0]: {CHECKS}",
        ],
    ),
    (
        Cluster(name="a", ring_hash_lb_config=LARGE_RING),
        ["ring_hash_lb_config.maximum_ring_size: must be at most 8388608"],
    ),
    (Cluster(name="a", upstream_bind_config={}), []),
    (
        Cluster(name="a", typed_extension_protocol_options=UNKNOWN),
        ["typed_extension_protocol_options.x: unknown type t/no.such.Type"],
    ),
    (Cluster(name="a", metadata={"filter_metadata": {"": {}}}), ['metadata.filter_metadata[""]: must not be empty']),
    (
        ClusterLoadAssignment(cluster_name="a", policy=FACTOR),
        ["policy.overprovisioning_factor: must be greater than 0"],
    ),
    (ClusterLoadAssignment(cluster_name="a"), []),
    (Percent(value=100.5), ["value: must be at most 100"]),
    (Percent(value=float("nan")), ["value: must be at least 0"]),
    (Pipe(path="/x", mode=512), ["mode: must be at most 511"]),
    (core.HeaderValue(), ["key: must not be empty"]),
    (core.HeaderValue(key="a" * 16385), ["key: must have at most 16384 bytes"]),
    (core.HeaderValue(key="\N{SNOWMAN}" * 5462), ["key: must have at most 16384 bytes"]),
    (core.HeaderValue(key="a\n"), ["key: must be a header name, without line breaks and NUL"]),
    (core.HeaderValue(key="a", value="b\r"), ["value: must be a header value, without line breaks and NUL"]),
    (core.HeaderValue(key="a", raw_value=b"x" * 16385), ["raw_value: must have at most 16384 bytes"]),
    (FilterChainMatch(source_ports=[1, 0, 70000]), PORTS),
    (HealthCheck.HttpHealthCheck(path="/", method=core.CONNECT), ["method: must not be one of 6"]),
    (SchemeHeaderTransformation(scheme_to_overwrite="ftp"), ["scheme_to_overwrite: must be one of 'http', 'https'"]),
    (SchemeHeaderTransformation(scheme_to_overwrite=""), ["scheme_to_overwrite: must be one of 'http', 'https'"]),
    (SchemeHeaderTransformation(), []),
    (StringMatcher(), ["one of these is required: exact, prefix, suffix, safe_regex, contains, custom"]),
    (StringMatcher(prefix=""), ["prefix: must not be empty"]),
    (StringMatcher(exact=""), []),
    (route.RouteMatch(path_separated_prefix="/a/"), ["path_separated_prefix: must match ^[^?#]+[^?#/]$"]),
    (route.RouteMatch(path_separated_prefix="/a"), []),
    (route.RouteMatch(connect_matcher={}), []),
    (route.RouteMatch(safe_regex={}), ["safe_regex.regex: must not be empty"]),
    (route.DirectResponseAction(status=600), ["status: must be less than 600"]),
    (route.DirectResponseAction(status=99), ["status: must be at least 200"]),
    (route.DirectResponseAction(), ["status: must be at least 200"]),
    (route.VirtualHost(name="a", domains=["a\n"]), ["domains[0]: must be a header value, without line breaks and NUL"]),
    (route.InternalRedirectPolicy(response_headers_to_copy=["a", "b", "a"]), [f"response_headers_to_copy: {TWICE}"]),
    (route.RateLimit.HitsAddend(), []),
    (route.RateLimit.HitsAddend(format="x%"), ["format: must start with '%'"]),
    (route.RateLimit.HitsAddend(format="%x"), ["format: must end with '%'"]),
    (TypedExtensionConfig(name="a"), ["typed_config: is required"]),
    (TypedExtensionConfig(name="a", typed_config={}), []),
    (OrcaLoadReport(utilization={"a": 1.5, "b": 0.5}), ["utilization.a: must be at most 1"]),
    (Matcher.MatcherTree.MatchMap(), ["map: must not be empty"]),
]


@pytest.mark.parametrize(("message", "faults"), CASES)
def test_each_kind_of_rule_on_a_real_message(message: Message, faults: list[str]) -> None:
    assert faults_of(message) == faults


def test_a_required_alternative_is_required_only_where_it_is_chosen() -> None:
    """`safe_regex` is marked as required inside of a oneof: that does not forbid the others."""
    assert faults_of(route.RouteMatch(prefix="/")) == []


def test_a_field_marked_skip_is_not_looked_into() -> None:
    assert faults_of(core.KeyValue(key="")) == ["key: must not be empty"]
    assert faults_of(core.KeyValueAppend(entry={"key": ""}, record={"key": "a"})) == []


def test_a_typed_config_that_can_not_be_read_is_a_fault() -> None:
    garbage = AnyMessage(type_url="type.googleapis.com/envoy.config.cluster.v3.Cluster", value=b"\xff\xff\xff")
    (fault,) = faults_of(TypedExtensionConfig(name="a", typed_config=garbage))
    assert fault == "typed_config: does not hold a envoy.config.cluster.v3.Cluster"


def test_the_path_inside_an_any_of_an_any_is_as_json_has_it() -> None:
    inner, outer = AnyMessage(), AnyMessage()
    inner.Pack(Cluster())
    outer.Pack(inner)
    (fault,) = faults_of(TypedExtensionConfig(name="a", typed_config=outer))
    assert fault == "typed_config.value.name: must not be empty"


# What no proto uses today, but validate.proto defines.
FIELD = Cluster.DESCRIPTOR.fields_by_name["name"]


@pytest.mark.parametrize(
    ("kind", "rule", "good", "bad"),
    [
        ("string", {"const": "a"}, ["a"], ["b", ""]),
        ("string", {"len": 2}, ["ab", "\N{SNOWMAN}b"], ["a", "abc"]),
        ("string", {"len_bytes": 3}, ["abc", "\N{SNOWMAN}"], ["ab"]),
        ("string", {"min_len": 2}, ["ab"], ["\N{SNOWMAN}"]),
        ("string", {"contains": "b"}, ["abc"], ["ac"]),
        ("string", {"not_contains": "b"}, ["ac"], ["abc"]),
        ("string", {"not_in": ["a"]}, ["b"], ["a"]),
        ("string", {"email": True}, ["a.b@example.com"], ["a", "@example.com", "a@-", "a b@example.com"]),
        ("string", {"email": False}, ["anything"], []),
        ("string", {"hostname": True}, ["a", "a-b.example.com."], ["", "-a", "a_b", "a" * 64, "a." * 127 + "a"]),
        ("string", {"ip": True}, ["1.2.3.4", "::1"], ["1.2.3", "x"]),
        ("string", {"ipv4": True}, ["1.2.3.4"], ["::1"]),
        ("string", {"ipv6": True}, ["::1"], ["1.2.3.4"]),
        ("string", {"uri": True}, ["http://a/b?c#d", "urn:x"], ["/a", "a b", "http://[", "x:%zz"]),
        ("string", {"uri_ref": True}, ["/a", "http://a", "?q"], ["a b", "<", "http://["]),
        ("string", {"address": True}, ["::1", "a.example"], ["a_b", ""]),
        ("string", {"uuid": True}, ["01234567-89ab-cdef-0123-456789ABCDEF"], ["01234567", "0" * 36]),
        ("string", {"well_known_regex": 1}, [":path", "a-b", "X!"], ["", "a b", "a:", "\N{SNOWMAN}"]),
        ("string", {"well_known_regex": 2}, ["", "a b\t"], ["a\n", "\x7f"]),
        ("string", {"well_known_regex": 0}, ["\n"], []),
        ("string", {"min_len": 2, "ignore_empty": True}, ["", "ab"], ["a"]),
        ("string", {"pattern": "(?P<broken"}, [], ["a"]),
        ("bytes", {"const": b"a"}, [b"a"], [b"b"]),
        ("bytes", {"len": 1}, [b"a"], [b""]),
        ("bytes", {"min_len": 1}, [b"a"], [b""]),
        ("bytes", {"pattern": "a+"}, [b"aa"], [b"ab"]),
        ("bytes", {"prefix": b"a"}, [b"ab"], [b"b"]),
        ("bytes", {"suffix": b"b"}, [b"ab"], [b"a"]),
        ("bytes", {"contains": b"b"}, [b"abc"], [b"a"]),
        ("bytes", {"in": [b"a"]}, [b"a"], [b"b"]),
        ("bytes", {"not_in": [b"a"]}, [b"b"], [b"a"]),
        ("bytes", {"ip": True}, [b"\x01\x02\x03\x04", b"\0" * 16], [b"\x01"]),
        ("bytes", {"ipv4": True}, [b"\x01\x02\x03\x04"], [b"\0" * 16]),
        ("bytes", {"ipv6": True}, [b"\0" * 16], [b"\x01\x02\x03\x04"]),
        ("uint32", {"const": 5}, [5], [4]),
        ("int64", {"in": [1, 2]}, [1], [3]),
        ("double", {"not_in": [1.5]}, [1.0], [1.5]),
        ("int32", {"gt": 1, "lt": 3}, [2], [1, 3]),
        ("int32", {"gt": 5, "lt": 3}, [2, 6], [3, 4, 5]),
        ("float", {"gte": 5, "lte": 3}, [3, 5], [4]),
        ("bool", {"const": True}, [True], [False]),
        ("enum", {"const": 1}, [1], [0]),
        ("enum", {"in": [1]}, [1], [0]),
        ("map", {"max_pairs": 1, "no_sparse": True}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
        ("repeated", {"unique": False}, [[1, 1]], []),
        ("any", {"in": ["t/a"]}, [AnyMessage(type_url="t/a")], [AnyMessage(type_url="t/b")]),
        ("any", {"not_in": ["t/a"]}, [AnyMessage(type_url="t/b")], [AnyMessage(type_url="t/a")]),
    ],
)
def test_kinds_that_no_proto_uses_yet(kind: str, rule: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    field_rules = validate_pb2.FieldRules(**{kind: rule})
    tests, unknown = rule_kinds.tests_of(kind, getattr(field_rules, kind), FIELD)
    assert unknown == []
    assert [value for value in good if any(test(value) for test in tests)] == []
    assert [value for value in bad if not any(test(value) for test in tests)] == []


def test_moments_are_compared_whole() -> None:
    duration = validate_pb2.DurationRules(gte={"seconds": 1, "nanos": 5}, lt={"seconds": 2})
    (test,), unknown = rule_kinds.tests_of("duration", duration, FIELD)
    times = [(1, 5), (1, 999_999_999), (1, 4), (2, 0), (-3, -1)]
    found = [test(type(duration.gte)(seconds=seconds, nanos=nanos)) for seconds, nanos in times]
    assert found == [
        None,
        None,
        "must be at least 1.000000005s",
        "must be less than 2s",
        "must be at least 1.000000005s",
    ]
    assert unknown == []


def test_a_rule_of_an_unknown_kind_is_not_passed_over() -> None:
    """`within` and its like need a clock; no proto uses them, and if one did, what has the field would be refused."""
    timestamp = validate_pb2.TimestampRules(gt_now=True)
    assert rule_kinds.tests_of("timestamp", timestamp, FIELD) == ([], ["gt_now"])
