"""Compile modules with mypyc, and refuse what would crash or be ignored once they are compiled.

    compiling.py SOURCES OUTPUT MODULE...

SOURCES is the folder above the package; the extension modules go to OUTPUT, in the folders of their sources. The hook
runs this in a process of its own, because mypyc ends its process at an error.

The exit status is NO_COMPILER if no C compiler with the headers of this Python is there, REFUSED if mypyc or a check
refuses the sources, and C_FAILED if the C compiler fails.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

import refusals
import setuptools  # before mypyc, which looks whether it was imported
from mypyc.build import mypycify
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

NO_COMPILER, REFUSED, C_FAILED = 3, 4, 5
LIBRARY = "xdsprism"  # the shared library, with all modules in it, is called xdsprism__mypyc
JOBS = "XDSPRISM_BUILD_JOBS"  # how many C compilers run at once

# mypyc's warning about a class attribute that it does not set. To read it is a segmentation fault.
UNSET = "Unsupported default attribute value"
UNSET_ADVICE = "the attribute would not be set, and reading it would crash. Make it a constant of the module"

# An instance with a `__dict__` gets a list of weak references on Python 3.11, and mypyc forgets to clear it when the
# instance goes: what follows the reference crashes (python/mypy#19056). On 3.12 and newer there is no such list, and
# with this taken out there is none on 3.11: `weakref.ref` raises TypeError.
WEAK_LIST = re.compile(r'^ *(?:\{"__weakref__", T_OBJECT_EX, .*\},|\.tp_weaklistoffset = .*,)\n', re.MULTILINE)


def main() -> None:
    sources, output, names = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3:]
    paths = [f"{name.replace('.', '/')}.py" for name in names]
    with tempfile.TemporaryDirectory() as folder:
        if not _works(Path(folder)):
            sys.exit(NO_COMPILER)
        os.chdir(sources)
        _refuse(refusals.refusals(map(Path, paths)))
        extensions = translate(paths, Path(folder, "c"))
        for file in Path(folder, "c").rglob("*.c"):
            file.write_text(WEAK_LIST.sub("", file.read_text()))
        build(extensions, Path(folder, "objects"), output)


def _refuse(faults: list[str]) -> None:
    """End if there are faults, which are printed."""
    if faults:
        _end(REFUSED, *faults, f"{len(faults)} of these: the modules are not compiled")


def _end(status: int, *lines: str) -> NoReturn:
    for line in lines:
        print(line, file=sys.stderr)
    sys.exit(status)


def translate(paths: list[str], target: Path) -> list[Any]:
    """Translate modules to C, and return the extensions to build. What mypyc refuses, or only warns of, is refused."""
    # What is installed makes no difference: types of other packages are Any, as they are where pip builds.
    options = ["--config-file=", "--no-site-packages", "--ignore-missing-imports", "--cache-dir=" + os.devnull]
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            extensions = mypycify(
                [*options, *paths],
                multi_file=True,
                target_dir=str(target),
                group_name=LIBRARY,
                opt_level="2",
                debug_level="0",
            )
    except SystemExit as error:
        _end(
            REFUSED, said.getvalue(), *[error.code] if isinstance(error.code, str) else [], "mypyc refuses the sources"
        )
    _refuse([line.replace(UNSET, f"{UNSET}: {UNSET_ADVICE}") for line in said.getvalue().splitlines() if UNSET in line])
    return list(extensions)


class SideBySide(build_ext):
    """Compiles the files of an extension side by side; setuptools would compile them one after the other."""

    def build_extensions(self) -> None:
        compiler, jobs = self.compiler, int(os.environ.get(JOBS) or os.cpu_count() or 1)
        compile_all = compiler.compile

        def compile_files(sources: list[str], *rest: Any, **options: Any) -> list[str]:
            first = compile_all(sources[:1], *rest, **options)  # alone, because it may set the compiler up
            with ThreadPoolExecutor(jobs) as pool:
                others = pool.map(lambda source: compile_all([source], *rest, **options), sources[1:])
                return [*first, *(file for files in others for file in files)]

        compiler.compile = compile_files
        super().build_extensions()


def build(extensions: list[Any], objects: Path, output: Path) -> None:
    """Run the C compiler."""
    if os.name == "posix":
        for extension in extensions:  # mypyc makes warnings errors, which a newer compiler may have more of
            extension.extra_compile_args.append("-Wno-error")
    command = SideBySide(setuptools.Distribution({"name": LIBRARY, "ext_modules": extensions}))
    command.build_temp, command.build_lib = str(objects), str(output)
    try:
        command.ensure_finalized()
        command.run()
    except (BaseError, CCompilerError) as error:
        _end(C_FAILED, f"the C compiler failed: {error}")


def _works(folder: Path) -> bool:
    """Whether a C compiler makes an extension module of an empty file that includes Python.h."""
    probe = folder / "probe.c"
    probe.write_text("#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n")
    extension = setuptools.Extension("probe", [str(probe)])
    command = build_ext(setuptools.Distribution({"name": "probe", "ext_modules": [extension]}))
    command.build_temp, command.build_lib = str(folder / "probe"), str(folder / "probe")
    try:
        command.ensure_finalized()
        command.run()
    except (BaseError, CCompilerError) as error:
        print(f"an empty module that includes Python.h: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    main()
