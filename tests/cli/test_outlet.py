"""Commands whose output can't be written: to a full disk, or to a closed pipe."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.rig import Daemon, command, environment, write
from tests.support import web
from tests.support.resources import static_cluster
from tests.support.waiting import eventually

FULL = Path("/dev/full")
TOLD = "Error: can't write to the standard output: No space left on device\n"

needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def into_full(*args: object) -> tuple[int, str]:
    """The exit status, and what was said on stderr."""
    with FULL.open("w") as sink:
        argv = command(*args)
        done = subprocess.run(
            argv, stdout=sink, stderr=subprocess.PIPE, text=True, env=environment(), timeout=60, check=False
        )
    return done.returncode, done.stderr


@needs_full
@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["serve", "--help"],
        ["check", "CONFIG"],
        ["check", "CONFIG", "-o", "yaml"],
        ["explain", "cds", "shop", "CONFIG"],
    ],
    ids=" ".join,
)
def test_a_full_disk_is_an_error_of_one_line(config: Path, args: list[str]) -> None:
    assert into_full(*(config if arg == "CONFIG" else arg for arg in args)) == (1, TOLD)


@needs_full
@pytest.mark.parametrize(
    "args",
    [
        ["get", "cds"],
        ["watch", "cds"],
        ["bench", "cds", "--streams", "1", "--connections", "1", "--duration", "0"],
    ],
    ids=" ".join,
)
def test_a_failed_write_ends_commands_that_ask_a_server_too(shared: Daemon, args: list[str]) -> None:
    assert into_full(*args, "--server", shared.listen) == (1, TOLD)


@pytest.mark.parametrize("output", ["yaml", "name", "wide"])
def test_a_reader_that_has_left_is_no_error(tmp_path: Path, output: str) -> None:
    many = [static_cluster(f"cluster-{number:05}", "127.0.0.1", 1) for number in range(1_000)]  # more than a pipe holds
    folder = write(tmp_path / "config", "many", *many).parent
    reading, writing = os.pipe()
    argv = command("check", folder, "-o", output)
    with subprocess.Popen(argv, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        _, said = process.communicate(timeout=60)
    assert said in ("", "valid: 1000 resources, 1000 variants, 1 files\n")
    assert process.returncode in (0, 1)


def test_watch_ends_when_its_reader_has_left(tmp_path: Path, daemon: Daemon, config: Path) -> None:
    argv = command("watch", "cds", "--server", daemon.listen, "-o", "name")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "added cds/shop\n"
        assert process.stdout.readline() == "added cds/shop-next\n"
        process.stdout.close()
        write(config, "more", static_cluster("more", "127.0.0.1", 3))
        assert process.wait(30) == 1
        assert process.stderr.read() == ""


@needs_full
def test_a_daemon_serves_though_its_log_is_full(config: Path) -> None:
    ports = [web.free_port(), web.free_port()]
    argv = command("serve", config, "--listen", f"127.0.0.1:{ports[0]}", "--admin", f"127.0.0.1:{ports[1]}")
    with FULL.open("w") as sink, subprocess.Popen(argv, stdout=sink, stderr=sink, env=environment()) as process:
        try:
            eventually(lambda: web.get("127.0.0.1", ports[1], "/readyz").status == 200)
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        finally:
            process.kill()
