"""`xdsprism status` against the truth of a scripted fleet, through a server and through a relay."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.cli.rig import Daemon, command, environment, run, write
from tests.cli.test_relay import bootstrap
from tests.support.resources import routes, to
from tests.support.scripted_fleet import ScriptedClient
from tests.support.waiting import becomes, eventually
from xdsprism import CLUSTER, ENDPOINT, ROUTE
from xdsprism.cli.fleet import duration

WHY = "main: no such luck"
BOTH = pytest.mark.parametrize("delta", [True, False], ids=["delta", "sotw"])


class Fleet:
    """Clients of one daemon.

    `web-bad` rejected its route, `web-behind` answers nothing, `web-well` does what it should, `api-waits` was sent
    nothing, and `web-gone` has left.
    """

    def __init__(self, daemon: Daemon, stack: ExitStack, *, delta: bool) -> None:
        self.daemon = daemon
        names = ("web-bad", "web-behind", "web-well", "api-waits", "web-gone")
        self.clients = {
            name: stack.enter_context(ScriptedClient(daemon.listen, name, delta=delta, env="prod")) for name in names
        }
        bad, behind, well, waits, gone = self.clients.values()
        bad.nack(bad.subscribe(ROUTE, "main").read(), WHY)
        behind.subscribe(ROUTE, "main").read()
        for each in (well, gone):
            each.ack(each.subscribe(ROUTE, "main").read())
            each.ack(each.subscribe(CLUSTER).read() if not delta else each.subscribe(CLUSTER, "*").read())
        if delta:
            waits.subscribe(ROUTE)  # nothing: no response comes of it
        else:
            waits.subscribe(ENDPOINT, "nope")
        eventually(lambda: self.states().get("web-gone") == {"rds": "SYNCED", "cds": "SYNCED"})
        gone.leave()
        expected = {
            "web-bad": {"rds": "NACKED"},
            "web-behind": {"rds": "STALE"},
            "web-well": {"rds": "SYNCED", "cds": "SYNCED"},
            "api-waits": {"rds" if delta else "eds": "NOT SENT"},
        }
        becomes(self.states, expected)

    def states(self) -> dict[str, dict[str, str]]:
        clients = self.daemon.page("/api/clients")["clients"]
        return {
            (each["node"] or {}).get("id"): {one["type"]: one["state"] for one in each["types"]} for each in clients
        }

    def status(self, *args: object):  # type: ignore[no-untyped-def] # click.testing.Result
        return run("status", *args, "--admin", self.daemon.admin)


@pytest.fixture(params=["serve", "relay"])
def role(request: pytest.FixtureRequest, tmp_path: Path, daemon: Daemon) -> Iterator[Daemon]:
    """A server, or a relay in front of it."""
    if request.param == "serve":
        yield daemon
        return
    with Daemon(tmp_path, "--bootstrap", bootstrap(tmp_path, daemon.listen), verb="relay") as relay:
        yield relay


@pytest.fixture
def fleet(role: Daemon) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(role, stack, delta=True)


def _columns(text: str) -> list[list[str]]:
    return [re.split(r" {3,}", line.strip()) for line in text.splitlines()]


# NAK-12
@BOTH
def test_the_table_is_the_truth_sorted_by_trouble(role: Daemon, delta: bool):
    with ExitStack() as stack:
        fleet = Fleet(role, stack, delta=delta)
        done = fleet.status()
    headers, *rows = _columns(done.stdout)
    assert done.exit_code == 1
    assert headers == ["NODE", "CDS", *([] if delta else ["EDS"]), "RDS", "AGE"]
    shown = {row[0]: dict(zip(headers, row, strict=True)) for row in rows}
    assert list(shown) == ["web-bad", "web-behind", "api-waits", "web-well"]
    assert (shown["web-bad"]["RDS"], shown["web-bad"]["CDS"]) == ("NACKED", "-")
    assert re.fullmatch(r"STALE \d+s", shown["web-behind"]["RDS"])
    assert (shown["web-well"]["RDS"], shown["web-well"]["CDS"]) == ("SYNCED", "SYNCED")
    assert shown["api-waits"]["RDS" if delta else "EDS"] == "NOT SENT"
    assert all(re.fullmatch(r"\d+s|\dm\d*s?", row["AGE"]) for row in shown.values())


def test_wide_adds_the_variant_and_the_last_error(fleet: Fleet):
    headers, *rows = _columns(fleet.status("-o", "wide").stdout)
    assert headers[-3:] == ["PEER", "VARIANT", "LAST ERROR"]
    assert [row[-2:] for row in rows if row[0] == "web-bad"] == [["env=prod", f"rds: {WHY}"]]
    assert [row[-2:] for row in rows if row[0] == "web-well"] == [["env=prod", "-"]]


def test_filters_by_node_type_and_state(fleet: Fleet):
    names = ["-o", "name"]
    assert fleet.status(*names).stdout.split() == ["web-bad", "web-behind", "api-waits", "web-well"]
    assert fleet.status("--nodes", "web-*", *names).stdout.split() == ["web-bad", "web-behind", "web-well"]
    assert fleet.status("--type", "cds", *names).stdout.split() == ["web-well"]
    assert fleet.status("--state", "stale", *names).stdout.split() == ["web-behind"]
    assert fleet.status("--state", "NOT_SENT", *names).stdout.split() == ["api-waits"]
    nobody = fleet.status("--nodes", "x*")
    assert (nobody.exit_code, nobody.stdout, nobody.stderr) == (0, "", "no client that is connected matches\n")


def test_the_exit_status_says_whether_anybody_is_in_trouble(fleet: Fleet):
    assert fleet.status("--nodes", "web-bad").exit_code == 1
    assert fleet.status("--nodes", "web-behind").exit_code == 0  # not for long enough
    assert fleet.status("--nodes", "web-behind", "--stale", "0").exit_code == 1
    assert fleet.status("--nodes", "web-well", "--stale", "0").exit_code == 0
    assert fleet.status("web-bad").exit_code == 1
    assert fleet.status("web-well").exit_code == 0


def test_json_and_yaml_say_the_same_in_the_order_of_the_table(fleet: Fleet):
    seen = json.loads(fleet.status("-o", "json").stdout)
    assert [each["node"]["id"] for each in seen["clients"]] == ["web-bad", "web-behind", "api-waits", "web-well"]
    assert [each["state"] for each in seen["clients"]] == ["NACKED", "STALE", "NOT SENT", "SYNCED"]
    other = yaml.safe_load(fleet.status("-o", "yaml").stdout)
    assert [each["node"] for each in other["clients"]] == [each["node"] for each in seen["clients"]]


# NAK-12: the variant, the file and the line of what a client rejected
def test_one_client_is_shown_with_the_variant_and_the_file_of_what_it_rejected(fleet: Fleet):
    done = fleet.status("web-bad", "-o", "wide")
    head, stream, params, *rest = done.stdout.splitlines()
    assert re.fullmatch(r"web-bad: NACKED, connected for \d+s from ipv4:127\.0\.0\.1:\d+", head)
    assert re.fullmatch(r"  stream \d+: DeltaAggregatedResources", stream)
    assert params == "  params: env=prod"
    (row,) = [line.split() for line in rest if line.startswith("rds/main ") and "NACKED" in line]
    assert row[:4] == ["rds/main", "NACKED", "env=prod", "nothing"]
    assert f"rds/main (env=prod) was rejected: {WHY}" in rest
    assert "  the client has nothing of it" in rest


def test_a_server_names_the_file_and_line_of_what_was_rejected(daemon: Daemon, config: Path):
    with ExitStack() as stack:
        done = Fleet(daemon, stack, delta=True).status("web-bad")
    assert f"  from {config}/routes.yaml:1" in done.stdout.splitlines()


def test_a_client_that_is_behind_is_shown_with_the_difference(fleet: Fleet, config: Path):
    behind = fleet.clients["web-behind"]
    assert "  the client has nothing of it\n" in fleet.status("web-behind").stdout
    for text in ("second", "third"):
        write(config, "routes", routes("main", to(text)))
        eventually(behind.read, lambda response, text=text: text in str(response))
    done = fleet.status("web-behind")
    assert re.search(r"^rds/main \(true\) was sent \d+s ago, and is not answered$", done.stdout, re.MULTILINE)


def test_a_client_that_was_well_and_is_behind_is_shown_with_the_difference(fleet: Fleet, config: Path):
    well = fleet.clients["web-well"]
    for text in ("second", "third"):
        write(config, "routes", routes("main", to(text)))
        eventually(well.read, lambda response, text=text: text in str(response))
    done = fleet.status("web-well")
    assert re.search(r"^-.* cluster: shop$", done.stdout, re.MULTILINE)
    assert re.search(r"^--- rds/main: the client has \(version [0-9a-f]{16}\)$", done.stdout, re.MULTILINE)
    assert re.search(r"^\+.* cluster: third$", done.stdout, re.MULTILINE)
    assert re.search(r"^\+\+\+ rds/main: is current \(version [0-9a-f]{16}\)$", done.stdout, re.MULTILINE)
    assert "\x1b" not in done.stdout


def test_only_a_terminal_gets_colours(daemon: Daemon):
    with ScriptedClient(daemon.listen, "red", delta=True, env="prod") as client:
        client.nack(client.subscribe(ROUTE, "main").read(), WHY)
        eventually(lambda: daemon.page("/api/clients?state=NACKED")["total"] == 1)
        terminal, end = pty.openpty()
        argv = command("status", "--admin", daemon.admin)
        with subprocess.Popen(argv, stdout=end, stderr=subprocess.DEVNULL, env=environment(TERM="xterm")) as process:
            os.close(end)
            seen = _read(terminal)
            assert process.wait(60) == 1
        assert "\x1b[31mNACKED" in seen
        assert "\x1b" not in run("status", "--admin", daemon.admin).stdout


def _read(terminal: int, until: str = "") -> str:
    seen = b""
    try:
        while part := os.read(terminal, 4096):
            seen += part
            if until and until in seen.decode(errors="replace"):
                break
    except OSError:  # Linux says that the other end is closed by an error
        pass
    return seen.decode(errors="replace")


# -- --watch


def test_watch_prints_changes_and_ends_cleanly_on_ctrl_c(daemon: Daemon, tmp_path: Path):
    log = tmp_path / "watch.log"
    argv = command("status", "--watch", "--interval", "0.1", "--admin", daemon.admin)
    with log.open("wb") as sink, subprocess.Popen(argv, stdout=sink, stderr=sink, env=environment()) as process:
        try:
            with ScriptedClient(daemon.listen, "seen", delta=True, env="prod") as client:
                response = client.subscribe(ROUTE, "main").read()
                eventually(lambda: " seen rds STALE" in log.read_text())
                client.nack(response, WHY)
                eventually(lambda: f" seen rds STALE -> NACKED: {WHY}\n" in log.read_text())
            eventually(lambda: " seen gone\n" in log.read_text())
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    lines = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    assert [line for line in lines if "rds" not in line] == ["seen connected", "seen gone"]


def test_watch_redraws_a_terminal(daemon: Daemon):
    terminal, end = pty.openpty()
    argv = command("status", "--watch", "--interval", "0.1", "--admin", daemon.admin)
    with subprocess.Popen(argv, stdout=end, stderr=subprocess.DEVNULL, env=environment(TERM="xterm")) as process:
        os.close(end)
        try:
            assert "\x1b[H\x1b[2J" in _read(terminal, "no client is connected")
            with ScriptedClient(daemon.listen, "drawn", delta=True, env="prod") as client:
                client.subscribe(ROUTE, "main").read()
                assert "drawn" in _read(terminal, "STALE")
            process.send_signal(signal.SIGINT)
            _read(terminal)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_watch_goes_on_while_the_server_is_away(tmp_path: Path, config: Path):
    log = tmp_path / "watch.log"
    with Daemon(tmp_path, config) as first:
        argv = command("status", "--watch", "--interval", "0.1", "-o", "json", "--admin", first.admin)
        with log.open("wb") as sink, subprocess.Popen(argv, stdout=sink, stderr=sink, env=environment()) as process:
            try:
                with ScriptedClient(first.listen, "early", delta=True, env="prod") as client:
                    client.subscribe(ROUTE, "main").read()
                    eventually(lambda: '"early"' in log.read_text())
                    first.stop(signal.SIGKILL)
                eventually(lambda: "(trying again)" in log.read_text())
                with (
                    Daemon(tmp_path, config, admin=first.admin) as second,
                    ScriptedClient(second.listen, "later", delta=True) as client,
                ):
                    client.subscribe(CLUSTER, "shop").read()
                    eventually(lambda: '"later"' in log.read_text())
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(30) == 0
            finally:
                process.kill()
    changes = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert {"node": "early", "change": "gone"}.items() <= next(
        each for each in changes if each["change"] == "gone"
    ).items()
    assert log.read_text().count("(trying again)") == 1


# -- wrong usage


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        (["n", "--nodes", "x"], 2, "give either NODE, which is one client, or --nodes, which are several"),
        (["--watch", "-o", "yaml"], 2, "--watch prints changes: leave out -o yaml, or give -o json"),
        (["--type", "frob"], 2, "unknown resource type 'frob'"),
        (["--state", "well"], 2, "'well' is not one of"),
        (["--stale", "-1"], 2, "-1.0 is not in the range"),
        (["nobody"], 1, "no client with the node id 'nobody' is connected: `xdsprism status -o name` lists them"),
    ],
)
def test_wrong_usage_says_what_to_do(shared: Daemon, args: list[str], status: int, text: str):
    done = run("status", *args, "--admin", shared.admin)
    assert done.exit_code == status
    assert text in done.stderr


def test_nobody_is_connected(shared: Daemon):
    done = run("status", "--admin", shared.admin)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no client is connected\n")


# OPS-14: what a client calls itself goes to no terminal as it is
def test_names_of_clients_are_printed_harmlessly(daemon: Daemon):
    evil = "\x1b[2Jweb\n<b>x</b>"
    with ScriptedClient(daemon.listen, evil, delta=True) as client:
        client.nack(client.subscribe(CLUSTER, "shop").read(), "\x1b[31mred\nline")
        eventually(lambda: daemon.page("/api/clients?state=NACKED")["total"] == 1)
        for args in ([], ["-o", "wide"], ["-o", "name"], ["-o", "json"], [evil]):
            done = run("status", *args, "--admin", daemon.admin)
            assert done.exit_code == 1
            assert "\x1b" not in done.stdout
            assert "web" in done.stdout


def test_many_types_share_a_column(daemon: Daemon):
    with ScriptedClient(daemon.listen, "odd", delta=True) as client:
        for number in range(7):
            client.subscribe(f"type.googleapis.com/made.Up{number}", "x")
            client.ack(client.read())
        eventually(lambda: len(daemon.page("/api/clients")["clients"][0]["types"]) == 7)
        headers = _columns(run("status", "--admin", daemon.admin).stdout)[0]
    assert headers == ["NODE", *(f"MADE.UP{number}" for number in range(4)), "OTHER", "AGE"]


# -- explain --client


def test_explain_says_what_a_connected_client_gets(fleet: Fleet):
    done = run("explain", "rds", "main", "--admin", fleet.daemon.admin, "--client", "web-well")
    first, second, *_ = done.stdout.splitlines()
    assert done.exit_code == 0
    assert re.fullmatch(r"web-well, which is connected from ipv4:127\.0\.0\.1:\d+:", first)
    assert second == "rds/main for a client with env=prod is"
    wants = ["--client", "web-well", "--admin", fleet.daemon.admin]
    other = run("explain", "rds", "main", *wants, "--param", "env=qa")
    assert "with env=qa" in other.stdout
    gone = run("explain", "rds", "main", "--admin", fleet.daemon.admin, "--client", "web-gone")
    assert gone.exit_code == 1
    assert gone.stderr.startswith("Error: web-gone: no client with this node id is connected")
    nothing = run("explain", "rds", "nope", *wants)
    assert nothing.stderr == "Error: web-well: there is no rds of that name for this client\n"


POLICY = """
default: deny
rules:
- identity: anonymous
  node: web-*
  types: [rds]
  names: {rds: [main, other]}
  params: {env: {pin: test}}
