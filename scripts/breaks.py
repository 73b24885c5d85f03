"""Break the code on purpose, one requirement at a time, and see whether the tests that name the requirement notice.

    breaks.py                  try every requirement, and print what lost its cover
    breaks.py DYN NAK-3        only these groups and ids
    breaks.py --write          also note the outcome in docs/cover.md, where scripts/requirements.py reads it
    breaks.py --show DYN-46    print the breaks for a requirement, and run nothing

A requirement is covered if at least one test that names it fails while the code behind it is broken. Breaks come from
two places. The code quotes a requirement at the branch that implements it, so each quoted statement is broken in turn:
a condition is forced to be true or false, an operand or a filter is left out, a statement is left out. Where nothing
quotes a requirement, or such a break says nothing, tests/breaks.toml has one that was written for it.

A test that fails with NameError, AttributeError or TypeError has noticed that code is missing, not that a rule is, so
that does not count; nor if a server says so to its client. Tests with real clients (tests/e2e, tests/interop) run
only for requirements that no other test names.
"""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.requirements import COVER, DEFINITION, ID, ROOT, Mention, files, mentions_in, read_cover, write_cover

SOURCE = "src/xdsprism"
WRITTEN = "tests/breaks.toml"
SLOW = ("tests/e2e/", "tests/interop/", "tests/bench/", "interop/")
MOST = 16  # breaks to try for one requirement
CRASH = re.compile(
    r"(?:^|internal error: )(?:NameError|UnboundLocalError|AttributeError|TypeError|SyntaxError|ImportError)"
)
# What tests import of others is imported once; each run is a fork of that. Not grpc: its threads do not survive a fork.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "_pytest.main", "hypothesis.stateful", "envoy.service.discovery.v3.ads_pb2"])
FAILED = re.compile(r"^FAILED (\S+?)::(\S+?)(?:\[.*\])?(?: - (.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Break:
    """One change to one file that takes a requirement away."""

    file: str  # below the project
    start: int  # offsets in its text
    end: int
    text: str
    what: str

    def applied(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]


@dataclass
class Outcome:
    """What became of one requirement."""

    id: str
    tried: int = 0
    broken: str = ""  # where and how the code was broken when a test noticed
    noticed_by: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def is_covered(self) -> bool:
        return bool(self.noticed_by)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    options = parse(arguments)
    known = dict(DEFINITION.findall((root / "docs" / "requirements.md").read_text(encoding="utf-8")))
    wanted = [one for one in known if is_wanted(one, options.ids)]
    mentions = [mention for file in files(root) for mention in mentions_in(file, root)]
    breaks = {one: [] for one in wanted} | written_breaks(root, wanted)
    for one, found in quoted_breaks(root, set(wanted)).items():
        breaks[one] = [*breaks[one], *found]
    if options.show:
        for one in wanted:
            for each in breaks[one]:
                print(f"{one}  {each.file}:{line_of(root, each)}  {each.what}")
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        tasks = [pool.submit(judge, root, one, breaks[one], mentions) for one in wanted]
        outcomes = [report(task.result()) for task in tasks]
    lost = [each.id for each in outcomes if not each.is_covered]
    print(f"covered: {len(outcomes) - len(lost)} of {len(outcomes)}")
    if lost:
        print(f"not covered: {', '.join(lost)}")
    if options.write:
        kept = {one: row for one, row in read_cover(root).items() if one in known and one not in wanted}
        kept |= {each.id: (each.broken, each.noticed_by) for each in outcomes if each.is_covered}
        write_cover(root, {one: kept[one] for one in known if one in kept})
        print(f"wrote {COVER}")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which requirements have a test that fails without them?")
    parser.add_argument("ids", nargs="*", metavar="ID", help="a requirement (DYN-46) or a group (DYN); none: all")
    parser.add_argument("--write", action="store_true", help=f"note the outcome in {COVER}")
    parser.add_argument("--show", action="store_true", help="print the breaks and run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many to try at once")
    return parser.parse_args(arguments)


def is_wanted(one: str, ids: Sequence[str]) -> bool:
    return not ids or one in ids or one.partition("-")[0] in ids


def report(outcome: Outcome) -> Outcome:
    for problem in outcome.problems:
        print(f"{outcome.id}  {problem}", file=sys.stderr)
    if outcome.is_covered:
        print(f"{outcome.id}  {outcome.noticed_by} notices: {outcome.broken}", flush=True)
    else:
        print(f"{outcome.id}  NOT COVERED after {outcome.tried} breaks", flush=True)
    return outcome


# -- trying


def judge(root: Path, one: str, breaks: Sequence[Break], mentions: Sequence[Mention]) -> Outcome:
    """Apply one break after the other to a copy of the code, until a test that names the requirement notices."""
    outcome = Outcome(one)
    tests = [mention for mention in mentions if mention.id == one and mention.file.endswith(".py")]
    quick = [mention for mention in tests if not mention.file.startswith(SLOW)]
    tests = quick or tests
    if not tests:
        outcome.problems.append("no test names it")
        return outcome
    if not breaks:
        outcome.problems.append(f"nothing in {SOURCE} quotes it, and {WRITTEN} has no break for it")
        return outcome
    with tempfile.TemporaryDirectory(prefix="xdsprism-break-") as folder:
        shutil.copytree(root / "src", Path(folder) / "src")  # with what is compiled already
        for each in breaks[:MOST]:
            outcome.tried += 1
            target, original = Path(folder) / each.file, (root / each.file).read_text(encoding="utf-8")
            target.write_text(each.applied(original), encoding="utf-8")
            noticed = run(root, Path(folder), tests)
            target.write_text(original, encoding="utf-8")
            if noticed is not None:
                outcome.broken, outcome.noticed_by = f"{each.file}: {each.what}", noticed
                break
    return outcome


def run(root: Path, copy: Path, tests: Sequence[Mention]) -> str | None:
    """Run the tests against the broken copy; the first that names the requirement and fails as a test should.

    Folder by folder, as most are noticed in the first, and it takes long to import them all.
    """
    whole = {mention.file for mention in tests if not mention.test.startswith("test")}
    proof = Proof({(mention.file, mention.test) for mention in tests}, whole)
    folders: dict[str, list[Mention]] = {}
    for mention in tests:
        folders.setdefault(mention.file.rpartition("/")[0], []).append(mention)
    for folder in sorted(folders, key=haste):
        noticed = run_folder(root, copy, folders[folder], proof)
        if noticed is not None:
            return noticed
    return None


def run_folder(root: Path, copy: Path, tests: Sequence[Mention], proof: Proof) -> str | None:
    names = {mention.test if mention.test.startswith("test") else Path(mention.file).stem for mention in tests}
    command = ["-q", "--tb=no", "-rf", "-p", "no:cacheprovider", "--timeout=90", f"--rootdir={root}", "--maxfail=4"]
    command += [*sorted({mention.file for mention in tests}), "-k", " or ".join(sorted(names))]
    log = copy / "pytest.log"
    process = FORKS.Process(target=run_pytest, args=(command, root, copy / "src", log, proof))
    process.start()
    process.join(timeout=400)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    for file, test, reason in FAILED.findall(log.read_text(encoding="utf-8")):
        if proof.counts(file, test, reason):
            return f"{file}::{test.rpartition('::')[2]}"
    return None


class Proof:
    """Which failures count; as a plugin of pytest it stops at the first."""

    def __init__(self, named: Collection[tuple[str, str]], whole: Collection[str]) -> None:
        self._named = named
        self._whole = whole
        self._session: Any = None

    def counts(self, file: str, test: str, reason: str) -> bool:
        meant = file in self._whole or (file, test.rpartition("::")[2]) in self._named
        return meant and not CRASH.search(reason.lstrip("E "))

    def pytest_sessionstart(self, session: Any) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: Any) -> None:
        file, _, test = report.nodeid.partition("[")[0].partition("::")
        crash = getattr(report.longrepr, "reprcrash", None)
        if report.failed and report.when == "call" and self.counts(file, test, crash.message if crash else ""):
            self._session.shouldstop = "it was noticed"


