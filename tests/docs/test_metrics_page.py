"""docs/metrics.md: the metrics on the page are those that the daemons have, with their types and labels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

import pytest

from tests.support.certificates import identity
from tests.support.insides import daemon_registry, families
from xdsprism.admin.access import Access
from xdsprism.app import FileDaemon, RelayDaemon
from xdsprism.config import RelayConfig, ServeConfig
from xdsprism.server.tls import Tls

PAGE = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\| (serve|relay|both) \| ([^|]+) \|$", re.MULTILINE)
Listed = dict[str, tuple[str, tuple[str, ...]]]

SERVERS = [
    {"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]},
]


def listed(role: str) -> Listed:
    """What the page says of one daemon: the type and the labels by name."""
    rows = [row for row in ROW.finditer(PAGE) if row[4] in (role, "both")]
    assert len({row[1] for row in rows}) == len(rows)
    return {row[1]: (row[2], tuple(re.findall(r"`(\w+)`", row[3]))) for row in rows}


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    certificate, key = identity(tmp_path, "server")
    return Tls(certificate, key, certificate)


def exported(role: Literal["serve", "relay"], folder: Path, tls: Tls | None) -> Listed:
    rest = "127.0.0.1:0" if tls is not None else None
    if role == "serve":
        config = ServeConfig((folder,), access=Access(tls=tls), tls=tls, rest=rest)
        return families(daemon_registry(FileDaemon(config)))
    bootstrap = folder / "bootstrap.json"
    bootstrap.write_text(json.dumps({"xds_servers": SERVERS}))
    return families(daemon_registry(RelayDaemon(RelayConfig(bootstrap, access=Access(tls=tls), tls=tls, rest=rest))))


# OPS-11
@pytest.mark.parametrize("role", ["serve", "relay"])
async def test_the_page_lists_what_a_daemon_exports(role: Literal["serve", "relay"], tmp_path: Path, tls: Tls):
    assert exported(role, tmp_path, tls) == listed(role)


# OPS-11
@pytest.mark.parametrize("role", ["serve", "relay"])
async def test_without_tls_only_the_metrics_of_certificates_are_missing(
    role: Literal["serve", "relay"], tmp_path: Path
):
    section = PAGE.partition("\n## Certificates\n")[2].partition("\n## ")[0]
    certificates = {row[1] for row in ROW.finditer(section)}
    assert len(certificates) == 3
    assert set(listed(role)) - set(exported(role, tmp_path, None)) == certificates


def test_each_row_of_a_table_has_the_form_that_is_checked():
    rows = [line for line in PAGE.partition("\n## Clients\n")[2].splitlines() if line.startswith("| `")]
    assert len(rows) == len(ROW.findall(PAGE)) > 60
