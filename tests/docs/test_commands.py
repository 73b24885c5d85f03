"""Which test runs the commands of each page, and that each command is one that the program has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tests.docs.walking import ROOT
from xdsprism.cli.main import main

# The test that runs the commands of a page. A page with commands that is not here is an error.
RUN_BY = {
    "README.md": "tests/docs/test_readme.py",
    "docs/cli.md": "tests/docs/test_cli_page.py",
    "docs/dashboard.md": "tests/docs/test_dashboard_page.py",
    "docs/deploy.md": "tests/docs/test_deploy.py",
    "docs/held-back.md": "tests/docs/test_walked_pages.py",
    "docs/import.md": "tests/docs/test_import_page.py",
    "docs/operate.md": "tests/docs/test_operate_page.py",
    "docs/policy.md": "tests/docs/test_policy_page.py",
    "docs/relay.md": "tests/docs/test_walked_pages.py",
    "docs/serve.md": "tests/docs/test_readme.py",
    "docs/tls.md": "tests/docs/test_tls_page.py",
    "docs/tp2.md": "tests/docs/test_walked_pages.py",
    "docs/tutorial.md": "tests/docs/test_walked_pages.py",
}
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def commands(page: Path) -> list[str]:
    """The lines of the blocks of a page that are commands of ours, or ask a port of ours."""
    found = re.findall(r"^```\w*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in found for line in block.splitlines()]
    return [line for line in lines if re.match(r"(\S*/)?xdsprism [a-z]|curl .*127\.0\.0\.1|curl .*localhost", line)]


def test_each_page_with_commands_has_a_test_that_runs_them() -> None:
    having = {str(page.relative_to(ROOT)) for page in PAGES if commands(page)}
    assert having == set(RUN_BY)
    for page, test in RUN_BY.items():
        assert Path(page).name in (ROOT / test).read_text(), f"{test} does not read {page}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_each_command_is_one_that_the_program_has(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line.partition("#")[0].partition("|")[0])
        if words[0].endswith("xdsprism"):
            parsed(main, words[1:])


def parsed(command: click.Command, words: list[str]) -> None:
    """Have click read the words of a command, with no regard for whether files exist. It raises what it would print."""
    names = ["-h", "--help"]  # as the group has them: click keeps the option that it makes first
    with click.Context(command, info_name=command.name, resilient_parsing=True, help_option_names=names) as context:
        rest = command.make_parser(context).parse_args(args=words)[1]
        if isinstance(command, click.Group):
            found = command.get_command(context, words[0])
            assert found is not None, words
            parsed(found, words[1:])
        else:
            assert not [word for word in rest if word.startswith("-")]
