"""Files and programs that have resources with xdstp names."""

from __future__ import annotations

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener, ListenerCollection

import xdsprism as xp
from tests.sources.samples import CLUSTER, text
from xdsprism.core.codec.resources import variant_of
from xdsprism.core.model.types import NO_PARAMS
from xdsprism.errors import UsageError
from xdsprism.sources.catalog import Catalog
from xdsprism.sources.parse import parse

BASE = "xdstp://auth/envoy.config.cluster.v3.Cluster"
LIST = "envoy.config.listener.v3.ListenerCollection"


def bare(name: str) -> str:
    return f'---\n"@type": {CLUSTER}\nname: "{name}"\nconnect_timeout: 1s\n'


def wrapped(name: str, inner: str, *more: str) -> str:
    return "\n".join(
        [
            "---",
            '"@type": type.googleapis.com/envoy.service.discovery.v3.Resource',
            f'name: "{name}"',
            *more,
            f'resource: {{"@type": {CLUSTER}, name: "{inner}", connect_timeout: 1s}}',
            "",
        ]
    )


# XTP-1
@pytest.mark.parametrize(
    "source",
    [
        bare(f"{BASE}/a?y=2&x=1"),
        wrapped(f"{BASE}/a?x=1&y=2", f"{BASE}/a?y=2&x=1"),
        wrapped(f"{BASE}/a?y=2&x=1", f"{BASE}/%61?y=2&x=1"),
    ],
)
def test_a_name_is_taken_in_its_canonical_spelling(source: str) -> None:
    parsed = parse(source, "a.yaml")
    assert parsed.problems == ()
    (variant,) = parsed.variants
    assert variant.name == f"{BASE}/a?x=1&y=2"


# XTP-1: what refers to a cluster has it as it is written; nothing refers to a listener, but Envoy removes by its name
def test_the_name_in_a_message_stays_unless_clients_remove_by_it() -> None:
    name = f"{BASE}/a?y=2&x=1"
    assert Cluster.FromString(variant_of(Cluster(name=name)).body).name == name
    given = Listener(name=name.replace("cluster.v3.Cluster", "listener.v3.Listener"))
    variant = variant_of(given)
    assert Listener.FromString(variant.body).name == variant.name != given.name


# XTP-1, DYN-34: wherever they stand, variants of one name are proved disjoint
def test_two_spellings_of_a_name_are_one_resource() -> None:
    catalog = Catalog()
    catalog.read("a.yaml", bare(f"{BASE}/a?y=2&x=1").encode())
    catalog.read("b.yaml", bare(f"{BASE}/a?x=1&y=2").encode())
    store = xp.Store()
    with pytest.raises(xp.ConfigError, match="both match every client"):
        store.apply(catalog.pending())


# XTP-9, XTP-10
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("xdstp:auth/T/a", "it must start with xdstp://"),
        ("xdstp://auth/envoy.config.cluster.v3.Cluster", "it has no id"),
        (f"{BASE}/a%zz", "'%zz' is not valid percent-encoding"),
        (f"{BASE}/a?context", "context parameters are written key=value"),
        (f"{BASE}/foo/*", "it is a glob collection; give each of its members a name"),
        (f"{BASE}/a#entry=b", "has no directives"),
        (f"{BASE}/a?xds.node.id=n", "context parameters that begin with xds. are reserved, such as 'xds.node.id'"),
        (
            "xdstp://auth/envoy.config.route.v3.RouteConfiguration/a",
            "its type is envoy.config.route.v3.RouteConfiguration, but this is a envoy.config.cluster.v3.Cluster",
        ),
    ],
)
def test_a_name_that_no_resource_can_have_is_an_error_with_its_line(name: str, message: str) -> None:
    (problem,) = parse(bare("fine") + bare(name), "a.yaml").problems
    assert (problem.file, problem.line, problem.path) == ("a.yaml", 7, "name")
    assert problem.message.startswith(f"bad resource name {name!r}: ")
    assert message in problem.message
    with pytest.raises(UsageError, match="bad resource name"):
        variant_of(Cluster(name=name))


# XTP-9
def test_the_name_of_a_wrapper_and_its_aliases_are_checked_too() -> None:
    source = wrapped(f"{BASE}/a", f"{BASE}/b")
    (problem,) = parse(source, "a.yaml").problems
    assert (problem.line, problem.path) == (3, "name")
    bad = f"{BASE}/%zz"
    (problem,) = parse(wrapped("a", "a", f'aliases: ["b", "{bad}"]'), "a.yaml").problems
    assert (problem.line, problem.path) == (4, "aliases[1]")
    assert "is not valid percent-encoding" in problem.message


# XTP-10
def test_a_list_collection_is_a_resource_that_its_wrapper_names() -> None:
    source = text(
        f"""
        "@type": type.googleapis.com/envoy.service.discovery.v3.Resource
        name: xdstp://auth/{LIST}/edge
        resource:
          "@type": type.googleapis.com/{LIST}
          entries:
          - locator: {{authority: auth, resource_type: envoy.config.listener.v3.Listener, id: foo}}
          - inline_entry:
              name: web
              resource: {{"@type": type.googleapis.com/envoy.config.listener.v3.Listener, name: web}}
        """
    )
    parsed = parse(source, "a.yaml")
    assert parsed.problems == ()
    (variant,) = parsed.variants
    assert variant.name == f"xdstp://auth/{LIST}/edge"
    entries = ListenerCollection.FromString(variant.body).entries
    assert [entry.WhichOneof("resource_specifier") for entry in entries] == ["locator", "inline_entry"]
    (problem,) = parse(source.replace(f"auth/{LIST}", "auth/x.Y"), "a.yaml").problems
    assert (problem.line, problem.path) == (2, "name")


# XTP-1
def test_a_program_may_spell_a_name_as_it_likes() -> None:
    store = xp.Store()
    message = Cluster(name=f"{BASE}/a?y=2&x=1")
    with store.transaction() as tx:
        tx.put(message)
        tx.put(ClusterLoadAssignment(cluster_name="xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/e"))
    assert message.name == f"{BASE}/a?y=2&x=1", "what was given is not changed"
    (variant,) = store.table(xp.CLUSTER).everything.snapshot(NO_PARAMS).variants
    assert variant.name == f"{BASE}/a?x=1&y=2"
    with store.transaction() as tx:
        tx.delete(xp.CLUSTER, f"{BASE}/a?y=2&x=1")
    assert len(store.table(xp.CLUSTER)) == 0


# XTP-1, ORD-11: the endpoints of a cluster are found by their name, however the cluster spells it
def test_a_cluster_names_its_endpoints_in_any_spelling() -> None:
    eds = "xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/e"
    cluster = Cluster(name=f"{BASE}/a", type=Cluster.EDS)
    cluster.eds_cluster_config.service_name = f"{eds}?y=2&x=1"
    assert variant_of(cluster).warms == f"{eds}?x=1&y=2"
