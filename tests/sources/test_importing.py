"""What becomes of each part of a bootstrap and of a config dump."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from xdsprism.errors import ConfigError
from xdsprism.sources.importing.bootstrap import ServerAddress
from xdsprism.sources.importing.importer import FILES, Imported, import_text
from xdsprism.sources.importing.recognize import kind_of_import
from xdsprism.sources.parse import parse

Json = dict[str, Any]

T = "type.googleapis.com/envoy."
V3 = f"{T}admin.v3."
HCM = f"{T}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
TLS = f"{T}extensions.transport_sockets.tls.v3."
SERVER = ServerAddress("127.0.0.1", 18000)
ADS = {"ads": {}, "resource_api_version": "V3"}


def do(config: Json | list[Any] | str, file: str = "envoy.yaml", server: ServerAddress = SERVER) -> Imported:
    """Import it; what is made for serving has no fault that any client would notice."""
    made = import_text(config if isinstance(config, str) else json.dumps(config), file, server)
    for each in made.files:
        if each.path.startswith("resources/"):
            text = json.dumps({"resources": [document.content for document in each.documents]})
            assert parse(text, "made.json", "off").problems == (), each.path
    return made


def documents(made: Imported, path: str) -> list[Json]:
    return [each.content for file in made.files if file.path == path for each in file.documents]


def served(made: Imported) -> dict[str, list[str]]:
    """The names of what is served, by file."""
    found = {}
    for file in made.files:
        folder, _, name = file.path.removesuffix(".yaml").partition("/")
        if folder == "resources":
            found[name] = [each.content.get("name") or each.content["cluster_name"] for each in file.documents]
    return found


def bootstrap(made: Imported) -> Json:
    (found,) = documents(made, "bootstrap.yaml")
    return found


def static_names(made: Imported, kind: str = "clusters") -> list[str]:
    return [each["name"] for each in bootstrap(made)["static_resources"].get(kind, [])]


def warnings(made: Imported) -> list[str]:
    return [str(each) for each in made.warnings]


def refused(config: Json | list[Any] | str, file: str = "envoy.yaml") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        do(config, file)
    return [str(each) for each in caught.value.problems]


def envoy(
    listeners: tuple[Json, ...] = (), clusters: tuple[Json, ...] = (), secrets: tuple[Json, ...] = (), **rest: Any
) -> Json:
    static = {"listeners": [*listeners], "clusters": [*clusters], "secrets": [*secrets]}
    return {"node": {"id": "a", "cluster": "b"}, "static_resources": static, **rest}


def listener(name: str = "", port: int = 80, *, filters: tuple[Json, ...] = (), **fields: Any) -> Json:
    address = {"socket_address": {"address": "0.0.0.0", "port_value": port}}
    named = {"name": name} if name else {}
    return {**named, "address": address, "filter_chains": [{"filters": [*filters]}], **fields}


def hcm(**fields: Any) -> Json:
    return {"name": "hcm", "typed_config": {"@type": HCM, "stat_prefix": "a", **fields}}


def route(name: str, cluster: str = "a") -> Json:
    host = {"name": "h", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}]}
    return {**({"name": name} if name else {}), "virtual_hosts": [host]}


def packed(type_name: str, **fields: Any) -> Json:
    return {"@type": f"{T}{type_name}", **fields}


def api_source(cluster: str) -> Json:
    grpc = [{"envoy_grpc": {"cluster_name": cluster}}]
    return {"api_config_source": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": grpc}}


CLUSTER = {"name": "a"}

# -- a bootstrap: what is served


def test_listeners_clusters_and_secrets_are_served_and_the_bootstrap_fetches_them() -> None:
    made = do(
        envoy((listener("web"),), (CLUSTER,), ({"name": "s", "generic_secret": {}},), admin={"access_log_path": "x"})
    )
    assert served(made) == {"listeners": ["web"], "clusters": ["a"], "secrets": ["s"]}
    found = bootstrap(made)
    assert list(found) == ["node", "admin", "dynamic_resources", "static_resources"]
    assert found["node"] == {"id": "a", "cluster": "b"}
    assert found["dynamic_resources"]["lds_config"] == found["dynamic_resources"]["cds_config"] == ADS
    ads = found["dynamic_resources"]["ads_config"]
    assert ads["api_type"] == "DELTA_GRPC"
    assert ads["grpc_services"] == [{"envoy_grpc": {"cluster_name": "xdsprism"}}]
    assert static_names(made) == ["xdsprism"]
    assert made.warnings == ()


@pytest.mark.parametrize(
    ("host", "kind"), [("127.0.0.1", "STATIC"), ("::1", "STATIC"), ("xds.example.com", "STRICT_DNS")]
)
def test_the_server_has_a_cluster_in_the_bootstrap(host: str, kind: str) -> None:
    (cluster,) = bootstrap(do(envoy((listener("web"),)), server=ServerAddress(host, 1)))["static_resources"]["clusters"]
    (locality,) = cluster["load_assignment"]["endpoints"]
    assert locality["lb_endpoints"][0]["endpoint"]["address"]["socket_address"] == {"address": host, "port_value": 1}
    assert cluster["type"] == kind


def test_that_cluster_has_a_name_of_its_own() -> None:
    made = do(envoy((), ({"name": "xdsprism"}, {"name": "xdsprism-2"})))
    assert static_names(made) == ["xdsprism-3"]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ({"socket_address": {"address": "::", "port_value": 8080}}, "::_8080"),
        ({"socket_address": {"address": "0.0.0.0", "port_value": 53, "protocol": "UDP"}}, "0.0.0.0_53_udp"),
        ({"pipe": {"path": "/run/envoy.sock"}}, "/run/envoy.sock"),
        ({"envoy_internal_address": {"server_listener_name": "inside"}}, "inside"),
        ({}, "listener"),
    ],
)
def test_a_listener_without_a_name_is_called_by_its_address(address: Json, name: str) -> None:
    made = do(envoy(({"address": address}, {"address": address})))
    assert served(made) == {"listeners": [name, f"{name}-2"]}


def test_a_made_name_gives_way_to_a_given_one() -> None:
    assert served(do(envoy((listener(), listener("0.0.0.0_80")))))["listeners"] == ["0.0.0.0_80-2", "0.0.0.0_80"]


def test_a_route_configuration_in_a_listener_is_a_resource() -> None:
    made = do(envoy((listener("web", filters=(hcm(route_config=route("main")),)),)))
    (config,) = documents(made, "resources/routes.yaml")
    assert config == {"@type": f"{T}config.route.v3.RouteConfiguration", **route("main")}
    (found,) = documents(made, "resources/listeners.yaml")
    manager = found["filter_chains"][0]["filters"][0]["typed_config"]
    assert manager["rds"] == {"config_source": ADS, "route_config_name": "main"}
    assert "route_config" not in manager


def test_different_route_configurations_of_one_name_get_the_names_of_their_listeners() -> None:
    same, other = hcm(route_config=route("local_route")), hcm(route_config=route("local_route", "b"))
    made = do(envoy((listener("web", filters=(same,)), listener("api", filters=(other, other, same)))))
    assert served(made)["routes"] == ["web-local_route", "api-local_route", "api-local_route-2", "api-local_route-3"]


def test_equal_route_configurations_of_one_name_are_one() -> None:
    same = hcm(route_config=route("local_route"))
    made = do(envoy((listener("web", filters=(same,)), listener("api", filters=(same,)))))
    assert served(made)["routes"] == ["local_route"]


def test_a_route_configuration_without_a_name_is_called_by_its_listener() -> None:
    one = hcm(route_config=route(""))
    made = do(envoy((listener("web", filters=(one, one)),)))
    assert served(made)["routes"] == ["web", "web-2"]


def test_a_secret_that_was_static_is_fetched_and_one_with_a_source_is_not_touched() -> None:
    own = {"name": "own", "sds_config": {"path_config_source": {"path": "/etc/sds.yaml"}}}
    context = {"tls_certificate_sds_secret_configs": [{"name": "s"}, own]}
    tls = {"name": "tls", "typed_config": {"@type": f"{TLS}UpstreamTlsContext", "common_tls_context": context}}
    made = do(envoy((), ({**CLUSTER, "transport_socket": tls},), ({"name": "s"},)))
    (cluster,) = documents(made, "resources/clusters.yaml")
    found = cluster["transport_socket"]["typed_config"]["common_tls_context"]["tls_certificate_sds_secret_configs"]
    assert found == [{"name": "s", "sds_config": ADS}, own]


def test_each_resource_says_where_it_comes_from() -> None:
    text = "static_resources:\n  clusters:\n  - {name: a}\n  - name: b\n"
    made = do(text)
    (file,) = [each for each in made.files if each.path == "resources/clusters.yaml"]
    assert [each.comments for each in file.documents] == [
        ("from envoy.yaml:3: static_resources.clusters[0]",),
        ("from envoy.yaml:4: static_resources.clusters[1]",),
    ]


# -- a bootstrap: what stays

STATSD = {"@type": f"{T}config.metrics.v3.StatsdSink", "tcp_cluster_name": "a"}
ZIPKIN = {"@type": f"{T}config.trace.v3.ZipkinConfig", "collector_cluster": "a", "collector_endpoint": "/"}
ALS = packed(
    "extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfig",
    common_config={"log_name": "x", "grpc_service": {"envoy_grpc": {"cluster_name": "a"}}},
)
NAMING: list[tuple[Json, str]] = [
    ({"stats_sinks": [{"name": "x", "typed_config": STATSD}]}, "stats_sinks[0].typed_config.tcp_cluster_name"),
    ({"tracing": {"http": {"name": "x", "typed_config": ZIPKIN}}}, "tracing.http.typed_config.collector_cluster"),
    (
        {"admin": {"access_log": [{"name": "x", "typed_config": ALS}]}},
        "admin.access_log[0].typed_config.common_config.grpc_service.envoy_grpc.cluster_name",
    ),
    ({"cluster_manager": {"local_cluster_name": "a"}}, "cluster_manager.local_cluster_name"),
    ({"hds_config": api_source("a")["api_config_source"]}, "hds_config.grpc_services[0].envoy_grpc.cluster_name"),
    (
        {"layered_runtime": {"layers": [{"name": "l", "rtds_layer": {"name": "r", "rtds_config": api_source("a")}}]}},
        "layered_runtime.layers[0].rtds_layer.rtds_config.api_config_source.grpc_services[0].envoy_grpc.cluster_name",
    ),
]


@pytest.mark.parametrize(("fields", "path"), NAMING)
def test_a_cluster_that_the_bootstrap_names_stays(fields: Json, path: str) -> None:
    made = do(envoy((), (CLUSTER, {"name": "b"}), **fields))
    assert served(made) == {"clusters": ["b"]}
    assert static_names(made) == ["a", "xdsprism"]
    assert made.staying == (f"cds/a stays: the bootstrap names it in {path}",)
    assert {key: bootstrap(made)[key] for key in fields} == fields


def test_what_a_static_cluster_needs_stays_too() -> None:
    aggregate = packed("extensions.clusters.aggregate.v3.ClusterConfig", clusters=["b"])
    context = {"tls_certificate_sds_secret_configs": [{"name": "s"}]}
    tls = {"name": "tls", "typed_config": {"@type": f"{TLS}UpstreamTlsContext", "common_tls_context": context}}
    clusters = (
        {"name": "b", "transport_socket": tls, "load_assignment": {"cluster_name": "c"}},
        {**CLUSTER, "cluster_type": {"name": "envoy.clusters.aggregate", "typed_config": aggregate}},
        {"name": "c"},
    )
    secrets = ({"name": "s"}, {"name": "t"})
    made = do(envoy((), clusters, secrets, stats_sinks=[{"name": "x", "typed_config": STATSD}]))
    assert static_names(made) == ["b", "a", "xdsprism"]
    assert static_names(made, "secrets") == ["s"]
    assert served(made) == {"clusters": ["c"], "secrets": ["t"]}
    assert made.staying[0] == ("cds/b stays: cds/a, which stays, names it in cluster_type.typed_config.clusters[0]")
    assert made.staying[2] == (
        "sds/s stays: cds/b, which stays, names it in "
        "transport_socket.typed_config.common_tls_context.tls_certificate_sds_secret_configs[0]"
    )


def test_a_secret_that_both_sides_need_is_on_both() -> None:
    context = {"tls_certificate_sds_secret_configs": [{"name": "s"}]}
    tls = {"name": "tls", "typed_config": {"@type": f"{TLS}UpstreamTlsContext", "common_tls_context": context}}
    clusters = ({**CLUSTER, "transport_socket": tls}, {"name": "b", "transport_socket": tls})
    made = do(envoy((), clusters, ({"name": "s"},), stats_sinks=[{"name": "x", "typed_config": STATSD}]))
    assert served(made) == {"clusters": ["b"], "secrets": ["s"]}
    assert static_names(made, "secrets") == ["s"]


def test_the_cluster_of_a_config_source_stays() -> None:
    rds = hcm(rds={"route_config_name": "r", "config_source": api_source("a")})
    made = do(envoy((listener("web", filters=(rds,)),), (CLUSTER, {"name": "b"})))
    assert static_names(made) == ["a", "xdsprism"]
    (why,) = made.staying
    assert why.startswith(
        "cds/a stays: lds/web has a config source with it in filter_chains[0].filters[0].typed_config."
    )


def test_a_cluster_with_braces_in_its_name_may_stay() -> None:
    made = do(
        envoy((), ({"name": "{0}"},), cluster_manager={"local_cluster_name": "{0}"}, default_socket_interface="x")
        | {"static_resources": {"clusters": [{"name": "{0}"}, {"name": "b"}]}}
    )
    assert made.staying == ("cds/{0} stays: the bootstrap names it in cluster_manager.local_cluster_name",)


def test_a_node_names_no_cluster() -> None:
    made = do(envoy((), (CLUSTER,)) | {"node": {"id": "a", "cluster": "a"}})
    assert served(made) == {"clusters": ["a"]}


def test_an_api_listener_stays() -> None:
    api = {"name": "api", "api_listener": {"api_listener": hcm()["typed_config"]}}
    made = do(envoy((api, listener("web"))))
    assert served(made) == {"listeners": ["web"]}
    assert static_names(made, "listeners") == ["api"]
    assert made.staying == ("lds/api stays: Envoy takes an api_listener from its bootstrap only",)


def test_listeners_stay_where_another_server_has_the_listeners() -> None:
    dynamic = {"lds_config": {"path_config_source": {"path": "/etc/lds.yaml"}}}
    made = do(envoy((listener("web"),), (CLUSTER,), dynamic_resources=dynamic))
    assert served(made) == {"clusters": ["a"]}
    found = bootstrap(made)["dynamic_resources"]
    assert found["lds_config"] == dynamic["lds_config"]
    assert found["cds_config"] == ADS
    assert made.staying == ("lds/web stays: the bootstrap has lds_config",)


def test_the_ads_stream_of_another_server_is_left_to_it() -> None:
    ads = api_source("xds")["api_config_source"]
    dynamic = {"ads_config": ads, "cds_config": ADS}
    made = do(
        envoy(
            (listener("web", filters=(hcm(route_config=route("main")),)),),
            ({"name": "xds"},),
            dynamic_resources=dynamic,
        )
    )
    found = bootstrap(made)["dynamic_resources"]
    assert found["ads_config"] == ads
    assert found["cds_config"] == ADS
    own = found["lds_config"]["api_config_source"]
    assert own["grpc_services"] == [{"envoy_grpc": {"cluster_name": "xdsprism"}}]
    (web,) = documents(made, "resources/listeners.yaml")
    rds = web["filter_chains"][0]["filters"][0]["typed_config"]["rds"]
    assert rds["config_source"] == found["lds_config"]
    assert static_names(made) == ["xds", "xdsprism"]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (envoy(), "nothing is left to serve: it has no listeners, clusters or secrets but those that have to stay"),
        (
            envoy((listener("a"),), dynamic_resources={"lds_config": ADS, "cds_config": ADS}),
            (
                "nothing is left to serve: its listeners and clusters come from another server; import the "
                "/config_dump of an Envoy that runs with it"
            ),
        ),
        ({"configs": []}, "the dump has no resources that a server could serve"),
    ],
)
def test_a_file_without_anything_to_serve_is_refused(config: Json, problem: str) -> None:
    assert refused(config) == [f"envoy.yaml:1: {problem}"]


def test_a_node_without_a_name_is_noted() -> None:
    made = do({"static_resources": {"clusters": [CLUSTER]}})
    assert bootstrap(made)["node"] == {"id": "envoy", "cluster": "envoy"}
    assert warnings(made) == [
        (
            "envoy.yaml:1: node: the node has no id and no cluster, which Envoy needs to fetch anything: set it in "
            "bootstrap.yaml, or start Envoy with --service-node and --service-cluster"
        )
    ]


# -- forms of a file


def test_yaml_with_anchors_camel_case_and_json_are_the_same() -> None:
    snake = """
