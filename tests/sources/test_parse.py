from __future__ import annotations

from collections.abc import Mapping

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.service.discovery.v3 import discovery_pb2

from tests.sources.samples import CLUSTER, FOUR, ROUTE, cluster, text
from xdsprism.core.model import types
from xdsprism.core.model.constraints import FALSE, TRUE, Constraint, Eq, matches
from xdsprism.core.model.expr import show
from xdsprism.core.model.types import Origin, Variant
from xdsprism.sources.parse import parse


def variants(source: str, file: str = "a.yaml") -> tuple[Variant, ...]:
    parsed = parse(source, file)
    assert [str(problem) for problem in parsed.problems] == []
    return parsed.variants


def problems(source: str, file: str = "a.yaml") -> list[str]:
    parsed = parse(source, file)
    assert parsed.problems
    return [str(problem) for problem in parsed.problems]


def chosen(among: tuple[Variant, ...], params: Mapping[str, str]) -> list[Variant]:
    return [variant for variant in among if matches(variant.constraint, params)]


# -- the three forms


def test_a_resource_with_its_type() -> None:
    (variant,) = variants(cluster("a", "lb_policy: RING_HASH"))
    assert (variant.type_url, variant.name, variant.constraint) == (types.CLUSTER, "a", TRUE)
    assert variant.origin == Origin("a.yaml", 2)
    message = Cluster.FromString(variant.body)
    assert (message.name, message.connect_timeout.seconds, message.lb_policy) == ("a", 5, Cluster.RING_HASH)


def test_the_type_may_be_the_full_name_alone_and_fields_in_camel_case() -> None:
    (variant,) = variants('"@type": envoy.config.cluster.v3.Cluster\nname: a\nconnectTimeout: 5s\n')
    assert variant.type_url == types.CLUSTER
    assert variant.version == variants(cluster("a"))[0].version


def test_json_gives_what_yaml_gives() -> None:
    source = f'{{"@type": "{CLUSTER}",\n\t"name": "a", "connect_timeout": "5s"}}'
    (variant,) = variants(source, "a.json")
    assert variant.version == variants(cluster("a"))[0].version


WRAPPED = text(
    """
    name: a
    aliases: [b, c]
    cache_control: {do_not_cache: true}
    version: "17"
    resource:
      "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
      name: a
    """
)


@pytest.mark.parametrize("head", ["", '"@type": envoy.service.discovery.v3.Resource\n'])
def test_a_discovery_resource(head: str) -> None:
    (variant,) = variants(head + WRAPPED)
    assert (variant.name, variant.aliases, variant.constraint) == ("a", ("b", "c"), TRUE)
    extras = discovery_pb2.Resource.FromString(variant.extras)
    assert extras.cache_control.do_not_cache
    assert (list(extras.aliases), extras.version) == (["b", "c"], "")
    assert variant.origin == Origin("a.yaml", 1)


CONSTRAINED = text(
    """
    resource_name:
      name: a
      dynamic_parameter_constraints:
        and_constraints:
          constraints:
          - constraint: {key: env, value: "no"}
          - not_constraints:
              constraint: {key: version, exists: {}}
    resource:
      "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
      name: a
    """
)


# DYN-3
def test_a_discovery_resource_with_constraints_as_tp2_writes_them() -> None:
    (variant,) = variants(CONSTRAINED)
    assert show(variant.constraint) == "env=no and not version exists"


def test_a_discovery_response_holds_either() -> None:
    source = text(
        """
        version_info: "0"
        type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster
        resources:
        - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
          name: a
        - "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
          name: b
          resource:
            "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
            name: b
        - $when: env=prod
          resource: {"@type": envoy.config.cluster.v3.Cluster, name: c}
        """
    )
    found = variants(source)
    assert [(variant.name, show(variant.constraint), variant.origin) for variant in found] == [
        ("a", "true", Origin("a.yaml", 4)),
        ("b", "true", Origin("a.yaml", 6)),
        ("c", "env=prod", Origin("a.yaml", 11)),
    ]


