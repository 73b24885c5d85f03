"""Fixtures and hooks of the folders that run real clients; their conftest.py imports them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.engines import ENGINES
from tests.support.lab import Lab
from tests.support.on_demand import LABS


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A plain one, or the one of LABS that the mark `WITH_AND_WITHOUT_RELAY` of a test chooses."""
    make = LABS[getattr(request, "param", "server")]
    with make(tmp_path) as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach what every process printed to the report of a failed test."""
    report = yield
    labs = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, Lab)]
    if report.failed:
        report.sections += [(f"end of {name}", text) for lab in labs for name, text in lab.logs().items()]
    return report


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """For tests that every transport has to pass: `pytestmark = pytest.mark.usefixtures("engine")`."""
    monkeypatch.setattr(ControlPlane, "engine", request.param)
    return str(request.param)