node: {id: a, cluster: b}
static_resources:
  clusters:
  - &a {name: a, connect_timeout: 1s}
  - {<<: *a, name: b}
"""
    clusters = [{"name": "a", "connectTimeout": "1s"}, {"name": "b", "connectTimeout": "1s"}]
    camel = {"node": {"id": "a", "cluster": "b"}, "staticResources": {"clusters": clusters}}
    made = [
        do(snake),
        do(json.dumps(camel), "envoy.json"),
        do(json.dumps(camel, indent=1), "-"),
        do(yaml.safe_dump(camel)),
    ]
    contents = [[document.content for file in each.files for document in file.documents] for each in made]
    assert contents[0] == contents[1] == contents[2] == contents[3]


def test_a_single_element_may_stand_without_a_list() -> None:
    assert served(do("static_resources: {clusters: {name: a}}")) == {"clusters": ["a"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "envoy.yaml: is empty: a bootstrap, or a config dump, is one document"),
        (
            "admin: {}\n---\nadmin: {}\n",
            "envoy.yaml:3: has 2 documents: a bootstrap, or a config dump, is one document",
        ),
        ("a: [1,", "envoy.yaml:1: not valid YAML: while parsing a flow node, did not find expected node content"),
        (
            "static_resources:\n  clusters:\n  - {nme: a}",
            (
                "envoy.yaml:3: static_resources.clusters[0].nme: no such field in "
                "envoy.config.cluster.v3.Cluster; did you mean name?"
            ),
        ),
        (
            "static_resources: {quantum: 1}",
            (
                "envoy.yaml:1: static_resources.quantum: no such field in "
                "envoy.config.bootstrap.v3.Bootstrap.StaticResources; "
                "if a newer Envoy has it, --descriptors FILE makes it known"
            ),
        ),
        (
            "static_resources:\n  clusters:\n  - {}\n",
            "envoy.yaml:3: static_resources.clusters[0]: needs a name, by which Envoy can fetch it",
        ),
        (
            "static_resources:\n  clusters:\n  - name: a\n  - name: a\n",
            "envoy.yaml:4: static_resources.clusters[1]: cds/a is there twice: the other is on line 3",
        ),
    ],
)
def test_every_problem_has_its_line(text: str, problem: str) -> None:
    assert refused(text) == [problem]


@pytest.mark.parametrize(
    "text", ["hello: 1", "5", "just text", "[]", "- 1", "configs: 5", "'@type': envoy.config.cluster.v3.Cluster"]
)
def test_a_document_that_is_neither_is_refused(text: str) -> None:
    (problem,) = refused(text)
    assert problem == (
        "envoy.yaml:1: this is neither an Envoy bootstrap, which has `static_resources` or `dynamic_resources`, nor a "
        "config dump, which has `configs`"
    )


def test_json_that_is_wrong_is_told_as_json_and_yaml_that_begins_like_it_is_read() -> None:
    (problem,) = refused('{"static_resources": {"clusters": [{"name": ]}}', "-")
    assert problem.startswith("-:1: not valid JSON: ")
    assert served(do("{static_resources: {clusters: [{name: a}]}}", "-")) == {"clusters": ["a"]}


def test_many_problems_are_cut() -> None:
    found = refused(envoy((), tuple({"nme": "a"} for _ in range(30))))
    assert len(found) == 21
    assert found[-1] == "envoy.yaml: and 10 more problems"


def test_an_extension_of_an_unknown_type_is_wrapped() -> None:
    own = {"name": "x", "typed_config": {"@type": "type.googleapis.com/acme.v1.Own", "size": 5}}
    made = do(envoy((), ({**CLUSTER, "transport_socket": own},)))
    (cluster,) = documents(made, "resources/clusters.yaml")
    assert cluster["transport_socket"]["typed_config"] == {
        "@type": "type.googleapis.com/xds.type.v3.TypedStruct",
        "type_url": "type.googleapis.com/acme.v1.Own",
        "value": {"size": 5},
    }
    assert warnings(made) == [
        (
            "envoy.yaml:1: static_resources.clusters[0].transport_socket.typed_config: unknown type "
            "type.googleapis.com/acme.v1.Own: it is wrapped in a TypedStruct, which Envoy reads the same; "
            "--descriptors FILE makes the type known"
        )
    ]


def test_a_key_that_files_have_another_meaning_for_is_noted() -> None:
    metadata = {"filter_metadata": {"own": {"list": [{"$when": "env=prod"}]}}}
    made = do(envoy((), ({**CLUSTER, "metadata": metadata},)))
    where = "static_resources.clusters[0].metadata.filter_metadata.own.list[0].$when"
    assert warnings(made) == [
        f"envoy.yaml:1: {where}: a key that begins with $ is for `$when` and `$match` in files: rename $when"
    ]


# -- a config dump


def part(name: str, **fields: Any) -> Json:
    return {"@type": f"{V3}{name}", **fields}


def active(name: str, version: str = "") -> Json:
    return {"version_info": version, "listener": packed("config.listener.v3.Listener", name=name, stat_prefix=version)}


def dynamic(field: str, body: Json, **state: Any) -> Json:
    return {"version_info": "1", field: body, **state}


def a_cluster(name: str, **fields: Any) -> Json:
    return packed("config.cluster.v3.Cluster", name=name, **fields)


NODE = {"id": "a", "cluster": "b"}
START = part("BootstrapConfigDump", bootstrap={"node": NODE})


def test_dynamic_resources_of_all_types_are_served() -> None:
    filter_config = packed("config.core.v3.TypedExtensionConfig", name="f", typed_config={})
    scope = packed("config.route.v3.ScopedRouteConfiguration", name="s", route_configuration_name="r")
    routes = packed("config.route.v3.RouteConfiguration", name="r")
    secret = {"name": "k", "secret": {"@type": f"{TLS}Secret", "name": "k", "validation_context": {}}}
    eds = a_cluster("c", type="EDS", eds_cluster_config={"eds_config": ADS})
    assignment = packed("config.endpoint.v3.ClusterLoadAssignment", cluster_name="c")
    made = do(
        {
            "configs": [
                START,
                part("ListenersConfigDump", dynamic_listeners=[{"name": "l", "active_state": active("l")}]),
                part("ClustersConfigDump", dynamic_active_clusters=[dynamic("cluster", eds)]),
                part("RoutesConfigDump", dynamic_route_configs=[dynamic("route_config", routes)]),
                part(
                    "ScopedRoutesConfigDump",
                    dynamic_scoped_route_configs=[{"name": "x", "scoped_route_configs": [scope]}],
                ),
                part("EndpointsConfigDump", dynamic_endpoint_configs=[dynamic("endpoint_config", assignment)]),
                part("SecretsConfigDump", dynamic_active_secrets=[secret]),
                part("EcdsConfigDump", ecds_filters=[dynamic("ecds_filter", filter_config)]),
            ]
        }
    )
    assert served(made) == {
        "listeners": ["l"],
        "scoped-routes": ["s"],
        "routes": ["r"],
        "clusters": ["c"],
        "endpoints": ["c"],
        "secrets": ["k"],
        "extension-configs": ["f"],
    }
    assert set(served(made)) == set(FILES.values())
    assert warnings(made) == []


def test_what_is_in_use_goes_before_what_is_warming() -> None:
    listeners = [
        {"name": "both", "active_state": active("both", "1"), "warming_state": active("both", "2")},
        {"name": "new", "warming_state": active("new")},
        {"name": "old", "draining_state": active("old")},
    ]
    clusters = {
        "dynamic_active_clusters": [dynamic("cluster", a_cluster("c", alt_stat_name="1"))],
        "dynamic_warming_clusters": [
            dynamic("cluster", a_cluster("c", alt_stat_name="2")),
            dynamic("cluster", a_cluster("d")),
        ],
    }
    made = do(
        {
            "configs": [
                START,
                part("ListenersConfigDump", dynamic_listeners=listeners),
                part("ClustersConfigDump", **clusters),
            ]
        }
    )
    assert served(made) == {"listeners": ["both", "new"], "clusters": ["c", "d"]}
    assert documents(made, "resources/listeners.yaml")[0]["stat_prefix"] == "1"
    assert documents(made, "resources/clusters.yaml")[0]["alt_stat_name"] == "1"
    (file,) = [each for each in made.files if each.path == "resources/clusters.yaml"]
    assert file.documents[1].comments[1] == "warming when the dump was made"
    assert [each.split(": ", 2)[2] for each in warnings(made)] == [
        "both: a newer version is warming; the one in use is taken",
        "c: a newer version is warming; the one in use is taken",
    ]


def test_what_envoy_refused_is_noted_without_secrets_and_the_version_before_is_taken() -> None:  # OPS-14
    error = {"details": 'no such filter\npassword: "hunter2"'}
    listeners = [
        {"name": "a", "active_state": active("a"), "error_state": error},
        {"name": "b", "error_state": {}},
        {"name": "c", "error_state": error},
    ]
    made = do({"configs": [START, part("ListenersConfigDump", dynamic_listeners=listeners)]})
    assert served(made) == {"listeners": ["a"]}
    why = "(no such filter password: [redacted])"
    assert [each.split(": ", 2)[2] for each in warnings(made)] == [
        f"Envoy refused the newest listener a {why}: the version before is taken",
        f"Envoy refused the newest listener c {why}: there is no other version, so it is left out",
    ]


def test_resources_without_their_secrets_are_put_aside() -> None:  # OPS-14
    key = {"private_key": {"inline_bytes": "W3JlZGFjdGVkXQ=="}}
    secret = {"name": "k", "secret": {"@type": f"{TLS}Secret", "name": "k", "tls_certificate": key}}
    late = {"name": "late"}
    made = do(
        {
            "configs": [
                START,
                part("ClustersConfigDump", dynamic_active_clusters=[dynamic("cluster", a_cluster("c"))]),
                part("SecretsConfigDump", dynamic_active_secrets=[secret], dynamic_warming_secrets=[late]),
            ]
        }
    )
    assert served(made) == {"clusters": ["c"]}
    (file,) = [each for each in made.files if each.path == "redacted/secrets.yaml"]
    (document,) = file.documents
    assert document.comments[1] == "put the real value in place of tls_certificate.private_key.inline_bytes"
    assert [each.split(": ", 2)[2] for each in warnings(made)] == [
        "secret late did not arrive yet, so the dump has nothing of it",
        (
            "k: a dump has no secrets, so it lacks tls_certificate.private_key.inline_bytes: put the real values into "
            "redacted/secrets.yaml, and move it to resources/"
        ),
    ]


def test_the_node_is_kept_without_what_envoy_adds_itself() -> None:
    own = {
        "user_agent_name": "envoy",
        "extensions": [{"name": "x"}],
        "client_features": ["envoy.lb.does_not_support_overprovisioning", "mine"],
    }
    start = part("BootstrapConfigDump", bootstrap={"node": {**NODE, **own}})
    made = do({"configs": [start, part("ListenersConfigDump", dynamic_listeners=[{"active_state": active("l")}])]})
    assert bootstrap(made)["node"] == {**NODE, "client_features": ["mine"]}


def test_the_control_plane_of_a_dump_is_replaced() -> None:
    start = part(
        "BootstrapConfigDump",
        bootstrap={
            "node": NODE,
            "dynamic_resources": {
                "ads_config": api_source("xds")["api_config_source"],
                "cds_config": api_source("xds"),
            },
            "static_resources": {"clusters": [{"name": "xds"}]},
        },
    )
    rds = hcm(rds={"route_config_name": "r", "config_source": api_source("xds")})
    listening = packed("config.listener.v3.Listener", **listener("l", filters=(rds,)))
    made = do(
        {
            "configs": [
                start,
                part("ListenersConfigDump", dynamic_listeners=[{"active_state": {"listener": listening}}]),
                part(
                    "RoutesConfigDump",
                    dynamic_route_configs=[
                        dynamic("route_config", packed("config.route.v3.RouteConfiguration", name="r"))
                    ],
                ),
            ]
        }
    )
    found = bootstrap(made)["dynamic_resources"]
    assert found["ads_config"]["grpc_services"] == [{"envoy_grpc": {"cluster_name": "xdsprism"}}]
    assert found["lds_config"] == found["cds_config"] == ADS
    (web,) = documents(made, "resources/listeners.yaml")
    assert web["filter_chains"][0]["filters"][0]["typed_config"]["rds"]["config_source"] == ADS
    assert static_names(made) == ["xds", "xdsprism"]


def test_a_config_source_that_is_ads_already_is_kept_as_it_is() -> None:
    patient = {"ads": {}, "initial_fetch_timeout": "0s"}
    eds = a_cluster("c", type="EDS", eds_cluster_config={"eds_config": patient})
    assignment = packed("config.endpoint.v3.ClusterLoadAssignment", cluster_name="c")
    made = do(
        {
            "configs": [
                START,
                part("ClustersConfigDump", dynamic_active_clusters=[dynamic("cluster", eds)]),
                part("EndpointsConfigDump", dynamic_endpoint_configs=[dynamic("endpoint_config", assignment)]),
            ]
        }
    )
    (cluster,) = documents(made, "resources/clusters.yaml")
    assert cluster["eds_cluster_config"] == {"eds_config": patient}


def test_static_resources_are_taken_once_from_the_bootstrap_or_else_from_their_parts() -> None:
    parts = [
        part(
            "ListenersConfigDump",
            static_listeners=[
                {
                    "listener": packed(
                        "config.listener.v3.Listener", **listener("web", filters=(hcm(route_config=route("main")),))
                    )
                }
            ],
        ),
        part("ClustersConfigDump", static_clusters=[{"cluster": a_cluster("a")}]),
        part(
            "RoutesConfigDump",
            static_route_configs=[{"route_config": packed("config.route.v3.RouteConfiguration", **route("main"))}],
        ),
    ]
    start = part(
        "BootstrapConfigDump",
        bootstrap=envoy((listener("web", filters=(hcm(route_config=route("main")),)),), (CLUSTER,)),
    )
    whole, lacking = do({"configs": [start, *parts]}), do({"configs": parts})
    assert served(whole) == served(lacking) == {"listeners": ["web"], "routes": ["main"], "clusters": ["a"]}
    assert warnings(whole) == []
    assert (
        warnings(lacking)[0]
        == "envoy.yaml:1: the dump has no bootstrap: add what is missing, such as `node` and `admin`"
    )


def test_endpoints_are_those_of_eds_clusters_without_what_envoy_adds() -> None:
    eds = a_cluster("c", type="EDS", eds_cluster_config={"eds_config": ADS, "service_name": "svc"})
    static = a_cluster("other", type="STATIC", eds_cluster_config={"eds_config": ADS})
    endpoint = {
        "endpoint": {"address": {"pipe": {"path": "/x"}}},
        "health_status": "UNHEALTHY",
        "load_balancing_weight": 1,
    }
    assignment = {"endpoints": [{"lb_endpoints": [endpoint], "load_balancing_weight": 0}]}
    found = [
        dynamic("endpoint_config", packed("config.endpoint.v3.ClusterLoadAssignment", cluster_name=name, **assignment))
        for name in ("svc", "other")
    ]
    made = do(
        {
            "configs": [
                START,
                part(
                    "ClustersConfigDump", dynamic_active_clusters=[dynamic("cluster", eds), dynamic("cluster", static)]
                ),
                part("EndpointsConfigDump", dynamic_endpoint_configs=found),
            ]
        }
    )
    (kept,) = documents(made, "resources/endpoints.yaml")
    assert kept["cluster_name"] == "svc"
    assert kept["endpoints"] == [{"lb_endpoints": [{"endpoint": endpoint["endpoint"], "load_balancing_weight": 1}]}]


def test_what_envoy_will_ask_for_and_a_dump_lacks_is_noted() -> None:
    clusters = [
        dynamic("cluster", a_cluster(f"c{number}", type="EDS", eds_cluster_config={"eds_config": ADS}))
        for number in range(7)
    ]
    layers = {"layers": [{"name": "l", "rtds_layer": {"name": "run", "rtds_config": ADS}}]}
    start = part("BootstrapConfigDump", bootstrap={"node": NODE, "layered_runtime": layers})
    on_demand = packed("config.route.v3.RouteConfiguration", name="r", vhds={"config_source": ADS})
    made = do(
        {
            "configs": [
                start,
                part("ClustersConfigDump", dynamic_active_clusters=clusters),
                part("RoutesConfigDump", dynamic_route_configs=[dynamic("route_config", on_demand)]),
            ]
        }
    )
    assert [each.split(": ", 2)[2] for each in warnings(made)] == [
        (
            "resources ask for eds c0, c1, c2, c3, c4 and 2 more, which the dump does not have: take the dump from "
            "/config_dump?include_eds"
        ),
        "rds/r has vhds: a dump does not have the virtual hosts that Envoy fetched",
        "Envoy asks for rtds run, which no dump has: write it",
    ]


def test_a_static_cluster_goes_before_a_dynamic_one_of_its_name() -> None:
    start = part("BootstrapConfigDump", bootstrap=envoy((), (CLUSTER,)))
    made = do(
        {
            "configs": [
                start,
                part(
                    "ClustersConfigDump",
                    dynamic_active_clusters=[dynamic("cluster", a_cluster("a", alt_stat_name="x"))],
                ),
            ]
        }
    )
    assert [each.get("alt_stat_name") for each in documents(made, "resources/clusters.yaml")] == [None]
    assert warnings(made)[0].endswith(": cds/a is static too: Envoy uses the static one")


def camel(value: Any) -> Any:
    """As tools in Go write messages."""
    if isinstance(value, list):
        return [camel(each) for each in value]
    if not isinstance(value, dict):
        return value
    heads = {key: key.split("_") for key in value}
    return {head[0] + "".join(word.title() for word in head[1:]): camel(value[key]) for key, head in heads.items()}


@pytest.mark.parametrize("form", ["as it is", "a list", "one part", "bare", "camel"])
def test_dumps_have_several_forms(form: str) -> None:
    entry = dynamic("cluster", a_cluster("c", alt_stat_name="x"))
    clusters = part("ClustersConfigDump", dynamic_active_clusters=[entry])
    forms: dict[str, Any] = {
        "as it is": {"configs": [clusters]},
        "a list": [clusters],
        "one part": clusters,
        "bare": {"configs": [part("ClustersConfigDump.DynamicCluster", **entry)]},  # of ?resource=
        "camel": camel({"configs": [clusters]}),
    }
    assert kind_of_import(forms[form]) == "config dump"
    made = do(json.dumps(forms[form], indent=1), "dump.json")
    assert served(made) == {"clusters": ["c"]}
    (file,) = [each for each in made.files if each.path == "resources/clusters.yaml"]
    where = file.documents[0].comments[0]
    line = int(where.split(":")[1])
    assert '"cluster"' in json.dumps(forms[form], indent=1).splitlines()[line - 1]


def test_a_part_of_an_unknown_type_is_left_out() -> None:
    made = do(
        {
            "configs": [
                START,
                part("NewConfigDump", x=1),
                part("ListenersConfigDump", dynamic_listeners=[{"active_state": active("l")}]),
            ]
        }
    )
    assert warnings(made) == ["envoy.yaml:1: configs[1]: envoy.admin.v3.NewConfigDump is left out"]


def test_a_resource_of_another_type_and_one_without_a_name_are_left_out() -> None:
    entries = [
        dynamic("cluster", packed("api.v2.Cluster", name="old")),
        dynamic("cluster", a_cluster("")),
        dynamic("cluster", a_cluster("c")),
    ]
    made = do({"configs": [START, part("ClustersConfigDump", dynamic_active_clusters=entries)]})
    assert served(made) == {"clusters": ["c"]}
    assert [each.split(": ", 2)[2] for each in warnings(made)] == [
        f"{T}api.v2.Cluster is left out: {T}config.cluster.v3.Cluster belongs here",
        "a resource without a name is left out",
    ]


def test_secrets_are_hidden_where_they_are_not_to_be_shown() -> None:  # OPS-14
    made = do(envoy((), (CLUSTER,), ({"name": "s", "generic_secret": {"secret": {"inline_string": "hunter2"}}},)))
    (file,) = [each for each in made.files if each.path == "resources/secrets.yaml"]
    assert file.has_secrets
    (document,) = file.documents
    assert document.content["generic_secret"] == {"secret": {"inline_string": "hunter2"}}
    shown, had = document.without_secrets()
    assert (had, "hunter2" in json.dumps(shown)) == (True, False)
    assert [each.has_secrets for each in made.files if each.path != "resources/secrets.yaml"] == [False, False]
