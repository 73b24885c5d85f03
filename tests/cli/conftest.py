from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.elsewhere import Elsewhere, Serve
from tests.cli.rig import Daemon, write
from tests.support.resources import endpoints, routes, static_cluster, to

SHOP = {"$match": [{"when": "env=prod", "value": "shop"}, {"when": "env=test", "value": "shop-next"}]}


def write_config(folder: Path) -> Path:
    """A route configuration that exists for env=prod and env=test, two clusters, and the endpoints of two zones."""
    write(folder, "routes", {"$when": "env in (prod, test)", **routes("main", to(SHOP))})
    write(folder, "clusters", static_cluster("shop", "127.0.0.1", 1), static_cluster("shop-next", "127.0.0.1", 2))
    zones = [{"$when": "zone=a", **endpoints("shop", 1)}, {"$when": "zone!=a", **endpoints("shop", 2)}]
    write(folder, "endpoints", *zones)
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path / "config")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """For tests that only look: a start takes a second."""
    folder = tmp_path_factory.mktemp("shared")
    with Daemon(folder, write_config(folder / "config")) as running:
        yield running


@pytest.fixture
def daemon(tmp_path: Path, config: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path, config) as running:
        yield running


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers that are not ours."""
    with ExitStack() as stack:
        yield lambda answer=b"": stack.enter_context(Elsewhere(answer))
