"""What Envoy refuses beyond its annotations. That a real Envoy says the same of each, interop/configs shows."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.substitution_format_string_pb2 import SubstitutionFormatString
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_components_pb2 import Route, RouteAction, VirtualHost, WeightedCluster
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.access_loggers.file.v3.file_pb2 import FileAccessLog
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.transport_sockets.tls.v3.common_pb2 import TlsCertificate
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.type.matcher.v3.string_pb2 import StringMatcher
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.messages.samples import all_types, empty, random_message
from tests.support.certificates import Authority
from tests.support.examples import examples
from xdsprism import Store
from xdsprism.errors import ConfigError, show_path
from xdsprism.messages import envoy_checks, validation
from xdsprism.messages.convert import to_message
from xdsprism.messages.faults import Faults

MATCH = "type.googleapis.com/envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig"
REWRITE = "type.googleapis.com/envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig"
HERE = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 80}}}


def made(fields: dict[str, Any], kind: type[Message]) -> Any:
    faults: Faults = []
    message = to_message(fields, kind, faults)
    assert not faults
    return message


def shown(faults: Any) -> list[str]:
    return [f"{show_path(path)}: {text}" for path, text in faults]


def faults_of(fields: dict[str, Any], kind: type[Message]) -> list[str]:
    return shown(envoy_checks.check(made(fields, kind)))


def paths_of(fields: dict[str, Any], kind: type[Message]) -> list[str]:
    return [show_path(path) for path, _ in envoy_checks.check(made(fields, kind))]


# -- virtual hosts


def hosts(*domains: list[str]) -> dict[str, Any]:
    return {"virtual_hosts": [{"name": f"v{index}", "domains": each} for index, each in enumerate(domains)]}


@pytest.mark.parametrize(
    ("domains", "path"),
    [
        ([["a"], ["b", "a"]], "virtual_hosts[1].domains[1]"),
        ([["A.test"], ["a.TEST"]], "virtual_hosts[1].domains[0]"),
        ([["*"], ["*"]], "virtual_hosts[1].domains[0]"),
        ([["*.a"], ["*.A"]], "virtual_hosts[1].domains[0]"),
        ([["a", "b", "a"]], "virtual_hosts[0].domains[2]"),
    ],
)
def test_two_virtual_hosts_must_not_have_one_domain(domains: list[list[str]], path: str) -> None:
    assert paths_of(hosts(*domains), RouteConfiguration) == [path]


@pytest.mark.parametrize(
    "domains", [[["a"], ["a:80"]], [["é"], ["É"]], [["a.*.b", "**", "*a*", ""]], [["*"], ["a"]], [["*.a"], ["a.*"]]]
)
def test_other_domains_are_fine(domains: list[list[str]]) -> None:
    assert paths_of(hosts(*domains), RouteConfiguration) == []


def test_the_other_virtual_host_is_named() -> None:
    (fault,) = faults_of(hosts(["a"], ["a"]), RouteConfiguration)
    assert fault.endswith("virtual host 'v0' has the domain 'a' already")


def test_a_virtual_host_has_routes_or_a_matcher() -> None:
    fields = {"name": "a", "domains": ["a"], "routes": [{}], "matcher": {}}
    assert paths_of(fields, VirtualHost) == ["matcher"]


# -- routes


def template(kind: str, text: str) -> dict[str, Any]:
    field = "path_template" if kind == MATCH else "path_template_rewrite"
    return {"name": "t", "typed_config": {"@type": kind, field: text}}


def route(matched: str, rewritten: str | None = None) -> dict[str, Any]:
    action = {} if rewritten is None else {"path_rewrite_policy": template(REWRITE, rewritten)}
    return {"match": {"path_match_policy": template(MATCH, matched)}, "route": {"cluster": "a", **action}}


GOOD_TEMPLATES = [
    "/a",
    "/",
    "/*/**",
    "/**/a",
    "/{x}.js",
    "/{x=a/*}/b",
    "/{x=**}/{y=a}",
    "/a{x}",
    "/{x}/",
    "/a%4",
    "/***",
]
BAD_TEMPLATES = {
    "a": "must begin with /",
    "/a b": "without spaces",
    "/é": "only ASCII",
    "/a?b": "can't have '?' in it",
    "/a//b": "an empty segment",
    "/{x": "braces",
    "/x}": "braces",
    "/{x}/{x}": "has the variable x twice",
    "/{1x}": "'1x' is not a variable name",
    "/{}": "'' is not a variable name",
    "/{x={y}}": "braces",
    "/{x}.{y}": "two variables",
    "/{abcdefghijklmnopq}": "more than 16 characters",
    "/{a}/{b}/{c}/{d}/{e}/{f}": "has 6 variables, and at most 5",
    "/{x=}": "pattern can't be empty",
    "/{x=/a}": "nor begin or end with /",
    "/{x=a/}": "nor begin or end with /",
    "/**/*": "after **",
    "/{x=**}/{y}": "after **",
    "/**/b/{y=*}": "after **",
}


@pytest.mark.parametrize("text", GOOD_TEMPLATES)
def test_a_path_template_is_taken(text: str) -> None:
    assert faults_of(route(text), Route) == []


@pytest.mark.parametrize(("text", "reason"), BAD_TEMPLATES.items())
def test_a_broken_path_template_is_refused(text: str, reason: str) -> None:
    (fault,) = faults_of(route(text), Route)
    assert fault.startswith("match.path_match_policy.typed_config.path_template: ")
    assert reason in fault


@pytest.mark.parametrize(
    ("rewritten", "reason"),
    [
        ("/{y}", "has the variable y, which the template /{x} does not have"),
        ("/{x=a}", "'x=a' is not a variable name"),
        ("{x}", "must begin with /"),
        ("/{x", "braces"),
    ],
)
def test_a_rewrite_takes_its_variables_from_the_template(rewritten: str, reason: str) -> None:
    faults = faults_of(route("/{x}", rewritten), Route)
    assert [each.split(": ")[0] for each in faults] == ["route.path_rewrite_policy.typed_config.path_template_rewrite"]
    assert reason in faults[0]
    assert faults_of(route("/{x}", "/a/{x}b{x}/*"), Route) == []


def test_a_rewrite_by_template_needs_a_match_by_template() -> None:
    fields = {"match": {"prefix": "/"}, "route": {"cluster": "a", "path_rewrite_policy": template(REWRITE, "/a")}}
    assert paths_of(fields, Route) == ["route.path_rewrite_policy"]


def test_a_path_is_rewritten_in_one_way() -> None:
    fields = {"prefix_rewrite": "/a", "regex_rewrite": {"pattern": {"regex": "b"}}}
    assert faults_of(fields, RouteAction) == ["regex_rewrite: can't be set together with prefix_rewrite"]
    assert faults_of({"prefix_rewrite": ""}, RouteAction) == []


@pytest.mark.parametrize(
    ("clusters", "faults"),
    [
        ([{"name": "a", "weight": 0}], ["clusters: the weights add up to 0: at least one must be greater"]),
        (
            [{"name": "a", "weight": 2**32 - 1}, {"name": "b", "weight": 1}],
            ["clusters: the weights add up to 4294967296, and at most 4294967295 is allowed"],
        ),
        ([{"name": "a", "weight": 2**32 - 2}, {"name": "b", "weight": 1}], []),
        ([{"name": "a", "weight": 1}, {"name": "b", "weight": 0}], []),
        ([{"name": "a"}, {"name": "b", "weight": 1}], ["clusters[0].weight: is required"]),
        ([{"weight": 1}], ["clusters[0]: one of these is required: name, cluster_header"]),
        (
            [{"name": "a", "cluster_header": "x", "weight": 1}],
            ["clusters[0].cluster_header: can't be set together with name"],
        ),
    ],
)
def test_weighted_clusters_have_weights_that_add_up(clusters: list[dict[str, Any]], faults: list[str]) -> None:
    assert faults_of({"clusters": clusters}, WeightedCluster) == faults


# -- texts


@pytest.mark.parametrize("regex", ["(", "a(?=b)", r"(a)\1", "a{1001}", "a++", r"\Z", "[z-a]", "(?>a)"])
def test_a_regular_expression_must_be_one_of_re2(regex: str) -> None:
    (fault,) = faults_of({"safe_regex": {"regex": regex}}, StringMatcher)
    assert fault.startswith(f"safe_regex.regex: {regex!r} is not a regular expression that RE2 accepts: ")


@pytest.mark.parametrize("regex", ["a.*", r"\pL", "(?P<a>b)", "(?i)é", r"\Q(", r"\z", "[[:alpha:]]", "a{1000}"])
def test_a_regular_expression_of_re2_is_taken(regex: str) -> None:
    assert faults_of({"safe_regex": {"regex": regex}}, StringMatcher) == []


def test_re2_is_loaded_when_the_first_regular_expression_is_met() -> None:
    script = "import sys, xdsprism.sources.parse; print('re2' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


GOOD_FORMATS = ["", "a", "100%%", "%REQ(x-id?:path):12%", "%PROTOCOL%%%", "%START_TIME(%Y)%", "%REQ(a%b)%", "%NEWER%"]
BAD_FORMATS = [
    "%",
    "100%",
    "a%b",
    "%REQ(a)",
    "%protocol%",
    "%REQ(a):x%",
    "%REQ(a)b%",
    "%REQ (a)%",
    "%%PROTOCOL%",
    "%REQ%",
]
BAD_FORMATS += ["%REQ()%", "%RESP%", "%TRAILER(a?b?c)%", f"%REQ(a):{10**20}%", "%REQ(a\nb)%"]


@pytest.mark.parametrize("text", GOOD_FORMATS)
def test_a_format_is_taken(text: str) -> None:
    assert faults_of({"text_format_source": {"inline_string": text}}, SubstitutionFormatString) == []


@pytest.mark.parametrize("text", BAD_FORMATS)
def test_a_broken_format_is_refused(text: str) -> None:
    fields = {"text_format_source": {"inline_string": text}}
    assert paths_of(fields, SubstitutionFormatString) == ["text_format_source.inline_string"]


@pytest.mark.parametrize(
    ("kind", "fields", "path"),
    [
        (SubstitutionFormatString, {"text_format": "%"}, "text_format"),
        (SubstitutionFormatString, {"text_format_source": {"inline_bytes": "JQ=="}}, "text_format_source.inline_bytes"),
        (SubstitutionFormatString, {"json_format": {"a": {"b": [1, "%"]}}}, "json_format.a.b[1]"),
        (FileAccessLog, {"format": "%"}, "format"),
        (FileAccessLog, {"json_format": {"a": "%"}}, "json_format.a"),
        (FileAccessLog, {"typed_json_format": {"a": "%"}}, "typed_json_format.a"),
        (RouteAction, {"host_rewrite": "%"}, "host_rewrite"),
        (RouteAction, {"path_rewrite": "%"}, "path_rewrite"),
        (TcpProxy, {"tunneling_config": {"hostname": "%"}}, "tunneling_config.hostname"),
        (
            TcpProxy,
            {"tunneling_config": {"headers_to_add": [{"header": {"key": "a", "value": "%"}}]}},
            "tunneling_config.headers_to_add[0].header.value",
        ),
    ],
)
def test_formats_are_found_where_they_stand(kind: type[Message], fields: dict[str, Any], path: str) -> None:
    assert paths_of(fields, kind) == [path]


def test_the_keys_of_a_json_format_and_texts_in_files_are_no_formats() -> None:
    assert faults_of({"json_format": {"%": "a"}}, SubstitutionFormatString) == []
    assert faults_of({"text_format_source": {"filename": "%"}}, SubstitutionFormatString) == []


@pytest.mark.parametrize("kind", [RouteConfiguration, VirtualHost, Route, WeightedCluster.ClusterWeight])
def test_headers_are_checked_wherever_routes_have_them(kind: type[Message]) -> None:
    fields = {
        "request_headers_to_add": [{"header": {"key": "a", "value": "%"}}, {"header": {"key": ":path", "value": "a"}}],
        "response_headers_to_add": [{"header": {"key": "Host", "value": "%PROTOCOL%"}}],
        "request_headers_to_remove": ["x", "host"],
        "response_headers_to_remove": [":status"],
    }
    assert sorted(paths_of(fields, kind)) == [
        "request_headers_to_add[0].header.value",
        "request_headers_to_add[1].header.key",
        "request_headers_to_remove[1]",
        "response_headers_to_add[0].header.key",
        "response_headers_to_remove[0]",
    ]


# -- certificates


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pem")
    issued = Authority(folder).make("a.test")
    return issued.certificate.read_text(), issued.key.read_text()


def certificate(chain: str, key: str) -> list[str]:
    fields = {"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}
    return faults_of(fields, TlsCertificate)


def test_certificates_and_keys_in_pem_are_taken(pem: tuple[str, str]) -> None:
    chain, key = pem
    trusted = chain.replace("CERTIFICATE", "TRUSTED CERTIFICATE")
    for good in (
        chain,
        chain + chain,
        f"comment\n{chain}",
        chain.rstrip(),
        chain.replace("\n", "\r\n"),
        key + chain,
        trusted,
    ):
        assert certificate(good, key) == []
    for good in (chain + key, key.rstrip(), key.replace("\n", "\r\n")):
        assert certificate(chain, good) == []
    sealed = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n"
    assert certificate(chain, sealed) == []


def test_an_invalid_certificate_is_refused(pem: tuple[str, str]) -> None:
    chain, key = pem
    short = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    broken = chain.replace("-----\n", "-----\n!", 1)
    no_end, indented, one_line = chain.replace("-----END", "----"), chain.replace("\n", "\n  "), chain.replace("\n", "")
    for bad in ("x", key, short, chain + short, broken, no_end, indented, one_line):
        (fault,) = certificate(bad, key)
        assert fault.startswith("certificate_chain.inline_string: ")


def test_an_invalid_private_key_is_refused(pem: tuple[str, str]) -> None:
    chain, key = pem
    for bad in ("x", chain, key.replace("-----\n", "-----\n!", 1), key.replace("-----END", "----")):
        (fault,) = certificate(chain, bad)
        assert fault.startswith("private_key.inline_string: ")


def test_a_trusted_ca_is_checked_in_a_secret_too(pem: tuple[str, str]) -> None:
    bad = {"name": "s", "validation_context": {"trusted_ca": {"inline_bytes": "eA=="}}}
    assert paths_of(bad, Secret) == ["validation_context.trusted_ca.inline_bytes"]
    good = {"name": "s", "validation_context": {"trusted_ca": {"inline_string": pem[0]}}}
    assert paths_of(good, Secret) == []
    elsewhere = {"name": "s", "validation_context": {"trusted_ca": {"filename": "x"}}}
    assert paths_of(elsewhere, Secret) == []


# -- clusters and endpoints


def assignment(address: str, **more: Any) -> dict[str, Any]:
    endpoint = {"address": {"socket_address": {"address": address, "port_value": 80, **more}}}
    return {"cluster_name": "c", "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]}


PLACE = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address"
NO_ADDRESSES = ["shop.test", "127.1", "127.0.0.01", "[::1]", " 127.0.0.1", "127.0.0.1/32", "", "0x7f.0.0.1"]


@pytest.mark.parametrize("address", NO_ADDRESSES)
@pytest.mark.parametrize("kind", [{}, {"type": "STATIC"}, {"cluster_type": {"name": "envoy.cluster.static"}}], ids=str)
def test_a_static_cluster_wants_ip_addresses(kind: dict[str, Any], address: str) -> None:
    (fault,) = faults_of({"name": "c", "load_assignment": assignment(address), **kind}, Cluster)
    assert fault.startswith(f"load_assignment.{PLACE}: {address!r} is not an IP address")
    assert fault.endswith("STRICT_DNS or LOGICAL_DNS")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "fe80::1%eth0", "::ffff:1.2.3.4"])
def test_ip_addresses_are_taken(address: str) -> None:
    assert faults_of({"name": "c", "load_assignment": assignment(address)}, Cluster) == []
    assert faults_of(assignment(address), ClusterLoadAssignment) == []


@pytest.mark.parametrize(
    "kind", [{"type": "STRICT_DNS"}, {"type": "LOGICAL_DNS"}, {"cluster_type": {"name": "x"}}], ids=str
)
def test_other_clusters_look_names_up(kind: dict[str, Any]) -> None:
    assert faults_of({"name": "c", "load_assignment": assignment("shop.test"), **kind}, Cluster) == []


def test_endpoints_by_eds_are_ip_addresses() -> None:
    assert paths_of(assignment("shop.test"), ClusterLoadAssignment) == [PLACE]
    assert paths_of(assignment("shop.test", resolver_name="own"), ClusterLoadAssignment) == []
    pipe = {"endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "/x"}}}}]}]}
    assert paths_of(pipe, ClusterLoadAssignment) == []


def test_additional_addresses_are_ip_addresses_too() -> None:
    fields = assignment("127.0.0.1")
    fields["endpoints"][0]["lb_endpoints"][0]["endpoint"]["additional_addresses"] = [
        {"address": {"socket_address": {"address": "shop.test", "port_value": 80}}}
    ]
    (path,) = paths_of(fields, ClusterLoadAssignment)
    assert "additional_addresses[0].address.socket_address.address" in path


def test_a_port_by_name_is_not_looked_up() -> None:
    fields = assignment("127.0.0.1")
    fields["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"] = {
        "address": "127.0.0.1",
        "named_port": "http",
    }
    (path,) = paths_of(fields, ClusterLoadAssignment)
    assert path.endswith("socket_address.named_port")


def test_a_cluster_by_logical_dns_has_one_endpoint() -> None:
    assert paths_of({"type": "LOGICAL_DNS"}, Cluster) == ["load_assignment"]
    assert paths_of({"type": "ORIGINAL_DST", "load_assignment": {"cluster_name": "c"}}, Cluster) == ["load_assignment"]


# -- listeners

UDP = {"address": {"socket_address": {"protocol": "UDP", "address": "127.0.0.1", "port_value": 0}}}


@pytest.mark.parametrize(
    "fields",
    [
        {**HERE, "default_filter_chain": {}},
        {**HERE, "filter_chains": [{}]},
        {**HERE, "fcds_config": {"name": "x"}},
        {**UDP, "udp_listener_config": {}},
        UDP,
        {"api_listener": {}},
        {"internal_listener": {}, "filter_chains": [{}]},
        {"name": "a"},
    ],
    ids=str,
)
def test_a_listener_that_needs_no_more_filter_chains(fields: dict[str, Any]) -> None:
    if "fcds_config" in fields and "fcds_config" not in Listener.DESCRIPTOR.fields_by_name:
        del fields["fcds_config"]
    assert faults_of(fields, Listener) == []


@pytest.mark.parametrize(
    "fields",
    [
        HERE,
        {**HERE, "filter_chain_matcher": {}},
        {"internal_listener": {}},
        {"address": {"pipe": {"path": "/x"}}},
        {**UDP, "udp_listener_config": {"quic_options": {}}},
    ],
    ids=str,
)
def test_a_listener_without_filter_chains_is_refused(fields: dict[str, Any]) -> None:
    assert faults_of(fields, Listener) == ["filter_chains: a listener needs filter_chains or a default_filter_chain"]


@pytest.mark.parametrize("place", ["filter_chains", "default_filter_chain"])
def test_udp_knows_no_connections(place: str) -> None:
    fields = {**UDP, place: [{}] if place == "filter_chains" else {}}
    assert faults_of(fields, Listener) == [f"{place}: can't be set: UDP without quic_options has no connections"]


def test_a_listener_has_an_ip_address() -> None:
    there = {"address": {"socket_address": {"address": "localhost", "port_value": 80}}}
    fields = {**there, "additional_addresses": [there], "filter_chains": [{}]}
    assert paths_of(fields, Listener) == [
        "address.socket_address.address",
        "additional_addresses[0].address.socket_address.address",
    ]


def network(address: str, size: int) -> dict[str, Any]:
    return {"address_prefix": address, "prefix_len": size}


TEN, ALSO_TEN = {"prefix_ranges": [network("10.0.0.0", 8)]}, {"prefix_ranges": [network("10.1.0.0", 8)]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"destination_port": 80}, {"destination_port": 80}),
        (TEN, ALSO_TEN),
        ({"prefix_ranges": [network("10.0.0.0", 33)]}, {"prefix_ranges": [network("10.0.0.0", 32)]}),
        ({"server_names": ["a", "b"]}, {"server_names": ["B"]}),
        ({"server_names": ["*.a"]}, {"server_names": [".a"]}),
        ({"application_protocols": ["h2", "x"]}, {"application_protocols": ["h2"]}),
        ({"source_ports": [1, 2]}, {"source_ports": [2, 3]}),
        ({"source_type": "ANY"}, {}),
        ({"server_names": [""]}, {}),
    ],
    ids=str,
)
def test_two_filter_chains_must_not_match_the_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    chains = [{"filter_chain_match": first}, {"filter_chain_match": second}]
    (fault,) = faults_of({**HERE, "filter_chains": chains}, Listener)
    assert fault.startswith("filter_chains[1].filter_chain_match: matches the same connections as filter_chains[0]")
    assert faults_of({**HERE, "filter_chain_matcher": {}, "filter_chains": _named(chains)}, Listener) == []


def _named(chains: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**chain, "name": f"c{index}"} for index, chain in enumerate(chains)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"destination_port": 80}, {}),
        (TEN, {"prefix_ranges": [network("10.1.0.0", 16)]}),
        ({"prefix_ranges": [network("0.0.0.0", 0)]}, {}),
        ({"prefix_ranges": [network("0.0.0.0", 0)]}, {"prefix_ranges": [network("::", 0)]}),
        ({"server_names": ["*.a"]}, {"server_names": ["a"]}),
        ({"server_names": ["a"], "source_ports": [1]}, {"server_names": ["a"], "source_ports": [2]}),
        ({"transport_protocol": "tls"}, {"transport_protocol": "raw_buffer"}),
        ({"source_type": "EXTERNAL"}, {}),
    ],
    ids=str,
)
def test_filter_chains_that_differ_are_taken(first: dict[str, Any], second: dict[str, Any]) -> None:
    chains = [{"filter_chain_match": first}, {"filter_chain_match": second}]
    assert faults_of({**HERE, "filter_chains": chains}, Listener) == []


def test_a_filter_chain_must_not_match_the_same_twice() -> None:
    (fault,) = faults_of({**HERE, "filter_chains": [{"filter_chain_match": {"server_names": ["a", "A"]}}]}, Listener)
    assert "matches the same connections twice" in fault


def test_matches_with_very_many_combinations_are_compared_as_written() -> None:
    many = {"server_names": [f"a{n}" for n in range(300)], "source_ports": list(range(1, 301))}
    other = {**many, "source_ports": list(range(2, 302))}
    chains = [{"filter_chain_match": each} for each in (many, many, other)]
    assert paths_of({**HERE, "filter_chains": chains}, Listener) == ["filter_chains[1].filter_chain_match"]


@pytest.mark.parametrize("name", ["*", "a*", "*a", "a.*.b"])
def test_a_wildcard_of_a_server_name_is_its_first_label(name: str) -> None:
    chains = [{"filter_chain_match": {"server_names": [name]}}]
    assert paths_of({**HERE, "filter_chains": chains}, Listener) == [
        "filter_chains[0].filter_chain_match.server_names[0]"
    ]


def test_a_matcher_finds_filter_chains_by_their_names() -> None:
    chains = [{"name": "a"}, {"name": "a"}, {}]
    faults = paths_of({**HERE, "filter_chain_matcher": {}, "filter_chains": chains}, Listener)
    assert faults == ["filter_chains[1].name", "filter_chains[2].name"]


# -- the walk


def web(**fields: Any) -> Listener:
    manager = made({"stat_prefix": "x", "route_config": fields}, HttpConnectionManager)
    listener = made({"name": "l", **HERE, "filter_chains": [{"filters": [{"name": "http"}]}]}, Listener)
    listener.filter_chains[0].filters[0].typed_config.Pack(manager)
    return listener


def test_typed_configs_are_checked() -> None:
    faults = envoy_checks.check(web(**hosts(["a"], ["a"])))
    path = "filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[1].domains[0]"
    assert [show_path(where) for where, _ in faults] == [path]


def test_programs_are_told_too() -> None:
    listener = web(**hosts(["a"], ["a"]))
    assert shown(validation.errors_in(listener)) == shown(envoy_checks.check(listener)) != []
    with pytest.raises(ConfigError, match="has the domain 'a' already"), Store().transaction() as tx:
        tx.put(listener)


def test_an_any_in_an_any_stands_under_value() -> None:
    cluster = Cluster(name="c")
    inner = AnyMessage()
    inner.Pack(made({"text_format": "%"}, SubstitutionFormatString))
    cluster.typed_extension_protocol_options["x"].Pack(inner)
    assert shown(envoy_checks.check(cluster))[0].startswith("typed_extension_protocol_options.x.value.text_format: ")


def test_undecodable_anys_are_left_to_other_checks() -> None:
    cluster = Cluster(name="c")
    cluster.typed_extension_protocol_options["x"].type_url = "type.googleapis.com/no.such.Type"
    broken = cluster.typed_extension_protocol_options["y"]
    broken.type_url, broken.value = "type.googleapis.com/envoy.config.listener.v3.Listener", b"\xff"
    action = made(route("/a", "/b"), Route)
    action.route.path_rewrite_policy.typed_config.value = b"\xff"
    assert envoy_checks.check(cluster) == envoy_checks.notes(cluster) == envoy_checks.check(action) == []


def test_it_takes_every_message_as_it_comes() -> None:
    for descriptor in all_types():
        envoy_checks.check(empty(descriptor))
        assert envoy_checks.notes(empty(descriptor)) == []


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32))
def test_every_fault_has_a_path_and_a_reason(seed: int) -> None:
    message = random_message(Random(seed))
    for path, text in envoy_checks.check(message) + envoy_checks.notes(message):
        assert show_path(path)
        assert text


# -- what is only warned of


def test_deprecated_fields_are_noted_with_their_paths() -> None:
    cluster = made({"name": "c", "http2_protocol_options": {}, "use_tcp_for_dns_lookups": True}, Cluster)
    assert shown(envoy_checks.notes(cluster)) == [
        "http2_protocol_options: is deprecated in envoy.config.cluster.v3.Cluster: a later Envoy may refuse it",
        "use_tcp_for_dns_lookups: is deprecated in envoy.config.cluster.v3.Cluster: a later Envoy may refuse it",
    ]
    assert envoy_checks.notes(Cluster(name="c")) == []


def test_deprecated_fields_are_noted_inside_of_typed_configs() -> None:
    deprecated = [{"match": {"prefix": "/", "headers": [{"name": "a", "exact_match": "b"}]}}]
    listener = web(virtual_hosts=[{"name": "v", "domains": ["a"], "routes": deprecated}])
    ((path, _),) = envoy_checks.notes(listener)
    place = (
        "filter_chains[0].filters[0].typed_config.route_config.virtual_hosts[0].routes[0].match.headers[0].exact_match"
    )
    assert show_path(path) == place
    assert envoy_checks.check(listener) == []


def test_a_regular_expression_that_is_too_large_for_most_envoys_is_noted() -> None:
    large = made({"safe_regex": {"regex": "a{1000}"}}, StringMatcher)
    ((path, text),) = envoy_checks.notes(large)
    assert path == ("safe_regex", "regex")
    assert text.startswith("makes an RE2 program of the size 100")
    assert envoy_checks.notes(made({"safe_regex": {"regex": "a.*"}}, StringMatcher)) == []
    assert envoy_checks.notes(made({"safe_regex": {"regex": "("}}, StringMatcher)) == []
