"""python -m bench stalls: how long one client can keep all others waiting, and how cost grows with what it asks for.

A stall is a time in which the loop of a server or relay answers nobody. There are two tables: cases against a server,
with the longest stall of each; and cases in a relay, each with N and with 4N of something, whose ratio is 4 where cost
is linear. With `--before OTHER/src` another version of the sources is measured in the same run, by turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import machine
from bench.tables import number, placed, table

HERE = Path(__file__).parents[1]
DOCUMENT = HERE / "PERFORMANCE.md"
MARKS = ("<!-- stalls:begin -->", "<!-- stalls:end -->")
LONGEST = 100.0  # ms
STEEPEST = 4.6  # of the cost with 4N to that with N
PARTS = ("server", "relay")
PATIENCE = 3600.0  # seconds for one part of one version: the version before may be slow, it is what is to be shown


@dataclass(frozen=True, slots=True)
class Stall:
    """One case against a server."""

    case: str
    longest: float  # ms
    total: float  # seconds
    busy: float  # ms of the processor in the longest turn: the stall itself, where nobody else wants the processor

    def best(self, other: Stall) -> Stall:
        figures = [(self.longest, other.longest), (self.total, other.total), (self.busy, other.busy)]
        return Stall(self.case, *(min(both) for both in figures))


@dataclass(frozen=True, slots=True)
class Growth:
    """One case in a relay, with N of something and with 4N."""

    case: str
    n: int
    once: float  # seconds
    fourfold: float
    longest: float  # turn of the loop, in ms

    @property
    def ratio(self) -> float:
        return self.fourfold / self.once

    def best(self, other: Growth) -> Growth:
        once, fourfold = min(self.once, other.once), min(self.fourfold, other.fourfold)
        return Growth(self.case, self.n, once, fourfold, min(self.longest, other.longest))


Rows = dict[str, Any]  # by case: all Stall, or all Growth


def stalls(rows: Iterable[Sequence[Any]]) -> Rows:
    """From rows of case, longest stall in ms, seconds in all, ms of the processor in the longest turn."""
    return {str(row[0]): Stall(str(row[0]), float(row[1]), float(row[2]), float(row[3])) for row in rows}


def growths(rows: Iterable[Sequence[Any]]) -> Rows:
    """From rows of case, N, seconds with N and with 4N, their ratio, longest turn in seconds."""
    found = [Growth(str(row[0]), int(row[1]), float(row[2]), float(row[3]), float(row[5]) * 1e3) for row in rows]
    return {row.case: row for row in found}


READ: dict[str, Callable[[Iterable[Sequence[Any]]], Rows]] = {"server": stalls, "relay": growths}


def better(first: Rows, second: Rows) -> Rows:
    """The best of two rounds: what else the machine does makes a figure larger, never smaller."""
    both = {case: first[case].best(second[case]) for case in first.keys() & second.keys()}
    return {case: both.get(case) or first.get(case) or second[case] for case in first | second}


def stall_table(now: Rows, before: Rows | None) -> str:
    """Columns of the version before are there only if it was measured."""
    words = ["longest stall, ms", "of the processor, ms", "seconds"]
    head = ["case against a server", *[side for word in words for side in _sides(word, before)]]
    rows = [[row.case, *_paired(row, before, _stall_cells), _reached(row.longest <= LONGEST)] for row in now.values()]
    return table([*head, f"at most {LONGEST:g} ms"], rows)


def growth_table(now: Rows, before: Rows | None) -> str:
    words = ["seconds with N", "with 4N", "ratio", "longest turn, ms"]
    head = ["case in a relay", "N", *[side for word in words for side in _sides(word, before)]]
    rows = [
        [row.case, f"{row.n:,}", *_paired(row, before, _growth_cells), _reached(row.ratio <= STEEPEST)]
        for row in now.values()
    ]
    return table([*head, f"ratio at most {STEEPEST:g}"], rows)


def _stall_cells(row: Stall) -> tuple[str, ...]:
    return number(row.longest), number(row.busy), number(row.total)


def _growth_cells(row: Growth) -> tuple[str, ...]:
    return tuple(number(value) for value in (row.once, row.fourfold, row.ratio, row.longest))


def _sides(word: str, before: Rows | None) -> list[str]:
    return [word] if before is None else [f"{word}: before", "now"]


def _paired(row: Any, before: Rows | None, cells: Callable[[Any], tuple[str, ...]]) -> list[str]:
    """Each cell after that of the version before, which is a dash if that version could not finish the case."""
    now = cells(row)
    if before is None:
        return [*now]
    then = cells(before[row.case]) if row.case in before else ("-",) * len(now)
    return [cell for both in zip(then, now, strict=True) for cell in both]


def _reached(reached: bool) -> str:  # noqa: FBT001
    return "yes" if reached else "no"


TABLES = {"server": stall_table, "relay": growth_table}


def measured(part: str, tree: Path) -> Rows:
    """One part in a process of its own, with these sources. A version that fails gives no rows, and says so."""
    command = [sys.executable, "-m", "bench.stalls", "--rows", part]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(HERE)])}
    done = subprocess.run(
        command, cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=PATIENCE
    )
    if done.returncode:
        print(f"{part}: the sources in {tree} gave no figures (status {done.returncode})", file=sys.stderr, flush=True)
        return {}
    return READ[part](json.loads(done.stdout.splitlines()[-1]))


def _print_rows(part: str) -> None:
    """What the process of `measured` does."""
    print(json.dumps(_server_rows() if part == "server" else _relay_rows()))


# Imports are inside, since it is the process that is told to measure a version which has its sources on the path.


def _server_rows() -> list[Sequence[Any]]:
    from bench.stalls_server import measure_server  # noqa: PLC0415

    return [*measure_server()]


def _relay_rows() -> list[Sequence[Any]]:
    """Case by case: one that a version can't finish leaves the others their rows."""
    from bench.stalls_relay import CASES, measure_relay  # noqa: PLC0415

    rows: list[Sequence[Any]] = []
    for case in CASES:
        try:
            rows += measure_relay([case])
        except Exception as error:  # noqa: BLE001 - of whatever version is measured
            print(f"relay, {case}: {error!r}", file=sys.stderr, flush=True)
    return rows


def _given(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench stalls", description=__doc__)
    parser.add_argument("--before", type=Path, metavar="OTHER/src", help="another version, measured by turns")
    parser.add_argument("--part", choices=PARTS, help="one table alone")
    parser.add_argument("--rounds", type=int, default=1, help="how many; the best of each figure counts (default: 1)")
    parser.add_argument("--write", action="store_true", help="put the tables into PERFORMANCE.md too")
    parser.add_argument("--rows", choices=PARTS, help=argparse.SUPPRESS)  # for `measured`
    return parser.parse_args(words)


def run(words: Sequence[str] = ()) -> None:
    given = _given(words)
    if given.rows:
        _print_rows(given.rows)
        return
    trees = [HERE / "src", *([given.before] if given.before else [])]
    told = [f"{machine()}; the best of {given.rounds} round{'s' if given.rounds > 1 else ''}."]
    for part in [given.part] if given.part else PARTS:
        found: list[Rows] = [{} for _ in trees]
        for _ in range(given.rounds):
            found = [better(rows, measured(part, tree)) for rows, tree in zip(found, trees, strict=True)]
        told.append(TABLES[part](found[0], found[1] if given.before else None))
    text = "\n\n".join(part for part in told if part)
    print(text)
    if given.write:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text, MARKS))


if __name__ == "__main__":
    run(sys.argv[1:])
