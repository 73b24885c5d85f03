"""A change that `xdsprism serve` holds back, and `xdsprism confirm`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.elsewhere import Serve
from tests.cli.rig import FREE, Daemon, run, write
from tests.support import web
from tests.support.resources import static_cluster
from tests.support.waiting import becomes, eventually

CLUSTERS = [static_cluster(f"c{n:02}", "127.0.0.1", 1000 + n) for n in range(40)]
NAMES = "".join(f"cds/c{n:02}\n" for n in range(40))
WHY = "36 of 40 cds would be removed, which is more than 50%"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    write(folder, "clusters", *CLUSTERS)
    return folder


@pytest.fixture
def daemon(tmp_path: Path, many: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path, many) as running:
        yield running


def held_back(daemon: Daemon) -> Any:
    return daemon.page("/api/config")["held_back"]


def confirm(daemon: Daemon, *args: object) -> Any:
    return run("confirm", "--admin", daemon.admin, *args)


# OPS-13
def test_a_removal_of_most_of_a_type_is_held_back_reported_and_confirmed(daemon: Daemon, many: Path):
    assert daemon.metric("xdsprism_config_held_back") == 0
    write(many, "clusters", *CLUSTERS[:4])
    shown = eventually(lambda: held_back(daemon))
    assert shown["why"] == [WHY]
    assert daemon.page("/readyz") == {"status": "ready", "held_back": f"{WHY}; see /api/config"}
    assert daemon.metric("xdsprism_config_ok") == 0
    assert daemon.metric("xdsprism_config_held_back") == 1
    assert daemon.metric('xdsprism_config_held_back_removals{type="cds"}') == 36
    assert daemon.get("cds", "-o", "name").stdout == NAMES

    command = f"xdsprism confirm --admin {daemon.admin} --id {shown['id']}"
    assert shown["confirm"]["command"] == command
    line = f"configuration held back ({shown['id']}), the last good one stays: {WHY}; to let it through: {command}\n"
    eventually(lambda: line in daemon.stderr)

    daemon.send(signal.SIGHUP)  # which is another way to apply, and no way around
    eventually(lambda: daemon.metric('xdsprism_config_loads_total{result="held_back"}') == 2)
    assert daemon.stderr.count("configuration held back") == 1  # told once
    assert daemon.metric("xdsprism_held_back_changes_total") == 1
    assert daemon.get("cds", "-o", "name").stdout == NAMES

    done = run(*command.split()[1:])
    names = ", ".join(f"c{n:02}" for n in range(4, 24))
    assert done.exit_code == 0
    assert done.stderr == f"let through {shown['id']}: {WHY}\n"
    assert done.stdout.splitlines()[1] == f"cds    36 of 40   {names} and 16 more"
    assert daemon.get("cds", "-o", "name").stdout == "cds/c00\ncds/c01\ncds/c02\ncds/c03\n"
    assert held_back(daemon) is None
    assert daemon.page("/readyz") == {"status": "ready"}
    assert daemon.metric("xdsprism_config_held_back") == 0
    assert daemon.metric("xdsprism_config_ok") == 1
    eventually(lambda: f"configuration that was held back ({shown['id']}) is confirmed" in daemon.stderr)

    again = confirm(daemon)
    assert (again.exit_code, again.stdout, again.stderr) == (1, "", "Error: nothing is held back\n")


# OPS-13
def test_the_id_of_an_earlier_change_confirms_nothing(daemon: Daemon, many: Path):
    write(many, "clusters", *CLUSTERS[:4])
    first = eventually(lambda: held_back(daemon))["id"]
    write(many, "clusters", *CLUSTERS[:3])
    second = eventually(lambda: held_back(daemon)["id"], lambda seen: seen != first)
    done = confirm(daemon, "--id", first)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: another change is held back by now: {second}, not {first}: 37 of 40")
    assert daemon.get("cds", "-o", "name").stdout == NAMES
    shown = json.loads(confirm(daemon, "--id", second, "-o", "json").stdout)
    assert [(each["removed"], each["of"]) for each in shown["removals"]] == [(37, 40)]
    assert shown["removals"][0]["names"][:2] == ["c03", "c04"]


# OPS-13
def test_max_removals_says_how_much_is_too_much(tmp_path: Path, many: Path):
    with Daemon(tmp_path, many, "--max-removals", "100%") as daemon:
        write(many, "clusters", *CLUSTERS[:1])
        becomes(lambda: daemon.get("cds", "-o", "name").stdout, "cds/c00\n")
        (many / "clusters.yaml").unlink()
        becomes(lambda: daemon.page("/api/resources")["total"], 0)
        assert held_back(daemon) is None
        assert daemon.metric("xdsprism_held_back_changes_total") == 0


# OPS-13
@pytest.mark.parametrize("given", ["50", "101%", "-1%", "half", "%", "1e1%"])
def test_max_removals_is_a_part_of_a_whole(many: Path, given: str):
    done = run("serve", many, "--max-removals", given)
    assert done.exit_code == 2
    assert f"{given!r} is not a percentage from 0% to 100%, such as 50%" in done.stderr


# OPS-13
def test_an_empty_start_is_an_error_unless_it_is_allowed(tmp_path: Path):
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.mkdir()
    done = run("serve", empty, "--listen", FREE, "--admin", FREE)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-2:] == [
        f"{empty}: has no resources; to start with none, give --allow-empty",
        "Error: the configuration is refused: 1 problem",
    ]
    done = run("serve", missing, "--listen", FREE, "--admin", FREE)
    assert done.exit_code == 2
    assert done.stderr.endswith(f"CONFIG '{missing}' does not exist; to start without it, give --allow-empty\n")
    with Daemon(tmp_path, empty, missing, "--allow-empty") as daemon:
        assert daemon.page("/readyz") == {"status": "ready"}
        write(missing, "clusters", CLUSTERS[0])
        becomes(lambda: daemon.get("cds", "-o", "name").stdout, "cds/c00\n")


# OPS-13
def test_without_an_admin_port_the_log_says_what_lets_it_through(tmp_path: Path, many: Path):
    with Daemon(tmp_path, many, admin="off") as daemon:
        (many / "clusters.yaml").unlink()
        text = "nothing would be left of 40 resources; to let it through: restart with --max-removals 100%"
        eventually(lambda: text in daemon.stderr)


# OPS-13
def test_confirm_reports_an_admin_port_that_does_not_answer(serve: Serve, tmp_path: Path):
    free = f"127.0.0.1:{web.free_port()}"
    done = run("confirm", "--admin", free)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: no answer from the admin port {free}: ")
    assert "refused" in done.stderr
    elsewhere = serve()
    done = run("confirm", "--admin", elsewhere.address)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: no answer from the admin port {elsewhere.address}: ")
    servers = [{"server_uri": elsewhere.address, "channel_creds": [{"type": "insecure"}]}]
    bootstrap = tmp_path / "bootstrap.json"
    bootstrap.write_text(json.dumps({"node": {"id": "relay"}, "xds_servers": servers}))
    with Daemon(tmp_path, "--bootstrap", bootstrap, verb="relay") as relay:
        done = confirm(relay)
        text = f"Error: {relay.admin} is the admin port of a relay: only servers hold changes back\n"
        assert (done.exit_code, done.stderr) == (1, text)
