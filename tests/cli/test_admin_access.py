"""The admin port of `serve` and `relay` with TLS, certificates and tokens, and the commands that ask it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.relay_rig import write_bootstrap
from tests.cli.rig import FREE, Daemon, run
from tests.cli.test_tls import Files
from tests.support import web
from tests.support.certificates import Authority, Pair
from tests.support.waiting import becomes, eventually

TOKEN, OTHER = "hunter2-" * 4, "another-" * 4


def tokens(path: Path, *given: str) -> Path:
    draft = path.with_suffix(".draft")
    draft.write_text("".join(f"{each}\n" for each in given))
    draft.chmod(0o600)
    draft.replace(path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    folder = tmp_path / "tls"
    folder.mkdir()
    return Files(folder)


def admin_flags(files: Files, *, client_ca: bool = True) -> list[object]:
    own = ["--admin-tls-cert", files.certificate, "--admin-tls-key", files.key]
    return [*own, "--admin-tls-client-ca", files.authority.certificate] if client_ca else own


def in_by(files: Files, client: Pair | None = None) -> list[object]:
    shown = ["--admin-cert", client.certificate, "--admin-key", client.key] if client is not None else []
    return ["--admin-ca", files.authority.certificate, *shown]


def secure(files: Files, client: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.authority.certificate))
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    return context


def get(admin: str, path: str, context: ssl.SSLContext, token: str = "") -> tuple[int, str, str]:
    """Status, body, and the subject of the server."""
    connection = http.client.HTTPSConnection(*web.split(admin), context=context, timeout=20)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
        shown = dict(field[0] for field in connection.sock.getpeercert()["subject"])
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), shown["commonName"]
    finally:
        connection.close()


def status(admin: str, path: str, token: str = "") -> int:
    connection = http.client.HTTPConnection(*web.split(admin), timeout=20)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status
    finally:
        connection.close()


EXPLAIN = ("explain", "rds", "main", "--param", "env=prod", "--admin")


@pytest.fixture(params=["serve", "relay"])
def place(request: pytest.FixtureRequest, tmp_path: Path, config: Path) -> Iterator[tuple[str, list[object]]]:
    """A verb, and what it needs to run."""
    if request.param == "serve":
        yield "serve", [config]
        return
    yield "relay", ["--bootstrap", write_bootstrap(tmp_path, "127.0.0.1:1")]


# OPS-1, OPS-14, OPS-15
def test_the_admin_port_has_tls_and_demands_certificates(
    tmp_path: Path, place: tuple[str, list[object]], files: Files
) -> None:
    verb, args = place
    with Daemon(tmp_path, *args, *admin_flags(files), verb=verb) as daemon:
        context = secure(files, files.client)
        found, body, subject = get(daemon.admin, "/metrics", context)
        assert (found, subject) == (200, "server")
        assert f'xdsprism_tls_certificate_not_after_seconds{{file="{files.certificate}"}}' in body
        assert 'xdsprism_certificate_expiry_timestamp_seconds{port="admin",use="server"}' in body
        with pytest.raises((ssl.SSLError, ConnectionError)):
            get(daemon.admin, "/healthz", secure(files))
        stranger = Authority(tmp_path, "stranger").make("client")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            get(daemon.admin, "/healthz", secure(files, stranger))
        with pytest.raises(ConnectionError):
            status(daemon.admin, "/healthz")
        refused = "can't be served on the admin port: "
        for text in (
            "it sent no certificate, and --admin-tls-client-ca demands one",
            "its certificate is not signed by an authority in --admin-tls-client-ca",
            "it speaks plain text, and this port is for TLS",
        ):
            eventually(lambda text=text: refused + text in daemon.stderr)  # type: ignore[misc]
        body = get(daemon.admin, "/metrics", context)[1]
        for cause in ("no_certificate", "untrusted", "plain"):
            assert f'xdsprism_http_handshake_failures_total{{cause="{cause}",port="admin"}} 1.0' in body


# OPS-14
def test_a_renewed_certificate_of_the_admin_port_is_used_and_a_bad_one_is_not(
    tmp_path: Path, place: tuple[str, list[object]], files: Files
) -> None:
    verb, args = place
    with Daemon(tmp_path, *args, *admin_flags(files, client_ca=False), verb=verb) as daemon:
        context = secure(files)
        files.key.write_text("oops")
        eventually(lambda: "new certificates refused, the last good ones stay" in daemon.stderr)
        assert get(daemon.admin, "/healthz", context)[2] == "server"
        files.authority.make("second").put(files.certificate, files.key)
        daemon.send(signal.SIGHUP)
        becomes(lambda: get(daemon.admin, "/healthz", context)[2], "second")
        assert 'xdsprism_tls_loads_total{result="refused"} 1.0' in get(daemon.admin, "/metrics", context)[1]


# OPS-14
def test_a_bad_certificate_of_the_admin_port_is_told_at_the_start(config: Path, files: Files) -> None:
    files.key.write_bytes(files.client.key.read_bytes())
    done = run("serve", config, "--listen", FREE, "--admin", FREE, *admin_flags(files))
    assert done.exit_code == 1
    assert f"{files.key}: the key does not belong to the first certificate in {files.certificate}\n" in done.stderr


# OPS-14
def test_tokens_are_read_again_and_a_bad_file_leaves_the_last_good_ones(
    tmp_path: Path, place: tuple[str, list[object]]
) -> None:
    verb, args = place
    file = tokens(tmp_path / "token", TOKEN)
    with Daemon(tmp_path, *args, "--admin-token-file", file, verb=verb) as daemon:
        assert [status(daemon.admin, path) for path in ("/", "/healthz", "/metrics", "/api/clients")] == [
            200,
            200,
            401,
            401,
        ]
        assert status(daemon.admin, "/api/clients", TOKEN) == 200
        tokens(file, OTHER, TOKEN)
        becomes(lambda: status(daemon.admin, "/api/clients", OTHER), 200)
        assert status(daemon.admin, "/api/clients", TOKEN) == 200
        tokens(file, "short")
        eventually(lambda: "new tokens of the admin port refused, the last good ones stay" in daemon.stderr)
        assert status(daemon.admin, "/api/clients", TOKEN) == 200
        tokens(file, OTHER)
        becomes(lambda: status(daemon.admin, "/api/clients", TOKEN), 401)
        assert status(daemon.admin, "/api/clients", OTHER) == 200
        assert daemon.stop() == 0
        assert "hunter2" not in daemon.stderr
        assert "another-" not in daemon.stderr


# OPS-14, OPS-15
def test_wrong_tokens_are_one_line_and_a_count(tmp_path: Path, config: Path) -> None:
    file = tokens(tmp_path / "token", TOKEN)
    with Daemon(tmp_path, config, "--admin-token-file", file, "--admin-open-metrics") as daemon:
        for _ in range(50):
            assert status(daemon.admin, "/api/clients", "hunter3-hunter3-hunter3") == 401
        assert status(daemon.admin, "/api/clients") == 401
        line = 'xdsprism_http_refused_requests_total{port="admin",reason="%s"}'
        assert daemon.metric(line % "wrong_token") == 50
        assert daemon.metric(line % "no_token") == 1
        eventually(lambda: "it sent no token, and --admin-token-file demands one" in daemon.stderr)
        lines = [each for each in daemon.stderr.splitlines() if "it sent a token that is not in the file" in each]
        assert len(lines) == 1
        assert "WARNING ipv4:127.0.0.1:" in lines[0]
        assert "hunter" not in daemon.stderr


# OPS-14
@pytest.mark.parametrize("flags", [[], ["--admin-tls-cert", "cert.pem", "--admin-tls-key", "key.pem"]])
def test_a_port_that_others_reach_is_refused_without_protection(
    place: tuple[str, list[object]], flags: list[str]
) -> None:
    verb, args = place
    done = run(verb, *args, "--listen", FREE, "--admin", "0.0.0.0:0", *flags)
    assert done.exit_code == 2
    said = "Error: --admin 0.0.0.0:0 lets every machine that reaches it see and change what is served: give "
    assert said + "--admin-token-file, or --admin-tls-client-ca" in done.stderr


# OPS-14
def test_a_port_that_others_reach_starts_with_tokens(tmp_path: Path, config: Path) -> None:
    file = tokens(tmp_path / "token", TOKEN)
    with Daemon(tmp_path, config, "--admin-token-file", file, admin="0.0.0.0:0") as daemon:
        admin = daemon.admin.replace("0.0.0.0", "127.0.0.1")
        assert [status(admin, "/api/clients", token) for token in ("", TOKEN)] == [401, 200]
        assert "WARNING the admin port 0.0.0.0:0 speaks plain text" in daemon.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--admin-tls-cert", "a"], "a certificate and its key go together: give --admin-tls-key too"),
        (
            ["--admin-tls-client-ca", "a"],
            "--admin-tls-client-ca needs a server certificate: give --admin-tls-cert and --admin-tls-key too",
        ),
        (["--admin-open-metrics"], "--admin-open-metrics needs --admin-token-file: without it every page is open"),
    ],
)
def test_flags_that_need_each_other_are_wrong_usage(config: Path, given: list[str], told: str) -> None:
    done = run("serve", config, *given)
    assert (done.exit_code, done.stderr) == (2, f"Error: {told}\n")


# -- the commands


def told(*args: object) -> str:
    done = run(*args)
    assert done.exit_code in (1, 2), done
    assert "Traceback" not in done.stderr
    return done.stderr


# OPS-14
def test_commands_get_in_with_a_certificate(tmp_path: Path, config: Path, files: Files) -> None:
    stranger = Authority(tmp_path, "stranger")
    with Daemon(tmp_path, config, *admin_flags(files)) as daemon:
        ask = *EXPLAIN, daemon.admin
        assert run(*ask, *in_by(files, files.client)).exit_code == 0
        assert "nothing is held back" in told("confirm", "--admin", daemon.admin, *in_by(files, files.client))
        where = f"Error: the admin port {daemon.admin} "
        assert told(*ask, *in_by(files)).startswith(f"{where}demands a certificate of its clients: give --admin-cert")
        said = told(*ask, *in_by(files, stranger.make("client")))
        assert said.startswith(f"{where}does not accept the certificate in {tmp_path}")
        said = told(*ask, "--admin-ca", stranger.certificate)
        assert said.startswith(f"{where}has a certificate that is not trusted: self-signed certificate")
        assert told(*ask, "--admin-ca", "system").startswith(f"{where}has a certificate that is not trusted")
        assert told(*ask).endswith("; perhaps it speaks TLS: give --admin-ca\n")
        assert "can't be used for TLS: No such file" in told(*ask, "--admin-ca", tmp_path / "none")
        crossed = Pair(files.client.certificate, files.key)
        assert "can't be used for TLS: KEY_VALUES_MISMATCH" in told(*ask, *in_by(files, crossed))


# OPS-14
def test_a_certificate_for_another_name_is_not_trusted(tmp_path: Path, config: Path, files: Files) -> None:
    files.authority.make("elsewhere", ("DNS:elsewhere.example",)).put(files.certificate, files.key)
    with Daemon(tmp_path, config, *admin_flags(files, client_ca=False)) as daemon:
        said = told(*EXPLAIN, daemon.admin, *in_by(files))
        assert "has a certificate that is not trusted: IP address mismatch, certificate is not valid for" in said


# OPS-14
def test_commands_get_in_with_a_token(tmp_path: Path, config: Path, files: Files) -> None:
    file, wrong = tokens(tmp_path / "token", TOKEN), tokens(tmp_path / "wrong", OTHER)
    with Daemon(tmp_path, config, "--admin-token-file", file) as daemon:
        ask = *EXPLAIN, daemon.admin
        assert run(*ask, "--admin-token-file", file).exit_code == 0
        assert "nothing is held back" in told("confirm", "--admin", daemon.admin, "--admin-token-file", file)
        where = f"Error: the admin port {daemon.admin} "
        for command in (ask, ("confirm", "--admin", daemon.admin)):
            assert told(*command) == f"{where}needs a token: give --admin-token-file\n"
            said = told(*command, "--admin-token-file", wrong)
            assert said.startswith(f"{where}does not accept the token in {wrong}: it is not in the server's")
            assert OTHER not in said
        assert told(*ask, *in_by(files)) == f"{where}speaks plain text: leave out --admin-ca\n"
        file.chmod(0o644)
        assert "other users may read or change it (mode 0644)" in told(*ask, "--admin-token-file", file)
        eventually(
            lambda: "it speaks TLS, and this port is for plain text: give the server --admin-tls-cert" in daemon.stderr
        )


# OPS-14
def test_a_variable_has_the_token_for_server_and_commands(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDSPRISM_ADMIN_TOKEN_FILE", str(tokens(tmp_path / "token", TOKEN)))
    with Daemon(tmp_path, config) as daemon:
        assert status(daemon.admin, "/api/clients") == 401
        assert run(*EXPLAIN, daemon.admin, "-o", "json").exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--admin-cert", "a", "--admin-ca", "b"], "give --admin-key too"),
        (["--admin-key", "a"], "give --admin-cert too"),
        (["--admin-cert", "a", "--admin-key", "b"], "--admin-cert needs --admin-ca"),
    ],
)
def test_client_flags_that_need_each_other_are_wrong_usage(given: list[str], said: str) -> None:
    done = run(*EXPLAIN, FREE, *given)
    assert done.exit_code == 2
    assert said in done.stderr


# OPS-15
def test_what_is_no_http_is_one_line_and_a_count(tmp_path: Path, config: Path) -> None:
    with Daemon(tmp_path, config, "--rest", FREE) as daemon:
        for address in (daemon.admin, daemon.rest):
            for _ in range(20):
                with socket.create_connection(web.split(address), 20) as made:
                    made.sendall(b"\x00\x01hunter2\r\n\r\n")
                    assert made.recv(1000).startswith(b"HTTP/1.1 400")
        line = 'xdsprism_http_handshake_failures_total{cause="other",port="%s"}'
        assert [daemon.metric(line % port) for port in ("admin", "rest")] == [20, 20]
        for port in ("admin", "REST"):
            text = f"can't be served on the {port} port: it is no client of HTTP/1"
            assert daemon.stderr.count(text) == 1
        assert "hunter2" not in daemon.stderr
        assert json.loads(web.get(*web.split(daemon.admin), "/healthz").body) == {"status": "alive"}
