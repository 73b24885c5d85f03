"""`serve` and `relay` with TLS, and clients that get to them by a bootstrap."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.rig import FREE, Daemon, run
from tests.support.certificates import Authority, Pair
from tests.support.waiting import becomes, eventually

SPIFFE = "spiffe://prod/client"


class Files:
    """What a server and its client need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.authority.make("server").put(self.certificate, self.key)
        self.client = self.authority.make("client", (f"URI:{SPIFFE}",))

    @property
    def flags(self) -> list[object]:
        own = ["--tls-cert", self.certificate, "--tls-key", self.key]
        return [*own, "--tls-client-ca", self.authority.certificate]

    def bootstrap(self, server: str, client: Pair | None) -> Path:
        files: dict[str, Any] = {"ca_certificate_file": str(self.authority.certificate)}
        if client is not None:
            files |= {"certificate_file": str(client.certificate), "private_key_file": str(client.key)}
        entry = {"server_uri": server, "channel_creds": [{"type": "tls", "config": files}]}
        path = self.folder / "bootstrap.json"
        path.write_text(json.dumps({"xds_servers": [{**entry, "server_features": ["xds_v3"]}], "node": {"id": "me"}}))
        return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    folder = tmp_path / "tls"
    folder.mkdir()
    return Files(folder)


@pytest.mark.parametrize("engine", ["grpcio", "h2"])
def test_get_comes_in_by_a_bootstrap_and_is_known(tmp_path: Path, config: Path, files: Files, engine: str):
    # BST-3
    with Daemon(tmp_path, config, "--engine", engine, *files.flags) as daemon:
        bootstrap = files.bootstrap(daemon.listen, files.client)
        assert run("get", "cds", "-o", "name", "--bootstrap", bootstrap).stdout == "cds/shop\ncds/shop-next\n"
        eventually(lambda: "me connected from ipv4:127.0.0.1:" in daemon.stderr and f" as {SPIFFE} (" in daemon.stderr)
        refused = run("get", "cds", "--bootstrap", files.bootstrap(daemon.listen, None), "--timeout", "5")
        assert refused.exit_code == 1
        end = daemon.metric(f'xdsprism_tls_certificate_not_after_seconds{{file="{files.certificate}"}}')
        assert end > 1_700_000_000
        if engine == "h2":
            becomes(
                lambda: daemon.metric('xdsprism_handshake_failures_total{cause="no_certificate"}') > 0, expected=True
            )
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.stderr


def test_certificates_are_read_again_and_a_bad_one_leaves_it_ready(tmp_path: Path, config: Path, files: Files):
    with Daemon(tmp_path, config, "--engine", "h2", *files.flags) as daemon:
        files.key.write_text("oops")
        becomes(lambda: daemon.metric('xdsprism_tls_loads_total{result="refused"}'), 1)
        assert "new certificates refused, the last good ones stay" in daemon.stderr
        assert daemon.page("/readyz") == {"status": "ready"}
        bootstrap = files.bootstrap(daemon.listen, files.client)
        assert run("get", "cds", "shop", "-o", "name", "--bootstrap", bootstrap).stdout == "cds/shop\n"
        files.authority.make("second").put(files.certificate, files.key)
        daemon.send(signal.SIGHUP)
        becomes(lambda: daemon.metric('xdsprism_tls_loads_total{result="ok"}'), 2)
        assert run("get", "cds", "shop", "-o", "name", "--bootstrap", bootstrap).stdout == "cds/shop\n"


def test_a_relay_has_tls_at_both_ends(tmp_path: Path, config: Path, files: Files):
    with Daemon(tmp_path, config, "--engine", "h2", *files.flags) as server:
        upstream = files.bootstrap(server.listen, files.client).rename(tmp_path / "upstream.json")
        with Daemon(tmp_path, "--bootstrap", upstream, "--engine", "h2", *files.flags, verb="relay") as relay:
            bootstrap = files.bootstrap(relay.listen, files.client)
            assert run("get", "cds", "shop", "-o", "name", "--bootstrap", bootstrap).stdout == "cds/shop\n"
            assert relay.metric('xdsprism_tls_loads_total{result="ok"}') == 1
            assert relay.stop() == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--tls-cert", "a.pem"], "a certificate and its key go together: give --tls-key too"),
        (["--tls-key", "a.key"], "a certificate and its key go together: give --tls-cert too"),
        (["--tls-key", "a.key", "--tls-client-ca", "c"], "a certificate and its key go together: give --tls-cert too"),
        (
            ["--tls-client-ca", "ca.pem"],
            "--tls-client-ca needs a server certificate: give --tls-cert and --tls-key too",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["serve", "relay"])
def test_flags_that_need_each_other_are_wrong_usage(tmp_path: Path, verb: str, given: list[str], told: str):
    what = [tmp_path] if verb == "serve" else ["--bootstrap", tmp_path / "none.json"]
    done = run(verb, *what, *given)
    assert done.exit_code == 2
    assert done.stderr == f"Error: {told}\n"


def test_a_bad_file_is_one_clean_message_and_status_1(config: Path, files: Files):
    files.key.write_bytes(files.client.key.read_bytes())
    done = run("serve", config, "--listen", FREE, "--admin", FREE, *files.flags)
    assert done.exit_code == 1
    told = f"{files.key}: the key does not belong to the first certificate in {files.certificate}\n"
    assert done.stderr.endswith(f"{told}Error: the configuration is refused: 1 problem\n")
    assert "Traceback" not in done.stderr
