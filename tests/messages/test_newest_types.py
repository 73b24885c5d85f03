"""Types and fields that Envoy has and xds-protos has not, read from files as any other."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from validate import validate_pb2

from xdsprism.core.model.types import CLUSTER, ROUTE
from xdsprism.messages.installed import installed_class
from xdsprism.messages.protos import find_message, newest, type_name
from xdsprism.sources.parse import Parsed, parse

PREFIX = "type.googleapis.com"
PLUGIN = "{'@type': xds.type.v3.TypedStruct, value: {a: [1, null, {b: true}]}}"


def read(text: str) -> Any:
    """The one message in a file that is all right."""
    parsed: Parsed = parse(text, "a.yaml")
    assert parsed.problems == ()
    (variant,) = parsed.variants
    kind = find_message(type_name(variant.type_url))
    assert kind is not None
    return kind.FromString(variant.body)


def route(rest: str) -> str:
    return f"""
"@type": {PREFIX}/envoy.config.route.v3.RouteConfiguration
name: main
virtual_hosts:
- name: all
  domains: ["*"]
  routes:
  - {rest}
"""


def listener(filters: str) -> str:
    return f"""
"@type": {PREFIX}/envoy.config.listener.v3.Listener
name: web
address: {{socket_address: {{address: 127.0.0.1, port_value: 80}}}}
filter_chains:
- filters:
{filters}
"""


def test_a_route_matches_by_cookies() -> None:
    message = read(route("{match: {prefix: /, cookies: [{name: id, string_match: {exact: x}}]}, route: {cluster: a}}"))
    assert message.virtual_hosts[0].routes[0].match.cookies[0].name == "id"


def test_a_rate_limit_acts_on_remote_addresses_that_match() -> None:
    ranges = "{ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}"
    action = f"{{remote_address_match: {{descriptor_value: near, address_matcher: {ranges}}}}}"
    message = read(route(f"{{match: {{prefix: /}}, route: {{cluster: a, rate_limits: [{{actions: [{action}]}}]}}}}"))
    (limit,) = message.virtual_hosts[0].routes[0].route.rate_limits
    assert limit.actions[0].WhichOneof("action_specifier") == "remote_address_match"


def test_a_listener_has_tcp_keepalive() -> None:
    text = listener("  - {name: x, typed_config: {'@type': envoy.extensions.filters.network.echo.v3.Echo}}")
    assert read(f"{text}tcp_keepalive: {{keepalive_time: 60}}\n").tcp_keepalive.keepalive_time.value == 60


def test_a_route_has_oauth2_of_its_own() -> None:
    config = "{'@type': envoy.extensions.filters.http.oauth2.v3.OAuth2PerRoute, config: {"
    config += "token_endpoint: {uri: 'https://id.example.com/token', cluster: id, timeout: 3s}, "
    config += "authorization_endpoint: 'https://id.example.com/auth', redirect_uri: 'https://example.com/back', "
    config += "redirect_path_matcher: {path: {exact: /back}}, signout_path: {path: {exact: /out}}, "
    config += "credentials: {client_id: x, token_secret: {name: token}, hmac_secret: {name: hmac}}}}"
    message = read(route(f"{{match: {{prefix: /}}, route: {{cluster: a}}, typed_per_filter_config: {{x: {config}}}}}"))
    (packed,) = message.virtual_hosts[0].routes[0].typed_per_filter_config.values()
    assert packed.type_url == f"{PREFIX}/envoy.extensions.filters.http.oauth2.v3.OAuth2PerRoute"


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy", "stat_prefix: x"),
        ("envoy.extensions.filters.network.postgres_proxy.v3alpha.PostgresProxy", "stat_prefix: x"),
        ("envoy.extensions.filters.network.kafka_broker.v3.KafkaBroker", "stat_prefix: x"),
        (
            "envoy.extensions.filters.network.golang.v3alpha.Config",
            f"library_id: x, library_path: x.so, plugin_name: x, plugin_config: {PLUGIN}",
        ),
    ],
    ids=["mysql", "postgres", "kafka", "golang"],
)
def test_a_filter_of_envoys_contrib_is_read(name: str, rest: str) -> None:
    message = read(listener(f"  - {{name: x, typed_config: {{'@type': {name}, {rest}}}}}"))
    (one,) = message.filter_chains[0].filters
    assert one.typed_config.type_url == f"{PREFIX}/{name}"


def test_rules_of_types_that_are_not_installed_are_kept() -> None:
    name = "envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy"
    parsed = parse(listener(f"  - {{name: x, typed_config: {{'@type': {name}}}}}"), "a.yaml")
    assert [problem.path for problem in parsed.problems] == ["filter_chains[0].filters[0].typed_config.stat_prefix"]


def test_references_of_a_newer_type_are_found() -> None:
    filters = "  - {name: x, typed_config: {'@type': envoy.extensions.filters.network.golang.v3alpha.Config, "
    filters += "library_id: x, library_path: x.so, plugin_name: x}}\n"
    filters += "  - {name: y, typed_config: {'@type': envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, "
    filters += "stat_prefix: y, cluster: far}}"
    (variant,) = parse(listener(filters), "a.yaml").variants
    assert variant.references == ((CLUSTER, "far"),)


def test_a_route_configuration_in_a_listener_is_found() -> None:
    name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    filters = f"  - {{name: x, typed_config: {{'@type': {name}, stat_prefix: x, "
    filters += "rds: {route_config_name: main, config_source: {ads: {}}}}}"
    (variant,) = parse(listener(filters), "a.yaml").variants
    assert variant.references == ((ROUTE, "main"),)


def test_annotations_are_read_from_types_of_the_other_pool() -> None:
    kind = find_message("envoy.config.cluster.v3.Cluster")
    assert kind is not None
    assert kind.DESCRIPTOR.fields_by_name["connect_timeout"].GetOptions().HasExtension(validate_pb2.rules)


def test_a_programs_message_becomes_one_of_the_newest_type() -> None:
    cluster = cluster_pb2.Cluster(name="a", connect_timeout={"seconds": 1})
    again = newest(cluster)
    assert type(again) is find_message("envoy.config.cluster.v3.Cluster")
    assert again.SerializeToString() == cluster.SerializeToString()
    assert newest(again) is again


def test_programs_get_the_class_that_they_import() -> None:
    assert installed_class("envoy.config.cluster.v3.Cluster") is cluster_pb2.Cluster
    assert installed_class("envoy.extensions.filters.network.mysql_proxy.v3.MySQLProxy") is None


def test_a_type_that_envoy_has_dropped_is_still_found_where_it_is_installed() -> None:
    assert find_message("envoy.config.listener.v3.ApiListenerManager") is not None