def haste(folder: str) -> tuple[bool, bool, str]:
    """The core goes first, and tests that start programs last."""
    return folder != "tests/core", folder in ("tests/cli", "tests/docs"), folder


def run_pytest(command: Sequence[str], root: Path, source: Path, log: Path, proof: Proof) -> None:
    """Become pytest for the project with the code in `source`; programs that the tests start get that code too."""
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(root)
    os.environ |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"}
    os.environ["HYPOTHESIS_PROFILE"] = "brief"  # tests/conftest.py
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(source), str(root)]
    for name in [each for each in sys.modules if each.partition(".")[0] in ("scripts", "tests", "xdsprism")]:
        del sys.modules[name]
    import pytest  # noqa: PLC0415 # the server of forks has it

    status = pytest.main([*command], plugins=[proof])
    sys.stdout.flush()
    os._exit(status)


# -- breaks that were written by hand


def written_breaks(root: Path, wanted: Sequence[str]) -> dict[str, list[Break]]:
    """Each says which requirements it takes away, in which file, and what stands there once and is replaced."""
    found: dict[str, list[Break]] = {one: [] for one in wanted}
    path = root / WRITTEN
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["break"] if path.exists() else []
    for entry in entries:
        file = f"{SOURCE}/{entry['file']}"
        source = (root / file).read_text(encoding="utf-8") if (root / file).exists() else ""
        if source.count(entry["find"]) != 1:
            ids = ", ".join(entry["ids"])
            print(f"{WRITTEN}: {ids}: {entry['find']!r} is not in {file} exactly once", file=sys.stderr)
            continue
        start = source.index(entry["find"])
        made = Break(file, start, start + len(entry["find"]), entry["replace"], entry["what"])
        for one in set(entry["ids"]).intersection(wanted):
            found[one].append(made)
    return found


