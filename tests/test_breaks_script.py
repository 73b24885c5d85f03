"""scripts/breaks.py: which requirements keep their cover while the code behind them is broken."""

from __future__ import annotations

import textwrap

import pytest

from scripts import breaks, requirements

DOCUMENT = """
### C1. Numbers

- **SRV-1** M Negative numbers are refused.
- **SRV-2** M Zero is refused.
- **SRV-3** M The answer is doubled.
"""

SOURCE = """
def check(number):
    if number < 0:  # SRV-1
        raise ValueError(number)
    if number == 0:  # SRV-2
        raise ValueError(number)
    return number * 2
"""

TESTS = """
import sys
from pathlib import Path

import pytest

from xdsprism_breaks_sample import check


# SRV-1
def test_a_negative_number_is_refused():
    with pytest.raises(ValueError):
        check(-1)


# SRV-2
def test_zero_is_zero():
    assert 0 == 0


# SRV-3
def test_the_answer_is_doubled():
    assert check(2) == 4
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "interop").mkdir()
    (tmp_path / "src" / "xdsprism").mkdir(parents=True)
    (tmp_path / "docs" / "requirements.md").write_text(DOCUMENT)
    (tmp_path / "src" / "xdsprism" / "numbers.py").write_text(SOURCE)
    sample = "import importlib.util, pathlib\n" + textwrap.dedent("""
        path = pathlib.Path(__file__).parent / "xdsprism" / "numbers.py"
        spec = importlib.util.spec_from_file_location("numbers_sample", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        check = module.check
    """)
    (tmp_path / "src" / "xdsprism_breaks_sample.py").write_text(sample)
    (tmp_path / "tests" / "test_numbers.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return tmp_path


def test_only_a_test_that_fails_without_a_requirement_covers_it(project, capsys):
    assert breaks.main(["--jobs", "1", "--write"], project) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-3:-1] == ["covered: 1 of 3", "not covered: SRV-2, SRV-3"]
    assert "SRV-3  nothing in src/xdsprism quotes it" in printed.err
    assert [*requirements.read_cover(project)] == ["SRV-1"]


def test_a_break_written_by_hand_serves_where_no_code_quotes_the_requirement(project, capsys):
    (project / "tests" / "breaks.toml").write_text(
        textwrap.dedent("""
            [[break]]
            ids = ["SRV-3"]
            what = "the answer is not doubled"
            file = "numbers.py"
            find = "number * 2"
            replace = "number * 1"
        """)
    )
    assert breaks.main(["SRV-3", "--jobs", "1"], project) == 0
    assert "test_the_answer_is_doubled notices: src/xdsprism/numbers.py: the answer is not doubled" in (
        capsys.readouterr().out
    )


def test_a_break_without_its_place_is_reported_and_does_not_count(project, capsys):
    (project / "tests" / "breaks.toml").write_text(
        '[[break]]\nids = ["SRV-3"]\nwhat = "x"\nfile = "numbers.py"\nfind = "nowhere"\nreplace = ""\n'
    )
    assert breaks.main(["SRV-3", "--jobs", "1"], project) == 0
    printed = capsys.readouterr()
    assert "'nowhere' is not in src/xdsprism/numbers.py exactly once" in printed.err
    assert "not covered: SRV-3" in printed.out


@pytest.mark.parametrize("crash", ["nothing", 'int("internal error: NameError")'])
def test_a_crash_does_not_count_as_noticing(project, capsys, crash):
    (project / "tests" / "breaks.toml").write_text(
        f"[[break]]\nids = ['SRV-3']\nwhat = 'x'\nfile = 'numbers.py'\nfind = 'number * 2'\nreplace = '{crash}'\n"
    )
    assert breaks.main(["SRV-3", "--jobs", "1"], project) == 0
    assert "not covered: SRV-3" in capsys.readouterr().out


def test_every_break_of_this_project_has_its_place_in_the_code(capsys):
    known = requirements.DEFINITION.findall((requirements.ROOT / "docs" / "requirements.md").read_text())
    breaks.written_breaks(requirements.ROOT, [one for one, _ in known])
    assert capsys.readouterr().err == ""
