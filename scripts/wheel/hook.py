"""Put compiled modules into a wheel (a hatchling build hook).

XDSPRISM_BUILD says what is wanted:

    auto, or unset   compiled where that is possible, as for whoever installs from the source distribution
    compiled         compiled, or the build fails: `make wheel`
    pure             interpreted

An editable install is never compiled. The extension modules of the last builds stay in `build/compiled`, by a hash of
what they were made from, so that the same sources are compiled once.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
import chosen

KEPT = 3  # builds in the cache
NO_COMPILER, C_FAILED = 3, 5  # exit statuses of compiling.py


class CannotCompileError(Exception):
    """Why a wheel can't be compiled here; without `XDSPRISM_BUILD=compiled` it is pure then."""


def wanted() -> str:
    """Return what XDSPRISM_BUILD says."""
    value = os.environ.get("XDSPRISM_BUILD") or "auto"
    if value not in ("auto", "compiled", "pure"):
        sys.exit(f"XDSPRISM_BUILD={value}: say auto, compiled or pure")
    return value


def why_not() -> str | None:
    """Return why this Python runs no compiled modules; None if it does."""
    if platform.python_implementation() != "CPython":
        return f"mypyc does not compile for {platform.python_implementation()}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "free-threaded Python runs the interpreted modules"
    return None


class CompiledModules(BuildHookInterface):
    """Adds the extension modules beside the Python files of the same names."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or wanted() == "pure":
            return
        try:
            folder = compiled(Path(self.root))
        except CannotCompileError as error:
            if wanted() == "compiled":
                sys.exit(f"xdsprism: the wheel can't be compiled: {error}")
            self.app.display_warning(f"xdsprism: this wheel is not compiled, and runs slower: {error}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for file in folder.rglob("*"):
            if file.is_file():
                build_data["force_include"][str(file)] = str(file.relative_to(folder))


def compiled(root: Path) -> Path:
    """Compile, unless these sources were compiled before; return the folder of the extension modules."""
    reason = why_not()
    if reason is not None:
        raise CannotCompileError(reason)
    cache = root / "build" / "compiled"
    folder = cache / chosen.digest(root, *tools())
    if folder.is_dir():
        folder.touch()
        return folder
    making = cache / f"making-{os.getpid()}"
    script = Path(__file__).with_name("compiling.py")
    run = [sys.executable, str(script), str(root / "src"), str(making), *chosen.modules(root)]
    try:
        status = subprocess.run(run, check=False).returncode
        if status == NO_COMPILER:
            raise CannotCompileError("it takes a C compiler and the headers of this Python (Debian: gcc, python3-dev)")
        if status == C_FAILED:
            raise CannotCompileError("the C compiler failed; its own words are above")
        if status != 0:
            sys.exit("xdsprism: the sources can't be compiled; the reasons are above. XDSPRISM_BUILD=pure does without")
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    for old in sorted(cache.iterdir(), key=lambda each: each.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def tools() -> list[str]:
    """Name what compiles, with versions and options: another one makes other modules."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    try:
        compiler = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        compiler = ""
    options = [os.environ.get(name, "") for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    return [sys.version, suffix, compiler, installed("mypy"), *options]
