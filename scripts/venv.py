"""Make a virtual environment and install into it, or find in a blink that this was done already.

    venv.py DIRECTORY LOCK [--editable] [PROJECT]

Written for any Python 3 that calls itself python3, to say what is missing; where it is too old for the project,
a newer one from PATH makes the environment. Two runs at once wait for each other. A stamp records what was
asked for: after a change of the lock, of pyproject.toml or of the version it installs again, and after a move of
the checkout it starts anew. A package that is not installed as editable is installed again after a change of any of its
files.

Nothing comes from a package index but files that LOCK has the hash of (`make lock` writes it). What builds the project
is in the lock, too: pip is told to fetch nothing for that.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Tuple

OLDEST = (3, 11)
NAMES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python")
VERSION = Path("src/xdsprism/release.py")  # the package's metadata is made from it
PARTS = (
    "src/**/*",
    "scripts/wheel/*.py",
    "README.md",
    "LICENSE",
    "THIRD_PARTY.md",
)  # what a wheel is made from, besides
PROBE = "import sys, venv, ensurepip; print(*sys.version_info[:2])"


def main() -> None:
    directory, requirements = Path(sys.argv[1]), sys.argv[2:]
    if not requirements or not Path(requirements[0]).is_file():
        sys.exit(
            f"venv: no file {' '.join(requirements[:1])}: name the lock first, locks/run.txt say; `make lock` writes it"
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(directory):
        stamp = directory / "installed" / hashlib.sha256(json.dumps(requirements).encode()).hexdigest()[:12]
        wanted = description(requirements)
        if stamp.is_file() and stamp.read_text() == wanted and works(directory):
            return
        if not works(directory) or moved(directory):
            create(directory)
        install(directory, requirements)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(wanted)


@contextlib.contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends."""
    try:
        import fcntl  # noqa: PLC0415 - not on Windows, which does without
    except ImportError:
        yield
        return
    with directory.with_name(directory.name + ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def description(requirements: List[str]) -> str:
    project = [Path("pyproject.toml"), VERSION] if any(word.startswith(".") for word in requirements) else []
    if project and "--editable" not in requirements:
        found = {file for part in PARTS for file in Path().glob(part)}
        project += sorted(file for file in found if file.is_file() and file.suffix != ".pyc")
    contents = b"".join(file.read_bytes() for file in [*project, Path(requirements[0])])
    return json.dumps([str(Path.cwd()), requirements, hashlib.sha256(contents).hexdigest()])


def python_of(directory: Path) -> Path:
    return directory / ("Scripts" if os.name == "nt" else "bin") / "python"


def works(directory: Path) -> bool:
    """Whether the environment's interpreter runs; it does not after the Python under it was upgraded away."""
    return version_of(str(python_of(directory))) >= OLDEST


def moved(directory: Path) -> bool:
    """Whether it was made elsewhere: scripts inside hold absolute paths."""
    home = directory / "made-in"
    return not home.is_file() or home.read_text() != str(directory.resolve())


def version_of(python: str) -> Tuple[int, ...]:
    try:
        answer = subprocess.check_output([python, "-c", PROBE], stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(word) for word in answer.split())


def create(directory: Path) -> None:
    python = find_python()
    say(f"creating {directory} with {python}")
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(directory)], check=True)
    (directory / "made-in").write_text(str(directory.resolve()))


def find_python() -> str:
    for name in (sys.executable, *NAMES):
        if version_of(name) >= OLDEST:
            return name
    oldest = ".".join(map(str, OLDEST))
    sys.exit(
        f"venv: no Python {oldest} or newer with the venv module was found (tried {', '.join(NAMES)}).\n"
        f"  Debian, Ubuntu: apt install python3-venv   Fedora: dnf install python3   macOS: brew install python\n"
        f"  or name one: make PYTHON=/path/to/python{oldest} ..."
    )


def install(directory: Path, requirements: List[str]) -> None:
    lock, project = requirements[0], requirements[1:]
    say(f"installing {' '.join(requirements)} into {directory}")
    pip(directory, ["--require-hashes", "-r", lock])
    if project:
        pip(directory, ["--no-index", "--no-deps", "--no-build-isolation", *project])


def pip(directory: Path, words: List[str]) -> None:
    """Install with one retry: a package index may have a bad moment."""
    command = [str(python_of(directory)), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *words]
    for attempt in (1, 2):
        if subprocess.run(command, check=False).returncode == 0:
            return
        say("pip failed" + (", trying once more" if attempt == 1 else ""))
    sys.exit(f"venv: could not install {' '.join(words)}; pip's own words are above")


def say(text: str) -> None:
    print(f"venv: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
