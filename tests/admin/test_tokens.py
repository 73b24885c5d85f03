"""The tokens of the admin port: the file, and what a request gets with and without one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.types import Scope

from tests.admin.rig import Office
from tests.admin.test_guard import send
from xdsprism import ConfigError, UsageError
from xdsprism.admin.access import Access
from xdsprism.admin.guard import TRUSTED, HostNames, RequestGuard
from xdsprism.admin.tokens import Tokens, first_token, read_tokens
from xdsprism.http2.facts import Fact, HttpRequestRefused, RequestRefusal
from xdsprism.server.tls import Tls

TOKEN, OTHER = "hunter2-" * 4, "another-" * 4
LISTEN = "127.0.0.1:18001"

# -- the file


def put(path: Path, contents: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    path.chmod(mode)
    return path


def test_a_file_has_tokens_comments_and_empty_lines(tmp_path: Path):  # OPS-14
    file = put(tmp_path / "tokens", f"# for the scraper\n\n{TOKEN}\r\n  {OTHER}==  \n", 0o640)
    tokens = read_tokens(str(file))
    assert all(map(tokens.has, [TOKEN, f"{OTHER}=="]))
    assert not any(map(tokens.has, ["", TOKEN[:-1], f"{TOKEN} ", TOKEN.upper(), "# for the scraper", "é", "\udcff"]))
    assert first_token(str(file)) == TOKEN


@pytest.mark.parametrize(
    ("contents", "mode", "said"),
    [
        (TOKEN, 0o644, "other users may read or change it (mode 0644): `chmod 600` it"),
        (TOKEN, 0o602, "other users may read or change it (mode 0602)"),
        (TOKEN, 0o620, "other users may read or change it (mode 0620)"),
        ("", 0o600, "there is no token in it: `openssl rand -hex 32` makes one"),
        ("# nothing\n\n", 0o600, "there is no token in it"),
        ("\nhunter2", 0o600, ":2: a token of fewer than 16 characters can be guessed"),
        ("hunter2 hunter2 hunter2", 0o600, ":1: this line is no token: a token has letters, digits"),
        (b"hunter2-hunter2-\xff", 0o600, ":1: this line is no token"),
        (f"{TOKEN}\n" * 3000, 0o600, "has more than 65,536 bytes"),
    ],
)
def test_a_file_that_is_no_good_is_refused_and_not_repeated(  # OPS-14
    tmp_path: Path, contents: str | bytes, mode: int, said: str
):
    file = put(tmp_path / "tokens", contents, mode)
    with pytest.raises(ConfigError) as refused:
        read_tokens(str(file))
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(file))
    assert "hunter2" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    for path, said in ((tmp_path / "none", "there is no such file"), (tmp_path, "can't be read: it is a directory")):
        with pytest.raises(ConfigError, match=said):
            read_tokens(str(path))


def test_nothing_that_is_kept_shows_a_token():  # OPS-14
    tokens = Tokens([TOKEN.encode()])
    kept = [repr(getattr(tokens, name)) for name in Tokens.__slots__]
    assert TOKEN not in repr(tokens) + str(kept)


# -- the start


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "[::]:1", "10.1.2.3:1", "host.example:1", "[::ffff:10.0.0.1]:1"])
def test_a_port_that_others_reach_needs_tokens_or_certificates(listen: str):  # OPS-14
    plain, secured = Tls("cert", "key"), Tls("cert", "key", "ca")
    for access in (Access(), Access(tls=plain)):
        with pytest.raises(UsageError, match=r"give --admin-token-file, or --admin-tls-client-ca .*, or listen on 127"):
            access.check(listen)
    assert "speaks plain text, so that the network can read its tokens" in Access(token_file=Path("t")).check(listen)
    assert Access(tls=plain, token_file=Path("t")).check(listen) == Access(tls=secured).check(listen) == ""


@pytest.mark.parametrize("listen", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_a_port_of_this_machine_needs_nothing(listen: str):
    assert Access().check(listen) == Access(token_file=Path("t")).check(listen) == ""


def test_open_metrics_without_tokens_is_wrong_usage():
    with pytest.raises(UsageError, match="--admin-open-metrics needs --admin-token-file"):
        Access(open_metrics=True)


# -- requests


class Asked:
    """A guard with one token, and what it reported."""

    def __init__(self, *, open_metrics: bool = False) -> None:
        self.facts: list[Fact] = []
        self.scope: Scope = {}
        tokens = Tokens([TOKEN.encode()])
        self._guard = RequestGuard(
            HostNames(LISTEN), tokens=lambda: tokens, open_metrics=open_metrics, report=self._report
        )

    def _report(self, facts: Sequence[Fact]) -> None:
        self.facts += facts

    def __call__(self, path: str, *authorization: str, method: str = "GET") -> tuple[int, str, str]:
        """The status, 200 if the request is let through, with the challenge and the body."""
        headers = [(b"host", LISTEN.encode()), *((b"authorization", each.encode()) for each in authorization)]
        self.scope = {"type": "http", "method": method, "path": path, "client": ("10.0.0.9", 4711), "headers": headers}
        answer = self._guard.refuse(self.scope, Headers(scope=self.scope))
        if answer is None:
            return 200, "", ""
        return answer.status_code, answer.headers.get("www-authenticate", ""), bytes(answer.body).decode()


PRIVATE = ["/metrics", "/api/resources", "/api/clients", "/api/config", "/api/explain", "/nothing", "//healthz", ""]


@pytest.mark.parametrize("path", PRIVATE)
def test_a_page_needs_the_token(path: str):  # OPS-14
    ask = Asked()
    for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} "):
        assert ask(path, given)[0] == 200
        assert ask.scope[TRUSTED] is True
    assert ask.facts == []
    status, challenge, body = ask(path)
    assert (status, challenge) == (401, 'Bearer realm="xdsprism"')
    assert json.loads(body)["error"].startswith("a token is needed: send `Authorization: Bearer TOKEN`")
    assert ask.facts == [HttpRequestRefused("ipv4:10.0.0.9:4711", "admin", RequestRefusal.NO_TOKEN)]


@pytest.mark.parametrize(
    "given",
    [
        [f"Bearer {OTHER}"],
        [f"Bearer {TOKEN[:-1]}"],
        [f"Bearer {TOKEN}{TOKEN}"],
        [f"Basic {TOKEN}"],
        [TOKEN],
        ["Bearer"],
        [""],
        [f"Bearer {TOKEN}", f"Bearer {OTHER}"],
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "DELETE"])
def test_a_wrong_token_is_refused_and_not_repeated(given: list[str], method: str):  # OPS-14
    ask = Asked()
    status, challenge, body = ask("/api/resources", *given, method=method)
    assert (status, challenge) == (401, 'Bearer realm="xdsprism", error="invalid_token"')
    assert ask.facts == [HttpRequestRefused("ipv4:10.0.0.9:4711", "admin", RequestRefusal.WRONG_TOKEN)]
    assert not any(part in body + str(ask.facts) for part in (TOKEN[:-1], OTHER))


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz"])
def test_a_probe_needs_no_token(path: str):  # OPS-14
    ask = Asked()
    for given in ([], [f"Bearer {OTHER}"]):
        for method in ("GET", "HEAD"):
            assert ask(path, *given, method=method)[0] == 200
            assert ask.scope[TRUSTED] is False
        assert ask(path, *given, method="POST")[0] == 401


def test_metrics_may_be_opened():  # OPS-14
    ask = Asked(open_metrics=True)
    assert [ask(path)[0] for path in ("/metrics", "/metrics/", "/api/clients")] == [200, 401, 401]


# -- a port


@pytest.fixture
def guard() -> RequestGuard:
    tokens = Tokens([TOKEN.encode()])
    return RequestGuard(HostNames(LISTEN), tokens=lambda: tokens)


async def test_who_has_no_token_learns_whether_it_is_ready_and_not_why(guard: RequestGuard):  # OPS-14
    reason = "no upstream server was reached yet: db.internal"
    async with Office(unready=reason, guard=guard) as office:
        status, _, body = await send(office, "GET", "/readyz", {})
        assert (status, json.loads(body)) == (503, {"status": "not ready"})
        status, _, body = await send(office, "GET", "/readyz", {"authorization": f"Bearer {TOKEN}"})
        assert (status, json.loads(body)) == (503, {"status": "not ready", "reason": reason})
        for path in ("/", "/healthz"):
            assert (await send(office, "GET", path, {}))[0] == 200
        status, said, body = await send(office, "GET", "/api/clients", {})
        assert (status, said["www-authenticate"]) == (401, 'Bearer realm="xdsprism"')
        assert said["x-content-type-options"] == "nosniff"
        assert (await send(office, "GET", "/api/clients", {"authorization": f"Bearer {TOKEN}"}))[0] == 200
