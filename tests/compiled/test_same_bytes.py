"""The compiled build sends the bytes that the interpreted one sends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = int(os.environ.get("XDSPRISM_REPLAY_EXAMPLES", "60"))


def recording(seed: int, *, pure: bool) -> Any:
    """What the recorder prints, of one build."""
    environment = os.environ | {"XDSPRISM_PURE": "1" if pure else "0", "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-m", "tests.support.recorder", str(EXAMPLES), str(seed)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return json.loads(done.stdout)


@pytest.mark.timeout(450)  # some 15 s of processor time
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_runs_send_the_same_bytes_on_both_builds(seed: int) -> None:
    compiled, interpreted = recording(seed, pure=False), recording(seed, pure=True)
    assert (compiled.pop("build"), interpreted.pop("build")) == ("compiled", "interpreted")
    assert compiled == interpreted
    assert all(part["messages"] > EXAMPLES for part in compiled.values())
