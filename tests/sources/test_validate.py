"""A resource that Envoy would refuse is an error, a warning, or nothing, by the mode and by its users."""

from __future__ import annotations

import itertools

import pytest

from xdsprism.messages.validation import Validate
from xdsprism.sources import usage
from xdsprism.sources.catalog import Catalog
from xdsprism.sources.files import FileSource
from xdsprism.sources.parse import parse

MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
MODES: list[Validate] = ["envoy", "warn", "off"]


def listener(name: str, route: str, *, grpc: bool, prefix: str = "x") -> str:
    rds = f"{{route_config_name: {route}, config_source: {{ads: {{}}}}}}"
    manager = f"{{'@type': {MANAGER}, stat_prefix: '{prefix}', rds: {rds}}}"
    address = "address: {socket_address: {address: 127.0.0.1, port_value: 80}}\n"
    chains = f"filter_chains: [{{filters: [{{name: x, typed_config: {manager}}}]}}]\n"
    rest = f"api_listener: {{api_listener: {manager}}}\n" if grpc else address + chains
    return f"'@type': envoy.config.listener.v3.Listener\nname: {name}\n{rest}---\n"


def route(name: str, cluster: str, host: str = "") -> str:
    hosts = f"[{{name: '{host}', domains: ['*'], routes: [{{match: {{prefix: /}}, route: {{cluster: {cluster}}}}}]}}]"
    return f"'@type': envoy.config.route.v3.RouteConfiguration\nname: {name}\nvirtual_hosts: {hosts}\n---\n"


def cluster(name: str, policy: str = "99") -> str:
    return f"'@type': envoy.config.cluster.v3.Cluster\nname: {name}\nconnect_timeout: 1s\nlb_policy: {policy}\n---\n"


def read(*texts: str, validate: Validate = "envoy") -> Catalog:
    catalog = Catalog(validate)
    for number, text in enumerate(texts):
        catalog.read(f"{number}.yaml", text.encode())
    return catalog


def errors(catalog: Catalog) -> list[str]:
    return [str(problem) for problem in catalog.problems()]


def warnings(catalog: Catalog) -> list[str]:
    return [str(problem) for problem in catalog.warnings()]


HOST = "0.yaml:3: virtual_hosts[0].name: must not be empty"


# -- the three modes


def test_by_default_what_envoy_refuses_is_an_error() -> None:
    catalog = read(route("main", "a"))
    assert errors(catalog) == [HOST]
    assert warnings(catalog) == []


def test_it_may_be_a_warning() -> None:
    catalog = read(route("main", "a"), validate="warn")
    assert errors(catalog) == []
    assert warnings(catalog) == [HOST]
    assert len(catalog.pending()) == 1


def test_it_may_not_be_looked_for_at_all() -> None:
    catalog = read(route("main", "a"), validate="off")
    assert errors(catalog) == warnings(catalog) == []
    assert len(catalog.pending()) == 1


@pytest.mark.parametrize("validate", MODES)
def test_a_resource_without_a_name_is_an_error_in_every_mode(validate: Validate) -> None:
    catalog = read("'@type': envoy.config.cluster.v3.Cluster\nconnect_timeout: 1s\n", validate=validate)
    assert errors(catalog) == ["0.yaml:1: name: a resource needs a name"]


@pytest.mark.parametrize("validate", MODES)
def test_an_unknown_type_is_an_error_in_files_in_every_mode(validate: Validate) -> None:
    text = "'@type': envoy.config.core.v3.TypedExtensionConfig\nname: x\ntyped_config: {'@type': a.B}\n"
    hint = "wrap it in a TypedStruct, or make it known with --descriptors FILE"
    assert errors(read(text, validate=validate)) == [f"0.yaml:3: typed_config.@type: unknown type a.B; {hint}"]


# -- fields that are newer than what is known


def test_a_field_that_is_not_known_is_left_out_and_named_where_warnings_are_enough() -> None:
    text = "'@type': envoy.config.cluster.v3.Cluster\nname: a\nconnect_timeout: 1s\nbrand_new: {x: 1}\n"
    parsed = parse(text, "a.yaml", "warn")
    fault = "a.yaml:4: brand_new: no such field in envoy.config.cluster.v3.Cluster; it is left out"
    assert [str(problem) for problem in parsed.warnings] == [fault]
    (kept,) = parsed.variants
    (same,) = parse(text.replace("brand_new: {x: 1}\n", ""), "a.yaml").variants
    assert kept.body == same.body


def test_so_is_one_inside_a_typed_config() -> None:
    inside = f"{{name: x, typed_config: {{'@type': {MANAGER}, stat_prefix: x, route_config: {{}}, brand_new: 1}}}}"
    text = "'@type': envoy.config.listener.v3.Listener\nname: a\nfilter_chains:\n- filters:\n  - " + inside
    parsed = parse(text, "a.yaml", "warn")
    assert [problem.path for problem in parsed.warnings] == ["filter_chains[0].filters[0].typed_config.brand_new"]
    assert len(parsed.variants) == 1


