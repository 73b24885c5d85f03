"""Clients that say anything well-formed leave a server, and a relay, as they found it (fuzz/live.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(400)
def test_a_server_and_a_relay_are_as_before_after_clients_that_say_anything_well_formed() -> None:
    command = [sys.executable, "-m", "fuzz", "live", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[1:]] == ["serve", "relay", "policy"]
