"""Short citations in comments and pages lead to a page of docs/: `S11`, `V4`, `DYN-24`, `C11`, `DESIGN 6.4`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from scripts.requirements import DEFINITION, ID, NOT_OURS, python_prose

ROOT = Path(__file__).parents[2]
CLIENTS = (ROOT / "docs/clients.md").read_text()
REQUIREMENTS = (ROOT / "docs/requirements.md").read_text()
DESIGN = (ROOT / "docs/design.md").read_text()

CLIENT = re.compile(r"\b[SVXDGOP]\d{1,2}\b")  # rows of docs/clients.md
CHAPTER = re.compile(r"\bC\d{1,2}\b")  # of docs/requirements.md
SECTION = re.compile(r"\bDESIGN (\d+(?:\.\d+)?)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

ROWS = re.findall(r'^\| <a id="(\w+)"></a>(\w+) \| ', CLIENTS, re.MULTILINE)
FOLDERS = ("src", "tests", "docs")
SCENARIOS = ROOT / "tests/bench"  # where S1 is a scenario of bench/scenarios.py
HERE = Path(__file__)  # has examples of citations, of what exists and of what does not


@cache
def files(folder: str) -> tuple[tuple[Path, str], ...]:
    found = (file for file in sorted((ROOT / folder).rglob("*")) if file.suffix in (".py", ".md"))
    return tuple((file, file.read_text()) for file in found if file != HERE and not file.is_relative_to(SCENARIOS))


def prose(file: Path, text: str) -> str:
    """Comments and docstrings of programs, and pages without their examples."""
    if file.suffix == ".md":
        return FENCED.sub("", text)
    return "\n".join(remark for _, remark in python_prose(text))


def unresolved(folder: str, pattern: re.Pattern[str], known: set[str]) -> list[str]:
    wrong = []
    for file, text in files(folder):
        if set(pattern.findall(text)) - known:  # parsing takes long, and most files need none
            cited = set(pattern.findall(prose(file, text))) - known
            wrong += [f"{file.relative_to(ROOT)}: {each}" for each in sorted(cited)]
    return wrong


def test_each_row_of_the_page_of_clients_has_the_anchor_of_its_number() -> None:
    assert len(ROWS) > 40
    assert [anchor for anchor, number in ROWS if anchor != number.lower()] == []
    assert len({number for _, number in ROWS}) == len(ROWS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_citations_of_real_clients_are_on_their_page(folder: str) -> None:
    assert unresolved(folder, CLIENT, {number for _, number in ROWS}) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_requirement_that_is_cited_exists(folder: str) -> None:
    known = {number for number, _ in DEFINITION.findall(REQUIREMENTS)}
    assert len(known) > 300
    wrong = unresolved(folder, ID, known)
    assert [each for each in wrong if each.rpartition(" ")[2].partition("-")[0] not in NOT_OURS] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_chapter_of_requirements_that_is_cited_exists(folder: str) -> None:
    known = set(re.findall(r"^### (C\d+)\. ", REQUIREMENTS, re.MULTILINE))
    assert unresolved(folder, CHAPTER, known) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_section_of_the_design_that_is_cited_exists(folder: str) -> None:
    known: set[str] = set()
    for section in re.split(r"^## ", DESIGN, flags=re.MULTILINE)[1:]:
        number = section.partition(".")[0]
        known |= {number, *(f"{number}.{item}" for item in re.findall(r"^(\d+)\. \*\*", section, re.MULTILINE))}
    assert unresolved(folder, SECTION, known) == []
