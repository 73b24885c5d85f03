"""What every command has in common."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.rig import command, environment, run, separately
from xdsprism.cli.main import main

COMMANDS = sorted(main.commands)


def test_the_commands_are_these():
    known = "bench check confirm diff events explain get history import matrix policy relay serve status watch"
    assert " ".join(COMMANDS) == known


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str):
    done = run(name, "--help")
    assert run(name, "-h").stdout == done.stdout
    assert done.exit_code == 0
    assert re.search(rf"Example:\n +xdsprism {name} ", done.stdout)


def test_help_of_the_whole_lists_the_commands():
    done = run("--help")
    assert done.exit_code == 0
    assert re.findall(r"^  ([a-z]+)  ", done.stdout, re.MULTILINE) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name: str):
    options = [each for each in main.commands[name].params if isinstance(each, click.Option)]
    assert [each.name for each in options if not re.match(r"[A-Z]", each.help or "")] == []


def test_the_list_of_commands_says_what_each_does_without_being_cut():
    listed = run("--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_version():
    done = run("--version")
    assert done.exit_code == 0
    assert re.fullmatch(r"xdsprism, version \d+\.\d+\.\d+\S* \((compiled|interpreted)\)\n", done.stdout)


def test_an_unknown_command_is_status_2():
    done = run("frobnicate")
    assert done.exit_code == 2
    assert "No such command 'frobnicate'" in done.stderr


@pytest.mark.parametrize("args", [["--help"], ["serve", "--help"], ["relay", "--help"], ["get", "--help"]])
def test_help_is_fast_because_it_imports_nothing_heavy(args: list[str]):
    heavy = ["grpc", "google.protobuf", "envoy", "yaml", "starlette", "uvicorn", "prometheus_client", "asyncio"]
    program = (
        "import sys\nfrom xdsprism.cli.main import main\n"
        f"try:\n    main({args!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_module_and_the_command_are_the_same_program(config: Path):
    done = separately("check", config, "-o", "name")
    assert done.returncode == 0
    assert done.stdout == run("check", config, "-o", "name").stdout
    assert separately("check", "--help").stdout.startswith("Usage: xdsprism check ")


def test_colour_only_on_a_terminal(config: Path):
    assert "\x1b" not in separately("check", config).stdout
    argv = command("check", config)
    terminal, end = pty.openpty()
    with subprocess.Popen(argv, stdout=end, stderr=subprocess.DEVNULL, env=environment(TERM="xterm")) as process:
        os.close(end)
        seen = _all_of(terminal)
        assert process.wait(60) == 0
    assert "\x1b[1mRESOURCE" in seen


def _all_of(terminal: int) -> str:
    seen = b""
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        try:
            while part := stream.read(4096):
                seen += part
        except OSError:  # Linux says that the other end is closed by an error
            pass
    return seen.decode()
