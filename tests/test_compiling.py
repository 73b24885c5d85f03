"""scripts/wheel/: what is compiled, and what the build refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.wheel import chosen
from scripts.wheel.hook import CompiledModules, tools

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "wheel" / "compiling.py"
NO_COMPILER, REFUSED = 3, 4

GOOD = """
from abc import ABC


class Base(ABC):
    def __init__(self) -> None:
        self.wakes = 0

    def wake(self) -> int:
        self.wakes += 1
        return self.wakes
"""

PLANTED = {
    "a class attribute that mypyc does not set": (
        "class A:\n    READERS = (len, repr)\n",
        "planted.py:2: warning: Unsupported default attribute value: the attribute would not be set",
    ),
    "a method assigned onto an instance": (
        "class A:\n    def f(self) -> int:\n        return 1\n\ndef g(a: A) -> None:\n    setattr(a, 'f', print)\n",
        "planted.py:6: a.f: compiled callers ignore a method that is assigned",
    ),
    "what mypyc can't do": (
        "class A(list[int]):\n    pass\n",
        "planted.py:1: error: Inheriting from most builtin types",
    ),
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "sample"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    return folder


def compiled(package: Path, *modules: str, **variables: str) -> subprocess.CompletedProcess[str]:
    sources = package.parent
    command = [sys.executable, str(SCRIPT), str(sources), str(sources.parent / "made"), *modules]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.parametrize(("source", "said"), PLANTED.values(), ids=PLANTED)
def test_the_build_refuses_what_would_crash_or_be_ignored(package: Path, source: str, said: str) -> None:
    (package / "planted.py").write_text(source)
    done = compiled(package, "sample.planted")
    assert done.returncode == REFUSED
    assert said in done.stderr
    assert not (package.parents[1] / "made").exists()


def test_without_a_compiler_the_build_names_what_it_needs(package: Path) -> None:
    (package / "good.py").write_text(GOOD)
    done = compiled(package, "sample.good", CC="/nowhere/cc")
    assert done.returncode == NO_COMPILER
    assert "/nowhere/cc" in done.stderr


def test_what_is_compiled_runs_and_takes_no_weak_reference_that_would_dangle(package: Path) -> None:
    (package / "good.py").write_text(GOOD)
    done = compiled(package, "sample.good")
    assert done.returncode == 0, done.stderr
    look = f"""
import gc, sys, weakref
sys.path.insert(0, {str(package.parents[1] / "made")!r})
from sample.good import Base
print(Base().wake(), Base.__init__.__class__.__name__)
try:
    weakref.ref(Base())
except TypeError as error:
    print(error)
gc.collect()
"""
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.splitlines()[0].startswith("1 ")
    assert said.splitlines()[1] == "cannot create weak reference to 'Base' object"


# -- into a wheel


class Wheel:
    """A wheel of one module that is being built, as hatchling does it."""

    def __init__(self, package: Path) -> None:
        self.root = package.parents[1]
        self.warnings: list[str] = []
        (package / "good.py").write_text(GOOD)
        (self.root / "pyproject.toml").write_text(LIST)

    def display_warning(self, text: str) -> None:
        self.warnings.append(text)

    def build(self, version: str = "standard") -> dict[str, Any]:
        """Run the hook, and return what it asks hatchling for."""
        data: dict[str, Any] = {"force_include": {}}
        hook = CompiledModules(str(self.root), {}, None, None, str(self.root), "wheel", self)  # type: ignore[arg-type]
        hook.initialize(version, data)
        return data


LIST = '[tool.xdsprism.compiled]\nmodules = ["sample.good"]\n[tool.xdsprism.compiled.interpreted]\n'
PURE: dict[str, Any] = {"force_include": {}}


@pytest.fixture
def wheel(package: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    monkeypatch.delenv("XDSPRISM_BUILD", raising=False)
    monkeypatch.setenv("CC", "/nowhere/cc")
    return Wheel(package)


def test_without_a_compiler_the_wheel_is_pure_and_the_build_says_so(wheel: Wheel) -> None:
    assert wheel.build() == PURE
    (warning,) = wheel.warnings
    assert "not compiled, and runs slower: it takes a C compiler and the headers of this Python" in warning


def test_a_wheel_that_has_to_be_compiled_fails_without_a_compiler(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDSPRISM_BUILD", "compiled")
    with pytest.raises(SystemExit, match="can't be compiled: it takes a C compiler"):
        wheel.build()


def test_a_refusal_fails_the_build_even_where_a_pure_wheel_would_do(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC")
    (wheel.root / "src" / "sample" / "good.py").write_text("def f(a):\n    match a:\n        case [*_]: ...\n")
    with pytest.raises(SystemExit, match="the sources can't be compiled"):
        wheel.build()


@pytest.mark.parametrize(("version", "wanted"), [("editable", "compiled"), ("standard", "pure")])
def test_an_editable_install_and_a_pure_wheel_compile_nothing(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch, version: str, wanted: str
) -> None:
    monkeypatch.setenv("XDSPRISM_BUILD", wanted)
    assert wheel.build(version) == PURE
    assert wheel.warnings == []


def test_the_same_sources_are_compiled_once(wheel: Wheel) -> None:
    made = wheel.root / "build" / "compiled" / chosen.digest(wheel.root, *tools())
    (made / "sample").mkdir(parents=True)
    (made / "sample" / "good.so").touch()  # there is no compiler here: this was made before
    data = wheel.build()
    assert data["force_include"] == {str(made / "sample" / "good.so"): "sample/good.so"}
    assert (data["pure_python"], data["infer_tag"]) == (False, True)
    (wheel.root / "src" / "sample" / "good.py").write_text("x = 1\n")
    assert wheel.build() == PURE


# -- which modules


def test_the_list_names_modules_that_there_are_and_leaves_out_those_with_a_reason() -> None:
    names = chosen.modules(ROOT)
    assert "xdsprism.core.session.fast_path" in names
    assert "xdsprism.core.codec.pieces" not in names
    assert all((ROOT / "src" / Path(*name.split("."))).with_suffix(".py").is_file() for name in names)


@pytest.mark.parametrize(
    ("modules", "interpreted", "said"),
    [
        ('["sample.a", "sample.gone"]', "", "no module and no package sample.gone"),
        ('["sample.a"]', '"sample.b" = "why"', "nothing would compile sample.b"),
    ],
)
def test_a_name_in_the_list_that_nothing_has_is_an_error(
    package: Path, modules: str, interpreted: str, said: str
) -> None:
    (package / "a.py").write_text("")
    root = package.parents[1]
    (root / "pyproject.toml").write_text(
        f"[tool.xdsprism.compiled]\nmodules = {modules}\n[tool.xdsprism.compiled.interpreted]\n{interpreted}\n"
    )
    with pytest.raises(chosen.WrongListError, match=said):
        chosen.modules(root)


def test_another_source_or_another_tool_makes_another_build(package: Path) -> None:
    root = package.parents[1]
    (package / "a.py").write_text("")
    (root / "pyproject.toml").write_text(
        '[tool.xdsprism.compiled]\nmodules = ["sample.a"]\n[tool.xdsprism.compiled.interpreted]\n'
    )
    first = chosen.digest(root, "mypy 1")
    assert chosen.digest(root, "mypy 1") == first
    assert chosen.digest(root, "mypy 2") != first
    (package / "a.py").write_text("x = 1\n")
    assert chosen.digest(root, "mypy 1") != first
