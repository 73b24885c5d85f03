"""CONTRIBUTING, CHANGELOG, SECURITY and the glossary name what exists."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import xdsprism
from xdsprism import TypeSpec

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
SECURITY = (ROOT / "SECURITY.md").read_text()
GLOSSARY = (ROOT / "docs/glossary.md").read_text()
FENCED = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_each_make_target_that_is_named_exists_and_make_help_names_them_too() -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", CONTRIBUTING, re.MULTILINE))
    assert len(named) > 10
    assert named <= targets()
    assert set(re.findall(r"@echo 'make ([a-z-]+)", (ROOT / "Makefile").read_text())) <= named


def test_each_file_that_a_command_names_exists() -> None:
    commands = "\n".join(FENCED.findall(CONTRIBUTING))
    paths = re.findall(r"\btests/[\w/]+(?:\.py)?", commands)
    assert len(paths) == 3
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_tour_names_every_package_once_and_where_to_start_reading() -> None:
    tour = CONTRIBUTING.partition("## A five-minute tour")[2].partition("\nFollow one update")[0]
    named = re.findall(r"^\| `(\w+)/` \|", tour, re.MULTILINE)
    packages = [path.parent.name for path in (ROOT / "src/xdsprism").glob("*/__init__.py")]
    assert sorted(named) == sorted(packages)


def test_fields_of_a_resource_type_are_those_of_the_code() -> None:
    how = CONTRIBUTING.partition("## How to add a resource type")[2].partition("Then:")[0]
    named = set(re.findall(r"`([a-z_]+)` \(", how))
    assert len(named) == 4
    assert named <= {field.name for field in fields(TypeSpec)}


def test_examples_of_commits_are_as_the_rule_says() -> None:
    examples = FENCED.findall(CONTRIBUTING)[-1].splitlines()
    assert len(examples) == 2
    assert [line for line in examples if len(line) > 72 or not re.fullmatch(r"[a-z0-9, ]+: [a-z].*[^.]", line)] == []


def test_the_changelog_begins_with_what_is_unreleased_and_the_current_version() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(xdsprism.__version__)} - \d{{4}}-\d\d-\d\d", headings[1])
    assert set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)) <= set(KINDS)


def test_the_version_that_is_supported_is_the_current_one() -> None:
    major, minor, *_ = xdsprism.__version__.split(".")
    assert re.findall(r"^\| (\S+) \| yes \|$", SECURITY, re.MULTILINE) == [f"{major}.{minor}.x"]


def test_how_to_report_a_vulnerability_is_written_in_one_place() -> None:
    page = (ROOT / "docs/security.md").read_text()
    assert "(../SECURITY.md)" in page
    assert "--version" not in page
    assert "`xdsprism --version`" in SECURITY


def test_names_of_the_code_in_the_glossary_are_defined_in_it() -> None:
    defined = set()
    for file in (ROOT / "src/xdsprism").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Assign):
                defined.update(target.id for target in node.targets if isinstance(target, ast.Name))
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", GLOSSARY))
    assert len(named) > 60
    assert named - defined == set()


def test_each_word_is_in_the_glossary_once_and_each_table_is_sorted() -> None:
    tables = re.findall(r"^\|---\|---\|\n((?:\|.*\n)+)", GLOSSARY, re.MULTILINE)
    words = [
        [row.split(" | ")[0].removeprefix("| ").replace("`", "") for row in table.splitlines()] for table in tables
    ]
    everything = [word for table in words for row in table for word in row.split(", ")]
    assert len(tables) == 4
    assert len(everything) == len(set(everything))
    assert [table for table in words if table != sorted(table, key=str.lower)] == []
