"""`xdsprism get`, over real streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.rig import Daemon, run, write
from tests.support.resources import Document, eds_cluster, routes, static_cluster, to
from tests.support.waiting import becomes

both_modes = pytest.mark.parametrize("mode", ["--delta", "--sotw"])


def _documents(text: str) -> list[Document]:
    return list(yaml.safe_load_all(text))


@both_modes
def test_no_name_is_everything(shared: Daemon, mode: str):
    done = shared.get("cds", mode, "-o", "name")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "cds/shop\ncds/shop-next\n", "")
    assert shared.get("envoy.config.cluster.v3.Cluster", mode, "-o", "name").stdout == done.stdout
    assert shared.get("eds", mode, "-o", "name").stdout == "eds/shop\n"
    assert shared.get("cds", "*", mode, "-o", "name").stdout == done.stdout


# DYN-1, DYN-5: params go out as resource_locators, and the variant comes back with its constraints
@both_modes
def test_params_choose_the_variant(shared: Daemon, mode: str):
    done = shared.get("rds", "main", mode, "--param", "env=test", "--param", "team=x")
    assert done.exit_code == 0
    (document,) = _documents(done.stdout)
    assert document["@type"] == "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    assert document["$when"] == "env=test"
    assert document["virtual_hosts"][0]["routes"][0]["route"]["cluster"] == "shop-next"


@both_modes
def test_without_params_a_plain_name_is_asked_for(shared: Daemon, mode: str):
    (document,) = _documents(shared.get("eds", "shop", mode).stdout)
    assert "$when" not in document
    assert document["cluster_name"] == "shop"


@both_modes
def test_a_wildcard_with_params_gives_what_these_params_see(shared: Daemon, mode: str):
    assert shared.get("rds", mode, "-p", "env=prod", "-o", "name").stdout == "rds/main\n"
    nothing = shared.get("rds", mode, "-p", "env=qa", "-o", "name")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "no resources\n")


# DLT-4, DYN-11, SOT-9: how each of them says that there is nothing
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["cds", "--delta"], ""),
        (["eds", "--delta", "-p", "zone=a"], ""),
        (
            ["eds", "--sotw", "-p", "zone=a"],
            ": envoy.config.endpoint.v3.ClusterLoadAssignment 'nope' does not exist for these parameters",
        ),
    ],
)
def test_a_name_that_does_not_exist_is_status_1_and_the_others_are_printed(
    shared: Daemon, flags: list[str], reason: str
):
    done = shared.get(*flags, "nope", "-o", "name")
    word = flags[0]
    assert done.exit_code == 1
    assert (done.stdout, done.stderr) == ("", f"{word}/nope does not exist{reason}\n")
    both = shared.get(*flags, "nope", "shop", "-o", "name")
    assert (both.exit_code, both.stdout, both.stderr) == (1, f"{word}/shop\n", f"{word}/nope does not exist{reason}\n")


# SOT-9, CLI-9: SotW says nothing at all about endpoints that are not there; and a response without a cluster that was
# never there is no verdict on it
@pytest.mark.parametrize("word", ["eds", "cds"])
def test_silence_ends_with_the_timeout(shared: Daemon, word: str):
    done = shared.get(word, "nope", "shop", "--sotw", "--timeout", "0.5", "-o", "name")
    assert (done.exit_code, done.stdout) == (1, f"{word}/shop\n")
    assert done.stderr == f"{word}/nope: no answer within 0.5 s (it may not exist: --delta tells at once)\n"


def test_wide_is_a_table(shared: Daemon):
    header, line = shared.get("eds", "shop", "-p", "zone=a", "-o", "wide").stdout.splitlines()
    assert header.split() == ["RESOURCE", "VARIANT", "VERSION", "BYTES"]
    name, variant, version, _ = line.split()
    assert (name, variant, len(version)) == ("eds/shop", "zone=a", 16)


def test_json_of_one_name_is_the_resource_and_of_many_a_list(shared: Daemon):
    one = json.loads(shared.get("cds", "shop", "-o", "json").stdout)
    assert one["name"] == "shop"
    many = json.loads(shared.get("cds", "-o", "json").stdout)
    assert [resource["name"] for resource in many["resources"]] == ["shop", "shop-next"]
    assert many["resources"][0] == one


RICH: list[Document] = [
    {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "web",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 80}},
        "metadata": {"filter_metadata": {"x": {"list": [1, "no", None, True], "text": "a: b\n# c\n"}}},
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "tcp",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                            "stat_prefix": "y",
                            "cluster": "on",
                            "idle_timeout": "1.500s",
                        },
                    }
                ]
            }
        ],
    },
    {
        "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
        "name": "aliased",
        "aliases": ["other"],
        "cache_control": {"do_not_cache": True},
        "resource": eds_cluster("aliased"),
    },
    {"$when": 'env="a b" and not zone exists', **routes("main", to("one"))},
    {"$when": 'env!="a b" and not zone exists', **routes("main", to("two"))},
    {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": "token",
        "generic_secret": {"secret": {"inline_bytes": "AAH/"}},
    },
]


# DESIGN 4, 3: everything that is printed is a document that is read back, as YAML and as JSON
@both_modes
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_serve_reads_what_get_prints(tmp_path: Path, mode: str, form: str):
    write(tmp_path / "first", "all", *RICH)
    queries = [["lds"], ["cds"], ["sds"], ["rds", "-p", "env=a b"], ["rds", "-p", "env=x"]]
    second = tmp_path / "second"
    second.mkdir()
    with Daemon(tmp_path, tmp_path / "first") as daemon:
        printed = [daemon.get(*query, mode, "-o", form, "--show-secrets") for query in queries]
    for number, done in enumerate(printed):
        assert (done.exit_code, done.stderr) == (0, "")
        (second / f"{number}.{form}").write_text(done.stdout)
    with Daemon(tmp_path, second) as daemon:
        again = [daemon.get(*query, mode, "-o", form, "--show-secrets") for query in queries]
    assert [done.stdout for done in again] == [done.stdout for done in printed]
    if mode == "--delta":  # a plain SotW response has no place for aliases and constraints
        assert _versions(second) == _versions(tmp_path / "first")


def _versions(config: Path) -> set[tuple[str, str]]:
    listed = json.loads(run("check", config, "-o", "json").stdout)["resources"]
    return {(each["name"], variant["version"]) for each in listed for variant in each["variants"]}


# DLT-20
def test_a_resource_is_found_by_its_alias(tmp_path: Path):
    write(tmp_path / "config", "all", *RICH)
    with Daemon(tmp_path, tmp_path / "config") as daemon:
        done = daemon.get("cds", "other", "-o", "name")
        assert (done.exit_code, done.stdout) == (0, "cds/aliased\n")


# DLT-21: a list in many responses is complete all the same, plain or with params
def test_a_list_that_comes_in_several_responses_is_printed_whole(tmp_path: Path):
    clusters = [static_cluster(f"c{number}", "127.0.0.1", 1) for number in range(5)]
    for cluster in clusters:
        cluster["metadata"] = {"filter_metadata": {"pad": {"text": "x" * 1_200_000}}}
    file = tmp_path / "big.json"
    file.write_text(json.dumps({"resources": clusters}))
    with Daemon(tmp_path, file) as daemon:
        for flags in ([], ["-p", "a=b"]):
            assert daemon.get("cds", "-o", "name", *flags).stdout == "cds/c0\ncds/c1\ncds/c2\ncds/c3\ncds/c4\n"
        assert daemon.metric('xdsprism_sent_resources_total{type="cds"}') == 10
        assert daemon.metric('xdsprism_responses_total{type="cds"}') == 2 * (
            3 + 1
        )  # the last says that it was the last


# SRV-8: every response that was read is ACKed
@both_modes
def test_get_acks_what_it_receives(shared: Daemon, mode: str):
    assert shared.get("cds", mode, "-o", "name").exit_code == 0
    responses = shared.metric('xdsprism_responses_total{type="cds"}')
    assert responses > 0
    becomes(lambda: shared.metric('xdsprism_acks_total{type="cds"}'), responses)


# At once: the timeout is for answers
@both_modes
@pytest.mark.parametrize("names", [[], ["a", "b"]], ids=["list", "names"])
def test_a_server_that_is_not_there_is_status_1(mode: str, names: list[str]):
    done = run("get", "cds", *names, mode, "--server", "127.0.0.1:1", "--timeout", 1000)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: UNAVAILABLE: 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1


# DYN-46: the server's own words arrive
def test_a_subscription_that_the_server_refuses_says_why(shared: Daemon):
    done = shared.get("cds", "shop", "-p", f"{'k' * 300}=v")
    assert done.exit_code == 1
    assert done.stderr == "cds/shop: the locator has a key of 300 bytes; at most 256 are accepted\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["pods", "--server", "127.0.0.1:1"], "unknown resource type 'pods'"),
        (["cds", "--server", "here"], "'here' is not HOST:PORT"),
        (["cds", "--server", "127.0.0.1:1", "--timeout", "0"], "0.0 is not in the range x>0"),
        (["cds", "--server", "127.0.0.1:1", "-p", "env"], "'env' is not KEY=VALUE"),
        (["cds", "--server", "127.0.0.1:1", "-o", "xml"], "'xml' is not one of"),
    ],
)
def test_wrong_usage_is_status_2(args: list[str], message: str):
    done = run("get", *args)
    assert done.exit_code == 2
    assert message in done.stderr