def test_a_discovery_response_may_have_its_only_resource_without_a_list() -> None:
    source = f"resources:\n  '@type': {CLUSTER}\n  name: a\n  connect_timeout: 5s\n"
    (alone,) = variants(source)
    (listed,) = variants(f"resources:\n- {{'@type': {CLUSTER}, name: a, connect_timeout: 5s}}\n")
    assert (alone.name, alone.body) == (listed.name, listed.body)
    assert problems(source.replace("5s", "-5s")) == ["a.yaml:4: resources.connect_timeout: must be greater than 0s"]


def test_a_fault_in_the_only_element_of_a_list_has_its_line() -> None:
    source = cluster("a", "health_checks:", "  timeout: 1s", "  interval: -1s")
    (where,) = {each.split(": ")[0] for each in problems(source) if "interval: must be" in each}
    assert where == "a.yaml:7"


def test_a_fault_in_the_only_element_of_a_list_has_its_line_in_a_template_too() -> None:
    checks = ["health_checks:", "  timeout: 1s", "  interval: {$match: [{when: a=1, value: 5s}, {value: -1s}]}"]
    (where,) = {each.split(": ")[0] for each in problems(cluster("a", *checks)) if "must be" in each}
    assert where == "a.yaml:7"


@pytest.mark.parametrize("file", ["a.yaml", "a.json"])
def test_when_may_be_the_boolean_true(file: str) -> None:
    (variant,) = variants(f'{{"@type": "{CLUSTER}", "$when": true, "name": "a"}}', file)
    assert variant.constraint == TRUE


def test_any_type_works_and_a_wrapper_names_what_has_no_name_of_its_own() -> None:
    source = '{name: x, resource: {"@type": envoy.config.core.v3.Locality, region: eu}}'
    (variant,) = variants(source)
    assert (variant.type_url, variant.name) == ("type.googleapis.com/envoy.config.core.v3.Locality", "x")
    (variant,) = variants('{name: x, resource: {"@type": google.protobuf.Duration, value: 5s}}')
    assert variant.body == b"\x08\x05"


def test_endpoints_are_called_by_their_cluster() -> None:
    (variant,) = variants('{"@type": envoy.config.endpoint.v3.ClusterLoadAssignment, cluster_name: a}')
    assert (variant.type_url, variant.name) == (types.ENDPOINT, "a")


def test_documents_are_told_apart_and_have_their_lines() -> None:
    source = "# two\n" + cluster("a") + cluster("b") + "---\n# the end\n"
    assert [(variant.name, variant.origin) for variant in variants(source)] == [
        ("a", Origin("a.yaml", 3)),
        ("b", Origin("a.yaml", 7)),
    ]


# -- templates


# DYN-35
def test_the_example_of_tp2_gives_four_variants() -> None:
    found = variants(FOUR)
    assert len(found) == 4
    assert {variant.name for variant in found} == {"main"}
    for params, routes in [
        ({}, ["/"]),
        ({"env": "prod"}, ["/checkout", "/"]),
        ({"version": "v1"}, ["/legacy", "/"]),
        ({"env": "prod", "version": "v1"}, ["/checkout", "/legacy", "/"]),
        ({"env": "test", "version": "v2"}, ["/"]),
    ]:
        (variant,) = chosen(found, params)
        assert routes_of(variant) == routes


def routes_of(variant: Variant) -> list[str]:
    host = RouteConfiguration.FromString(variant.body).virtual_hosts[0]
    return [route.match.prefix for route in host.routes]


def test_templates_stand_inside_a_wrapper_and_a_response_too() -> None:
    inner = '{"@type": envoy.config.cluster.v3.Cluster, name: a, alt_stat_name: {$match: [{when: env=prod, value: x}]}}'
    for source in (
        f"name: a\nresource: {inner}",
        f"resources: [{inner}]",
        f"resources: [{{name: a, resource: {inner}}}]",
    ):
        found = variants(source)
        assert sorted(show(variant.constraint) for variant in found) == ["env!=prod", "env=prod"]


@pytest.mark.parametrize(
    "source",
    [
        cluster("a", "$when: env=prod"),
        '{name: a, $when: env=prod, resource: {"@type": envoy.config.cluster.v3.Cluster, name: a}}',
        '{name: a, resource: {$when: env=prod, "@type": envoy.config.cluster.v3.Cluster, name: a}}',
    ],
)
def test_when_at_the_root_makes_the_document_one_variant(source: str) -> None:
    (variant,) = variants(source)
    assert show(variant.constraint) == "env=prod"


