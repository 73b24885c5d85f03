"""`xdsprism get` with servers that implement less of xDS, or break it."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from tests.cli.elsewhere import Serve
from tests.cli.rig import run
from xdsprism import CLUSTER
from xdsprism.client import list_query

both_modes = pytest.mark.parametrize("mode", ["--delta", "--sotw"])


def _delta(*names: str, **fields: Any) -> bytes:
    response = pb.DeltaDiscoveryResponse(type_url=CLUSTER, nonce="1")
    for name in names:
        resource = response.resources.add(version="1", **(fields or {"name": name}))
        resource.resource.Pack(Cluster(name=name))
    return response.SerializeToString()


def test_a_list_ends_when_a_server_falls_silent_that_does_not_say_so(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(list_query, "QUIET", 0.2)
    done = run("get", "cds", "--server", serve(_delta("a", "b")).address, "-o", "name")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "cds/a\ncds/b\n", "")


def test_a_server_that_says_nothing_is_not_an_empty_one(serve: Serve):
    done = run("get", "cds", "--server", serve().address, "--timeout", "0.3")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "no resources: no answer within 0.3 s\n")


@both_modes
def test_an_undecodable_response_is_reported_with_status_1(serve: Serve, mode: str):
    address = serve(b"\xff\xff").address
    done = run("get", "cds", mode, "--server", address)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: INTERNAL: {address}: not a discovery response: ")


# DYN-9, NAK-17
def test_invalid_constraints_are_reported_with_status_1(serve: Serve):
    name = {"name": "a", "dynamic_parameter_constraints": {"constraint": {"value": "no key"}}}
    address = serve(_delta("a", resource_name=name)).address
    done = run("get", "cds", "a", "--server", address)
    assert (done.exit_code, done.stdout) == (1, "")
    reason = "its constraints can't be read: a constraint has no key"
    assert done.stderr.startswith(f"cds/a: 'a' from {address} is invalid: {reason}")


def _one_good_one_bad(*, delta: bool, name: str = "bad") -> bytes:
    good, bad = Cluster(name="good"), Cluster(name=name, connect_timeout=Duration())
    response: Any = pb.DeltaDiscoveryResponse() if delta else pb.DiscoveryResponse()
    response.type_url, response.nonce = CLUSTER, "1"
    for cluster in (good, bad):
        item = response.resources.add()
        (item.resource if delta else item).Pack(cluster)
        if delta:
            item.name, item.version = cluster.name, "1"
    return response.SerializeToString()


# NAK-14, NAK-17: the good one is printed, the other is NACKed and told of
@both_modes
@pytest.mark.parametrize("names", [[], ["good", "bad"]], ids=["list", "names"])
def test_an_invalid_resource_is_reported_with_its_reason(serve: Serve, mode: str, names: list[str]):
    server = serve(_one_good_one_bad(delta=mode == "--delta"))
    done = run("get", "cds", *names, mode, "-o", "name", "--server", server.address)
    assert (done.exit_code, done.stdout) == (1, "cds/good\n")
    assert done.stderr.startswith(f"cds/bad: 'bad' from {server.address} is invalid: connect_timeout: ")


# NAK-27: nobody knows whom it was meant for, but it does not go unsaid
@both_modes
def test_an_invalid_resource_without_a_name_is_reported_too(serve: Serve, mode: str):
    address = serve(_one_good_one_bad(delta=mode == "--delta", name="")).address
    done = run("get", "cds", mode, "-o", "name", "--server", address)
    assert (done.exit_code, done.stdout) == (1, "cds/good\n")
    assert done.stderr.startswith(f"{address} sent an invalid resource: ")


# TP3, ERR-8: the server's own words
@both_modes
def test_a_resource_error_is_reported_with_its_reason(serve: Serve, mode: str):
    response: Any = pb.DeltaDiscoveryResponse() if mode == "--delta" else pb.DiscoveryResponse()
    response.type_url, response.nonce = CLUSTER, "1"
    error = response.resource_errors.add()
    error.resource_name.name, error.error_detail.code, error.error_detail.message = "a", 7, "not for you"
    done = run("get", "cds", "a", mode, "--server", serve(response.SerializeToString()).address)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "cds/a: not for you\n")


# SotW has versions of responses only
def test_wide_shows_the_version_of_a_sotw_response(serve: Serve):
    response = pb.DiscoveryResponse(type_url=CLUSTER, nonce="1", version_info="seven")
    response.resources.add().Pack(Cluster(name="a"))
    done = run("get", "cds", "--sotw", "-o", "wide", "--server", serve(response.SerializeToString()).address)
    assert done.stdout.splitlines()[1].split() == ["cds/a", "-", "seven", "3"]


def test_a_type_whose_proto_is_not_installed_is_printed_as_base64_if_secrets_are(serve: Serve):
    # OPS-14: nobody can tell what is secret in it
    response = pb.DeltaDiscoveryResponse(type_url="type.googleapis.com/my.own.Thing", nonce="1")
    resource = response.resources.add(name="x", version="1")
    resource.resource.type_url, resource.resource.value = "type.googleapis.com/my.own.Thing", b"\x01\x02"
    address = serve(response.SerializeToString()).address
    for option, value in (([], "'[redacted]'"), (["--show-secrets"], "AQI=")):
        done = run("get", "my.own.Thing", "x", "--server", address, *option)
        assert done.exit_code == 0
        assert "'@type': type.googleapis.com/my.own.Thing\n" in done.stdout
        assert f"value: {value}\n" in done.stdout
        assert "name: x\n" in done.stdout
