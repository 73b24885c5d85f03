"""Hot reload of `xdsprism serve`, also when the file watch fails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.rig import Daemon, write
from tests.support.resources import static_cluster
from tests.support.waiting import becomes, eventually


def _names(daemon: Daemon) -> list[str]:
    return [each["name"] for each in daemon.page("/api/resources?type=cds")["resources"]]


def _make(path: bytes) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


# OPS-8
@pytest.mark.parametrize("stays", [False, True])
def test_a_file_name_that_is_not_utf_8_does_not_end_hot_reload(tmp_path: Path, config: Path, *, stays: bool):
    with Daemon(tmp_path, config) as daemon:
        assert daemon.page("/api/config")["reload"] == {"by": "events"}
        swap = os.fsencode(config) + b"/.caf\xe9.yaml.swp"
        _make(swap)
        if not stays:
            os.unlink(swap)  # noqa: PTH108 # bytes, which a Path can't have
        told = eventually(lambda: daemon.page("/api/config")["reload"], lambda reload: reload["by"] == "polling")
        assert told["every_seconds"] == 1
        assert f"can't watch {config}: Unable to decode path" in told["why"]
        becomes(lambda: f"WARNING can't watch {config} (Unable to decode path" in daemon.stderr, expected=True)
        write(config, "first", static_cluster("first", "127.0.0.1", 1))
        becomes(lambda: "first" in _names(daemon), expected=True)

        becomes(lambda: daemon.page("/api/config")["reload"], {"by": "events"})
        becomes(lambda: f"WARNING {config} can be watched again" in daemon.stderr, expected=True)
        write(config, "second", static_cluster("second", "127.0.0.1", 1))
        becomes(lambda: "second" in _names(daemon), expected=True)
        assert daemon.page("/readyz") == {"status": "ready"}


# OPS-8, OPS-11
def test_a_metric_says_that_files_are_polled_while_they_can_not_be_watched(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config) as daemon:
        swap = os.fsencode(config) + b"/.caf\xe9.yaml.swp"

        def polled_again() -> float:
            """Break the watch, which may have been mended since the last look."""
            _make(swap)
            os.unlink(swap)  # noqa: PTH108 # bytes, which a Path can't have
            return daemon.metric("xdsprism_config_polled")

        assert daemon.metric("xdsprism_config_polled") == 0
        becomes(polled_again, 1)
        becomes(lambda: daemon.metric("xdsprism_config_polled"), 0)


# OPS-8
def test_a_file_name_that_is_not_utf_8_is_shown_on_pages_and_in_the_log(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--log-format", "json") as daemon:
        Path(os.fsdecode(os.fsencode(config) + b"/caf\xe9.yaml")).write_text("nonsense: [")
        seen = eventually(lambda: daemon.page("/api/config")["last_load"], lambda load: not load["ok"])
        assert [each["file"].encode("utf-8", "surrogateescape") for each in seen["errors"]] == [
            os.fsencode(config) + b"/caf\xe9.yaml"
        ]
        line = eventually(lambda: _refusal(daemon))
        assert line is not None
        assert "caf" in json.loads(line)["message"]
        write(config, "first", static_cluster("first", "127.0.0.1", 1))
        Path(os.fsdecode(os.fsencode(config) + b"/caf\xe9.yaml")).unlink()
        becomes(lambda: "first" in _names(daemon), expected=True)


def _refusal(daemon: Daemon) -> str | None:
    """The line of the log that says that the configuration was refused, once it is written."""
    lines = [each for each in daemon.stderr.splitlines() if "configuration refused" in each]
    return lines[0] if lines else None
