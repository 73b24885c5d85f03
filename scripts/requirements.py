"""Tell which requirements of docs/requirements.md a test covers, and which none does.

    requirements.py               totals by group
    requirements.py --missing     also the ids that no test names, and those that a test names without being proof
    requirements.py --show ID     the tests that name this one

A test names an id in a comment or docstring. One that the document doesn't have is a mistake, and an error here. To be
covered takes more: a test that names the id was seen to fail while the code behind it was broken on purpose. That is
what scripts/breaks.py tries, and docs/cover.md has the outcome. A row there stops to count when its test is gone.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEARCHED = ("tests", "interop")
SUFFIXES = {".py", ".go", ".java", ".js", ".mjs", ".ts", ".txt", ".yaml", ".yml"}
BUILT = {"__pycache__", "node_modules", "target", "bin"}

ID = re.compile(r"\b[A-Z]{3}-\d+\b")
NOT_OURS = {"CVE", "ISO", "SHA", "UTF"}  # CVE-2023-44487, UTF-8, and the like
COVER = "docs/cover.md"
COVER_ROW = re.compile(r"^\| ([A-Z]{3}-\d+) \| (.*) \| `?([^`|]+?)`? \|$", re.MULTILINE)
COVER_HEAD = """# Which test notices that a requirement is broken

`python scripts/breaks.py --write` breaks the code behind each requirement on purpose, runs the tests that name it, and
writes this page. A requirement that is not here has no test that was seen to fail without it.

| requirement | broken on purpose | noticed by |
|---|---|---|
"""
DEFINITION = re.compile(r"^- \*\*([A-Z]{3}-\d+)\*\* (.*)$", re.MULTILINE)
HEADING = re.compile(r"^### C\d+\. (.*)$", re.MULTILINE)
COMMENT = re.compile(r"(?:^\s*/?\*|//|#)(.*)$", re.MULTILINE)  # of Go, Java, JavaScript, YAML and transcripts


@dataclass(frozen=True)
class Mention:
    """A place in a test that names a requirement."""

    id: str
    file: str
    line: int
    test: str  # the function around it or right below; empty: the file as a whole

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.test}".rstrip()


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    options = parse(arguments)
    document = (root / "docs" / "requirements.md").read_text(encoding="utf-8")
    known = dict(DEFINITION.findall(document))
    mentions = [mention for file in files(root) for mention in mentions_in(file, root)]
    wrong = [mention for mention in mentions if mention.id not in known]
    for mention in wrong:
        print(f"{mention}: there is no requirement {mention.id}", file=sys.stderr)
    if options.show:
        return show(options.show, known, mentions)
    named = {mention.id for mention in mentions} & known.keys()
    report(known, named, proven(root, mentions) & named, titles(document), missing=options.missing)
    return 1 if wrong else 0


def proven(root: Path, mentions: Sequence[Mention]) -> set[str]:
    """Those whose row in docs/cover.md still stands: the test is there, and still names the requirement."""
    tests = {(mention.id, mention.file, mention.test) for mention in mentions}
    files_named = {(mention.id, mention.file) for mention in mentions if not mention.test.startswith("test")}
    found = set()
    for one, (_, test) in read_cover(root).items():
        file, _, function = test.partition("::")
        if (one, file, function) in tests or (one, file) in files_named:
            found.add(one)
    return found


def read_cover(root: Path) -> dict[str, tuple[str, str]]:
    """Requirement to how the code was broken, and the test that noticed."""
    path = root / COVER
    rows = COVER_ROW.findall(path.read_text(encoding="utf-8")) if path.exists() else []
    return {one: (broken, test) for one, broken, test in rows}


def write_cover(root: Path, rows: dict[str, tuple[str, str]]) -> None:
    lines = [f"| {one} | {broken.replace('|', '/')} | `{test}` |" for one, (broken, test) in rows.items()]
    (root / COVER).write_text(COVER_HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which requirements have a test?")
    parser.add_argument("--missing", action="store_true", help="list those that have none")
    parser.add_argument("--show", metavar="ID", help="list the tests of one")
    return parser.parse_args(arguments)


def show(wanted: str, known: dict[str, str], mentions: Sequence[Mention]) -> int:
    if wanted not in known:
        print(f"there is no requirement {wanted}", file=sys.stderr)
        return 1
    print(f"{wanted} {known[wanted]}")
    found = [mention for mention in mentions if mention.id == wanted]
    for mention in found:
        print(f"  {mention}")
    if not found:
        print("  no test names it")
    return 0


def report(
    known: dict[str, str], named: set[str], covered: set[str], title_of: dict[str, str], *, missing: bool
) -> None:
    """Print the groups in the order of the document, then the sums."""
    all_of, covered_of = Counter(map(group, known)), Counter(map(group, covered))
    for name, count in all_of.items():
        print(f"{name}  {covered_of[name]:3} of {count:3}   {title_of[name]}")
        unnamed = [one for one in known if group(one) == name and one not in named]
        unproven = [one for one in known if group(one) == name and one in named - covered]
        if missing and unnamed:
            print(f"      no test names {', '.join(unnamed)}")
        if missing and unproven:
            print(f"      no test was seen to fail without {', '.join(unproven)}")
    print(f"requirements named by a test: {len(named)} of {len(known)}")
    print(f"requirements covered, by a test that was seen to fail without them: {len(covered)} of {len(known)}")


def group(requirement: str) -> str:
    return requirement.partition("-")[0]


def titles(document: str) -> dict[str, str]:
    """Give each group the heading that its first requirement stands under."""
    found: dict[str, str] = {}
    for section in re.split(r"^(?=### C\d)", document, flags=re.MULTILINE):
        heading = HEADING.match(section)
        for one, _ in DEFINITION.findall(section):
            found.setdefault(group(one), heading[1] if heading else "")
    return found


def files(root: Path) -> Iterator[Path]:
    for folder in SEARCHED:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and not BUILT.intersection(path.relative_to(root).parts):
                yield path


def mentions_in(path: Path, root: Path) -> Iterator[Mention]:
    text = path.read_text(encoding="utf-8")
    spans = list(functions(text)) if path.suffix == ".py" else []
    for line, comment in python_prose(text) if path.suffix == ".py" else comments(text):
        # Spans come outermost first, so the last that fits is the innermost.
        around = [name for first, last, name in spans if first <= line <= last]
        for one in ID.findall(comment):
            if group(one) not in NOT_OURS:
                yield Mention(one, path.relative_to(root).as_posix(), line, around[-1] if around else "")


def comments(text: str) -> Iterator[tuple[int, str]]:
    for found in COMMENT.finditer(text):
        yield text.count("\n", 0, found.start(1)) + 1, found[1]


def python_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments and the lines of docstrings; other strings are a test's material, not its purpose."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is None:
                continue
            start = node.body[0].lineno
            yield from enumerate(text.splitlines()[start - 1 : node.body[0].end_lineno], start)


def functions(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield first line, last line and name of each function; comments right above belong to it."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            while first > 1 and lines[first - 2].lstrip().startswith("#"):
                first -= 1
            yield first, node.end_lineno or first, node.name


if __name__ == "__main__":
    sys.exit(main())
