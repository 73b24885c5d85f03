"""scripts/requirements.py: what counts as naming a requirement, and what is a mistake."""

from __future__ import annotations

import textwrap

import pytest

from scripts import requirements

DOCUMENT = """
### C1. Streams (server)

- **SRV-1** M Both methods answer.
- **SRV-2** M Per-type services answer (see SOT-1).

### C2. Removal

- **SOT-1** M All of it is sent.
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "requirements.md").write_text(DOCUMENT)
    (tmp_path / "tests").mkdir()
    (tmp_path / "interop" / "go").mkdir(parents=True)
    return tmp_path


def write(project, path, text):
    (project / path).write_text(textwrap.dedent(text))


def last_line(capsys):
    return capsys.readouterr().out.splitlines()[-1]


def named_line(capsys):
    return capsys.readouterr().out.splitlines()[-2]


def test_ids_count_in_comments_above_and_inside_a_test_and_in_docstrings(project, capsys):
    source = '''
        # SRV-1, SRV-2
        def test_a():
            """Shows SOT-1."""
    '''
    write(project, "tests/test_a.py", source)
    assert requirements.main([], project) == 0
    assert named_line(capsys) == "requirements named by a test: 3 of 3"


def test_ids_in_other_strings_do_not_count(project, capsys):
    write(project, "tests/test_a.py", "text = 'SRV-1'\nother = 'ABC-9'\n")
    assert requirements.main([], project) == 0
    assert named_line(capsys) == "requirements named by a test: 0 of 3"


def test_an_id_that_does_not_exist_is_an_error_that_says_where(project, capsys):
    write(project, "tests/test_a.py", "def test_a():\n    pass  # SRV-3\n")
    assert requirements.main([], project) == 1
    assert capsys.readouterr().err == "tests/test_a.py:2 test_a: there is no requirement SRV-3\n"


def test_a_mistyped_group_is_an_error_but_the_name_of_an_encoding_is_not(project):
    write(project, "tests/test_a.py", "# as UTF-8, SHA-256\n")
    assert requirements.main([], project) == 0
    write(project, "tests/test_a.py", "# SVR-1\n")
    assert requirements.main([], project) == 1


def test_groups_have_totals_and_missing_lists_what_is_uncovered(project, capsys):
    write(project, "tests/test_a.py", "# SRV-1\n")
    requirements.main(["--missing"], project)
    assert capsys.readouterr().out.splitlines() == [
        "SRV    0 of   2   Streams (server)",
        "      no test names SRV-2",
        "      no test was seen to fail without SRV-1",
        "SOT    0 of   1   Removal",
        "      no test names SOT-1",
        "requirements named by a test: 1 of 3",
        "requirements covered, by a test that was seen to fail without them: 0 of 3",
    ]


def test_a_requirement_is_covered_while_the_test_that_noticed_its_break_still_names_it(project, capsys):
    requirements.write_cover(project, {"SRV-1": ("a.py: `x` is never so", "tests/test_a.py::test_one")})
    write(project, "tests/test_a.py", "# SRV-1\ndef test_one():\n    pass\n")
    requirements.main([], project)
    assert last_line(capsys).endswith("without them: 1 of 3")
    write(project, "tests/test_a.py", "# SRV-1\ndef test_another():\n    pass\n")
    requirements.main([], project)
    assert last_line(capsys).endswith("without them: 0 of 3")


def test_show_lists_the_innermost_function_for_each_mention(project, capsys):
    source = """
        class TestA:
            # SRV-1
            @decorated
            async def test_one(self):
                def inner():
                    pass  # SRV-1

        # SRV-1: the file as a whole

        def test_two():
            pass
    """
    write(project, "tests/test_a.py", source)
    assert requirements.main(["--show", "SRV-1"], project) == 0
    assert capsys.readouterr().out.splitlines() == [
        "SRV-1 M Both methods answer.",
        "  tests/test_a.py:3 test_one",
        "  tests/test_a.py:7 inner",
        "  tests/test_a.py:9",
    ]


def test_show_says_so_when_there_is_no_test_or_no_such_requirement(project, capsys):
    assert requirements.main(["--show", "SOT-1"], project) == 0
    assert last_line(capsys) == "  no test names it"
    assert requirements.main(["--show", "SOT-9"], project) == 1


@pytest.mark.parametrize("comment", ["x() // SOT-1", "/* SOT-1 */", " * SOT-1", "# SOT-1"])
def test_comments_in_the_programs_of_other_languages_count(project, capsys, comment):
    write(project, "interop/go/main.go", comment + "\n")
    requirements.main([], project)
    assert named_line(capsys) == "requirements named by a test: 1 of 3"


def test_folders_of_other_toolchains_are_not_searched(project):
    (project / "interop" / "node_modules").mkdir()
    write(project, "interop/node_modules/a.js", "// RFC-1\n")
    assert requirements.main([], project) == 0
