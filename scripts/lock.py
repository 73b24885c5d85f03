"""Write locks/: which version of each package the Makefile installs, and the hashes of its files.

    lock.py            the newest versions that pyproject.toml allows
    lock.py --keep     the versions that are locked, where pyproject.toml still allows them

uv resolves for every Python and platform that the package supports. The files are in the format of pip, and do not say
where packages come from: that is a matter of the machine, and what they must contain is not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT_FILE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = [word.split()[-1] for word in PROJECT_FILE["project"]["classifiers"] if " :: 3." in word]
OLDEST = PYTHONS[0]
PLATFORM = "x86_64-manylinux_2_31"
PROJECT = ["pyproject.toml", "--group", "build"]

# What each file is made from. The first has all that the next two have a part of, and they take its versions: .venv may
# have each of them, one after the other.
WHOLE = "fuzz"
PARTS = ("test", "run")
LOCKS = {
    "fuzz": [*PROJECT, "--all-extras"],
    "test": [*PROJECT, "--extra", "test", "--extra", "otel"],
    "run": PROJECT,
    "browser": ["--group", "browser"],
    "docs": ["--group", "docs"],
    "envoy": ["--group", "envoy"],
    "grpcio-v2": ["--group", "grpcio-v2"],
    "tools": ["--group", "tools"],
}


def main() -> None:
    keep = sys.argv[1:] == ["--keep"]
    if sys.argv[1:] and not keep:
        sys.exit(__doc__)
    for name, sources in LOCKS.items():
        write(name, sources, keep=keep)


def write(name: str, sources: list[str], *, keep: bool) -> None:
    target = Path("locks", f"{name}.txt")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", OLDEST]
    command += ["--generate-hashes", "--custom-compile-command", "make lock", "--output-file", str(target)]
    if name in PARTS:
        command += ["--constraint", f"locks/{WHOLE}.txt"]
    if not keep:
        command.append("--upgrade")
    print(f"lock: {target}", flush=True)
    if subprocess.run([*command, *sources], cwd=ROOT, check=False).returncode:
        sys.exit(f"lock: {target} could not be written; uv's own words are above")
    for python in PYTHONS if name != "grpcio-v2" else [OLDEST]:
        prove(target, python)


def prove(lock: Path, python: str) -> None:
    """A version may be for a Python by its metadata, and have no file for it."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--dry-run", "--require-hashes"]
    command += ["--python-version", python, "--python-platform", PLATFORM, "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as nowhere:
        done = subprocess.run([*command, "--target", nowhere, "-r", str(lock)], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(
            f"lock: {lock} can't be installed with Python {python}; uv's own words are above. "
            "Ask for another version there in pyproject.toml: package<2; python_version < '3.12'"
        )


if __name__ == "__main__":
    main()
