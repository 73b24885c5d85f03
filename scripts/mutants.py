"""Change one branch or comparison of the core at a time, and report the changes that no test notices.

    make mutants COUNT=200 SEED=1      try a random sample of all changes; the seed decides which
    scripts/mutants.py FILE:LINE ...   try every change of these lines; FILE may be the end of a path

`make mutants` first writes to .coverage which test reaches which line. Of a changed line only those tests run, first
those of the core, then those that reach the fewest lines, until one fails. If none fails, the change survives: a test
is missing, or nobody could see a difference. Each change is tried in a fork, which replaces the code of one function.
"""

import ast
import gc
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import coverage
import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 60  # of processor time for one change, and for one test: a change may make a loop endless
OTHER = {ast.Eq: ast.NotEq, ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Is: ast.IsNot, ast.In: ast.NotIn}
OTHER |= {other: each for each, other in OTHER.items()}
# Each branch is taken always or never, each operand of `and` and `or` left out, each comparison turned round.
CHANGES: dict[type, Any] = {
    **dict.fromkeys((ast.If, ast.IfExp), lambda n: [(n.test, "False"), (n.test, "True")]),
    ast.While: lambda n: [(n.test, "False")],
    ast.BoolOp: lambda n: [(each, str(isinstance(n.op, ast.And))) for each in n.values],
    ast.comprehension: lambda n: [(each, "True") for each in n.ifs],
    ast.UnaryOp: lambda n: [(n, f"bool({ast.unparse(n.operand)})")] if isinstance(n.op, ast.Not) else [],
    ast.Compare: lambda n: [(n, ast.unparse(ast.Compare(n.left, [OTHER[type(op)]() for op in n.ops], n.comparators)))],
}


class Mutant(NamedTuple):
    name: str
    path: Path
    line: int
    text: bytes  # the module with the change
    function: int  # first line of the function or method around the change


def main() -> int:
    mutants = [each for path in sorted((ROOT / "src/xdsprism/core").rglob("*.py")) for each in mutants_of(path)]
    if lines := tuple(sys.argv[1:]):
        mutants = [each for each in mutants if f"{each.path}:{each.line}".endswith(lines)]
    else:
        mutants = random.Random(os.environ["SEED"]).sample(mutants, min(int(os.environ["COUNT"]), len(mutants)))  # noqa: S311
    os.environ["HYPOTHESIS_PROFILE"] = "brief"  # tests/conftest.py
    tests = tests_by_mutant(mutants)
    files = sorted({test.partition("::")[0] for each in tests.values() for test in each})
    command = ["-q", "--tb=no", "-p", "no:cacheprovider", "--timeout=0", f"--rootdir={ROOT}", *files]
    loop = SimpleNamespace(pytest_runtestloop=lambda session: try_all(tests, session.items))  # in place of pytest's own
    return int(pytest.main(command, plugins=[loop]))


def tests_by_mutant(mutants: Sequence[Mutant]) -> dict[Mutant, list[str]]:
    measured = coverage.CoverageData(str(ROOT / ".coverage"))
    measured.read()
    by_file = {path: measured.contexts_by_lineno(str(path)) for path in {mutant.path for mutant in mutants}}
    breadth = Counter(test for lines in by_file.values() for tests in lines.values() for test in tests)
    found = {}
    for mutant in mutants:
        contexts = [each for each in by_file[mutant.path].get(mutant.line, ()) if each]
        contexts.sort(key=lambda each: (not each.startswith("tests/core/"), breadth[each], each))
        found[mutant] = [*dict.fromkeys(each.rpartition("|")[0] for each in contexts)]  # without `|setup`, `|run`
    return found


def try_all(tests: dict[Mutant, list[str]], items: Sequence[Any]) -> bool:
    by_id, (functions, caches) = {item.nodeid: item for item in items}, in_use()
    waiting, running, survivors = [*tests], dict[int, Mutant](), list[str]()
    while waiting or running:
        if waiting and len(running) < (os.cpu_count() or 1):
            mutant = waiting.pop()
            if not (pid := os.fork()):
                reaching = [by_id[test] for test in tests[mutant] if test in by_id]
                try_and_exit(mutant, functions[str(mutant.path), mutant.function], reaching, caches)
            running[pid] = mutant
        else:
            pid, status = os.wait()
            mutant = running.pop(pid)
            survivors += [] if status else [mutant.name]
            verdict = {0: "SURVIVED", 2: "NOT TRIED"}.get(os.waitstatus_to_exitcode(status), "noticed")
            print(f"{verdict:10}{mutant.name}", file=sys.__stderr__, flush=True)
    print(f"survived: {len(survivors)} of {len(tests)}", *sorted(survivors), sep="\n", file=sys.__stderr__)
    return True


def try_and_exit(mutant: Mutant, function: FunctionType, items: Sequence[Any], caches: Sequence[Any]) -> None:
    """End this process with 1 if a test fails with the change and passes without it, and with 0 if none does."""
    try:
        was, now = ((function, code, caches) for code in (function.__code__, changed_code(mutant)))
        tried = (item for item in items if os.times().user < SECONDS)
        os._exit(int(any(fails(item, *now) and not fails(item, *was) for item in tried)))
    except BaseException:  # noqa: BLE001 # whatever it is, a child must not go on as its parent
        traceback.print_exc(file=sys.__stderr__)
        os._exit(2)


def fails(item: Any, function: FunctionType, code: CodeType, caches: Sequence[Any]) -> bool:
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)  # its signal ends this process, which counts as noticed
    function.__code__ = code
    for cache in caches:
        cache.cache_clear()  # it may have results of the other code
    return any(report.failed for report in runtestprotocol(item, nextitem=None, log=False))


def in_use() -> tuple[dict[tuple[str, int], FunctionType], list[Any]]:
    gc.unfreeze()  # tests/conftest.py hides from the collector what is there before the first test
    found = gc.get_objects()
    gc.freeze()  # or each fork would copy most of the memory
    functions = (each for each in found if isinstance(each, FunctionType))
    caches = [each for each in found if type(each).__name__ == "_lru_cache_wrapper"]  # of functools
    return {(each.__code__.co_filename, each.__code__.co_firstlineno): each for each in functions}, caches


def changed_code(mutant: Mutant) -> CodeType:
    codes = [compile(mutant.text, str(mutant.path), "exec")]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    return next(each for each in codes if each.co_firstlineno == mutant.function and not each.co_name.startswith("<"))


def mutants_of(path: Path) -> Iterator[Mutant]:
    lines = path.read_bytes().splitlines(keepends=True)
    rooms = [each for each in ast.walk(ast.parse(b"".join(lines))) if isinstance(each, ast.Module | ast.ClassDef)]
    defs = [each for room in rooms for each in room.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function, node in ((each, node) for each in defs for node in ast.walk(each)):
        first = min(each.lineno for each in (function, *function.decorator_list))
        for part, new in CHANGES.get(type(node), lambda _: [])(node):
            old = ast.unparse(part)
            # The code still mentions what it leaves out: a function needs the names that it had from outside.
            put = {"False": f"(False and ({old}))", "True": f"(True or ({old}))"}.get(new, f"({new})")
            head = [*lines[: part.lineno - 1], lines[part.lineno - 1][: part.col_offset]]
            tail = [lines[part.end_lineno - 1][part.end_col_offset :], *lines[part.end_lineno :]]
            name = f"{path.relative_to(ROOT)}:{part.lineno}  `{old}` -> `{new}`"
            yield Mutant(name, path, part.lineno, b"".join([*head, put.encode(), *tail]), first)


if __name__ == "__main__":
    sys.exit(main())
