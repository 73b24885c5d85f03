from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fixtures import engine, lab, pytest_runtest_makereport
from tests.support.streams import LANGUAGES, argv_of

__all__ = ["engine", "lab", "pytest_runtest_makereport"]


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def argv(language: str) -> list[str | Path]:
    """The program that opens calls as it is told."""
    return argv_of(language)


@pytest.fixture
def node(request: pytest.FixtureRequest) -> str:
    """One of its own for each test."""
    return str(request.node.name)
