"""`get` and `watch` towards a server of --server that speaks TLS, and as which node they ask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.rig import Daemon, run
from tests.support.certificates import Authority

NOBODY = "127.0.0.1:1"
LISTED = "cds/shop\ncds/shop-next\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "tls"
    folder.mkdir()
    return Authority(folder)


def test_get_asks_over_tls_and_shows_a_certificate(tmp_path: Path, config: Path, authority: Authority) -> None:
    # BST-3
    server, client = authority.make("server"), authority.make("client", ("URI:spiffe://prod/me",))
    ca = authority.certificate
    own = ["--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", ca]
    shown = ["--cert", client.certificate, "--key", client.key]
    with Daemon(tmp_path, config, *own) as daemon:
        done = daemon.get("cds", "-o", "name", "--ca", ca, *shown, "--node-id", "web-1")
        assert (done.exit_code, done.stdout) == (0, LISTED), done.stderr
        assert "web-1 connected from ipv4:127.0.0.1:" in daemon.stderr
        watched = run("watch", "cds", "-o", "name", "--server", daemon.listen, "--ca", ca, *shown, "--timeout", "5")
        assert "added cds/shop" in watched.stdout
        for wrong in ([], ["--ca", ca], ["--tls", *shown]):  # plain text; no certificate; an authority unknown here
            refused = daemon.get("cds", *wrong, "--timeout", "5")
            assert refused.exit_code == 1, wrong


def test_the_node_id_replaces_that_of_a_bootstrap(tmp_path: Path, config: Path) -> None:
    with Daemon(tmp_path, config) as daemon:
        servers = [
            {"server_uri": daemon.listen, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
        ]
        bootstrap = tmp_path / "bootstrap.json"
        node = {"id": "other", "metadata": {"env": "prod"}}
        bootstrap.write_text(json.dumps({"xds_servers": servers, "node": node}))
        done = run("get", "cds", "-o", "name", "--bootstrap", bootstrap, "--node-id", "web-1")
        assert done.stdout == LISTED
        assert "web-1 connected" in daemon.stderr
        assert "other connected" not in daemon.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--cert", "c", "--tls"], "a certificate and its key go together: give --key too"),
        (["--key", "k", "--tls"], "a certificate and its key go together: give --cert too"),
        (["--cert", "c", "--key", "k"], "--cert needs --tls or --ca: without them the server is asked in plain text"),
    ],
)
def test_options_that_need_others_say_so(given: list[str], message: str) -> None:
    done = run("get", "cds", "--server", NOBODY, *given)
    assert (done.exit_code, done.stderr) == (2, f"Error: {message}\n")


def test_tls_is_for_a_server_and_not_for_a_bootstrap(tmp_path: Path) -> None:
    bootstrap = tmp_path / "b.json"
    bootstrap.write_text("{}")
    for option in (["--tls"], ["--ca", "ca.pem"]):
        done = run("get", "cds", "--bootstrap", bootstrap, *option)
        assert done.exit_code == 2
        assert f"{option[0]} goes with --server: a bootstrap has channel_creds" in done.stderr


def test_a_file_that_is_no_authority_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    done = run("get", "cds", "--server", NOBODY, "--ca", file)
    assert done.exit_code in (1, 2)
    assert f"{file}: no certificates in it" in done.stderr
