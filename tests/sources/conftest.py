from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.rig import Put


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    directory = tmp_path / "conf"
    directory.mkdir()
    return directory


@pytest.fixture
def put(conf: Path) -> Put:
    def write(name: str, text: str) -> Path:
        path = conf / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write
