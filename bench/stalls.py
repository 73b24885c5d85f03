"""python -m bench stalls: how long one client can keep all others waiting, and how cost grows with what it asks for.

A stall is a time in which the loop of a server or relay answers nobody. There are two tables: cases against a server,
with the longest stall of each; and cases in a relay, each with N and with 4N of something, whose ratio is 4 where cost
is linear. With `--before OTHER/src` another version of the sources is measured in the same run, by turns.

Each case of each version has a process of its own, which is ended if one step of it (N, 4N, or a case against a server)
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, isinf
from pathlib import Path
from typing import Any

from bench.figures import machine
from bench.tables import number, placed, table

HERE = Path(__file__).parents[1]
DOCUMENT = HERE / "PERFORMANCE.md"
MARKS = ("<!-- stalls:begin -->", "<!-- stalls:end -->")
STEEPEST = 4.6  # of the cost with 4N to that with N
PARTS = ("server", "relay")
CAP = 60.0  # seconds for one step of a case: the version before may be slow, it is what is to be shown
STARTS = 5  # times as long for what comes before the first step, such as a server that reads its files


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


def stall_table(now: Rows, before: Rows | None, cap: float = CAP) -> str:
    """Columns of the version before are there only if it was measured."""
    words = ["longest stall, ms", "of the processor, ms", "seconds"]
    head = ["case against a server", *[side for word in words for side in _sides(word, before)]]
    cells = partial(_stall_cells, cap)
    rows = [
        [row.case, *_paired(row, before, cells), f"{row.limit:g}", _reached(row.longest <= row.limit)]
        for row in now.values()
    ]
    return table([*head, "at most, ms", "reached"], rows)


def growth_table(now: Rows, before: Rows | None, cap: float = CAP) -> str:
    words = ["seconds with N", "with 4N", "ratio", "longest turn, ms"]
    head = ["case in a relay", "N", *[side for word in words for side in _sides(word, before)]]
    cells = partial(_growth_cells, cap)
    rows = [
        [row.case, f"{row.n:,}", *_paired(row, before, cells), _reached(row.ratio <= STEEPEST)] for row in now.values()
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


def _sides(word: str, before: Rows | None) -> list[str]:
    return [word] if before is None else [f"{word}: before", "now"]


def _paired(row: Any, before: Rows | None, cells: Callable[[Any], tuple[str, ...]]) -> list[str]:
    """Each cell after that of the version before, which is a dash if that version failed in the case."""
    now = cells(row)
    if before is None:
        return [*now]
    then = cells(before[row.case]) if row.case in before else ("-",) * len(now)
    return [cell for both in zip(then, now, strict=True) for cell in both]


def _reached(reached: bool) -> str:  # noqa: FBT001
    return "yes" if reached else "no"


TABLES = {"server": stall_table, "relay": growth_table}


def measured(part: str, case: str, tree: Path, cap: float = CAP) -> Rows:
    """One case in a process of its own, with these sources. A version that fails gives no row, and says so."""
    command = [sys.executable, "-m", "bench.stalls", "--rows", part, "--case", case]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(HERE)])}
    rows: list[Sequence[Any]] = []
    with subprocess.Popen(
        command, cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while line := _line(process, cap if rows else STARTS * cap):
            rows.append(json.loads(line))
    if not rows or process.returncode not in (0, -signal.SIGKILL):
        what = f"{part}, {case}: the sources in {tree} gave no figures (status {process.returncode})"
        print(what, file=sys.stderr, flush=True)
        return {}
    return READ[part](rows[-1:])


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
    parser.add_argument("--part", choices=PARTS, help="one table alone")
    parser.add_argument("--rounds", type=int, default=1, help="how many; the best of each figure counts (default: 1)")
    parser.add_argument("--cap", type=float, default=CAP, help=f"seconds for one step of a case (default: {CAP:g})")
    parser.add_argument("--write", action="store_true", help="put the tables into PERFORMANCE.md too")
    parser.add_argument("--case", default="", help="one case alone, by its name in the table")
    parser.add_argument("--rows", choices=PARTS, help=argparse.SUPPRESS)  # for `measured`
    return parser.parse_args(words)


def _turns(
    rounds: int, names: Sequence[str], found: Sequence[Rows], trees: Sequence[Path]
) -> Iterator[tuple[str, Rows, Path]]:
    """Case by case, of each version: what the machine does else changes with time."""
    for _ in range(rounds):
        for case in names:
            yield from ((case, rows, tree) for rows, tree in zip(found, trees, strict=True))


def run(words: Sequence[str] = ()) -> None:
    given = _given(words)
    if given.rows:
        _print_rows(given.rows, given.case)
        return
    trees = [HERE / "src", *([given.before] if given.before else [])]
    told = [f"{machine()}; the best of {given.rounds} round{'s' if given.rounds > 1 else ''}."]
    for part in [given.part] if given.part else PARTS:
        found: list[Rows] = [{} for _ in trees]
        for case, rows, tree in _turns(given.rounds, _chosen(part, given.case), found, trees):
            if case in rows and rows[case].is_over:
                continue  # once is enough
            start = time.monotonic()
            rows.update(better(rows, measured(part, case, tree, given.cap)))
            print(f"{part}, {case}: {tree}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        told.append(TABLES[part](found[0], found[1] if given.before else None, given.cap))
    text = "\n\n".join(part for part in told if part)
    print(text)
    if given.write:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text, MARKS))


if __name__ == "__main__":
    run(sys.argv[1:])
