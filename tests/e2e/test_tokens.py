"""A real Envoy and gRPC's own xDS client with bearer tokens, as docs/policy.md has it, and tokens that are renewed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import callers, envoy, grpcio_caller
from tests.support.certificates import Authority
from tests.support.control_plane import ControlPlane
from tests.support.lab import Lab
from tests.support.resources import api_listener, eds_cluster, endpoints, listener, routes, to
from tests.support.tokens import AUDIENCE, Signer, write_jwks
from tests.support.waiting import becomes, eventually
from xdsprism.core.policy.tokens import LEEWAY

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

CLIENT = [sys.executable, Path(grpcio_caller.__file__)]
PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
POLICY = f"""\
jwks: jwks.json
audience: {AUDIENCE}
rules:
- identity: jwt:mesh/*
  params: any
"""
LAPSED = 'xdsprism_refused_tokens_total{cause="expired"}'


class Site:
    """A server that wants tokens, with TLS, as gRPC sends none without it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.folder = folder
        self.signer = Signer("one")
        self.authority = Authority(folder)
        certificate, key = folder / "tls.crt", folder / "tls.key"
        self.authority.make("server").put(certificate, key)
        write_jwks(folder / "jwks.json", self.signer)
        (folder / "policy.yaml").write_text(POLICY)
        self.server = lab.control_plane()
        self.server.flags = ["--tls-cert", str(certificate), "--tls-key", str(key)]
        self.server.flags += ["--policy", str(folder / "policy.yaml")]

    def token(self, subject: str, seconds: float = 3600) -> str:
        """A token that is accepted for so many seconds."""
        return self.signer.token(subject, exp=int(time.time() + seconds - LEEWAY))

    def identities(self) -> dict[str, list[str]]:
        rows = json.loads(self.server.get("/api/clients"))["clients"]
        return {row["node"]["id"]: row["identities"] for row in rows if row["node"] is not None}


def _secret(token: str) -> str:
    """The file that Envoy takes its credential from."""
    kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
    secret = {"@type": kind, "name": "token", "generic_secret": {"secret": {"inline_string": f"Bearer {token}"}}}
    return yaml.safe_dump({"resources": [secret]})


def _put(path: Path, text: str) -> None:
    """Move a file into place, which is what Envoy looks for."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


def _envoy(site: Site, file: Path) -> dict[str, Any]:
    config = envoy.bootstrap("delta", site.server.port, {"id": "envoy", "cluster": "lab"})
    (control_plane,) = config["static_resources"]["clusters"]
    (example,) = [each for each in PAGE.split("```yaml\n") if "credential_injector" in each]
    shown = yaml.safe_load(example.partition("```")[0].replace("/etc/envoy/token.yaml", str(file)))
    http2 = control_plane["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
    http2 |= shown
    tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    context = {"validation_context": {"trusted_ca": {"filename": str(site.authority.certificate)}}}
    typed = {"@type": tls, "sni": "localhost", "common_tls_context": context}
    control_plane["transport_socket"] = {"name": "envoy.transport_sockets.tls", "typed_config": typed}
    return config


def _caller(site: Site, file: Path) -> dict[str, Any]:
    config = callers.bootstrap(site.server.port, {"kind": "grpc"})
    (entry,) = config["xds_servers"]
    files = {"ca_certificate_file": str(site.authority.certificate)}
    entry["channel_creds"] = [{"type": "tls", "config": files}]
    entry["call_creds"] = [{"type": "jwt_token_file", "config": {"jwt_token_file": str(file)}}]
    return config


def test_envoy_keeps_what_it_has_when_its_token_expires_and_comes_back_with_another(lab: Lab, tmp_path: Path):
    # OPS-16, OPS-18
    site, file = Site(lab, tmp_path), tmp_path / "token.yaml"
    server: ControlPlane = site.server
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    server.write("listener", listener("web", "main"))
    server.write("routes", routes("main", to("blue")))
    server.write("clusters", eds_cluster("blue"), eds_cluster("green"))
    server.write("endpoints", *(endpoints(each.name, each.port) for each in (blue, green)))
    server.start()
    _put(file, _secret(site.token("mesh/envoy", 6)))
    proxy = lab.start_envoy(_envoy(site, file))
    becomes(lambda: proxy.get("/"), "blue")
    assert site.identities() == {"envoy": ["jwt:mesh/envoy"]}

    eventually(lambda: LAPSED in server.get("/metrics"))  # its stream has ended, and it came back too early
    server.write("routes", routes("main", to("green")))
    assert proxy.get("/") == "blue"
    _put(file, _secret(site.token("mesh/other")))
    becomes(lambda: proxy.get("/"), "green")
    assert site.identities() == {"envoy": ["jwt:mesh/other"]}


def test_grpc_sends_the_token_of_its_file(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS", "true")  # G9
    site, file = Site(lab, tmp_path), tmp_path / "token"
    said = lab.grpc_backend("said")
    site.server.write("listener", {"$when": "kind=grpc", **api_listener("svc", "calls")})
    site.server.write("routes", routes("calls", to("said")))
    site.server.write("clusters", eds_cluster("said"))
    site.server.write("endpoints", endpoints("said", said.port))
    site.server.start()
    _put(file, site.token("mesh/caller"))
    caller = lab.start_caller(CLIENT, _caller(site, file))
    caller.reaches("said")
    assert site.identities() == {"caller": ["jwt:mesh/caller"]}
