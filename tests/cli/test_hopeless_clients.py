"""Clients that can never succeed: each leaves one line that says what it does wrong and from where, and a metric."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from tests.cli.rig import Daemon
from tests.support.certificates import Authority
from tests.support.waiting import becomes, eventually

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"

Client = Callable[[Daemon], None]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def connected(daemon: Daemon) -> Iterator[socket.socket]:
    host, _, port = daemon.listen.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as made:
        yield made


def say(daemon: Daemon, words: bytes) -> None:
    """As a client of another protocol: it speaks, and waits until the server hangs up."""
    with connected(daemon) as made, suppress(ConnectionError):
        made.sendall(words)
        while made.recv(65536):
            pass


def shake_hands(daemon: Daemon, context: ssl.SSLContext) -> None:
    """Until the server hangs up, or one of the two does not like the other."""
    name = "localhost"
    over = (ssl.SSLError, ConnectionError)
    with connected(daemon) as made, suppress(*over), context.wrap_socket(made, server_hostname=name) as secured:
        while secured.recv(65536):
            pass


def call(daemon: Daemon, method: str) -> None:
    with grpc.insecure_channel(daemon.listen) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method, None, None)(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def lines(daemon: Daemon) -> list[str]:
    return re.findall(r"WARNING (ipv4:127\.0\.0\.1:\d+ can't be served: .*)", daemon.stderr)


def told_once(daemon: Daemon, client: Client, metric: str, said: str) -> None:
    """Three tries: all are counted, and one line is in the log."""
    for number in (1, 2, 3):
        client(daemon)
        eventually(lambda: daemon.metric(metric), lambda seen, least=number: seen >= least)
    (line,) = lines(daemon)
    assert said in line
    assert "Traceback" not in daemon.stderr


def failures(cause: str) -> str:
    return f'xdsprism_handshake_failures_total{{cause="{cause}"}}'


def test_http_1_to_a_plain_port(daemon: Daemon) -> None:  # OPS-15
    told_once(daemon, lambda daemon: say(daemon, GET), failures("http1"), "it speaks HTTP/1, and this port is for gRPC")


def test_post_of_http_1_begins_like_the_preface(daemon: Daemon) -> None:  # OPS-15
    post = b"POST /v3/discovery:clusters HTTP/1.1\r\n\r\n"
    told_once(daemon, lambda daemon: say(daemon, post), failures("http1"), "it speaks HTTP/1")


def test_noise_to_a_plain_port(daemon: Daemon) -> None:  # OPS-15
    told_once(daemon, lambda daemon: say(daemon, b"\0\1\2"), failures("other"), "it speaks neither HTTP/2 nor TLS")


def test_tls_to_a_plain_port(daemon: Daemon) -> None:  # OPS-15
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    told_once(
        daemon,
        lambda daemon: shake_hands(daemon, context),
        failures("tls"),
        "it speaks TLS, and this port is for plain",
    )


@pytest.mark.parametrize("engine", ["h2", "grpcio"])
def test_a_method_that_there_is_not(tmp_path: Path, config: Path, engine: str) -> None:  # OPS-15
    with Daemon(tmp_path, config, "--engine", engine) as daemon:
        told_once(
            daemon,
            lambda daemon: call(daemon, "/no.such.Service/Method"),
            'xdsprism_refused_calls_total{cause="method"}',
            "there is no gRPC method /no.such.Service/Method here",
        )
        call(daemon, "/no.such.Service/Other")
        becomes(lambda: len(lines(daemon)), 2)


def test_a_request_that_is_no_call(daemon: Daemon) -> None:  # OPS-15
    def get(daemon: Daemon) -> None:
        # RFC 7541, appendix A: 2 is GET, 6 is http, 4 is /.
        headers = bytes((0x82, 0x86, 0x84))
        with connected(daemon) as made:
            made.sendall(PREFACE + SETTINGS + b"\0\0\3\1\5\0\0\0\1" + headers)
            answer = b""
            while b"This port speaks gRPC" not in answer:
                answer += made.recv(65536)

    metric = 'xdsprism_refused_calls_total{cause="not_grpc"}'
    told_once(daemon, get, metric, "it sent a GET of nothing, and a gRPC call is a POST of application/grpc")


@pytest.fixture
def secured(tmp_path: Path, config: Path, authority: Authority) -> Iterator[Daemon]:
    server = authority.make("server")
    files = ("--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate)
    with Daemon(tmp_path, config, *files) as running:
        yield running


@pytest.fixture
def trusting(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.set_alpn_protocols(["h2"])
    return context


@pytest.mark.parametrize("words", [GET, PREFACE + SETTINGS], ids=["HTTP/1", "HTTP/2"])
def test_plain_text_to_a_tls_port(secured: Daemon, words: bytes) -> None:  # OPS-15
    told_once(
        secured, lambda daemon: say(daemon, words), failures("plain"), "it speaks plain text, and this port is for TLS"
    )


def test_no_certificate(secured: Daemon, trusting: ssl.SSLContext) -> None:  # OPS-15
    said = "it sent no certificate, and --tls-client-ca demands one"
    told_once(secured, lambda daemon: shake_hands(daemon, trusting), failures("no_certificate"), said)


def test_an_untrusted_certificate(secured: Daemon, trusting: ssl.SSLContext, tmp_path: Path) -> None:  # OPS-15
    stranger = Authority(tmp_path, "stranger").make("client")
    trusting.load_cert_chain(stranger.certificate, stranger.key)
    said = "its certificate is not signed by an authority in --tls-client-ca: unable to get local issuer certificate"
    told_once(secured, lambda daemon: shake_hands(daemon, trusting), failures("untrusted"), said)


def test_a_client_that_does_not_trust_us(secured: Daemon, tmp_path: Path) -> None:  # OPS-15
    distrusting = ssl.create_default_context(cafile=str(Authority(tmp_path, "another").certificate))
    said = "it does not trust the certificate in --tls-cert: TLSV1_ALERT_UNKNOWN_CA"
    told_once(secured, lambda daemon: shake_hands(daemon, distrusting), failures("distrust"), said)


@pytest.mark.parametrize("offered", [[], ["http/1.1"]], ids=["none", "HTTP/1"])
def test_no_http_2_by_alpn(  # OPS-15
    secured: Daemon, trusting: ssl.SSLContext, authority: Authority, offered: list[str]
) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    client = authority.make("client")
    context.load_cert_chain(client.certificate, client.key)
    if offered:
        context.set_alpn_protocols(offered)
    said = "it does not offer HTTP/2 in the TLS handshake (ALPN h2)"
    told_once(secured, lambda daemon: shake_hands(daemon, context), failures("alpn"), said)