# -- breaks where the code quotes a requirement


def quoted_breaks(root: Path, wanted: set[str]) -> dict[str, list[Break]]:
    found: dict[str, dict[Break, None]] = {one: {} for one in wanted}
    for path in sorted((root / SOURCE).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not wanted.intersection(ID.findall(text)):
            continue
        file = path.relative_to(root).as_posix()
        tree, lines = ast.parse(text), Lines(text)
        for one, node in quoted(tree, text):
            if one in wanted:
                found[one].update(dict.fromkeys(breaks_of(node, file, lines)))
    return {one: [*each] for one, each in found.items()}


class Lines:
    """From the line and column of a syntax node to offsets in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = text.splitlines()

    def span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        start = self._starts[first] + len(self._lines[first].encode()[: node.col_offset].decode())
        end = self._starts[last] + len(self._lines[last].encode()[: node.end_col_offset].decode())
        return start, end


def quoted(tree: ast.Module, text: str) -> Iterator[tuple[str, ast.stmt]]:
    """Each requirement that a comment or a docstring of a function quotes, with the statements that this is about."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    functions = [node for node in statements if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    documented = [node for node in functions if ast.get_docstring(node) is not None]
    prose = {line for node in documented for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    for number, line in enumerate(text.splitlines(), 1):
        comment = line.partition("#")[2] if number not in prose else ""
        target = statement_at(statements, number, alone=line.lstrip().startswith("#")) if comment else None
        if target is not None:
            yield from ((one, target) for one in ID.findall(comment))
    for node in documented:
        for one in ID.findall(ast.get_docstring(node) or ""):
            yield from ((one, each) for each in node.body[1:])


def statement_at(statements: Sequence[ast.stmt], number: int, *, alone: bool) -> ast.stmt | None:
    """The innermost statement that a comment stands beside; of one on a line of its own, the statement after it."""
    if alone:
        after = [node for node in statements if node.lineno > number]
        return min(after, key=lambda node: (node.lineno, node.col_offset), default=None)
    around = [node for node in statements if node.lineno <= number <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: (node.lineno, node.col_offset), default=None)


def breaks_of(node: ast.stmt, file: str, lines: Lines) -> Iterator[Break]:
    """Ways to take a statement's meaning away and leave code that runs."""

    def made(part: ast.stmt | ast.expr, text: str, what: str) -> Break:
        start, end = lines.span(part)
        shown = " ".join(lines.text[start:end].split())
        return Break(file, start, end, text, f"`{shown[:80]}` {what}")

    for part in ast.walk(node):
        if isinstance(part, ast.If | ast.While | ast.IfExp):
            yield made(part.test, "False", "is never so")
            yield made(part.test, "True", "is always so")
        elif isinstance(part, ast.BoolOp):
            idle = "True" if isinstance(part.op, ast.And) else "False"
            yield from (made(each, idle, "is not asked") for each in part.values)
        elif isinstance(part, ast.comprehension):
            yield from (made(each, "True", "filters nothing") for each in part.ifs)
        elif isinstance(part, ast.Raise | ast.Continue | ast.AugAssign | ast.Delete):
            yield made(part, "pass", "is left out")
        elif isinstance(part, ast.Expr) and not isinstance(part.value, ast.Constant | ast.Yield | ast.YieldFrom):
            yield made(part, "pass", "is left out")
        elif isinstance(part, ast.Assign) and all(isinstance(each, ast.Attribute) for each in part.targets):
            yield made(part, "pass", "is left out")
        elif isinstance(part, ast.For):
            yield made(part.iter, "()", "is never gone through")
        elif isinstance(part, ast.Return) and isinstance(part.value, ast.Compare | ast.BoolOp | ast.UnaryOp):
            start, end = lines.span(part.value)
            yield made(part.value, f"not ({lines.text[start:end]})", "is the other way round")
        elif (
            isinstance(part, ast.Constant) and isinstance(part.value, int | float) and not isinstance(part.value, bool)
        ):
            yield made(part, f"({part.value} * 1000 + 7)", "is another number")


def line_of(root: Path, each: Break) -> int:
    return (root / each.file).read_text(encoding="utf-8").count("\n", 0, each.start) + 1


if __name__ == "__main__":
    sys.exit(main())
