"""Only regular files are read, without waiting, and to an end."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.support.odd_files import KINDS, at_most, odd_file
from xdsprism.file_reading import read_file


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"123")
    assert read_file(file, 3) == b"123"
    with pytest.raises(OSError, match="it has more than 2 bytes, the most that is read of such a file"):
        read_file(file, 2)


def test_a_file_that_says_that_it_is_empty_is_not_read_past_its_limit() -> None:
    status = Path("/proc/self/status")
    assert status.stat().st_size == 0
    with pytest.raises(OSError, match="it has more than 10 bytes"):
        read_file(status, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused_by_its_kind(tmp_path: Path, kind: str) -> None:
    with odd_file(tmp_path / "odd", kind) as path, at_most(20), pytest.raises(OSError, match="only regular") as caught:
        read_file(path)
    assert caught.value.strerror == f"it is {kind}, and only regular files are read"


def test_no_descriptor_is_left_open_after_a_refusal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a named pipe"):
        read_file(tmp_path / "pipe")
    with socket.socket() as first, socket.socket() as second:
        lowest = first.fileno(), second.fileno()
    for _ in range(3):
        with pytest.raises(OSError, match="a named pipe"):
            read_file(tmp_path / "pipe")
    with socket.socket() as first, socket.socket() as second:
        assert (first.fileno(), second.fileno()) == lowest
