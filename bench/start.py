"""How long commands take to start and configurations to load, and in how much memory: processor time, not the clock's.

`python -m bench start OTHER/src` measures another version beside this one, by turns, and tells the ratios. Both find
their byte code compiled, as an installed program does. With `--instructions` before that it counts instructions
(valgrind) instead of seconds: where others use the machine too, seconds swing by a fifth, and this does not.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.daemon import serving, write
from bench.figures import say

HERE = Path(__file__).parents[1] / "src"
EXAMPLES = Path(__file__).parents[1] / "examples" / "config"
ROUNDS = 7
INSTRUCTIONS = "--instructions"

# Tells its own peak: what the kernel tells of a child counts the parent's too.
WATCHED = """
import atexit, pathlib, re, runpy, sys
peak = pathlib.Path(sys.argv.pop(1))
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: peak.write_text(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]))
"""
COMMAND = WATCHED + "runpy.run_module('xdsprism', run_name='__main__')"
LOAD = (
    WATCHED
    + """
try:
    from xdsprism.core.model.store import Store
except ImportError:  # a version whose core has no sub-packages
    from xdsprism.core.store import Store
from xdsprism.sources.files import FileSource
FileSource(sys.argv[1:]).load(Store().apply)
"""
)


@dataclass(frozen=True)
class Cost:
    work: float  # seconds of processor time, or instructions
    megabytes: float  # at most, at one time


def run(options: list[str]) -> None:
    counts = INSTRUCTIONS in options
    if counts and shutil.which("valgrind") is None:
        raise SystemExit(f"{INSTRUCTIONS} takes valgrind, which is not installed")
    trees = [HERE, *(Path(other) for other in options if other != INSTRUCTIONS)]
    with tempfile.TemporaryDirectory() as folder, serving(EXAMPLES) as (_, address):
        config, peak = Path(folder) / "config", Path(folder) / "peak"
        write(config, 10_000, 100)
        for what, program, arguments in (
            ("xdsprism --help", COMMAND, ["--help"]),
            ("xdsprism get cds", COMMAND, ["get", "cds", "--server", address, "-o", "yaml"]),
            ("xdsprism get lds", COMMAND, ["get", "lds", "--server", address, "-o", "yaml"]),
            ("loading four files", LOAD, [str(EXAMPLES)]),
            ("loading 10,000 resources in 100 files", LOAD, [str(config)]),
        ):
            command = [sys.executable, "-c", program, str(peak), *arguments]
            compiled = [Path(folder) / str(number) for number in range(len(trees))]
            both = [*zip(trees, compiled, strict=True)]
            for each in both:
                _cost(*each, command, peak)
            if counts:
                _tell(what, [[_counted(*each, command, _cost(*each, command, peak)) for each in both]], counts)
            else:
                _tell(what, [[_cost(*each, command, peak) for each in both] for _ in range(ROUNDS)], counts)


def _tell(what: str, rounds: list[list[Cost]], counts: bool) -> None:  # noqa: FBT001 # one of two units
    least = [min(turn[number].work for turn in rounds) for number in range(len(rounds[0]))]
    most = [median(turn[number].megabytes for turn in rounds) for number in range(len(rounds[0]))]
    works = ", ".join(f"{each / 1e6:,.0f}" if counts else f"{each:.3f}" for each in least)
    sizes = ", ".join(f"{each:.1f}" for each in most)
    ratios = f", ratios {least[0] / least[1]:.3f} and {most[0] / most[1]:.2f}" if len(least) > 1 else ""
    say(what, f"{works} {'million instructions' if counts else 's'}, {sizes} MB{ratios}")


def _cost(tree: Path, byte_code: Path, command: list[str], peak: Path) -> Cost:
    """`byte_code`: the folder that Python keeps it in; the first run of a command fills it."""
    before = _used()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=_environment(tree, byte_code))
    return Cost(_used() - before, int(peak.read_text()) / 1024)


def _counted(tree: Path, byte_code: Path, command: list[str], cost: Cost) -> Cost:
    """The instructions of a command whose memory is known: it takes more of that under valgrind."""
    counter = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    environment = {**_environment(tree, byte_code), "PYTHONHASHSEED": "0"}
    said = subprocess.run([*counter, *command], check=True, capture_output=True, text=True, env=environment).stderr
    found = re.search(r"I\s+refs:\s+([\d,]+)", said)
    if found is None:
        raise SystemExit(f"valgrind counted nothing: {said}")
    return Cost(int(found[1].replace(",", "")), cost.megabytes)


def _environment(tree: Path, byte_code: Path) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(byte_code)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _used() -> float:
    """By children that have ended; to the microsecond, where os.times counts hundredths of seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
