"""python -m bench stalls: how long one client can keep all others waiting, and how cost grows with what it asks for.

A stall is a time in which the loop of a server or relay answers nobody. There are two tables: cases against a server,
with the longest stall of each; and cases in a relay, each with N and with 4N of something, whose ratio is 4 where cost
is linear. Both builds are measured by turns in the same run, the compiled one if `make compiled` has installed it. With
`--before OTHER/src` so is another version of the sources.

Each case of each of them has a process of its own, which is ended if one step of it (N, 4N, or a case against a server)
takes longer than `--cap` seconds: then the table says so instead of a figure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, isinf
from pathlib import Path
from typing import Any

from bench.figures import machine
from bench.programs import COMPILED_PYTHON
from bench.tables import number, placed, table

HERE = Path(__file__).parents[1]
DOCUMENT = HERE / "PERFORMANCE.md"
MARKS = ("<!-- stalls:begin -->", "<!-- stalls:end -->")
STEEPEST = 4.6  # of the cost with 4N to that with N
PARTS = ("server", "relay")
CAP = 60.0  # seconds for one step of a case: the version before may be slow, it is what is to be shown
STARTS = 5  # times as long for what comes before the first step, such as a server that reads its files
BEFORE, INTERPRETED, COMPILED = "before", "interpreted", "compiled"


@dataclass(frozen=True, slots=True)
class Version:
    """What is measured: sources, or the build that a Python has installed."""

    name: str
    python: str = sys.executable
    sources: Path | None = None


def versions(before: Path | None, build: str = "") -> list[Version]:
    """In the order of the columns. `build`: one of the two builds alone; else both that are there."""
    is_there = COMPILED_PYTHON.exists()
    if not is_there and build != INTERPRETED:
        print("The compiled build is not there: `make compiled` makes it.", file=sys.stderr, flush=True)
    now = [Version(INTERPRETED, sources=HERE / "src"), *([Version(COMPILED, str(COMPILED_PYTHON))] if is_there else [])]
    return [*([Version(BEFORE, sources=before)] if before else []), *[each for each in now if build in ("", each.name)]]


@dataclass(frozen=True, slots=True)
class Stall:
    """One case against a server."""

    case: str
    longest: float  # ms
    total: float  # seconds
    busy: float  # ms of the processor in the longest turn: the stall itself, where nobody else wants the processor
    limit: float  # ms that the stall may take

    @property
    def is_over(self) -> bool:
        return isinf(self.total)

    def best(self, other: Stall) -> Stall:
        figures = [(self.longest, other.longest), (self.total, other.total), (self.busy, other.busy)]
        return Stall(self.case, *(min(both) for both in figures), self.limit)


@dataclass(frozen=True, slots=True)
class Growth:
    """One case in a relay, with N of something and with 4N."""

    case: str
    n: int
    once: float  # seconds
    fourfold: float
    longest: float  # turn of the loop, in ms

    @property
    def is_over(self) -> bool:
        return isinf(self.fourfold)

    @property
    def ratio(self) -> float:
        return self.fourfold / self.once  # not a number, if both took too long

    def best(self, other: Growth) -> Growth:
        once, fourfold = min(self.once, other.once), min(self.fourfold, other.fourfold)
        return Growth(self.case, self.n, once, fourfold, min(self.longest, other.longest))


Rows = dict[str, Any]  # by case: all Stall, or all Growth; a figure that took too long is infinite


def stalls(rows: Iterable[Sequence[Any]]) -> Rows:
    """From rows of case, longest stall in ms, seconds in all, ms of the processor in the longest turn, limit in ms."""
    return {str(row[0]): Stall(str(row[0]), *(float(figure) for figure in row[1:5])) for row in rows}


def growths(rows: Iterable[Sequence[Any]]) -> Rows:
    """From rows of case, N, seconds with N and with 4N, their ratio, longest turn in seconds."""
    found = [Growth(str(row[0]), int(row[1]), float(row[2]), float(row[3]), float(row[5]) * 1e3) for row in rows]
    return {row.case: row for row in found}


READ: dict[str, Callable[[Iterable[Sequence[Any]]], Rows]] = {"server": stalls, "relay": growths}


def better(first: Rows, second: Rows) -> Rows:
    """The best of two rounds: what else the machine does makes a figure larger, never smaller."""
    both = {case: first[case].best(second[case]) for case in first.keys() & second.keys()}
    return {case: both.get(case) or first.get(case) or second[case] for case in first | second}


Found = Mapping[str, Rows]  # by the name of a version, in the order of columns


def stall_table(found: Found, cap: float = CAP) -> str:
    """The figures of each version beside each other; those of this one have to reach the limit, in all its builds."""
    head = ["case against a server", *_columns(["longest stall, ms", "of the processor, ms", "seconds"], found)]
    rows = [
        [
            case,
            *_cells(case, found, partial(_stall_cells, cap)),
            f"{max(row.limit for row in judged if row):g}",
            _reached([row is not None and row.longest <= row.limit for row in judged]),
        ]
        for case, judged in _judged(found)
    ]
    return table([*head, "at most, ms", "reached"], rows)


def growth_table(found: Found, cap: float = CAP) -> str:
    words = ["seconds with N", "with 4N", "ratio", "longest turn, ms"]
    head = ["case in a relay", "N", *_columns(words, found)]
    rows = [
        [
            case,
            f"{max(row.n for row in judged if row):,}",
            *_cells(case, found, partial(_growth_cells, cap)),
            _reached([row is not None and row.ratio <= STEEPEST for row in judged]),
        ]
        for case, judged in _judged(found)
    ]
    return table([*head, f"ratio at most {STEEPEST:g}"], rows)


def _stall_cells(cap: float, row: Stall) -> tuple[str, ...]:
    return _or_dash(row.longest), _or_dash(row.busy), _seconds(row.total, cap)


def _growth_cells(cap: float, row: Growth) -> tuple[str, ...]:
    return _seconds(row.once, cap), _seconds(row.fourfold, cap), _or_dash(row.ratio), _or_dash(row.longest)


def _seconds(value: float, cap: float) -> str:
    return number(value) if isfinite(value) else f"over {cap:g} s"


def _or_dash(value: float) -> str:
    return number(value) if isfinite(value) else "-"


def _judged(found: Found) -> Iterator[tuple[str, list[Any]]]:
    """Each case with the rows of this version's builds, None for one that failed; the version before has no limit."""
    now = [rows for name, rows in found.items() if name != BEFORE]
    for case in dict.fromkeys(case for rows in now for case in rows):
        yield case, [rows.get(case) for rows in now]


