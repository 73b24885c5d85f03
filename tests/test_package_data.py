"""A wheel and a source distribution have the files that the program reads: those of the dashboard, the descriptors."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from xdsprism.admin.dashboard import FOLDER, PATHS

ROOT = Path(__file__).parents[1]
STATIC = {f"xdsprism/admin/static/{path.removeprefix(FOLDER)}" for path in PATHS} | {"xdsprism/admin/static/index.html"}
DATA = STATIC | {"xdsprism/messages/descriptors.bin", "xdsprism/py.typed"}


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_a_distribution_has_what_the_program_reads(target: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, env=os.environ | {"XDSPRISM_BUILD": "pure"}, check=True, capture_output=True)
    (made,) = tmp_path.iterdir()
    if target == "wheel":
        with zipfile.ZipFile(made) as wheel:
            names = set(wheel.namelist())
    else:
        with tarfile.open(made) as sources:
            names = {name.partition("/src/")[2] for name in sources.getnames()}
    assert DATA - names == set()