@pytest.mark.parametrize("place", ["document", "resource"])
def test_constraints_and_a_template_are_one_too_many(place: str) -> None:
    source = CONSTRAINED + ("$when: env=prod\n" if place == "document" else "  $when: env=prod\n")
    (problem,) = problems(source)
    assert "has dynamic_parameter_constraints, so it can't also have `$when` or `$match` too" in problem


# -- what is wrong, and where


# TTL-3
@pytest.mark.parametrize(("written", "ttl"), [("", None), ("ttl: 5s\n", 5.0), ("ttl: 0.25s\n", 0.25)])
def test_a_resource_document_may_have_a_time_to_live(written: str, ttl: float | None) -> None:
    (variant,) = parse(WRAPPED + written, "a.yaml").variants
    assert variant.ttl == ttl
    (plain,) = parse(WRAPPED, "a.yaml").variants
    assert (variant.version == plain.version) == (ttl is None)
    assert variant.extras == plain.extras


LOCALITY = '"@type": envoy.config.core.v3.Locality'
INNER = "resource: {'@type': envoy.config.cluster.v3.Cluster, name: b}\n"
VALUE = "resource_name.dynamic_parameter_constraints.and_constraints.constraints[0].constraint.value"
MAPPING = "expected a mapping with an @type, got"
DOCUMENT = "a document must be a mapping with an @type, this is"
NO_TYPE = f"needs an @type, such as {CLUSTER}"
NAMELESS = "this type has no name field; wrap it in a envoy.service.discovery.v3.Resource that gives the name"
WORD = "expected a string, but some YAML readers read no as another type; quote it"
UNFINISHED = "not valid YAML: while parsing a flow node, did not find expected node content"
OTHER_TYPE = "is a envoy.config.cluster.v3.Cluster, but type_url says envoy.config.route.v3.RouteConfiguration"
HOST_NAME = "the name of a virtual host is <route configuration>/<virtual host>, not"
RESPONSE = "no such field in envoy.service.discovery.v3.DiscoveryResponse; did you mean"
SHORT_TTL = "a ttl of 0.05 seconds: it must be 0.1 or more, as two heartbeats are sent within it"
NO_FIELD = "no such field in envoy.service.discovery.v3.Resource; did you mean"
MARKS = "unknown key `$base`; keys that begin with $ are `$when` and `$match`"


