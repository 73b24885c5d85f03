"""Change one branch or comparison of the core at a time, and see whether a test that reaches it fails.

    mutants.py --count 200 --seed 1    a random sample of all changes; the same seed gives the same sample
    mutants.py --only FILE:LINE ...    every change of these lines; FILE may be the end of a path
    mutants.py --show                  print the changes and run nothing

`make coverage` writes to .coverage which test reaches which line. Of a changed line only those tests run, those of
the core first, and of these the ones that reach the fewest lines, until one fails. If none does, the change survives:
a test is missing, or the change alters nothing that anybody could see.

No file is changed. The tests are collected once; each change is tried in a fork, which gives the function in question
another code object. Tests that start programs therefore prove nothing here, and none of the core does.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import coverage
import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parents[1]
CORE = "src/xdsprism/core"
LONGEST = 60  # seconds of processor time for one test: a change may have made a loop without an end
NOT_TRIED = 2
VERDICTS = {0: "SURVIVED", NOT_TRIED: "NOT TRIED"}
OTHER = {ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
OTHER |= {ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}


class Mutant(NamedTuple):
    path: Path
    line: int
    what: str
    text: str  # the module with the change
    function: int  # first line of the function that it is in

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}  {self.what}"


def main() -> int:
    options = parse()
    mutants = [each for path in sorted((ROOT / CORE).rglob("*.py")) for each in mutants_of(path)]
    if options.only:
        mutants = [each for each in mutants if f"{each.path}:{each.line}".endswith(tuple(options.only))]
    else:
        mutants = random.Random(options.seed).sample(mutants, min(options.count, len(mutants)))  # noqa: S311
    if options.show:
        print(*mutants, sep="\n")
        return 0
    os.environ["HYPOTHESIS_PROFILE"] = "brief"  # tests/conftest.py
    trials = Trials(mutants, reached(options.data, mutants), options)
    files = sorted({test.partition("::")[0] for tests in trials.tests for test in tests})
    command = ["-q", "--tb=no", "-p", "no:cacheprovider", "--timeout=0", f"--rootdir={ROOT}", *files]
    return int(pytest.main(command, plugins=[trials]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which changes to the core does no test notice?")
    parser.add_argument("--count", type=int, default=200, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=1, help="which sample of all changes")
    parser.add_argument("--only", nargs="+", metavar="FILE:LINE", help="all changes of these lines, and no sample")
    parser.add_argument("--show", action="store_true", help="print the changes and run nothing")
    parser.add_argument("--data", default=".coverage", help="what `make coverage` measured")
    parser.add_argument("--seconds", type=float, default=60, help="processor time for one change")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many to try at once")
    return parser.parse_args()


def reached(data: str, mutants: Sequence[Mutant]) -> list[list[str]]:
    """The tests that reach each of these."""
    measured = coverage.CoverageData(data)
    measured.read()
    by_file = {path: measured.contexts_by_lineno(str(path)) for path in {mutant.path for mutant in mutants}}
    breadth = Counter(test for lines in by_file.values() for tests in lines.values() for test in tests)
    found = []
    for mutant in mutants:
        contexts = [each for each in by_file[mutant.path].get(mutant.line, ()) if each]
        contexts.sort(key=lambda each: (not each.startswith("tests/core/"), breadth[each], each))
        found.append([*dict.fromkeys(each.rpartition("|")[0] for each in contexts)])  # `|setup`, `|run`
    return found


class Trials:
    """A plugin of pytest: in place of running all tests once, it runs some of them for each change."""

    def __init__(self, mutants: Sequence[Mutant], tests: Sequence[Sequence[str]], options: argparse.Namespace) -> None:
        self.mutants = mutants
        self.tests = tests
        self._options = options

    def pytest_runtestloop(self, session: Any) -> bool:
        items = {item.nodeid: item for item in session.items}
        running: dict[int, Mutant] = {}
        survivors: list[Mutant] = []
        for mutant, tests in [*zip(self.mutants, self.tests, strict=True), *[(None, ())] * self._options.jobs]:
            while running and (mutant is None or len(running) >= self._options.jobs):
                pid, status = os.wait()
                tried = running.pop(pid)
                print(f"{VERDICTS.get(status >> 8, 'noticed ')}  {tried}", file=sys.__stderr__, flush=True)
                survivors += [] if status else [tried]
            if mutant is not None:
                pid = os.fork()
                if not pid:
                    self._be_child(mutant, [items[test] for test in tests if test in items])
                running[pid] = mutant
        lines = [f"survived: {len(survivors)} of {len(self.mutants)}", *sorted(map(str, survivors))]
        print(*lines, sep="\n", file=sys.__stderr__)
        return True

    def _be_child(self, mutant: Mutant, items: Sequence[Any]) -> None:
        status = NOT_TRIED
        try:
            status = self._try(mutant, items) if items else 0
        except BaseException:  # noqa: BLE001 # whatever it is, a child must not go on as its parent
            traceback.print_exc(file=sys.__stderr__)
        os._exit(status)

    def _try(self, mutant: Mutant, items: Sequence[Any]) -> int:
        """1: a test fails with the change, and does not fail without it."""
        function, code = found_function(mutant)
        original = function.__code__
        for item in items:
            if time.process_time() > self._options.seconds:
                break
            signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)  # its signal ends this process
            function.__code__ = code
            if has_failed(item):
                function.__code__ = original
                if not has_failed(item):
                    return 1
        return 0


def has_failed(item: Any) -> bool:
    return any(report.failed for report in runtestprotocol(item, nextitem=None, log=False))


def found_function(mutant: Mutant) -> tuple[FunctionType, CodeType]:
    """The function as it was imported, and its code with the change."""
    codes = [compile(mutant.text, str(mutant.path), "exec")]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    place = str(mutant.path), mutant.function
    (code,) = (each for each in codes if each.co_firstlineno == mutant.function and not each.co_name.startswith("<"))
    functions = (each for each in gc.get_objects() if isinstance(each, FunctionType))
    return next(e for e in functions if (e.__code__.co_filename, e.__code__.co_firstlineno) == place), code


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Each branch taken always or never, each operand of `and` and `or` left out, each comparison the other way."""
    text = path.read_text(encoding="utf-8")
    for outer, node in inside_functions(ast.parse(text)):
        if isinstance(node, ast.If | ast.IfExp):
            changes = [(node.test, "False"), (node.test, "True")]
        elif isinstance(node, ast.While):
            changes = [(node.test, "False")]
        elif isinstance(node, ast.BoolOp):
            changes = [(each, str(isinstance(node.op, ast.And))) for each in node.values]
        elif isinstance(node, ast.comprehension):
            changes = [(each, "True") for each in node.ifs]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            changes = [(node, f"bool({ast.unparse(node.operand)})")]
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = ast.unparse(node.left), ast.unparse(node.comparators[0])
            changes = [(node, f"({sides[0]} {OTHER[type(node.ops[0])]} {sides[1]})")]
        else:
            changes = []
        first = min(each.lineno for each in (outer, *outer.decorator_list))
        for part, new in changes:
            old = ast.unparse(part)
            # What is left out still stands there: a function has to mention the names that it had from outside.
            put = {"False": f"(False and ({old}))", "True": f"(True or ({old}))"}.get(new, new)
            yield Mutant(path, part.lineno, f"`{old}` -> `{new}`", replaced(text, part, put), first)


def inside_functions(node: ast.AST, outer: Any = None) -> Iterator[tuple[Any, ast.AST]]:
    """All that is in a function, with the outermost function that it is in."""
    for child in ast.iter_child_nodes(node):
        if outer is not None:
            yield outer, child
        is_outermost = outer is None and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from inside_functions(child, child if is_outermost else outer)


def replaced(text: str, part: ast.expr, new: str) -> str:
    lines = text.encode().splitlines(keepends=True)
    last = (part.end_lineno or part.lineno) - 1
    head, tail = lines[part.lineno - 1][: part.col_offset], lines[last][part.end_col_offset :]
    return b"".join([*lines[: part.lineno - 1], head, new.encode(), tail, *lines[last + 1 :]]).decode()


if __name__ == "__main__":
    sys.exit(main())
