"""`xdsprism relay`, as an operator uses it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from tests.cli.rig import FREE, READY, Daemon, Plain, ask, command, environment, run, separately
from tests.support import web
from tests.support.waiting import becomes, eventually
from xdsprism import CLUSTER, ROUTE
from xdsprism.cli.relay import relay as relay_command
from xdsprism.config import RelayConfig
from xdsprism.core.relay.relaying import LINGER
from xdsprism.relay.relay import MAX_STALE

NOBODY = "127.0.0.1:1"


def bootstrap(folder: Path, server: str) -> Path:
    entry = {"server_uri": server, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    path = folder / "bootstrap.json"
    path.write_text(json.dumps({"xds_servers": [entry], "node": {"id": "relay"}}))
    return path


def _relay(folder: Path, server: str, *args: object, admin: str = FREE) -> Daemon:
    return Daemon(folder, "--bootstrap", bootstrap(folder, server), *args, verb="relay", admin=admin)


@pytest.fixture
def relay(tmp_path: Path, daemon: Daemon) -> Iterator[Daemon]:
    """Before a server of its own, which a test may stop."""
    with _relay(tmp_path, daemon.listen) as running:
        yield running


def _cluster_of(relay: Daemon, **metadata: str) -> str:
    answer = ask(relay.listen, ROUTE, "main", **metadata)
    return RouteConfiguration.FromString(answer.resources[0].value).virtual_hosts[0].routes[0].route.cluster


def test_the_relay_passes_each_client_its_variant(relay: Daemon):
    assert relay.get("cds", "-o", "name").stdout == "cds/shop\ncds/shop-next\n"
    assert [_cluster_of(relay, env=env) for env in ("prod", "test")] == ["shop", "shop-next"]
    becomes(lambda: relay.page("/readyz"), {"status": "ready"})


# BST-2
def test_a_bootstrap_without_channel_creds_means_tls_and_the_log_says_what_to_do(tmp_path: Path, shared: Daemon):
    path = tmp_path / "tls.json"
    path.write_text(json.dumps({"xds_servers": [{"server_uri": shared.listen, "server_features": ["xds_v3"]}]}))
    with Daemon(tmp_path, "--bootstrap", path, verb="relay") as relay:
        eventually(lambda: 'if it speaks plain text, add "channel_creds": [{"type": "insecure"}]' in relay.stderr)


# PRX-10, PRX-2
def test_the_relay_goes_on_when_the_server_is_gone(relay: Daemon, daemon: Daemon):
    with Plain(relay.listen, ROUTE, "main", env="prod") as stream:
        assert len(stream.read().resources) == 1
        assert daemon.stop() == 0
        becomes(lambda: relay.page("/api/upstreams")["upstreams"][0]["connected"], expected=False)
        assert _cluster_of(relay, env="prod", pod="another") == "shop"
        assert relay.page("/readyz") == {"status": "ready"}
        assert relay.stop() == 0
        with pytest.raises(StopIteration):  # it lasted until the end, and ended in good order
            stream.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_cleanly_and_the_exit_status_is_0(relay: Daemon, number: signal.Signals):
    with Plain(relay.listen, CLUSTER, "shop") as stream:
        assert len(stream.read().resources) == 1
        assert relay.stop(number) == 0
        with pytest.raises(StopIteration):
            stream.read()
    assert "Traceback" not in relay.stderr


def test_sighup_does_not_end_it(relay: Daemon):
    relay.send(signal.SIGHUP)
    eventually(lambda: "SIGHUP: a relay loads no files" in relay.stderr)
    assert relay.get("cds", "shop", "-o", "name").stdout == "cds/shop\n"


# PRX-30
def test_the_relay_listens_and_is_not_ready_while_no_server_is_reachable(tmp_path: Path):
    with _relay(tmp_path, NOBODY) as relay:
        answer = web.get(*web.split(relay.admin), "/readyz")
        assert answer.status == 503
        assert "no upstream server was reached yet" in answer.body
        assert relay.stop() == 0
        assert "Traceback" not in relay.stderr


# PRX-25
def test_with_a_cache_it_serves_at_once_what_an_earlier_run_knew(tmp_path: Path, daemon: Daemon):
    cache = tmp_path / "cache.db"
    with _relay(tmp_path, daemon.listen, "--cache", cache) as relay:
        assert _cluster_of(relay, env="prod") == "shop"
        assert relay.stop() == 0
    assert daemon.stop() == 0
    with _relay(tmp_path, daemon.listen, "--cache", cache) as relay:
        assert relay.page("/readyz") == {"status": "ready"}
        assert _cluster_of(relay, env="prod") == "shop"


# PRX-20
def test_group_by_asks_as_one_node_for_each_group(tmp_path: Path, daemon: Daemon):
    with _relay(tmp_path, daemon.listen, "--group-by", "env", "--sotw") as relay:
        assert [_cluster_of(relay, env=env, pod="1") for env in ("prod", "test")] == ["shop", "shop-next"]
        clients = daemon.page("/api/clients")["clients"]
        assert sorted(client["node"]["metadata"]["env"] for client in clients if client["node"]) == ["prod", "test"]
        assert {client["delta"] for client in clients} == {False}
        done = run("explain", "rds", "main", "--admin", relay.admin, "--param", "env=prod", "-o", "json")
        assert json.loads(done.stdout)["variant"]["constraint"] == "env=prod"


# PRX-9
def test_linger_is_how_long_an_unwanted_subscription_is_kept(tmp_path: Path, daemon: Daemon):
    with _relay(tmp_path, daemon.listen, "--linger", "0") as relay:
        assert _cluster_of(relay, env="prod") == "shop"
        becomes(lambda: relay.page("/api/resources")["total"], 0)
        assert relay.page("/api/upstreams")["upstreams"][0]["subscriptions"] == 0


# DYN-12
def test_node_params_choose_which_metadata_counts(tmp_path: Path, shared: Daemon):
    with (
        _relay(tmp_path, shared.listen, "--node-params", "zone") as relay,
        Plain(relay.listen, CLUSTER, "shop", env="prod", zone="a") as stream,
    ):
        assert len(stream.read().resources) == 1
        (client,) = relay.page("/api/clients")["clients"]
        assert client["params"] == {"zone": "a"}


# VER-3
def test_transport_says_which_versions_are_served(tmp_path: Path, shared: Daemon):
    old = ["cds", "shop", "-o", "name", "--transport", "v2", "--timeout", "5"]
    with _relay(tmp_path, shared.listen) as relay:
        assert relay.get(*old).stdout == "cds/shop\n"
    with _relay(tmp_path, shared.listen, "--transport", "v3") as relay:
        assert relay.get(*old).exit_code == 1
        assert relay.get("cds", "shop", "-o", "name").stdout == "cds/shop\n"


# RST-1, PRX-11: what is not known yet is asked for before there is an answer
def test_rest_passes_on_what_the_server_has(tmp_path: Path, shared: Daemon):
    with _relay(tmp_path, shared.listen, "--rest", FREE, "--rest-hold", "0.1") as relay:
        path = "/v3/discovery:clusters"
        answer = web.post(relay.rest, path, b"{}")
        said = json.loads(answer.body)
        assert [each["name"] for each in said["resources"]] == ["shop", "shop-next"]
        again = json.dumps({"version_info": said["version_info"]}).encode()
        assert web.post(relay.rest, path, again) == web.Answer(304, "")


# RST-3: an empty answer would take all away that its client has
def test_rest_without_a_server_behind_it_is_503(tmp_path: Path):
    with _relay(tmp_path, f"127.0.0.1:{web.free_port()}", "--rest", FREE) as relay:
        headers = {"x-envoy-expected-rq-timeout-ms": "400"}
        answer = web.post(relay.rest, "/v3/discovery:clusters", b"{}", headers)
        assert (answer.status, "not known yet" in answer.body) == (503, True)


def test_admin_off_opens_no_second_port(tmp_path: Path, shared: Daemon):
    with _relay(tmp_path, shared.listen, admin="off") as relay:
        assert relay.admin == "off"
        assert relay.get("cds", "shop", "-o", "name").stdout == "cds/shop\n"
        assert relay.stop() == 0


def test_the_bootstrap_may_come_from_the_environment(tmp_path: Path):
    path = bootstrap(tmp_path, NOBODY)
    argv = command("relay", "--listen", FREE, "--admin", "off")
    env = environment(GRPC_XDS_BOOTSTRAP=str(path))
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        assert READY.match(process.stderr.readline())
        process.terminate()
        assert process.wait(20) == 0


# -- what is wrong


def _refused(*args: object) -> subprocess.CompletedProcess[str]:
    done = separately("relay", *args, *(() if "--listen" in args else ("--listen", FREE, "--admin", FREE)))
    assert "Traceback" not in done.stderr
    assert not READY.search(done.stderr)
    assert done.stdout == ""
    return done


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "bootstrap.json: can't read the bootstrap: No such file or directory"),
        ("{", "bootstrap.json:1: not JSON: "),
        ('{"xds_servers": 7}', "bootstrap.json: xds_servers: "),
        ("{}", "bootstrap.json: "),
    ],
)
def test_a_bootstrap_that_is_missing_or_malformed_is_status_1_and_says_where(
    tmp_path: Path, text: str | None, message: str
):
    path = tmp_path / "bootstrap.json"
    if text is not None:
        path.write_text(text)
    done = _refused("--bootstrap", path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Error: the configuration is refused: 1 problem" in done.stderr


def test_no_bootstrap_at_all_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch):
    for name in ("GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    done = run("relay")
    text = "no upstream servers: give --bootstrap FILE, or set GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG"
    assert (done.exit_code, done.stderr) == (2, f"Error: {text}\n")


def test_a_cache_that_cannot_be_written_is_status_1(tmp_path: Path):
    cache = tmp_path / "nowhere" / "cache.db"
    done = _refused("--bootstrap", bootstrap(tmp_path, NOBODY), "--cache", cache)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert str(cache) in done.stderr


def test_a_cache_that_another_relay_has_is_status_1(tmp_path: Path):
    cache = tmp_path / "cache.db"
    with _relay(tmp_path, NOBODY, "--cache", cache):
        done = _refused("--bootstrap", bootstrap(tmp_path, NOBODY), "--cache", cache)
    assert done.returncode == 1
    assert str(cache) in done.stderr


def test_a_port_in_use_is_one_clean_message_and_status_1(tmp_path: Path, shared: Daemon):
    path = bootstrap(tmp_path, NOBODY)
    for flags in (["--listen", shared.listen, "--admin", "off"], ["--listen", FREE, "--admin", shared.admin]):
        done = _refused("--bootstrap", path, *flags)
        taken = shared.listen if flags[3] == "off" else shared.admin
        assert done.returncode == 1
        assert f"Error: can't listen on {taken}" in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--listen", "18000"], "'18000' is not HOST:PORT"),
        (["--node-params", "env,,x"], "--node-params 'env,,x' is not a list of keys"),
        (["--group-by", "env,,x"], "--group-by 'env,,x' is not a list of keys: write env,version"),
        (["--group-by", "*"], "--group-by '*' is not a list of keys: write env,version"),
        (["--group-by", ""], "--group-by '' is not a list of keys"),
        (["--linger", "-1"], "'-1' is not a number of seconds"),
        (["--linger", "inf"], "'inf' is not a number of seconds"),
        (["--max-stale", "nan"], "'nan' is not a number of seconds"),
        (["--linger", "soon"], "'soon' is not a number of seconds"),
        (["--workers", "2"], "No such option '--workers'"),
        (["config"], "unexpected extra argument"),
    ],
)
def test_a_wrong_flag_is_status_2(tmp_path: Path, flags: list[str], message: str):
    done = run("relay", "--bootstrap", bootstrap(tmp_path, NOBODY), *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_the_defaults_are_those_of_the_library():
    defaults = {param.name: param.default for param in relay_command.params}
    assert (defaults["linger"], defaults["max_stale"]) == (LINGER, MAX_STALE)
    assert (RelayConfig().linger, RelayConfig().max_stale) == (LINGER, MAX_STALE)
    assert (defaults["report_nacks"], RelayConfig().report_nacks) == (False, False)  # PRX-18


# -- explain


def test_explain_shows_the_variant_of_a_relay_with_its_server_and_age(relay: Daemon, daemon: Daemon):
    with Plain(relay.listen, ROUTE, "main", env="prod") as stream:
        stream.read()
        relay.get("rds", "main", "--param", "env=qa")
        found = run("explain", "rds", "main", "--admin", relay.admin, "--param", "env=prod")
        assert found.exit_code == 0
        assert found.stdout.startswith("rds/main for a client with env=prod is\n")
        assert f"{daemon.listen}, 0 s ago" in found.stdout or f"{daemon.listen}, 1 s ago" in found.stdout
        assert "nothing for env=qa   needs env=qa, but env is prod" in found.stdout
        absent = run("explain", "rds", "main", "--admin", relay.admin, "--param", "env=qa")
        assert absent.exit_code == 1
        assert absent.stdout.startswith("rds/main does not exist for a client with env=qa.\n")
        unknown = run("explain", "rds", "main", "--admin", relay.admin, "--param", "env=test")
        assert unknown.exit_code == 1
        text = "rds/main for a client with env=test is not in the cache: the relay would ask its server for it.\n"
        assert unknown.stdout.startswith(text)
        daemon.stop()
        becomes(lambda: relay.page("/api/upstreams")["upstreams"][0]["connected"], expected=False)
        assert "stale since 2" in run("explain", "rds", "main", "--admin", relay.admin, "-p", "env=prod").stdout
    nope = run("explain", "rds", "nope", "--admin", relay.admin)
    assert (nope.exit_code, nope.stderr) == (1, "Error: rds/nope does not exist\n")
