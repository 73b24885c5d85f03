"""`xdsprism serve`, as an operator uses it."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import grpc
import pytest
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.service.load_stats.v3.lrs_pb2 import LoadStatsRequest
from envoy.service.load_stats.v3.lrs_pb2_grpc import LoadReportingServiceStub

from tests.cli.rig import ADS, FREE, READY, Daemon, Plain, ask, run, write
from tests.support import web
from tests.support.resources import routes, static_cluster, to
from tests.support.waiting import becomes, eventually
from xdsprism import CLUSTER, ENDPOINT, ROUTE


def _cluster(route: RouteConfiguration) -> str:
    return route.virtual_hosts[0].routes[0].route.cluster


def _route_of(daemon: Daemon, **metadata: object) -> str:
    answer = ask(daemon.listen, ROUTE, "main", **metadata)
    return _cluster(RouteConfiguration.FromString(answer.resources[0].value))


@pytest.fixture
def fresh(tmp_path: Path, config: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path, config, fresh=True) as daemon:
        yield daemon


def test_ready_line_names_the_ports_that_were_free_and_both_answer(fresh: Daemon):
    assert not fresh.listen.endswith(":0")
    assert not fresh.admin.endswith(":0")
    assert fresh.get("cds", "-o", "name").stdout == "cds/shop\ncds/shop-next\n"
    assert fresh.page("/readyz") == {"status": "ready"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_cleanly_and_the_exit_status_is_0(fresh: Daemon, number: signal.Signals):
    with Plain(fresh.listen, CLUSTER, "shop") as stream:
        assert len(stream.read().resources) == 1
        assert fresh.stop(number) == 0
        with pytest.raises(StopIteration):  # status OK; a broken connection is an RpcError
            stream.read()
    assert "Traceback" not in fresh.stderr


def test_admin_off_opens_no_second_port(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, admin="off") as daemon:
        assert daemon.admin == "off"
        assert daemon.get("cds", "shop", "-o", "name").stdout == "cds/shop\n"
        assert daemon.stop() == 0


# RST-1, RST-2
def test_rest_is_served_on_a_port_of_its_own_and_named_in_the_ready_line(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--rest", FREE, "--rest-hold", "0.1") as daemon:
        assert not daemon.rest.endswith(":0")
        answer = web.post(daemon.rest, "/v3/discovery:clusters", b'{"node": {"id": "me"}}')
        said = json.loads(answer.body)
        assert [each["name"] for each in said["resources"]] == ["shop", "shop-next"]
        again = json.dumps({"version_info": said["version_info"]}).encode()
        assert web.post(daemon.rest, "/v3/discovery:clusters", again) == web.Answer(304, "")
        becomes(lambda: daemon.metric('xdsprism_rest_answers_total{status="304"}'), 1)
        assert "me connected" not in daemon.stderr  # whoever polls would fill the log
        assert daemon.stop() == 0


def test_the_transport_of_our_own_serves_and_counts_its_connections(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--engine", "h2") as daemon:
        assert daemon.get("cds", "shop", "-o", "name").stdout == "cds/shop\n"
        becomes(lambda: daemon.metric("xdsprism_connections"), 0)  # `get` leaves none behind
        with Plain(daemon.listen, CLUSTER, "shop") as stream:
            stream.read()
            becomes(lambda: daemon.metric("xdsprism_connections"), 1)
        assert daemon.metric('xdsprism_limited_total{ended="connection",limit="preface"}') == 0
        assert daemon.stop() == 0


def test_rest_is_off_unless_it_is_asked_for(daemon: Daemon):
    assert "rest=" not in daemon.stderr


def test_a_rest_port_in_use_is_one_clean_message_and_status_1(daemon: Daemon, config: Path):
    done = run("serve", config, "--listen", FREE, "--admin", FREE, "--rest", daemon.admin)
    assert done.exit_code == 1
    assert f"Error: can't listen on {daemon.admin} for REST" in done.stderr
    assert "Traceback" not in done.stderr


# LRS-1
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {"interval": 10.0, "clusters": "*"}),
        (["--load-interval", "2.5", "--load-clusters", "shop, cart"], {"interval": 2.5, "clusters": ["cart", "shop"]}),
    ],
)
def test_loads_are_asked_for_as_the_flags_say(tmp_path: Path, config: Path, flags: list[str], expected: object):
    with Daemon(tmp_path, config, *flags) as daemon:
        with grpc.insecure_channel(daemon.listen) as channel:
            stream = LoadReportingServiceStub(channel).StreamLoadStats(iter([LoadStatsRequest()]), timeout=30)
            answer = next(stream)
        page = daemon.page("/api/loads")
        assert {key: page[key] for key in ("interval", "clusters")} == expected
        assert answer.load_reporting_interval.ToNanoseconds() == page["interval"] * 1e9
        assert list(answer.clusters) == (["shop", "shop-next"] if page["clusters"] == "*" else page["clusters"])


# OPS-3
def test_limits_are_as_the_flags_say(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--limit", "client_streams=1", "--limit", "types=2") as daemon:
        with grpc.insecure_channel(daemon.listen) as channel:
            method, open_end = LoadReportingServiceStub(channel).StreamLoadStats, threading.Event()
            stream = method(chain([LoadStatsRequest()], iter(open_end.wait, True)), timeout=30)
            next(stream)
            with pytest.raises(grpc.RpcError, match="has 1 streams at this server, and may have no more"):
                next(method(iter([LoadStatsRequest()]), timeout=30))
            open_end.set()
        assert daemon.metric('xdsprism_limited_total{ended="stream",limit="client_streams"}') == 1
        assert daemon.page("/api/clients")["limited"] == {"127.0.0.1": {"client_streams": 1}}


def test_serves_without_uvloop(tmp_path: Path, config: Path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "uvloop.py").write_text("raise ImportError('not for this Python')\n")
    with Daemon(tmp_path, config, first=str(hidden)) as daemon:
        assert daemon.get("cds", "shop", "-o", "name").stdout == "cds/shop\n"
        assert daemon.stop() == 0


# OPS-8
def test_a_broken_configuration_at_start_is_refused_with_every_problem(config: Path):
    first = write(config, "first", {"@type": "envoy.config.cluster.v3.Cluster", "name": "a", "wrong": 1})
    second = write(config, "second", {"@type": "envoy.config.cluster.v3.Cluster", "name": "b", "type": "NOPE"})
    done = run("serve", config, "--listen", FREE, "--admin", FREE)
    assert done.exit_code == 1
    *lines, last = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert [line.split(": ")[:2] for line in lines] == [[f"{first}:3", "wrong"], [f"{second}:3", "type"]]
    assert last == "Error: the configuration is refused: 2 problems"
    assert not READY.search(done.stderr)
    assert done.stdout == ""


def test_a_warning_is_logged_once_and_shown_as_long_as_it_stands(tmp_path: Path, config: Path):
    nameless = {"@type": "envoy.config.route.v3.RouteConfiguration", "name": "x", "virtual_hosts": [{"domains": ["*"]}]}
    file = write(config, "nameless", nameless)
    fault = "virtual_hosts[0].name: must not be empty"
    with Daemon(tmp_path, config, "--validate", "warn") as daemon:
        assert f"WARNING {file}:4: {fault}" in daemon.stderr
        other = {"@type": "envoy.config.cluster.v3.Cluster", "name": "new", "connect_timeout": "1s"}
        write(config, "nameless", other, nameless)  # the same, further down
        seen = eventually(
            lambda: daemon.page("/api/config")["last_load"],
            lambda load: [each["line"] for each in load["warnings"]] == [8],
        )
        assert seen["ok"]
        assert daemon.stderr.count(fault) == 1


# OPS-8
def test_a_broken_edit_is_reported_and_the_last_good_configuration_stays(daemon: Daemon, config: Path):
    good = daemon.page("/api/config")["last_load"]
    assert good["ok"]
    assert (good["files"], good["resources"], good["errors"]) == (3, 4, [])

    broken = write(config, "routes", {**routes("main", to("shop")), "nonsense": 1})
    seen = eventually(lambda: daemon.page("/api/config"), lambda page: not page["last_load"]["ok"])
    problem = {"file": str(broken), "line": 12, "path": "nonsense"}
    assert [{key: error[key] for key in problem} for error in seen["last_load"]["errors"]] == [problem]
    assert (
        seen["last_good_load"] | {"time": good["time"]} == good
    )  # its time is that of the last good look at the files
    assert seen["last_good_load"]["time"] < seen["last_load"]["time"]
    assert seen["from"] == [str(config)]
    eventually(lambda: f"ERROR configuration refused, the last good one stays: {broken}:12: nonsense" in daemon.stderr)
    assert _route_of(daemon, env="prod") == "shop"
    assert daemon.metric("xdsprism_refused_writes_total") == 1
    assert daemon.metric("xdsprism_config_ok") == 0
    assert daemon.page("/readyz") == {"status": "ready"}

    write(config, "routes", routes("main", to("shop-next")))
    becomes(lambda: daemon.page("/api/config")["last_load"]["ok"], expected=True)
    assert _route_of(daemon, env="prod") == "shop-next"
    assert daemon.metric("xdsprism_config_ok") == 1


# OPS-8
def test_a_second_refusal_for_the_same_faults_counts_once(daemon: Daemon, config: Path):
    refused = 'xdsprism_config_loads_total{result="refused"}'
    broken = write(config, "routes", {**routes("main", to("shop")), "nonsense": 1})
    eventually(lambda: daemon.metric(refused) >= 1)
    for _ in range(2):
        before = daemon.metric(refused)
        daemon.send(signal.SIGHUP)
        eventually(lambda least=before: daemon.metric(refused) > least)
    assert daemon.stderr.count("ERROR configuration refused") == 1
    assert daemon.stderr.count("nonsense") == 1
    assert "WARNING configuration refused again for problems logged before (/api/config lists them): 1\n" in (
        daemon.stderr
    )
    assert daemon.metric("xdsprism_refused_writes_total") == 1
    assert [error["file"] for error in daemon.page("/api/config")["last_load"]["errors"]] == [str(broken)]

    other = write(config, "other", {**routes("other", to("shop")), "rubbish": 1})
    eventually(lambda: daemon.metric("xdsprism_refused_writes_total") == 2)
    (line,) = [line for line in daemon.stderr.splitlines() if "rubbish" in line]
    assert f"stays: {other}:" in line
    assert line.endswith("; and 1 that were logged before")
    assert "nonsense" not in line
    assert len(daemon.page("/api/config")["last_load"]["errors"]) == 2


def test_sighup_reads_everything_again(daemon: Daemon):
    loads = 'xdsprism_config_loads_total{result="ok"}'
    before = daemon.metric(loads)
    daemon.send(signal.SIGHUP)
    eventually(lambda: daemon.metric(loads) > before)
    assert daemon.stop() == 0


def test_a_port_in_use_is_one_clean_message_and_status_1(daemon: Daemon, config: Path):
    for flags in (["--listen", daemon.listen, "--admin", "off"], ["--listen", FREE, "--admin", daemon.admin]):
        done = run("serve", config, *flags)
        taken = daemon.listen if flags[3] == "off" else daemon.admin
        assert done.exit_code == 1
        assert f"Error: can't listen on {taken}" in done.stderr
        assert "Traceback" not in done.stderr
        assert not READY.search(done.stderr)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--listen", "18000"], "'18000' is not HOST:PORT, such as 127.0.0.1:18000 or [::1]:18000"),
        (["--listen", "127.0.0.1:99999"], "'127.0.0.1:99999' is not HOST:PORT"),
        (["--admin", "no"], "'no' is not HOST:PORT"),
        (["--node-params", "env,,x"], "--node-params 'env,,x' is not a list of keys: write env,version or '*' or none"),
        (["--node-params", "env,*"], "--node-params 'env,*' is not a list of keys"),
        (["--node-params", "env,node.zone"], "no field 'node.zone' to take params from: use node.id, node.cluster, "),
        (["--resource-errors", "some"], "'some' is not one of 'locators', 'all', 'none'"),
        (["--rest", "18080"], "'18080' is not HOST:PORT"),
        (["--rest-hold", "-1"], "'-1' is not a number of seconds"),
        (["--load-interval", "0"], "an interval must be longer than 0 seconds"),
        (["--max-connection-age", "0"], "an interval must be longer than 0 seconds"),
        (["--load-interval", "nan"], "'nan' is not a number of seconds"),
        (["--load-clusters", "a,,b"], "--load-clusters 'a,,b' is not a list of clusters: write shop,checkout or '*'"),
        (["--load-clusters", "a,*"], "--load-clusters 'a,*' is not a list of clusters"),
        (
            ["--limit", "stream=1"],
            "there is no limit 'stream'; the limits are address_connections, address_handshakes, all_loads, ",
        ),
        (["--limit", "types=few"], "'types=few': 'few' is not a whole number"),
        (["--limit", "types"], "'types' is not NAME=NUMBER, such as types=64; the limits are address_connections, "),
        (["--limit", "types=1", "--limit", "types=2"], "'types' is given twice"),
        (["--limit", "requests=0"], "the limit requests is 0, and has to be more than 0"),
        (["--log-format", "xml"], "'xml' is not one of 'text', 'json'"),
        (["--log-level", "loud"], "'loud' is not one of 'debug', 'info', 'warning', 'error'"),
        (["--workers", "2"], "No such option '--workers'"),
    ],
)
def test_a_wrong_flag_is_status_2(config: Path, flags: list[str], message: str):
    done = run("serve", config, *flags)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_a_path_that_is_not_there_is_status_2(tmp_path: Path):
    done = run("serve", tmp_path / "nowhere")
    assert done.exit_code == 2
    assert "does not exist" in done.stderr
    assert run("serve").exit_code == 2


# DYN-12: DESIGN 6.2, with all three forms of the flag
@pytest.mark.parametrize(
    ("flag", "prod", "stranger"),
    [
        (None, "next", "next"),
        ("*", "next", "next"),
        ("env", "next", "plain"),
        ("zone,env", "next", "plain"),
        ("none", "plain", "plain"),
    ],
)
def test_node_params_choose_which_metadata_counts(tmp_path: Path, flag: str | None, prod: str, stranger: str):
    folder = tmp_path / "config"
    choice = {"$match": [{"when": "env=prod or team=x", "value": "next"}, {"value": "plain"}]}
    write(folder, "routes", routes("main", to(choice)))
    with Daemon(tmp_path, folder, *(["--node-params", flag] if flag is not None else [])) as daemon:
        assert _route_of(daemon, env="prod") == prod
        assert _route_of(daemon, team="x") == stranger
        assert _route_of(daemon) == "plain"


# DYN-12: fields of the node, nested keys, numbers; by the environment too
@pytest.mark.parametrize("way", ["flag", "environment"])
def test_node_params_take_fields_of_the_node_and_nested_keys(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch):
    names = "node.id,labels.app,replicas"
    folder = tmp_path / "config"
    condition = "node.id=plain and labels.app=shop and replicas=3"
    write(folder, "routes", routes("main", to({"$match": [{"when": condition, "value": "next"}, {"value": "plain"}]})))
    if way == "environment":
        monkeypatch.setenv("XDSPRISM_NODE_PARAMS", names)
    with Daemon(tmp_path, folder, *(["--node-params", names] if way == "flag" else [])) as daemon:
        assert _route_of(daemon, labels={"app": "shop"}, replicas=3) == "next"
        assert _route_of(daemon, labels={"app": "shop"}, replicas="4") == "plain"
        with Plain(daemon.listen, ROUTE, "main", labels={"app": "shop"}) as stream:
            stream.read()
            (client,) = daemon.page("/api/clients")["clients"]
            assert client["params"] == {"node.id": "plain", "labels.app": "shop"}
        asked = [f"{key}={value}" for key, value in (("node.id", "plain"), ("labels.app", "shop"), ("replicas", "3"))]
        flags = [part for each in asked for part in ("--param", each)]
        why = run("explain", "rds", "main", "--admin", daemon.admin, *flags)
        assert f"=>   {condition}" in why.stdout


# ERR-1
def test_resource_errors_all_tells_plain_clients_too_why_there_is_nothing(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--resource-errors", "all") as daemon:
        answer = ask(daemon.listen, ENDPOINT, "nope")
        assert [error.resource_name.name for error in answer.resource_errors] == ["nope"]
        assert answer.resource_errors[0].error_detail.code == 5


# ERR-1
def test_resource_errors_none_sends_no_errors(tmp_path: Path, config: Path):
    quiet = ["eds", "nope", "--sotw", "--param", "zone=a", "--timeout", "0.5"]
    with Daemon(tmp_path, config) as daemon:
        assert "does not exist for these parameters" in daemon.get(*quiet).stderr
    with Daemon(tmp_path, config, "--resource-errors", "none") as daemon:
        assert daemon.get(*quiet).stderr.startswith("eds/nope: no answer within 0.5 s")


# NAK-12: once per NACK, with who, what and why
def test_a_nack_is_logged_as_text(daemon: Daemon):
    _nack(daemon, "bad\nzone\x1b[2J")
    line = eventually(lambda: next((line for line in daemon.stderr.splitlines() if "WARNING" in line), ""))
    text = r"plain NACKed envoy\.config\.cluster\.v3\.Cluster, nonce 1\.cds: bad\\nzone\\x1b\[2J"
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z WARNING {text}", line)
    assert daemon.metric('xdsprism_nacks_total{type="cds"}') == 1


# NAK-12
def test_log_format_json_prints_one_object_a_line(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--log-format", "json") as daemon:
        _nack(daemon, "bad\nzone")
        eventually(lambda: "WARNING" in daemon.stderr)
        assert daemon.stop() == 0
        lines = [json.loads(line) for line in daemon.stderr.splitlines()]
    ready = next(line for line in lines if line["message"].startswith("ready "))
    assert (ready["listen"], ready["admin"]) == (daemon.listen, daemon.admin)
    assert {"time", "level", "logger", "message"} <= set.intersection(*[set(line) for line in lines])
    nack = next(line for line in lines if line["level"] == "WARNING")
    expected = {
        "client": "plain",
        "nonce": "1.cds",
        "error": "bad\nzone",
        "code": 3,
        "type": CLUSTER.rpartition("/")[2],
    }
    assert {key: nack[key] for key in expected} == expected
    assert [line["message"] for line in lines if "connected" in line["message"]][-1] == "plain disconnected"


def _nack(daemon: Daemon, message: str) -> None:
    with Plain(daemon.listen, CLUSTER, "*") as stream:
        stream.nack(stream.read(), message)
        eventually(lambda: daemon.metric('xdsprism_nacks_total{type="cds"}') == 1)


def test_log_level_says_how_much_is_printed(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config) as daemon:
        assert " INFO configuration loaded: 4 resources in 3 files" in daemon.stderr
    with Daemon(tmp_path, config, "--log-level", "warning") as daemon:
        assert daemon.get("cds", "-o", "name").exit_code == 0
        assert daemon.stop() == 0
        assert daemon.stderr == f"xdsprism: ready listen={daemon.listen} admin={daemon.admin}\n"


# OPS-8
def test_a_good_edit_reaches_clients_without_a_restart(daemon: Daemon, config: Path):
    write(config, "more", static_cluster("more", "127.0.0.1", 3))
    becomes(lambda: daemon.get("cds", "-o", "name").stdout, "cds/more\ncds/shop\ncds/shop-next\n")


def test_several_paths_are_one_configuration(tmp_path: Path, config: Path):
    extra = write(tmp_path / "extra", "extra", static_cluster("extra", "127.0.0.1", 3))
    with Daemon(tmp_path, config / "clusters.yaml", extra) as daemon:
        assert daemon.get("cds", "-o", "name").stdout == "cds/extra\ncds/shop\ncds/shop-next\n"


def test_variants_by_node_metadata_come_from_the_files(daemon: Daemon):
    assert [_route_of(daemon, env=env) for env in ("prod", "test")] == ["shop", "shop-next"]
    zones = [ask(daemon.listen, ENDPOINT, "shop", **metadata).resources[0].value for metadata in ({"zone": "a"}, {})]
    ports = [ClusterLoadAssignment.FromString(zone).endpoints[0].lb_endpoints[0].endpoint for zone in zones]
    assert [port.address.socket_address.port_value for port in ports] == [1, 2]


def test_the_admin_port_closes_with_the_server(daemon: Daemon):
    assert daemon.stop() == 0
    with pytest.raises(OSError, match="refused"):
        web.get(*web.split(daemon.admin), "/healthz")


# VER-1, VER-11
def test_v2_is_served_beside_v3_unless_the_transport_says_otherwise(daemon: Daemon, tmp_path: Path, config: Path):
    for version in ("v2", "v3"):
        assert daemon.get("cds", "shop", "-o", "name", "--transport", version).stdout == "cds/shop\n"
    with Daemon(tmp_path, config, "--transport", "v3") as alone, grpc.insecure_channel(alone.listen) as channel:
        assert alone.get("cds", "shop", "-o", "name", "--transport", "v3").stdout == "cds/shop\n"
        stream = channel.stream_stream(ADS.replace("v3", "v2") + "StreamAggregatedResources")
        with pytest.raises(grpc.RpcError) as caught:
            list(stream(iter([b""]), timeout=30))
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_transport_that_there_is_not_is_wrong_usage(config: Path):
    done = run("serve", config, "--transport", "v2")
    assert done.exit_code == 2
    assert "'v2' is not one of 'v2,v3', 'v3'" in done.stderr
