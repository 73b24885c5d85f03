"""Wrong arguments are refused where an object is made, with the name of the argument and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import xdsprism as xp
from xdsprism.testing import MemoryClient

SERVERS = {"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}]}
HOST_PORT = "it should be HOST:PORT, such as 127.0.0.1:18000 or [::1]:0"


def server(**given: Any) -> object:
    return xp.Server(**({"store": xp.Store()} | given))


def relay(**given: Any) -> object:
    return xp.Relay(SERVERS, **given)


def client(**given: Any) -> xp.Client:
    return xp.Client(SERVERS, **given)


ANY: Any = xp
FIVE: Any = 5
ANY_LIST: Any = [1]
STORE = "xdsprism.core.model.store.Store object expected"
CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "store": (
        lambda: server(store="config"),
        f"TypeError: store: {STORE}; got str",
    ),
    "listen": (lambda: server(listen=18000), "TypeError: listen: str object expected; got int"),
    "no port": (lambda: server(listen="localhost"), f"UsageError: can't listen on 'localhost': {HOST_PORT}"),
    "large port": (lambda: server(listen="a:65536"), f"UsageError: can't listen on 'a:65536': {HOST_PORT}"),
    "bare IPv6": (lambda: server(listen="::1:80"), f"UsageError: can't listen on '::1:80': {HOST_PORT}"),
    "rest": (lambda: server(rest="x"), f"UsageError: can't listen on 'x' for rest: {HOST_PORT}"),
    "admin": (lambda: server(admin="x:y"), f"UsageError: can't listen on 'x:y' for admin: {HOST_PORT}"),
    "engine": (lambda: server(engine="http3"), "UsageError: engine is grpcio or h2, not 'http3'"),
    "age": (lambda: server(max_connection_age=0), "UsageError: max_connection_age is a number above 0, not 0"),
    "settings": (
        lambda: server(settings={}),
        "TypeError: settings: xdsprism.core.model.settings.Settings or None object expected; got dict",
    ),
    "tls": (lambda: server(tls="pem"), "TypeError: tls: xdsprism.server.tls.Tls or None object expected; got str"),
    "policy": (
        lambda: server(policy="policy.yaml"),
        "TypeError: policy: xdsprism.core.policy.policy.Policy or None object expected; got str",
    ),
    "access": (
        lambda: server(access="token"),
        "TypeError: access: xdsprism.admin.access.Access object expected; got str",
    ),
    "token file": (
        lambda: ANY.Access(token_file=5),
        "TypeError: token_file: str or os.PathLike object expected; got int",
    ),
    "hosts": (lambda: ANY.Access(hosts="a.test"), "TypeError: hosts: a list of str objects expected; got str"),
    "relay address": (lambda: relay(listen="x"), f"UsageError: can't listen on 'x': {HOST_PORT}"),
    "linger": (lambda: relay(linger="1"), "TypeError: linger: float object expected; got str"),
    "negative linger": (lambda: relay(linger=-1), "UsageError: linger is a number of seconds, not -1"),
    "stale": (lambda: relay(max_stale=None), "TypeError: max_stale: float object expected; got NoneType"),
    "cache": (lambda: relay(cache=5), "TypeError: cache: str or os.PathLike or None object expected; got int"),
    "groups": (lambda: relay(group_by="env"), "TypeError: group_by: a list of str objects expected; got str"),
    "reports": (lambda: relay(report_nacks="yes"), "TypeError: report_nacks: bool object expected; got str"),
    "bootstrap": (
        lambda: ANY.Client(5),
        "TypeError: bootstrap: str or os.PathLike or a mapping or None expected; got int",
    ),
    "delta": (lambda: client(delta="yes"), "TypeError: delta: bool or None object expected; got str"),
    "transport": (lambda: client(transport="v4"), "UsageError: transport is auto, v2 or v3, not 'v4'"),
    "bytes": (lambda: client(max_message_bytes=0), "UsageError: max_message_bytes is a number above 0, not 0"),
    "names": (lambda: client().watch("cds", ANY), "TypeError: names: a list of str objects expected; got module"),
    "a name": (
        lambda: client().watch("cds", ["a", FIVE]),
        "TypeError: names: str object expected; got int",
    ),
    "no name": (lambda: client().watch("cds", []), "UsageError: watch at least one name, or all of them by '*'"),
    "params": (
        lambda: client().watch("cds", params=ANY_LIST),
        "TypeError: params: a mapping of str to str expected; got list",
    ),
    "a param": (
        lambda: client().watch("cds", params={"shard": FIVE}),
        "TypeError: params['shard']: str object expected; got int",
    ),
    "store params": (
        lambda: xp.Store().get("cds", "a", params={"shard": FIVE}),
        "TypeError: params['shard']: str object expected; got int",
    ),
    "result": (
        lambda: ANY.Provided(None, "9"),
        "TypeError: float or datetime.timedelta or None object expected; got str",
    ),
    "memory client": (
        lambda: MemoryClient(ANY),
        f"TypeError: store: {STORE}; got module",
    ),
}


@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS)
def test_a_wrong_argument_is_refused_with_its_name_and_what_was_expected(call: Callable[[], object], said: str) -> None:
    with pytest.raises((TypeError, xp.UsageError)) as refused:
        call()
    assert f"{type(refused.value).__name__}: {refused.value}" == said


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:18000", "localhost:1", ":18000", "0.0.0.0:65535"])
def test_addresses_that_can_be_listened_on_are_accepted(listen: str) -> None:
    server(listen=listen, rest=listen, admin=listen)


def test_paths_may_be_strings_or_paths(tmp_path: Path) -> None:
    assert xp.Access(token_file="tokens") == xp.Access(token_file=Path("tokens"))  # the name of a file
    relay(cache=tmp_path / "cache.db")
    relay(cache=str(tmp_path / "cache.db"), linger=1, group_by=["env"])
