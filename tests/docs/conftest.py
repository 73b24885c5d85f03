from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.walking import Walk


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    walk = Walk(tmp_path)
    yield walk
    walk.close()