def _columns(words: Sequence[str], found: Found) -> list[str]:
    """Under each word a column for each version, if there are several."""
    if len(found) == 1:
        return [*words]
    return [f"{word}: {name}" if at == 0 else name for word in words for at, name in enumerate(found)]


def _cells(case: str, found: Found, cells: Callable[[Any], tuple[str, ...]]) -> list[str]:
    """Each figure of all versions, then the next; dashes for a version that failed in the case."""
    known = [cells(rows[case]) if case in rows else None for rows in found.values()]
    width = next(len(row) for row in known if row is not None)
    return [row[at] if row is not None else "-" for at in range(width) for row in known]


def _reached(reached: Sequence[bool]) -> str:
    return "yes" if all(reached) else "no"


TABLES = {"server": stall_table, "relay": growth_table}


def measured(part: str, case: str, version: Version, cap: float = CAP) -> Rows:
    """One case in a process of its own, of this version. One that fails gives no row, and says so."""
    command = [version.python, "-m", "bench.stalls", "--rows", part, "--case", case]
    paths = [*([str(version.sources)] if version.sources else []), str(HERE)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    rows: list[Sequence[Any]] = []
    with subprocess.Popen(
        command, cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while line := _line(process, cap if rows else STARTS * cap):
            rows.append(json.loads(line))
    if not rows or process.returncode not in (0, -signal.SIGKILL):
        what = f"{part}, {case}: {_called(version)} gave no figures (status {process.returncode})"
        print(what, file=sys.stderr, flush=True)
        return {}
    return READ[part](rows[-1:])


def _called(version: Version) -> str:
    return f"the sources in {version.sources}" if version.sources else f"the {version.name} build"


def _line(process: subprocess.Popen[str], seconds: float) -> str:
    """The next line that it prints. If that takes too long, the process is ended, with the server that it started."""
    timer = threading.Timer(seconds, partial(os.killpg, process.pid, signal.SIGKILL))
    timer.start()
    try:
        return process.stdout.readline() if process.stdout is not None else ""
    finally:
        timer.cancel()


# Imports are inside, since it is the process that is told to measure a version which has its sources on the path.


def cases(part: str) -> tuple[str, ...]:
    if part == "server":
        from bench.stalls_server import CASES as OF_SERVER  # noqa: PLC0415

        return (*OF_SERVER,)
    from bench.stalls_relay import CASES as OF_RELAY  # noqa: PLC0415

    return (*OF_RELAY,)


def _chosen(part: str, case: str) -> tuple[str, ...]:
    """All cases of a table, or the given one if it is there."""
    return tuple(each for each in cases(part) if case in ("", each))


def _print_rows(part: str, case: str) -> None:
    """What the process of `measured` does: a line when it begins to measure, and one for each step."""
    steps = _server_steps if part == "server" else _relay_steps
    for row in steps(case):
        print(json.dumps(row), flush=True)


def _server_steps(case: str) -> Iterable[Sequence[Any]]:
    from bench.stalls_server import measure_steps  # noqa: PLC0415

    return measure_steps(case)


def _relay_steps(case: str) -> Iterable[Sequence[Any]]:
    from bench.stalls_relay import measure_steps  # noqa: PLC0415

    return measure_steps(case)


def _given(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench stalls", description=__doc__)
    parser.add_argument("--before", type=Path, metavar="OTHER/src", help="another version, measured by turns")
    parser.add_argument("--build", choices=(INTERPRETED, COMPILED), default="", help="one build alone")
    parser.add_argument("--part", choices=PARTS, help="one table alone")
    parser.add_argument("--rounds", type=int, default=1, help="how many; the best of each figure counts (default: 1)")
    parser.add_argument("--cap", type=float, default=CAP, help=f"seconds for one step of a case (default: {CAP:g})")
    parser.add_argument("--write", action="store_true", help="put the tables into PERFORMANCE.md too")
    parser.add_argument("--case", default="", help="one case alone, by its name in the table")
    parser.add_argument("--rows", choices=PARTS, help=argparse.SUPPRESS)  # for `measured`
    return parser.parse_args(words)


def _turns(rounds: int, names: Sequence[str], of: Sequence[Version]) -> Iterator[tuple[str, Version]]:
    """Case by case, of each version: what the machine does else changes with time."""
    for _ in range(rounds):
        for case in names:
            yield from ((case, version) for version in of)


def run(words: Sequence[str] = ()) -> None:
    given = _given(words)
    if given.rows:
        _print_rows(given.rows, given.case)
        return
    of = versions(given.before, given.build)
    told = [f"{machine()}; the best of {given.rounds} round{'s' if given.rounds > 1 else ''}."]
    for part in [given.part] if given.part else PARTS:
        found: dict[str, Rows] = {version.name: {} for version in of}
        for case, version in _turns(given.rounds, _chosen(part, given.case), of):
            rows = found[version.name]
            if case in rows and rows[case].is_over:
                continue  # once is enough
            start = time.monotonic()
            rows.update(better(rows, measured(part, case, version, given.cap)))
            print(f"{part}, {case}: {version.name}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        told.append(TABLES[part](found, given.cap))
    text = "\n\n".join(part for part in told if part)
    print(text)
    if given.write:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text, MARKS))


if __name__ == "__main__":
    run(sys.argv[1:])