# OPS-8
@pytest.mark.parametrize(
    ("source", "line", "path", "message"),
    [
        ("just text", 1, "", f"{DOCUMENT} a string"),
        ("- 1", 1, "", f"{DOCUMENT} a list"),
        ("name: a", 1, "", NO_TYPE),
        ("name: a\n'@type': 5", 1, "", NO_TYPE),
        (
            "name: a\n'@type': no.such.Type",
            2,
            "@type",
            "unknown type no.such.Type; --descriptors FILE makes types of your own known",
        ),
        (cluster("a", "a: [1,"), 5, "", UNFINISHED),
        (cluster("a", "name: b"), 5, "", "duplicate key 'name', first on line 3"),
        (cluster("1.10"), 3, "name", "expected a string, got the number 1.1; quote it"),
        (cluster("no", "alt_stat_name: off", "common_lb_config: 5"), 6, "common_lb_config", None),
        (cluster("a", "lb_policy: X_Y"), 5, "lb_policy", None),
        (cluster('""'), 3, "name", "a resource needs a name"),
        (f'"@type": {CLUSTER}\n', 1, "name", "a resource needs a name"),
        ("'@type': envoy.config.endpoint.v3.ClusterLoadAssignment", 1, "cluster_name", "a resource needs a name"),
        (LOCALITY, 1, "name", NAMELESS),
        ("name: a\n" + INNER, 1, "name", "is 'a', but the resource in it is named 'b'"),
        (
            "resource_name:\n  name: a\n" + INNER,
            2,
            "resource_name.name",
            "is 'a', but the resource in it is named 'b'",
        ),
        ("name: b\nresource_name: {name: a}\n" + INNER, 2, "resource_name.name", "is 'a', but name is 'b'"),
        (WRAPPED + "ttl: 0.05s\n", 8, "ttl", SHORT_TTL),
        (WRAPPED + "ttl: -5s\n", 8, "ttl", None),
        (WRAPPED + "ttl: soon\n", 8, "ttl", None),
        (WRAPPED + "alias: 5s\n", 8, "alias", f"{NO_FIELD} aliases?"),
        ("name: a\nresource: 5\n", 2, "resource", f"{MAPPING} the number 5"),
        ("'@type': envoy.service.discovery.v3.Resource\nname: a\n", 1, "resource", f"{MAPPING} null"),
        ("resources:\n  a: 1\n", 1, "resources", NO_TYPE),
        ("resources:\n- 5\n", 2, "resources[0]", f"{MAPPING} the number 5"),
        ("resources: []\nversion: 5\n", 2, "version", f"{RESPONSE} version_info?"),
        ("resources: []\nversionInf: 5\n", 2, "versionInf", f"{RESPONSE} versionInfo?"),
        (f"resources:\n- {{'@type': {CLUSTER}, name: a}}\ntype_url: {ROUTE}\n", 2, "resources[0]", OTHER_TYPE),
        (cluster("a", "$base: true"), 5, "$base", MARKS),
        (cluster("a", "$when: env=="), 5, "$when", None),
        (cluster("a", "$when: 5"), 5, "$when", "must be an expression such as `env=prod`, not 5"),
        ("{'@type': envoy.config.route.v3.VirtualHost, name: a, domains: ['*']}", 1, "name", f"{HOST_NAME} 'a'"),
        ("{'@type': envoy.config.route.v3.VirtualHost, name: a/, domains: ['*']}", 1, "name", f"{HOST_NAME} 'a/'"),
        (CONSTRAINED.replace('"no"', "no"), 6, VALUE, WORD),
        (CONSTRAINED.replace('"no"', "1.10"), 6, VALUE, "expected a string, got the number 1.1; quote it"),
    ],
)
def test_every_problem_has_file_line_path_and_reason(source: str, line: int, path: str, message: str | None) -> None:
    parsed = parse(source, "a.yaml")
    (problem,) = parsed.problems
    assert (problem.file, problem.line, problem.path) == ("a.yaml", line, path)
    assert problem.message == (message or problem.message)
    assert parsed.variants == ()


def test_an_unknown_type_names_close_ones() -> None:
    (problem,) = problems("name: a\n'@type': type.googleapis.com/envoy.config.cluster.v3.Clusterr")
    assert problem.startswith("a.yaml:2: @type: unknown type type.googleapis.com/envoy.config.cluster.v3.Clusterr; ")
    assert problem.endswith("; did you mean envoy.config.cluster.v3.Cluster?")


# DYN-9
@pytest.mark.parametrize("change", [("key: env", "key: ''"), (', value: "no"', "")])
def test_a_constraint_without_a_key_or_a_test_is_refused_at_its_place(change: tuple[str, str]) -> None:
    (problem,) = problems(CONSTRAINED.replace(*change))
    assert problem.startswith("a.yaml:3: resource_name.dynamic_parameter_constraints: ")


def test_the_example_of_a_good_error() -> None:
    source = FOUR.replace("route: {cluster: legacy}", "route: {clusterr: legacy}")
    (problem,) = problems(source, "routes.yaml")
    where, _, message = problem.partition(": no such field in ")
    assert where == "routes.yaml:12: virtual_hosts[0].routes[1].route.clusterr"
    assert message == "envoy.config.route.v3.RouteAction; did you mean cluster?"


@pytest.mark.parametrize(
    ("mark", "base"),
    [("", FALSE), ("$base: true", TRUE), ("$base: false", FALSE), ("$base: env=prod", Eq("env", "prod"))],
)
def test_a_virtual_host_may_belong_to_the_base_set(mark: str, base: Constraint) -> None:
    # VHD-13, DESIGN 3
    host = f"'@type': envoy.config.route.v3.VirtualHost, name: rc/shop, domains: ['*']{', ' if mark else ''}"
    bare = f"{{{host}{mark}}}"
    wrapped = f"{{resource: {{{host.rstrip(', ')}}}{', ' if mark else ''}{mark}}}"
    assert [variant.base for text in (bare, wrapped) for variant in variants(text)] == [base, base]


