"""The commands on docs/cli.md are run, each against a server that has what they ask for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.rig import Daemon, environment
from tests.support.certificates import Authority

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/cli.md").read_text()


def typed(start: str, folder: Path, **instead: str) -> subprocess.CompletedProcess[str]:
    """Run the line of the page that begins like this, with some words replaced, in a folder."""
    (line,) = re.findall(rf"^{re.escape(start)}.*$", PAGE, re.MULTILINE)
    for word, other in instead.items():
        assert word in line
        line = line.replace(word, other)
    line = re.sub(r"\bxdsprism (?=[a-z])", f"{sys.executable} -m xdsprism ", line)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_a_server_has_is_checked_on_the_standard_input(tmp_path: Path) -> None:
    with Daemon(tmp_path, ROOT / "examples/config") as daemon:
        done = typed("xdsprism get rds --server", tmp_path, **{"127.0.0.1:18000": daemon.listen})
        assert done.returncode == 0, done.stderr
        assert "rds/main" in done.stdout or re.search(r"rds +main", done.stdout)


def test_a_server_is_asked_over_tls_with_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.make("server"), authority.make("client")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    client.put(tmp_path / "me.pem", tmp_path / "me.key")
    flags = ["--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate]
    with Daemon(tmp_path, ROOT / "examples/config", *flags) as daemon:
        done = typed("xdsprism get cds --server", tmp_path, **{"xds.example.com:443": daemon.listen})
        assert done.returncode == 0, done.stderr
        assert "envoy.config.cluster.v3.Cluster" in done.stdout
        refused = typed(
            "xdsprism get cds --server",
            tmp_path,
            **{"xds.example.com:443": daemon.listen, " --cert me.pem --key me.key": " --timeout 5"},
        )
        assert refused.returncode == 1
