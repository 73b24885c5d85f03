"""How figures are taken and shown."""

from __future__ import annotations

import gc
import platform
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from os import cpu_count
from pathlib import Path
from statistics import median


def seconds(work: Callable[[], object], *, rounds: int = 7, number: int = 1) -> float:
    """The median over rounds of the time that one call takes; the collector is kept out of it."""
    taken = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            start = time.perf_counter()
            for _ in range(number):
                work()
            taken.append((time.perf_counter() - start) / number)
    finally:
        gc.enable()
    return median(taken)


def paired(small: Callable[[], object], large: Callable[[], object], *, rounds: int = 9, number: int = 1) -> str:
    """Two costs and their ratio, measured alternately in one run, since this machine's neighbours come and go."""
    pairs = [(seconds(small, rounds=1, number=number), seconds(large, rounds=1, number=number)) for _ in range(rounds)]
    ratio = median(b / a for a, b in pairs)
    first, second = median(a for a, _ in pairs), median(b for _, b in pairs)
    return f"{micro(first)} and {micro(second)}, ratio {ratio:.2f}"


def micro(value: float) -> str:
    return f"{value * 1e6:,.1f} µs"


def say(what: str, figure: str) -> None:
    print(f"  {what:<72} {figure}", flush=True)


def machine() -> str:
    """On what this runs: its cores, and the versions of what matters."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    parts = [
        f"{cpu_count()} cores ({model[1] if model else platform.machine()})",
        f"Python {platform.python_version()}",
    ]
    return ", ".join([*parts, *[f"{package} {version(package)}" for package in ("grpcio", "protobuf", "uvloop")]])
