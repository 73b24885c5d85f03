"""`get` and `watch` with a v2 server: they print v3, as `serve` reads it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.rig import Daemon, run, write
from tests.cli.watching import watches
from tests.support.resources import inline_listener, to

V2 = ("--transport", "v2")


@pytest.fixture
def listeners(tmp_path: Path) -> Path:
    return write(tmp_path / "config", "listeners", inline_listener("web", to("shop"))).parent


@pytest.mark.parametrize("mode", ["--delta", "--sotw"])
@pytest.mark.parametrize("output", ["yaml", "json"])
def test_serve_reads_what_get_prints_of_a_v2_server(  # VER-4
    tmp_path: Path, listeners: Path, mode: str, output: str
) -> None:
    with Daemon(tmp_path, listeners) as daemon:
        old = daemon.get("lds", "web", *V2, mode, "-o", output)
        new = daemon.get("lds", "web", mode, "-o", output)
    assert (old.exit_code, old.stderr) == (0, "")
    assert ".v2." not in old.stdout
    assert "http_connection_manager.v3.HttpConnectionManager" in old.stdout
    assert "http.router.v3.Router" in old.stdout
    assert old.stdout == new.stdout
    saved = tmp_path / f"saved.{output}"
    saved.write_text(old.stdout)
    checked = run("check", saved, "-o", "name")
    assert (checked.exit_code, checked.stdout) == (0, "lds/web\n"), checked.stderr


def test_watch_speaks_v2_too(tmp_path: Path, listeners: Path) -> None:  # VER-4
    with Daemon(tmp_path, listeners) as daemon, ExitStack() as stack:
        line = watches(stack, tmp_path)(daemon, "lds", "web", *V2, "-o", "json").line()
    assert "http.router.v3.Router" in line
    assert ".v2." not in line
