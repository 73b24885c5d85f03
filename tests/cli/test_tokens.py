"""Bearer tokens at the command line: what is validated, what a server does with its JWKS, and what stays secret."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from queue import Queue
from typing import Self

import grpc
import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.cli.rig import ADS, FREE, Daemon, run, write
from tests.support import web
from tests.support.engines import ENGINES
from tests.support.resources import routes, to
from tests.support.tokens import AUDIENCE, Signer, bearer, write_jwks
from tests.support.waiting import eventually
from xdsprism.core.model.types import ROUTE

METHOD = ADS + "StreamAggregatedResources"
POLICY = f"""\
jwks: keys.json
audience: {AUDIENCE}
rules:
- identity: jwt:team/*
  names: {{rds: [main]}}
"""


@pytest.fixture
def signer() -> Signer:
    return Signer("one")


@pytest.fixture
def policy(tmp_path: Path, signer: Signer) -> Path:
    write_jwks(tmp_path / "keys.json", signer)
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write(tmp_path / "config", "routes", routes("main", to("a")), routes("other", to("a")))
    return tmp_path / "config"


class Ask:
    """A stream of one call's token."""

    def __init__(self, daemon: Daemon, token: str, name: str = "main") -> None:
        self._channel = grpc.insecure_channel(daemon.listen, options=[("grpc.use_local_subchannel_pool", 1)])
        method = self._channel.stream_stream(
            METHOD, pb.DiscoveryRequest.SerializeToString, pb.DiscoveryResponse.FromString
        )
        self._requests: Queue[pb.DiscoveryRequest | None] = Queue()
        self._requests.put(pb.DiscoveryRequest(type_url=ROUTE, resource_names=[name], node={"id": "me"}))
        self._call = method(iter(self._requests.get, None), metadata=bearer(token), timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()

    def read(self) -> int:
        """How many resources the next response has."""
        return len(next(self._call).resources)

    def error(self) -> str:
        """How the stream ended."""
        with pytest.raises(grpc.RpcError) as caught:
            next(self._call)
        return f"{caught.value.code().name}: {caught.value.details()}"


def test_check_validates_the_jwks(policy: Path, tmp_path: Path, signer: Signer):
    done = run("check", "--policy", policy)
    assert (done.exit_code, done.stderr) == (0, "valid policy: 1 rules, default: deny, 1 keys for tokens\n")
    write_jwks(tmp_path / "keys.json", signer, signer.private_jwk(), {"kty": "oct", "k": "hunter2"}, {"kty": "new"})
    done = run("check", "--policy", policy)
    assert done.exit_code == 1
    found = [line.partition(f"{tmp_path}/")[2] for line in done.stderr.splitlines() if "keys.json" in line]
    assert [re.sub(r":\d+", "", each, count=1)[:50] for each in found] == [
        "keys.json: keys[1].d: this is a private key: list "[:50],
        "keys.json: keys[2].kty: this is a symmetric key: w"[:50],
        "keys.json: keys[3].kty: unknown key type: there ar"[:50],
    ]
    assert "hunter2" not in done.output
    (tmp_path / "keys.json").unlink()
    done = run("check", "--policy", policy)
    assert f"{policy}:1: jwks: {tmp_path}/keys.json can't be read: No such file" in done.stderr
    policy.write_text(POLICY.replace(f"audience: {AUDIENCE}\n", ""))
    assert f"{policy}:1: jwks: audience is missing" in run("check", "--policy", policy).stderr


def test_explain_and_cases_take_a_subject(policy: Path, config: Path, tmp_path: Path):
    done = run("explain", "rds", "main", config, "--policy", policy, "--as", "jwt:team/a")
    assert done.stdout.startswith(f"By rule 1, jwt:team/* ({policy}:4):\nrds/main for a client with ")
    done = run("explain", "rds", "other", config, "--policy", policy, "--as", "jwt:team/a")
    assert (done.exit_code, "rds/other is denied to jwt:team/a" in done.stdout) == (1, True)
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        "- {as: 'jwt:team/a', type: rds, name: main, allow: true, rule: 1}\n"
        "- {as: 'jwt:other', type: rds, name: main, allow: false, rule: 0}\n"
        "- {as: 'spiffe://team/a', type: rds, name: main, allow: false, rule: 0}\n"
    )
    assert run("policy", "test", policy, cases).stderr == "3 cases are decided as expected\n"
    assert (
        "'jwt:' is no valid identity of its kind"
        in run("explain", "rds", "main", config, "--policy", policy, "--as", "jwt:").stderr
    )


def test_a_server_follows_its_jwks(policy: Path, config: Path, tmp_path: Path, signer: Signer):
    # OPS-8, OPS-18
    second = Signer("two")
    refused = 'xdsprism_policy_changes_total{result="refused"}'
    with Daemon(tmp_path, config, "--policy", policy) as daemon, Ask(daemon, signer.token("team/a")) as old:
        assert old.read() == 1
        assert "the policy has rules for certificates" not in daemon.stderr
        write_jwks(tmp_path / "keys.json", {"kty": "oct", "k": "hunter2"})
        assert eventually(lambda: daemon.metric(refused)) == 1
        eventually(lambda: "keys[0].kty: this is a symmetric key" in daemon.stderr)
        assert "hunter2" not in daemon.stderr
        (tmp_path / "keys.json").unlink()
        eventually(lambda: "keys.json can't be read" in daemon.stderr)
        with Ask(daemon, signer.token("team/b")) as other:  # the last good one stays
            assert other.read() == 1
        write_jwks(tmp_path / "keys.json", signer, second)
        eventually(lambda: "another policy is in force" in daemon.stderr)
        with Ask(daemon, second.token("team/b")) as other:
            assert other.read() == 1
            write_jwks(tmp_path / "keys.json", second)
            assert old.error() == "UNAUTHENTICATED: the server accepts other tokens now: come back"
        with Ask(daemon, signer.token("team/a")) as again:
            assert again.error().startswith("UNAUTHENTICATED: no key of the server's JWKS")
        # Another file, which is watched from then on.
        write_jwks(tmp_path / "others.json", second)
        policy.write_text(POLICY.replace("keys.json", "others.json"))
        assert eventually(lambda: daemon.metric('xdsprism_policy_changes_total{result="taken"}') == 3)
        write_jwks(tmp_path / "others.json", signer)
        assert eventually(lambda: daemon.metric('xdsprism_policy_changes_total{result="taken"}') == 4)
        with Ask(daemon, signer.token("team/a")) as again:
            assert again.read() == 1


def test_a_server_does_not_start_with_a_bad_jwks(policy: Path, config: Path, tmp_path: Path):
    write_jwks(tmp_path / "keys.json")
    done = run("serve", config, "--policy", policy, "--listen", FREE, "--admin", "off")
    assert (done.exit_code, "there is no key here that verifies signatures" in done.stderr) == (1, True)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_log_page_metric_or_error_shows_a_token(
    policy: Path, config: Path, tmp_path: Path, signer: Signer, engine: str
):
    # OPS-14
    good = signer.token("team/a")
    bad = [
        signer.token("team/b", exp=time.time() - 100),
        Signer("one").token("team/c"),
        Signer("other").token("team/d"),
        signer.token("team/e", header={"crit": ["x"]}),
        signer.token("team/f", aud="other"),
        "hunter2.hunter2.hunter2",
        "x" * 9000,
    ]
    said: list[str] = []
    listening = ("--policy", policy, "--rest", FREE, "--engine", engine, "--log-level", "debug")
    with Daemon(tmp_path, config, *listening) as daemon:
        with Ask(daemon, good) as stream:
            assert stream.read() == 1
            for token in bad:
                with Ask(daemon, token) as refused:
                    said.append(refused.error())
                headers = {"authorization": f"Bearer {token}"}
                body = json.dumps({"node": {"id": "me"}}).encode()
                said.append(str(web.post(daemon.rest, "/v3/discovery:routes", body, headers)))
            assert all("UNAUTHENTICATED" in each or "status=401" in each for each in said)
            pages = "/api/clients", "/api/config", "/metrics", "/api/resources", "/"
            said += [web.get(*web.split(daemon.admin), path).body for path in pages]
            (row,) = daemon.page("/api/clients")["clients"]
            assert row["policy"]["identities"] == row["identities"] == ["jwt:team/a"]
            assert daemon.metric('xdsprism_refused_tokens_total{cause="signature"}') == 2
        daemon.stop()
        said.append(daemon.stderr)
    assert "a call from ipv4:127.0.0.1:" in daemon.stderr
    assert "is refused: the token's signature is wrong" in daemon.stderr
    everything = "\n".join(said)
    for token in (good, *bad):
        for part in token.split("."):
            assert part[:40] not in everything
    assert "authorization" not in daemon.stderr.lower().replace("authorization headers", "")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_subject_can_not_forge_a_line(policy: Path, config: Path, tmp_path: Path, signer: Signer, form: str):
    forged = "team/a\n2026-01-01T00:00:00.000Z ERROR all is lost\x1b[2J\u2028"
    with Daemon(tmp_path, config, "--policy", policy, "--log-format", form) as daemon:
        with Ask(daemon, signer.token(forged)) as stream:
            assert stream.read() == 1
            (row,) = daemon.page("/api/clients")["clients"]
            assert row["policy"]["identities"] == [f"jwt:{forged}"]
        with Ask(daemon, signer.token(forged), "other") as stream:
            eventually(lambda: "is denied" in daemon.stderr)
        assert "as jwt:team/a" in daemon.stderr
        assert not any(line.startswith("2026-01-01T") for line in daemon.stderr.splitlines())
        assert "\x1b" not in daemon.stderr
        assert "\u2028" not in daemon.stderr