@pytest.mark.parametrize(
    ("mark", "message"),
    [("1", "expected true, false or an expression, got the number 1"), ("env=", "expected a value")],
)
def test_a_base_set_that_is_none_is_an_error(mark: str, message: str) -> None:
    (problem,) = parse(
        f"'@type': envoy.config.route.v3.VirtualHost\nname: rc/shop\ndomains: ['*']\n$base: {mark}\n", "a.yaml"
    ).problems
    assert message in problem.message
    assert (problem.file, problem.line, problem.path) == ("a.yaml", 4, "$base")


def test_a_virtual_host_is_called_by_its_route_configuration_and_itself() -> None:
    (variant,) = variants("{'@type': envoy.config.route.v3.VirtualHost, name: rc/team/shop, domains: ['*']}")
    assert (variant.type_url, variant.name) == (types.VIRTUAL_HOST, "rc/team/shop")


def test_faults_in_typed_configs_are_refused_too() -> None:
    source = text(
        """
        "@type": type.googleapis.com/envoy.config.listener.v3.Listener
        name: l
        address: {socketAddress: {address: 0.0.0.0, portValue: 70000}}
        filterChains:
        - filters:
          - name: http
            typedConfig:
              "@type": envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
              statPrefix: ""
              maxRequestHeadersKb: 0
              routeConfig:
                virtualHosts:
                - name: shop
                  domains: []
                  routes:
                  - match: {prefix: /}
        """
    )
    places = [problem.split(": ")[:2] for problem in problems(source)]
    inside = "filterChains[0].filters[0].typedConfig"  # as the author spells it
    assert sorted(places) == [
        ["a.yaml:10", f"{inside}.maxRequestHeadersKb"],
        ["a.yaml:14", f"{inside}.routeConfig.virtualHosts[0].domains"],
        ["a.yaml:16", f"{inside}.routeConfig.virtualHosts[0].routes[0]"],
        ["a.yaml:3", "address.socketAddress.portValue"],
        ["a.yaml:9", f"{inside}.statPrefix"],
    ]


def test_a_fault_in_a_template_is_found_where_it_was_written_and_once() -> None:
    source = text(
        """
        "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
        name: main
        virtual_hosts:
        - name: shop
          domains: ["*"]
          routes:
          - $when: env=prod
            match: {prefix: /a}
            route: {cluster: a}
          - $when: version=v1
            match: {prefix: /b}
            route: {cluster: b, timeout: 5}
          - match: {prefix: /}
            route:
              cluster:
                $match:
                - {when: env=test, value: c}
                - value: ""
        """
    )
    assert sorted(problem.rpartition(": ")[0] for problem in problems(source)) == [
        "a.yaml:12: virtual_hosts[0].routes[1].route.timeout",
        "a.yaml:18: virtual_hosts[0].routes[2].route.cluster.$match[1].value",
    ]


# DYN-8
def test_a_template_that_makes_too_many_variants_is_refused() -> None:
    routes = [f"  - {{$when: k{n}=x, match: {{prefix: /{n}}}, route: {{cluster: a}}}}" for n in range(11)]
    head = f'"@type": {ROUTE}\nname: main\nvirtual_hosts:\n- name: a\n  domains: ["*"]\n  routes:\n'
    (problem,) = problems(head + "\n".join(routes))
    assert problem.startswith("a.yaml:1: ")
    assert "1,024" in problem


def test_a_good_document_is_read_beside_a_bad_one() -> None:
    parsed = parse(cluster("a") + cluster("b", "x: 1") + cluster("c"), "a.yaml")
    assert [variant.name for variant in parsed.variants] == ["a", "c"]
    assert [problem.line for problem in parsed.problems] == [9]


@pytest.mark.parametrize("key", ['"\\u0024when"', '"\\x24when"', "$when", "'$when'"])
def test_a_dollar_counts_however_it_is_written(key: str) -> None:
    """Documents without one are not searched for conditions."""
    document = f'"@type": envoy.config.cluster.v3.Cluster\nname: a\n{key}: env=prod\n'
    (variant,) = parse(document, "a.yaml").variants
    assert show(variant.constraint) == "env=prod"
