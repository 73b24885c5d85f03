"""The server that `get` and `watch` ask, and the node that they send, by option, environment and bootstrap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.cli.elsewhere import Serve
from tests.cli.rig import Daemon, run
from xdsprism import CLUSTER

BOTH = pytest.mark.parametrize("command", ["get", "watch"])
BRIEF = ("--timeout", "0.5", "-o", "name")


@pytest.fixture(autouse=True)
def no_bootstrap_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("GRPC_XDS_BOOTSTRAP_CONFIG", raising=False)


def _server(address: str, *features: str) -> dict[str, Any]:
    return {"server_uri": address, "channel_creds": [{"type": "insecure"}], "server_features": list(features)}


def _bootstrap(folder: Path, *servers: dict[str, Any], **fields: Any) -> Path:
    file = folder / "bootstrap.json"
    file.write_text(json.dumps({"xds_servers": servers, "node": {"id": "me", "cluster": "mine"}, **fields}))
    return file


# BST-1: a file, the file that the environment names, the text in it
@pytest.mark.parametrize("way", ["option", "GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"])
def test_a_bootstrap_names_the_server(shared: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str):
    file = _bootstrap(tmp_path, _server(shared.listen, "xds_v3"))
    if way != "option":
        monkeypatch.setenv(way, str(file) if way == "GRPC_XDS_BOOTSTRAP" else file.read_text())
    done = run("get", "cds", *(["--bootstrap", file] if way == "option" else []), "-o", "name")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "cds/shop\ncds/shop-next\n", "")


# BST-2
@BOTH
def test_without_channel_creds_tls_is_used_and_plain_text_must_be_requested(
    shared: Daemon, tmp_path: Path, command: str
):
    entry = _server(shared.listen, "xds_v3")
    del entry["channel_creds"]
    done = run(command, "cds", "--bootstrap", _bootstrap(tmp_path, entry), "--timeout", "5", "-o", "name")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{shared.listen}: failed to connect" in done.stderr
    assert 'if it speaks plain text, add "channel_creds": [{"type": "insecure"}]' in done.stderr


def test_an_option_counts_more_than_the_environment(shared: Daemon, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRPC_XDS_BOOTSTRAP", "/nowhere")
    assert shared.get("cds", "-o", "name").exit_code == 0


# DYN-48; --param counts more than the bootstrap
def test_the_params_are_those_of_the_bootstrap_unless_others_are_given(shared: Daemon, tmp_path: Path):
    file = _bootstrap(tmp_path, _server(shared.listen, "xds_v3"), dynamic_parameters={"env": "prod"})
    ask = ("get", "rds", "main", "--bootstrap", file, "-o", "wide")
    assert run(*ask).stdout.splitlines()[1].split()[:2] == ["rds/main", "env=prod"]
    assert run(*ask, "--param", "env=test").stdout.splitlines()[1].split()[:2] == ["rds/main", "env=test"]


# CLI-1
def test_the_node_is_ours_or_that_of_the_bootstrap(serve: Serve, tmp_path: Path):
    ours = serve()
    run("get", "cds", "--server", ours.address, *BRIEF)
    assert (ours.request().node.id, ours.request().node.user_agent_name) == ("xdsprism", "xdsprism")
    theirs = serve()
    run("get", "cds", "--bootstrap", _bootstrap(tmp_path, _server(theirs.address, "xds_v3")), *BRIEF)
    assert (theirs.request().node.id, theirs.request().node.cluster) == ("me", "mine")


# VER-5, VER-6, VER-12: method and type follow; --transport counts more than the features
@pytest.mark.parametrize("mode", ["Delta", "Stream"])
@pytest.mark.parametrize(
    ("features", "flags", "version"),
    [
        (None, [], "v3"),
        (None, ["--transport", "v2"], "v2"),
        (None, ["--transport", "v3"], "v3"),
        (["xds_v3"], [], "v3"),
        ([], [], "v2"),
        (["xds_v3"], ["--transport", "v2"], "v2"),
        ([], ["--transport", "v3"], "v3"),
    ],
)
def test_the_transport(
    serve: Serve, tmp_path: Path, mode: str, features: list[str] | None, flags: list[str], version: str
):
    server = serve()
    whom = ["--server", server.address]
    if features is not None:
        whom = ["--bootstrap", str(_bootstrap(tmp_path, _server(server.address, *features)))]
    run("get", "cds", "a", *whom, *flags, "--delta" if mode == "Delta" else "--sotw", *BRIEF)
    path = f"/envoy.service.discovery.{version}.AggregatedDiscoveryService/{mode}AggregatedResources"
    assert server.methods == [path]
    assert server.request().type_url == (CLUSTER if version == "v3" else "type.googleapis.com/envoy.api.v2.Cluster")


# VER-9
def test_resources_of_a_v2_server_are_printed_as_v3(serve: Serve):
    response = pb.DiscoveryResponse(type_url="type.googleapis.com/envoy.api.v2.Cluster", nonce="1")
    item = response.resources.add(type_url=response.type_url, value=Cluster(name="old").SerializeToString())
    assert item.type_url.endswith("v2.Cluster")
    server = serve(response.SerializeToString())
    done = run("get", "cds", "--transport", "v2", "--sotw", "--server", server.address)
    assert (done.exit_code, done.stdout) == (0, f"---\n'@type': {CLUSTER}\nname: old\n")


# FBK-1: the next server of the list is asked
def test_a_server_that_is_down_is_no_failure_where_there_is_another(shared: Daemon, tmp_path: Path):
    file = _bootstrap(tmp_path, _server("127.0.0.1:1", "xds_v3"), _server(shared.listen, "xds_v3"))
    done = run("get", "cds", "--bootstrap", file, "-o", "name")
    assert (done.exit_code, done.stdout) == (0, "cds/shop\ncds/shop-next\n")


# XTP-12
def test_a_name_of_an_unknown_authority_is_reported(shared: Daemon, tmp_path: Path):
    file = _bootstrap(tmp_path, _server(shared.listen, "xds_v3"), authorities={"near": {}})
    name = "xdstp://far/envoy.config.cluster.v3.Cluster/a"
    done = run("get", "cds", name, "shop", "--bootstrap", file, "-o", "name")
    assert (done.exit_code, done.stdout) == (1, "cds/shop\n")
    assert done.stderr == f"cds/{name}: the bootstrap has no authority 'far'; it has 'near'\n"


@BOTH
def test_without_a_server_the_usage_error_names_every_way_to_give_one(command: str):
    done = run(command, "cds")
    assert done.exit_code == 2
    for way in ("--server", "--bootstrap", "GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"):
        assert way in done.stderr.replace(",", " ").split()


@BOTH
def test_two_to_ask_is_wrong_usage(command: str, tmp_path: Path):
    done = run(command, "cds", "--server", "127.0.0.1:1", "--bootstrap", _bootstrap(tmp_path))
    assert done.exit_code == 2
    assert "--server and --bootstrap" in done.stderr


# VER-13, DYN-54: params that would not be sent must not look as if they had been
@BOTH
def test_params_that_have_no_place_are_wrong_usage(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = _bootstrap(tmp_path, _server("127.0.0.1:1"))
    for whom in (["--server", "127.0.0.1:1", "--transport", "v2"], ["--bootstrap", old]):
        done = run(command, "cds", "-p", "env=prod", *whom)
        assert (done.exit_code, "--param needs v3" in done.stderr) == (2, True)
    monkeypatch.setenv("GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS", "false")
    assert run(command, "cds", "-p", "env=prod", "--server", "127.0.0.1:1").exit_code == 2


@BOTH
def test_a_bad_bootstrap_is_reported_with_its_field_and_status_1(command: str, tmp_path: Path):
    file = _bootstrap(tmp_path, {"server_uri": 7})
    done = run(command, "cds", "--bootstrap", file)
    assert done.exit_code == 1
    assert f"{file}: xds_servers[0].server_uri: expected a string" in done.stderr


@BOTH
def test_a_bootstrap_that_is_not_there_is_wrong_usage(command: str, tmp_path: Path):
    assert run(command, "cds", "--bootstrap", tmp_path / "none.json").exit_code == 2