"""


def test_explain_says_what_the_policy_decided_for_a_connected_client(tmp_path: Path, config: Path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    with (
        Daemon(tmp_path, config, "--policy", tmp_path / "policy.yaml") as daemon,
        ScriptedClient(daemon.listen, "web-1", delta=True, env="test", zone="a") as client,
    ):
        client.ack(client.subscribe(ROUTE, "main").read())
        given = ["--client", "web-1", "--admin", daemon.admin]
        done = run("explain", "rds", "main", *given)
        assert done.exit_code == 0
        lines = done.stdout.splitlines()
        assert re.match(r"By rule 1, .*policy\.yaml:4.*:$", lines[1])
        assert lines[2] == "Ignored of its node, and denied in a locator where variants mention it: zone"
        assert lines[3] == "rds/main for a client with env=test is"
        denied = run("explain", "cds", "shop", *given)
        assert denied.exit_code == 1
        assert "cds/shop is denied to anonymous: " in denied.stdout
        claimed = run("explain", "rds", "main", *given, "--param", "env=prod")
        assert "rds/main is denied to anonymous: " in claimed.stdout
        seen = json.loads(run("explain", "rds", "main", *given, "-o", "json").stdout)
        assert seen["client"]["node"] == "web-1"
        assert (seen["policy"]["denied"], seen["policy"]["params"]) == (None, {"env": "test"})


def test_explain_of_a_client_needs_a_server(config: Path):
    done = run("explain", "rds", "main", config, "--client", "web-1")
    assert (done.exit_code, done.stderr) == (
        2,
        "Error: --client needs --admin: it is a client that is connected to a running server\n",
    )


def test_times_are_written_as_kubectl_does():
    texts = [duration(each) for each in (0.4, 59, 60, 192, 3_600, 18_420, 86_400, 273_600)]
    assert texts == ["0s", "59s", "1m", "3m12s", "1h", "5h7m", "1d", "3d4h"]
