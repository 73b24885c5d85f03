"""The objects of deploy/kubernetes and of the chart, as a real API server of Kubernetes takes or refuses them."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import web
from tests.support.helm import render
from tests.support.programs import Program
from tests.support.toolchains import command
from tests.support.waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFEST = [*yaml.safe_load_all((DEPLOY / "kubernetes/xdsprism.yaml").read_text())]
TOKEN = "interop"
# Where objects of a kind are made.
PATHS = {
    "ConfigMap": "api/v1/namespaces/default/configmaps",
    "Service": "api/v1/namespaces/default/services",
    "Deployment": "apis/apps/v1/namespaces/default/deployments",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/default/poddisruptionbudgets",
}


class ApiServer:
    """A kube-apiserver with its etcd."""

    def __init__(self, folder: Path) -> None:
        client, peer, self.port = web.free_port(), web.free_port(), web.free_port()
        key, tokens = folder / "sa.key", folder / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key], capture_output=True, check=True, timeout=60)
        tokens.write_text(f'{TOKEN},admin,1,"system:masters"\n')
        urls = [f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"]
        etcd = [*command("etcd"), "--data-dir", folder / "etcd", "--listen-client-urls", urls[0]]
        etcd += ["--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1]]
        self._etcd = Program("etcd", [*map(str, etcd)], folder / "etcd.log")
        server = [*command("kube-apiserver"), "--etcd-servers", urls[0], "--bind-address", "127.0.0.1"]
        server += ["--secure-port", self.port, "--cert-dir", folder / "certs", "--service-account-issuer", "https://x"]
        server += ["--service-account-signing-key-file", key, "--service-account-key-file", key]
        server += ["--token-auth-file", tokens, "--disable-admission-plugins", "ServiceAccount"]
        self._server = Program("kube-apiserver", [*map(str, server)], folder / "server.log")

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Get a path, or post an object to it."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/{path}", data, headers)
        context = ssl._create_unverified_context()  # noqa: SLF001 # its certificate is of its own making
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def takes(self, made: Any) -> tuple[int, str]:
        """Have it check an object, as `kubectl apply --dry-run=server --validate=strict` does."""
        status, said = self.ask(f"{PATHS[made['kind']]}?dryRun=All&fieldValidation=Strict", made)
        return status, "" if status == 201 else json.loads(said)["message"]

    def stop(self) -> None:
        self._server.kill()
        self._etcd.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("kubernetes"))
    try:
        eventually(lambda: running.ask("readyz") == (200, "ok"))
        eventually(lambda: running.ask("api/v1/namespaces/default")[0] == 200)
        yield running
    finally:
        running.stop()


def named(objects: list[Any]) -> list[Any]:
    return [pytest.param(each, id=f"{each['kind']}-{each['metadata']['name']}") for each in objects]


@pytest.mark.parametrize("made", named(MANIFEST))
def test_the_api_server_takes_each_object_of_the_manifest(server: ApiServer, made: Any) -> None:
    assert server.takes(made) == (201, "")


@pytest.mark.parametrize("made", named(render(DEPLOY / "helm/xdsprism", "other", {"resources": {}, "replicas": 1})))
def test_the_api_server_takes_each_object_of_the_chart(server: ApiServer, made: Any) -> None:
    assert server.takes(made) == (201, "")


def test_it_refuses_what_it_does_not_know(server: ApiServer) -> None:
    (service,) = [each for each in MANIFEST if each["kind"] == "Service"]
    status, text = server.takes(service | {"spec": service["spec"] | {"nonsense": 1}})
    assert status == 400
    assert "nonsense" in text
