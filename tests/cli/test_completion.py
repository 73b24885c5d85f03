"""What a shell is offered where somebody presses Tab, by click's protocol for each shell."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.rig import Daemon, environment, write

SHELLS = ["bash", "zsh", "fish"]
# A busy machine may need more than a second to import what answers; a list of a server ends with its last resource.
UNHURRIED = """
import xdsprism.cli.completion as completion
from xdsprism.cli.main import main
completion.SECONDS = completion.ANSWER = 50.0
main(prog_name="xdsprism")
"""
# A mute server would keep an admin client for ten minutes, and pytest's timeout would end the test before.
PATIENT = """
import xdsprism.cli.admin_port as port
from xdsprism.cli.main import main
port.TIMEOUT = 600.0
main(prog_name="xdsprism")
"""


def completed(line: str, shell: str = "bash", *, program: str = "", **more: str) -> list[str]:
    """What is offered for the last word of a line, which may be empty; nothing else is printed."""
    words = line.split(" ")
    what = {"COMP_WORDS": line, "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, *(["-c", program] if program else ["-m", "xdsprism"])],
        capture_output=True,
        text=True,
        env=environment(_XDSPRISM_COMPLETE=f"{shell}_complete", **(what | more)),
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    if shell == "zsh":
        return done.stdout.splitlines()[1::3]
    return [each.partition(",")[2].partition("\t")[0] for each in done.stdout.splitlines() if each]


@pytest.mark.parametrize("shell", SHELLS)
def test_types_are_completed_by_their_first_words_or_by_others(shell: str) -> None:
    assert completed("xdsprism get ", shell)[:3] == ["cds", "eds", "leds"]
    assert completed("xdsprism explain l", shell) == ["leds", "lbendpointcollection", "lds"]
    assert completed("xdsprism watch clu", shell) == ["cluster", "clusters"]
    assert completed("xdsprism bench nope", shell) == []
    assert completed("xdsprism status --type ec", shell) == ["ecds"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_that_it_can_read(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xdsprism"],
        capture_output=True,
        text=True,
        env=environment(_XDSPRISM_COMPLETE=f"{shell}_source"),
        timeout=60,
        check=True,
    )
    assert "_XDSPRISM_COMPLETE=" in done.stdout
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=done.stdout, text=True, timeout=60, check=True)


def test_names_are_those_in_the_files_also_where_they_come_behind_the_cursor(config: Path) -> None:
    words = ["xdsprism", "explain", "cds", "shop-", str(config)]
    assert completed("xdsprism explain cds shop-", program=UNHURRIED, COMP_WORDS=" ".join(words)) == ["shop-next"]


def test_names_are_those_of_a_running_server(tmp_path: Path, config: Path) -> None:
    with Daemon(tmp_path, config) as daemon:
        admin, server, unhurried = daemon.admin, daemon.listen, UNHURRIED
        assert completed(f"xdsprism explain --admin {admin} cds ", program=unhurried) == ["shop", "shop-next"]
        assert completed("xdsprism explain cds shop-", program=unhurried, XDSPRISM_ADMIN=admin) == ["shop-next"]
        assert completed(f"xdsprism get --server {server} cds ", program=unhurried) == ["shop", "shop-next"]
        assert completed(f"xdsprism get --server {server} cds shop ", program=unhurried) == ["shop-next"]


@contextmanager
def mute() -> Iterator[str]:
    """A server that accepts connections, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_that_says_nothing_does_not_hang_the_shell() -> None:
    with mute() as address:
        assert completed(f"xdsprism explain --admin {address} cds ", program=PATIENT) == []
        assert completed(f"xdsprism get --server {address} cds ", program=PATIENT) == []


@pytest.mark.parametrize(
    "line",
    [
        "xdsprism get cds ",
        "xdsprism explain cds ",
        "xdsprism explain nope ",
        "xdsprism get --server 127.0.0.1:1 cds ",
        "xdsprism explain --admin 127.0.0.1:1 cds ",
        "xdsprism get --server 127.0.0.1:1 --cert c cds ",
    ],
)
def test_what_goes_wrong_completes_to_nothing(line: str) -> None:
    assert completed(line) == []


def test_files_that_are_invalid_complete_to_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, "a", {"@type": "nope"})
    assert completed("xdsprism explain cds ", COMP_WORDS=f"xdsprism explain cds '' {file}") == []
