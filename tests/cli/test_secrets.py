"""What must stay secret is in no log line, on no page and in no error."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import grpc
import pytest

from tests.admin.relay_rig import write_bootstrap
from tests.cli.rig import ADS, FREE, Daemon, Plain, run, write
from tests.support import web
from tests.support.resources import Document
from tests.support.waiting import eventually

TOKEN = "Bearer eyJhbGciOiJub25lIn0.hunter2"
KEY = "hunter2-is-the-key"
AS_IT_IS = ("--validate", "off")  # Envoy would refuse it: it is no PEM
TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3."
GENERIC: Document = {"@type": f"{TLS}Secret", "name": "pass", "generic_secret": {"secret": {"inline_string": KEY}}}
INLINE: Document = {
    "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "name": "inline",
    "transport_socket": {
        "name": "tls",
        "typed_config": {
            "@type": f"{TLS}UpstreamTlsContext",
            "common_tls_context": {"tls_certificates": [{"private_key": {"inline_string": KEY}}]},
        },
    },
}


def call_with_token(daemon: Daemon, method: str) -> None:
    with grpc.insecure_channel(daemon.listen) as channel:
        call = channel.unary_unary(method, None, None)
        with pytest.raises(grpc.RpcError):
            call(b"\xff", metadata=[("authorization", TOKEN)], timeout=20)


@pytest.mark.parametrize("engine", ["h2", "grpcio"])
def test_no_log_level_shows_the_token_of_a_call(tmp_path: Path, config: Path, engine: str) -> None:  # OPS-14
    with Daemon(tmp_path, config, "--log-level", "debug", "--engine", engine) as daemon:
        call_with_token(daemon, ADS + "StreamAggregatedResources")
        call_with_token(daemon, "/no.such.Service/Method")
        assert daemon.stop() == 0
        log = daemon.stderr
    assert "hunter2" not in log
    assert "authorization" not in log.lower()


def test_debug_is_for_our_own_lines_alone(tmp_path: Path, config: Path) -> None:  # OPS-14
    with Daemon(tmp_path, config, "--log-level", "debug", "--log-format", "json") as daemon:
        call_with_token(daemon, ADS + "StreamAggregatedResources")
        assert daemon.stop() == 0
        lines = [json.loads(line) for line in daemon.stderr.splitlines() if line.startswith("{")]
    foreign = [line for line in lines if not line["logger"].startswith("xdsprism")]
    assert {line["level"] for line in foreign} <= {"WARNING", "ERROR"}
    assert any(line["level"] == "INFO" for line in lines)


def test_no_page_of_a_server_or_a_relay_shows_a_key(tmp_path: Path) -> None:  # OPS-14
    folder = write(tmp_path / "config", "all", GENERIC, INLINE).parent
    paths = ["/api/resources?bodies=1", "/api/explain?type=sds&name=pass", "/api/explain?type=cds&name=inline"]
    with Daemon(tmp_path, folder, *AS_IT_IS) as server:
        entry = {"server_uri": server.listen, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
        file = tmp_path / "bootstrap.json"
        file.write_text(json.dumps({"xds_servers": [entry], "node": {"id": "relay"}}))
        with Daemon(tmp_path, "--bootstrap", file, verb="relay") as relay:
            assert KEY in relay.get("sds", "pass", "--show-secrets").stdout
            assert KEY in relay.get("cds", "inline", "--show-secrets").stdout
            more = ["/api/clients", "/metrics"]
            for daemon, pages in ((server, [*paths, *more, "/api/config"]), (relay, [*paths, *more, "/api/upstreams"])):
                for path in pages:
                    answer = web.get(*web.split(daemon.admin), path)
                    assert answer.status == 200, path
                    assert "hunter2" not in answer.body, path
                shown = web.get(*web.split(daemon.admin), paths[0]).body
                assert shown.count("[redacted]") == 2
            assert "hunter2" not in server.stderr + relay.stderr


@pytest.mark.parametrize("output", ["yaml", "json", "wide", "name"])
@pytest.mark.parametrize("verb", ["get", "watch"])
def test_get_and_watch_show_a_key_only_if_they_are_told_to(tmp_path: Path, verb: str, output: str) -> None:  # OPS-14
    folder = write(tmp_path / "config", "all", GENERIC, INLINE).parent
    has_contents = output in ("yaml", "json")
    with Daemon(tmp_path, folder, *AS_IT_IS) as daemon:
        more = ("--timeout", 2) if verb == "watch" else ()
        for kind, name in (("sds", "pass"), ("cds", "inline")):
            ask = (verb, kind, name, "--server", daemon.listen, "-o", output, *more)
            done = run(*ask)
            assert (done.exit_code, "hunter2" in done.output) == (0, False)
            assert ("[redacted]" in done.stdout) is has_contents
            assert done.stderr.count("secrets are not shown: --show-secrets prints them\n") == has_contents
            done = run(*ask, "--show-secrets")
            assert (done.exit_code, KEY in done.stdout, done.stderr) == (0, has_contents, "")


QUOTES = [
    f"invalid value {KEY}",
    f'Proto constraint validation failed (x): name: "pass" generic_secret {{ secret {{ inline_string: "{KEY}" }} }}',
    f"can't parse -----BEGIN EC PRIVATE KEY-----\n{KEY}\n-----END EC PRIVATE KEY-----",
    f"authorization: Bearer {KEY}",
]


@pytest.mark.parametrize("engine", ["h2", "grpcio"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_nack_that_quotes_a_secret_is_shown_without_it(tmp_path: Path, engine: str, form: str) -> None:  # OPS-14
    folder = write(tmp_path / "config", "all", GENERIC, INLINE).parent
    with Daemon(
        tmp_path, folder, *AS_IT_IS, "--engine", engine, "--log-format", form, "--log-level", "debug"
    ) as daemon:
        for number, text in enumerate(QUOTES):
            with Plain(daemon.listen, f"{TLS}Secret", "pass") as stream:
                stream.nack(stream.read(), f"{text} in quote {number}")
                eventually(lambda number=number: f"in quote {number}" in daemon.stderr)  # type: ignore[misc]
                page = json.dumps(daemon.page("/api/clients"))
                assert f"in quote {number}" in page
                assert "hunter2" not in page
        clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
        for number, text in enumerate(QUOTES[1:]):
            with Plain(daemon.listen, clusters, "inline") as stream:
                stream.nack(stream.read(), f"{text} in cluster {number}")
                eventually(lambda number=number: f"in cluster {number}" in daemon.stderr)  # type: ignore[misc]
                assert "hunter2" not in json.dumps(daemon.page("/api/clients"))
        assert "hunter2" not in daemon.stderr


@pytest.mark.parametrize("output", ["yaml", "json", "wide", "name"])
def test_check_and_explain_show_no_key(tmp_path: Path, output: str) -> None:  # OPS-14
    folder = write(tmp_path / "config", "all", GENERIC, INLINE).parent
    found = run("check", folder, "-o", output, *AS_IT_IS)
    assert (found.exit_code, "hunter2" in found.output) == (0, False)
    if output in ("yaml", "json"):
        found = run("explain", "sds", "pass", folder, "-o", output, *AS_IT_IS)
        assert (found.exit_code, "hunter2" in found.output) == (0, False)


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (
            {"generic_secret": {"secret": "hunter2"}},
            "generic_secret.secret: expected a mapping (envoy.config.core.v3.Dat",
        ),
        ({"generic_secret": "hunter2"}, "generic_secret: expected a mapping"),
        ({"generic_secret": {"secret": {"inline_bytes": "hunter2!"}}}, "secret.inline_bytes: expected base64"),
        ({"generic_secret": {"secrets": {"a": "hunter2"}}}, "secrets.a: expected a mapping"),
        ({"session_ticket_keys": {"keys": ["hunter2"]}}, "keys[0]: expected a mapping"),
        ({"tls_certificate": {"private_key": ["hunter2"]}}, "private_key: expected a mapping"),
        ({"tls_certificate": {"password": {"inline_string": 4711000}}}, "password.inline_string: expected a string, "),
    ],
)
def test_an_error_in_a_sensitive_field_names_the_field_and_not_the_value(  # OPS-14
    tmp_path: Path, contents: Document, said: str
) -> None:
    folder = write(tmp_path / "config", "all", {"@type": f"{TLS}Secret", "name": "s", **contents}).parent
    found = run("check", folder)
    assert found.exit_code == 1
    assert said in found.stderr
    assert "hunter2" not in found.stderr
    assert "4711000" not in found.stderr


@pytest.mark.parametrize("verb", ["serve", "relay"])
def test_a_daemon_leaves_no_core_file(tmp_path: Path, config: Path, verb: str) -> None:  # OPS-14
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("no process may leave one here")
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        args = [config] if verb == "serve" else ["--bootstrap", write_bootstrap(tmp_path, "127.0.0.1:1")]
        with Daemon(tmp_path, *args, listen=FREE, verb=verb) as daemon:
            limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4] == "0"


def test_a_refused_edit_is_logged_without_the_secret(tmp_path: Path) -> None:  # OPS-14
    folder = write(tmp_path / "config", "all", GENERIC).parent
    with Daemon(tmp_path, folder) as daemon:
        write(folder, "all", {**GENERIC, "generic_secret": {"secret": "hunter2"}})
        eventually(lambda: "configuration refused" in daemon.stderr)
        page = json.dumps(daemon.page("/api/config"))
        assert "expected a mapping" in page
        assert "hunter2" not in daemon.stderr + page