@pytest.mark.parametrize("validate", ["envoy", "off"])
def test_otherwise_it_is_an_error(validate: Validate) -> None:
    text = "'@type': envoy.config.cluster.v3.Cluster\nname: a\nconnect_timeout: 1s\nbrand_new: {x: 1}\n"
    parsed = parse(text, "a.yaml", validate)
    assert [problem.message for problem in parsed.errors] == ["no such field in envoy.config.cluster.v3.Cluster"]
    assert parsed.variants == ()


# -- what only gRPC can use


def test_a_listener_for_grpc_need_not_please_envoy() -> None:
    catalog = read(listener("a", "main", grpc=True, prefix=""))
    assert errors(catalog) == []
    assert warnings(catalog) == ["0.yaml:3: api_listener.api_listener.stat_prefix: must not be empty"]


def test_a_listener_for_envoy_must() -> None:
    catalog = read(listener("a", "main", grpc=False, prefix=""))
    assert [problem.path for problem in catalog.problems()] == ["filter_chains[0].filters[0].typed_config.stat_prefix"]


def test_resources_only_of_grpc_listeners_are_exempt_too() -> None:
    catalog = read(route("main", "a") + cluster("a") + listener("x", "main", grpc=True))
    assert errors(catalog) == []
    policy = "0.yaml:8: lb_policy: must be a value that envoy.config.cluster.v3.Cluster.LbPolicy defines"
    assert warnings(catalog) == [HOST, policy]


def test_resources_of_other_listeners_too_are_not_exempt() -> None:
    catalog = read(route("main", "a"), listener("x", "main", grpc=True), listener("y", "main", grpc=False))
    assert errors(catalog) == [HOST]


def test_an_edit_of_one_file_changes_what_counts_in_another() -> None:
    catalog = read(route("main", "a"), listener("x", "main", grpc=True))
    assert errors(catalog) == []
    catalog.mark_published()
    catalog.read("2.yaml", listener("y", "main", grpc=False).encode())
    assert errors(catalog) == [HOST]
    catalog.forget("2.yaml")
    assert errors(catalog) == []
    assert warnings(catalog) == [HOST]
    catalog.forget("1.yaml")
    assert errors(catalog) == [HOST]


def test_the_lines_of_warnings_move_with_their_document() -> None:
    catalog = read(cluster("b", "0") + route("main", "a"), validate="warn")
    (before,) = catalog.warnings()
    catalog.read("0.yaml", ("# moved\n" + cluster("b", "0") + route("main", "a")).encode())
    (after,) = catalog.warnings()
    assert after.line == before.line + 1


def test_many_warnings_of_a_file_are_summed_up() -> None:
    catalog = read("".join(route(f"r{number}", "a") for number in range(30)), validate="warn")
    told = warnings(catalog)
    assert len(told) == 21
    assert told[-1] == "0.yaml: and 10 more warnings"


# -- what it costs


def test_without_faults_no_usage_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage.Usage, "set", lambda *_: pytest.fail("not needed"))
    catalog = read(route("main", "a", host="all"), listener("x", "main", grpc=True))
    assert errors(catalog) == warnings(catalog) == []


@pytest.mark.parametrize("size", [10, 1_000])
def test_an_edit_costs_what_it_leads_to(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [route(f"r{n}", f"c{n}") + listener(f"l{n}", f"r{n}", grpc=True) for n in range(size)]
    catalog = read(*texts)
    assert errors(catalog) == []
    searched: list[usage.Key] = []
    search = usage.Usage._search  # noqa: SLF001 # how much is searched is what an edit costs
    # As above.
    monkeypatch.setattr(usage.Usage, "_search", lambda self, key: searched.append(key) or search(self, key))
    catalog.read("0.yaml", (texts[0] + listener("more", "r0", grpc=True)).encode())
    assert errors(catalog) == []
    assert [name for _, name in searched] == ["r0"]


# -- reports


def test_a_load_reports_its_warnings(tmp_path) -> None:
    (tmp_path / "a.yaml").write_text(route("main", "a"))
    loaded = FileSource([tmp_path], validate="warn").load()
    assert [problem.path for problem in loaded.report.warnings] == ["virtual_hosts[0].name"]


def test_usage_does_not_depend_on_the_order_of_changes() -> None:
    texts = [route("main", "a"), listener("x", "main", grpc=True), cluster("a")]
    for order in itertools.permutations(range(3)):
        catalog = Catalog()
        for number in order:
            catalog.read(f"{number}.yaml", texts[number].encode())
            catalog.problems()
        assert errors(catalog) == []
        assert len(warnings(catalog)) == 2
