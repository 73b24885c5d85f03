"""`xdsprism bench`, over real streams. No test here asserts a speed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.rig import Daemon, run, write
from tests.support.resources import static_cluster
from tests.support.waiting import eventually

both_modes = pytest.mark.parametrize("mode", ["--delta", "--sotw"])
FEW = ["--streams", 6, "--connections", 2, "--duration", 0]
ACKS = 'xdsprism_acks_total{type="%s"}'


@both_modes
def test_every_stream_has_an_answer_and_acks_it(daemon: Daemon, mode: str):
    done = run("bench", "cds", "--server", daemon.listen, mode, *FEW)
    assert done.exit_code == 0
    asked, first, then = done.stdout.splitlines()
    assert asked == f"6 streams on 2 connections ask for cds/* ({'delta' if mode == '--delta' else 'SotW'})"
    assert re.fullmatch(r"first answers: 6 of 6, after \d+\.\d ms \(median\), \d+\.\d ms \(worst\)", first)
    assert re.fullmatch(r"then, in \d+\.\d s: \d+ messages \([\d,]+ a second\) with \d+ resources, \d+ bytes", then)
    eventually(lambda: daemon.metric(ACKS % "cds") == 6)


def test_changes_during_the_load_are_counted(daemon: Daemon, config: Path):
    """Once all have their first answer, the second one is made; it comes to each of them while they stay."""

    def change() -> None:
        eventually(lambda: daemon.metric(ACKS % "cds") == 6)
        write(config, "more", static_cluster("more", "127.0.0.1", 3))

    changing = Thread(target=change)
    changing.start()
    done = run("bench", "cds", "--server", daemon.listen, *FEW[:4], "--duration", 4, "-o", "json")
    changing.join()
    found = json.loads(done.stdout)
    assert (found["streams"], found["connections"], found["answered"]) == (6, 2, 6)
    assert (found["messages"], found["resources"]) == (6, 6)
    assert found["messages_per_second"] == pytest.approx(6 / found["seconds"])
    assert found["bytes"] > 0


@both_modes
def test_params_go_along(shared: Daemon, mode: str):
    done = run("bench", "rds", "main", "--server", shared.listen, mode, "-p", "env=prod", *FEW, "-o", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["names"], found["mode"], found["answered"]) == (["main"], mode.removeprefix("--"), 6)


def test_a_bootstrap_names_the_server(shared: Daemon, tmp_path: Path):
    server = {"server_uri": shared.listen, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    bootstrap = tmp_path / "bootstrap.json"
    bootstrap.write_text(json.dumps({"xds_servers": [server], "node": {"id": "me"}}))
    assert run("bench", "eds", "shop", "--bootstrap", bootstrap, *FEW).exit_code == 0


# SOT-9: SotW says nothing about endpoints that are not there
def test_streams_without_an_answer_are_status_1(shared: Daemon):
    done = run("bench", "eds", "nope", "--sotw", "--server", shared.listen, *FEW, "--timeout", 0.5)
    assert (done.exit_code, done.stdout.splitlines()[1:]) == (1, ["first answers: none"])
    assert done.stderr == "Error: DEADLINE_EXCEEDED: 6 streams had no answer within 0.5 s\n"


def test_a_server_that_is_not_there_is_status_1():
    done = run("bench", "cds", "--server", "127.0.0.1:1", *FEW)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: UNAVAILABLE: 127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["cds"], "no server to load: give either --server or --bootstrap"),
        (
            ["cds", "--server", "a:1", "--streams", "1"],
            "1 streams can't be on 10 connections: give fewer --connections",
        ),
        (["cds", "--server", "a:1", "--duration", "-1"], "'-1' is not a number of seconds"),
        (["cds", "--server", "here"], "'here' is not HOST:PORT"),
        (["nonsense", "--server", "a:1"], "nonsense"),
    ],
)
def test_invalid_options_end_with_status_2(args: list[str], reason: str):
    done = run("bench", *args)
    assert done.exit_code == 2
    assert reason in done.stderr
