"""Which build runs: the extension modules of a wheel, or the Python files beside them."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml._yaml

import xdsprism.builds
from tests.support.compiled import WrongListError, skips

EXTENSION = Path(yaml._yaml.__file__)  # noqa: SLF001 # any extension module will do

LOOK = """
import sys, xdsprism.cli.main, xdsprism.serving, xdsprism.builds
files = [module.__file__ for name, module in sys.modules.items() if name.startswith("xdsprism.") and module.__file__]
print(xdsprism.builds.running(), sorted({name.rpartition(".")[2] for name in files}))
"""


def said(command: list[str], **variables: str) -> str:
    return subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one module twice: compiled, and as a Python file."""
    folder = tmp_path / "sample"
    folder.mkdir()
    shutil.copy(xdsprism.builds.__file__, folder / "builds.py")
    shutil.copy(EXTENSION, folder / EXTENSION.name)
    (folder / "_yaml.py").write_text("")
    (folder / "__init__.py").write_text("from .builds import choose\nchoose()\n")
    return tmp_path


@pytest.mark.parametrize(
    ("value", "suffix"), [("1", ".py"), ("yes", ".py"), ("", ".so"), ("0", ".so"), ("False", ".so"), ("off", ".so")]
)
def test_a_variable_decides_between_a_module_and_its_compiled_twin(package: Path, value: str, suffix: str) -> None:
    look = f"import sys; sys.path.insert(0, {str(package)!r}); import sample._yaml; print(sample._yaml.__file__)"
    suffix = suffix if suffix == ".py" else importlib.machinery.EXTENSION_SUFFIXES[0]
    assert said([sys.executable, "-c", look], XDSPRISM_PURE=value).endswith(f"_yaml{suffix}")


def test_pure_imports_python_files_only_and_the_command_says_so() -> None:
    assert said([sys.executable, "-c", LOOK], XDSPRISM_PURE="1") == "interpreted ['py']"
    version = said([sys.executable, "-m", "xdsprism", "--version"], XDSPRISM_PURE="1")
    assert version == f"xdsprism, version {xdsprism.__version__} (interpreted)"


def test_the_command_names_the_build_whose_modules_it_imports() -> None:
    build, _, kinds = said([sys.executable, "-c", LOOK], XDSPRISM_PURE="").partition(" ")
    assert ("so" in kinds or "pyd" in kinds) == (build == "compiled")
    version = said([sys.executable, "-m", "xdsprism", "--version"], XDSPRISM_PURE="")
    assert version == f"xdsprism, version {xdsprism.__version__} ({build})"


# -- the list of tests that are skipped in the compiled build


def test_the_list_of_skipped_tests_names_tests_that_there_are() -> None:
    assert all(skips().values())


@pytest.mark.parametrize(
    ("test", "reason", "why"),
    [
        ("tests/test_it.py::test_other", "it patches", "no test is called"),
        ("tests/test_other.py::test_one", "it patches", "no test is called"),
        ("tests/test_it.py::test_one", " ", "say why"),
    ],
)
def test_an_entry_that_means_nothing_is_an_error(tmp_path: Path, test: str, reason: str, why: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("def test_one(): ...\nTestTwo = Two.TestCase\n")
    file = tmp_path / "list.toml"
    entries = [("tests/test_it.py::TestTwo::runTest", "it patches"), (test, reason)]
    file.write_text("".join(f'[[skip]]\ntest = "{name}"\nreason = "{because}"\n' for name, because in entries))
    with pytest.raises(WrongListError, match=why):
        skips(file, tmp_path)
