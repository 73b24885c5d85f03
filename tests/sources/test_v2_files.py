"""Files and programs can't publish xDS v2 resources; v2 clients get v3 resources under v2 names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from envoy.api.v2.auth.secret_pb2 import Secret as OldSecret
from envoy.api.v2.cluster_pb2 import Cluster as OldCluster
from envoy.api.v2.route.route_components_pb2 import VirtualHost as OldVirtualHost
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

import xdsprism as xp
from tests.cli.rig import run
from xdsprism.core.model.type_versions import as_v2
from xdsprism.core.model.types import PREFIX, TYPES
from xdsprism.messages.api_versions import v2_name
from xdsprism.sources.parse import parse

WITH_TWINS = [spec.url.removeprefix(PREFIX) for spec in TYPES if as_v2(spec.url) != spec.url]

LISTENER = """
"@type": envoy.config.listener.v3.Listener
name: web
filter_chains:
- filters:
  - name: hcm
    typed_config:
      "@type": type.googleapis.com/{manager}
      stat_prefix: web
      route_config: {{name: r}}
      http_filters:
      - name: router
        typed_config:
          "@type": type.googleapis.com/{router}
"""
MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "envoy.extensions.filters.http.router.v3.Router"


def refusal(old: str, new: str) -> str:
    return f"{old} is of xDS v2: write {new}, and clients of v2 get it in v2"


@pytest.mark.parametrize("prefix", ["", PREFIX])
@pytest.mark.parametrize("name", WITH_TWINS)
def test_a_resource_of_v2_is_refused_with_its_place_and_the_name_to_write(name: str, prefix: str) -> None:
    # VER-4, OPS-8
    old = prefix + str(v2_name(name))
    parsed = parse(f"---\nname: a/b\n'@type': {old}\n", "a.yaml")
    assert [str(each) for each in parsed.problems] == [f"a.yaml:3: @type: {refusal(old, name)}"]
    assert parsed.variants == ()


OLD_CLUSTER = "'@type': envoy.api.v2.Cluster"


@pytest.mark.parametrize(
    ("source", "line", "path", "old", "new"),
    [
        (f"resource:\n  {OLD_CLUSTER}\n  name: a\n", 2, "resource.@type", "Cluster", "config.cluster"),
        (f"resources:\n- name: a\n  {OLD_CLUSTER}\n", 3, "resources[0].@type", "Cluster", "config.cluster"),
        ("'@type': envoy.api.v2.Resource\nname: a\nresource: {}\n", 1, "@type", "Resource", "service.discovery"),
        ("'@type': envoy.api.v2.DiscoveryResponse\n", 1, "@type", "DiscoveryResponse", "service.discovery"),
    ],
    ids=["in a resource", "in a response", "a wrapper", "a response"],
)
def test_so_it_is_in_every_form_of_a_document(source: str, line: int, path: str, old: str, new: str) -> None:
    # VER-4, OPS-8
    (problem,) = parse(source, "a.yaml").problems
    assert (problem.line, problem.path) == (line, path)
    assert problem.message == refusal(f"envoy.api.v2.{old}", f"envoy.{new}.v3.{old}")


def test_typed_configs_of_v2_are_refused_each_at_its_place() -> None:
    # VER-4, OPS-8
    old = {name: str(v2_name(name)) for name in (MANAGER, ROUTER)}
    parsed = parse(LISTENER.format(manager=old[MANAGER], router=old[ROUTER]), "a.yaml")
    inner = "filter_chains[0].filters[0].typed_config"
    assert [str(each) for each in parsed.problems] == [
        f"a.yaml:8: {inner}.@type: {refusal(PREFIX + old[MANAGER], MANAGER)}",
        f"a.yaml:14: {inner}.http_filters[0].typed_config.@type: {refusal(PREFIX + old[ROUTER], ROUTER)}",
    ]
    assert parsed.variants == ()


def test_with_the_names_of_v3_they_are_taken() -> None:
    """Also where something else in the file looks like v2."""
    # VER-4
    (variant,) = parse(LISTENER.format(manager=MANAGER, router=ROUTER) + "stat_prefix: my.v2\n", "a.yaml").variants
    assert variant.name == "web"


def test_a_file_of_v2_in_json_is_refused_too() -> None:
    # VER-4, OPS-8
    source = json.dumps({"name": "a", "@type": "envoy.api.v2.Cluster"}, indent=1)
    (problem,) = parse(source, "a.json").problems
    assert (problem.line, problem.message) == (3, refusal("envoy.api.v2.Cluster", "envoy.config.cluster.v3.Cluster"))


def test_check_says_so_and_goes_on_with_the_rest(tmp_path: Path) -> None:
    # VER-4, OPS-8
    file = tmp_path / "a.yaml"
    file.write_text("{'@type': envoy.api.v2.Cluster, name: a}\n---\n{'@type': no.such.Type, name: b}\n")
    done = run("check", tmp_path)
    assert done.exit_code == 1
    assert refusal("envoy.api.v2.Cluster", "envoy.config.cluster.v3.Cluster") in done.stdout + done.stderr
    assert "unknown type no.such.Type" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "message",
    [OldCluster(name="a"), OldSecret(name="a"), OldVirtualHost(name="a/b"), Any(type_url=as_v2(xp.CLUSTER))],
    ids=["cluster", "secret", "virtual host", "any"],
)
def test_a_message_of_v2_is_not_put(message: Message) -> None:
    # VER-4
    store = xp.Store()
    wrong = r"is of xDS v2: give it as type.googleapis.com/envoy\.[a-z._]*\.v3\."
    with pytest.raises(xp.UsageError, match=wrong), store.transaction() as tx:
        tx.put(message, name="a/b" if isinstance(message, OldVirtualHost) else "a")
    assert list(store.tables()) == []
