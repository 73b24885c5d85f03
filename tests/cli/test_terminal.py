"""What a terminal gets and a pipe does not: progress, and tables that fit."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from tests.cli.rig import environment, run, write
from tests.support.resources import Document, static_cluster
from tests.support.waiting import becomes
from xdsprism.cli import progress
from xdsprism.cli.output import NARROWEST, table
from xdsprism.sources.files import LoadProgress

IMPATIENT = """
from xdsprism.cli import progress
from xdsprism.cli.main import main
progress.PATIENCE = 0.0
main(prog_name="xdsprism")
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(*args: object, columns: int = 80) -> str:
    """What a command writes to a terminal of this width, stdout and stderr together."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", IMPATIENT, *map(str, args)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment(COLUMNS=str(columns), TERM="xterm"),
    )
    os.close(follower)
    parts = []
    try:
        while part := os.read(leader, 65536):
            parts.append(part)
    except OSError:  # the last writer has closed it
        pass
    finally:
        os.close(leader)
        child.wait(60)
    return b"".join(parts).decode().replace("\r\n", "\n")


def cluster(name: str) -> Document:
    return static_cluster(name, "127.0.0.1", 1)


def split(name: str, count: int) -> list[Document]:
    return [{**cluster(name), "$when": f"shard=a-rather-long-name-of-a-shard-{number}"} for number in range(count)]


def test_progress_is_shown_on_a_terminal_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "PACE", 0.01)
    with progress.shown(lambda: LoadProgress(12, 1_500, 34_567)):
        becomes(lambda: terminal.getvalue().count(progress.ERASE) > 1, True)
    shown = terminal.getvalue()
    assert "loading: 12 of 1,500 files read, 34,567 documents checked\r" in shown
    assert shown.endswith(progress.ERASE)


def test_a_load_that_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "PATIENCE", 600.0)
    with progress.shown(lambda: LoadProgress(0, 0, 0)):
        pass
    assert terminal.getvalue() == ""


def test_what_is_no_terminal_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, pipe = Event(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)

    def look() -> LoadProgress:
        asked.set()
        return LoadProgress(0, 0, 0)

    with progress.shown(look):
        assert not asked.wait(0.1)
    assert pipe.getvalue() == ""


def test_check_shows_how_far_it_is_and_then_its_table(tmp_path: Path) -> None:
    write(tmp_path, "a", *[cluster(f"c{number:04}") for number in range(1_500)])
    shown = on_terminal("check", tmp_path)
    assert "loading: " in shown
    assert " documents checked\r" in shown
    assert shown.rstrip().endswith("valid: 1500 resources, 1500 variants, 1 files")


def test_a_terminal_gets_some_variants_of_a_resource_and_lines_that_fit(tmp_path: Path) -> None:
    write(tmp_path, "a", *split("shop", 30))
    shown = on_terminal("check", tmp_path, columns=40)
    listed = [line for line in shown.partition("No variant for")[0].split("\n") if "shard=" in line]
    assert len(listed) == 20
    assert all(len(line) <= 40 and line.endswith("…") for line in listed), listed
    assert "... and 10 more: -o wide" in shown
    whole = run("check", tmp_path).stdout.partition("No variant for")[0]
    assert whole.count("\ncds/shop ") == 30
    assert not {"…", "more"} & set(whole.split())
    assert "…" not in on_terminal("check", tmp_path, "-o", "wide", columns=40)


def test_only_the_longest_columns_are_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table(["A", "B", "C"], [["short", "x" * 100, "y" * 50], ["", "z", "z"]], fit=True)
    header, first, second = capsys.readouterr().out.splitlines()
    assert len(first) == 60
    assert first.startswith("short   x")
    assert first.count("…") == 2
    assert header.startswith("A       B")
    assert second.split() == ["z", "z"]
    monkeypatch.setenv("COLUMNS", "5")
    table(["A"], [["x" * 100]], fit=True)
    assert capsys.readouterr().out.splitlines()[1] == "x" * (NARROWEST - 1) + "…"


def test_serve_shows_how_far_its_first_load_is(tmp_path: Path) -> None:
    write(tmp_path, "a", *[cluster(f"c{number:04}") for number in range(1_500)], {"@type": "nope"})
    shown = on_terminal("serve", tmp_path, "--listen", "127.0.0.1:0", "--admin", "off")
    assert " documents checked\r" in shown
    assert shown.rstrip().endswith("Error: the configuration is refused: 1 problem")


def test_explain_shows_some_of_the_others_on_a_terminal_and_all_in_a_pipe(tmp_path: Path) -> None:
    write(tmp_path, "a", *split("shop", 30))
    shown = on_terminal("explain", "cds", "shop", tmp_path, columns=60)
    assert shown.count("needs shard=") == 20
    assert "... and 10 more" in shown
    assert all(len(line) <= 60 for line in shown.partition("WHY NOT")[2].split("\n"))
    whole = run("explain", "cds", "shop", tmp_path).stdout
    assert whole.count("needs shard=") == 30
    assert "more" not in whole
