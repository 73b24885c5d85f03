"""scripts/venv.py: an environment gets what the lock has the hash of, and nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/venv.py"
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{more}"


def _wheel(folder: Path, name: str, more: str = "") -> str:
    """A package that pip can install; returns the hash of its file."""
    file = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", METADATA.format(name=name, more=more))
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _venv(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    command = [sys.executable, str(SCRIPT), "venv", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _has(folder: Path, name: str) -> bool:
    return any(folder.glob(f"venv/lib/*/site-packages/{name}.py"))


def test_only_a_file_whose_hash_is_in_the_lock_is_installed(tmp_path: Path) -> None:
    _wheel(tmp_path, "further")
    digest = _wheel(tmp_path, "asked", "Requires-Dist: further\n")
    lock = tmp_path / "lock.txt"

    lock.write_text(f"asked==1.0 --hash=sha256:{'0' * 64}\n")
    other = _venv(tmp_path, "lock.txt")
    assert other.returncode
    assert "DO NOT MATCH THE HASHES" in other.stderr
    assert "could not install --require-hashes -r lock.txt" in other.stderr
    assert not _has(tmp_path, "asked")

    lock.write_text(f"asked==1.0 --hash=sha256:{digest}\n")
    more = _venv(tmp_path, "lock.txt")  # what it depends on is not in the lock
    assert more.returncode
    assert "further" in more.stderr
    assert not _has(tmp_path, "further")

    lock.write_text(f"further==1.0 --hash=sha256:{_wheel(tmp_path, 'further')}\n")
    assert _venv(tmp_path, "lock.txt").returncode == 0
    assert _has(tmp_path, "further")
    assert _venv(tmp_path, "lock.txt").stderr == ""  # done already


@pytest.mark.parametrize("words", [[], ["--editable", "."], ["asked"]])
def test_without_a_lock_it_makes_nothing(tmp_path: Path, words: list[str]) -> None:
    refused = _venv(tmp_path, *words)
    assert refused.returncode
    assert "name the lock first" in refused.stderr
    assert not (tmp_path / "venv").exists()
