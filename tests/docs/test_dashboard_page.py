"""docs/dashboard.md: its commands show the same table, its keys and numbers are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import xdsprism.admin
from tests.cli.rig import Daemon, run
from xdsprism.core.model.matrix import MAX_CELLS, MAX_VALUES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dashboard.md").read_text()
STATIC = Path(xdsprism.admin.__file__).parent / "static"


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    of_files, of_a_server = re.findall(r"^xdsprism (matrix .*)$", PAGE, re.MULTILINE)
    with Daemon(tmp_path, ROOT / "examples" / "config") as daemon:
        shown = run(*shlex.split(of_files))
        held = run(*(daemon.admin if word == "127.0.0.1:18001" else word for word in shlex.split(of_a_server)))
    assert (shown.exit_code, held.exit_code) == (0, 0)
    assert shown.stdout.startswith("rds/main by params:")
    assert held.stdout.startswith("rds/main by params, where env prod:")


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"at most {MAX_CELLS:,} cells" in PAGE
    assert f"{MAX_VALUES} values are shown" in PAGE
    assert (
        f"Lists have {re.findall(r'export const PAGE = ([0-9]+);', (STATIC / 'parts.js').read_text())[0]} rows" in PAGE
    )
    assert "const EVERY = 2000; // milliseconds" in (STATIC / "live.js").read_text()
    assert "every other second" in PAGE


def test_its_keys_are_those_of_the_page() -> None:
    actions = (STATIC / "app.js").read_text().partition("const ACTIONS = {")[2].partition("\n};")[0]
    keys = re.findall(r'^  "?([^\s":]+)"?: ', actions, re.MULTILINE)
    listed = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)))
    assert {key for key in keys if not key.startswith("Arrow")} == {*listed} - {"1", "5", "Enter"}
