"""What an Envoy has, imported: an Envoy that fetches it answers as the one before did."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.rig import run
from tests.support.backends import HttpBackend
from tests.support.certificates import identity
from tests.support.control_plane import ControlPlane
from tests.support.envoy import Envoy
from tests.support.lab import Lab
from tests.support.resources import inline_listener, static_cluster, to
from tests.support.waiting import becomes

TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3."
TCP = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
STATSD = "type.googleapis.com/envoy.config.metrics.v3.StatsdSink"


def bare(resource: dict[str, Any]) -> dict[str, Any]:
    """As it is written in a bootstrap."""
    return {key: value for key, value in resource.items() if key != "@type"}


def tcp_listener(name: str, cluster: str) -> dict[str, Any]:
    proxy = {"name": "tcp", "typed_config": {"@type": TCP, "stat_prefix": name, "cluster": cluster}}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    return {"name": name, "address": address, "filter_chains": [{"filters": [proxy]}]}


def static_bootstrap(certificate: Path, key: Path, blue: HttpBackend, green: HttpBackend) -> dict[str, Any]:
    """A TCP proxy, two listeners that both call their routes `local_route`, and one with TLS by a static secret."""
    web = inline_listener("web", to("green", "/green"), to("blue"))
    other = inline_listener("other", to("green"))
    for each in (web, other):
        each["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["name"] = "local_route"
    secure = inline_listener("secure", to("blue"))
    context = {"tls_certificate_sds_secret_configs": [{"name": "server"}]}
    secure["filter_chains"][0]["transport_socket"] = {
        "name": "tls",
        "typed_config": {"@type": f"{TLS}DownstreamTlsContext", "common_tls_context": context},
    }
    secret = {
        "name": "server",
        "tls_certificate": {
            "certificate_chain": {"inline_string": certificate.read_text()},
            "private_key": {"inline_string": key.read_text()},
        },
    }
    clusters = [static_cluster(each.name, "127.0.0.1", each.port) for each in (blue, green)]
    clusters.append(static_cluster("statsd", "127.0.0.1", 9))
    sink = {"name": "envoy.stat_sinks.statsd", "typed_config": {"@type": STATSD, "tcp_cluster_name": "statsd"}}
    return {
        "node": {"id": "imported", "cluster": "lab"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "stats_sinks": [sink],
        "static_resources": {
            "listeners": [*map(bare, (web, other, secure)), tcp_listener("raw", "green")],
            "clusters": [*map(bare, clusters)],
            "secrets": [secret],
        },
    }


def answers(envoy: Envoy) -> dict[str, str]:
    """What requests to each listener get."""
    paths = [("web", "/"), ("web", "/green"), ("other", "/"), ("raw", "/")]
    return {f"{name}{path}": envoy.get(path, name) for name, path in paths} | {"secure": secure_get(envoy)}


def secure_get(envoy: Envoy) -> str:
    port = envoy.listeners().get("secure")
    if port is None:
        return "no listener"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    except OSError as error:
        return repr(error)
    finally:
        connection.close()


@pytest.fixture
def before(lab: Lab, tmp_path: Path) -> tuple[dict[str, Any], Envoy]:
    """The bootstrap, and an Envoy that runs with it."""
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    config = static_bootstrap(*identity(tmp_path, "server"), blue, green)
    return config, lab.start_envoy(config)


def serve(lab: Lab, resources: Path) -> ControlPlane:
    server = lab.control_plane()
    shutil.copytree(resources, server.config, dirs_exist_ok=True)
    server.start()
    return server


def start(lab: Lab, folder: Path, source: Path) -> Envoy:
    """Serve what was imported, import again for the port that it got, and start an Envoy with the bootstrap."""
    server = serve(lab, folder / "resources")
    again = folder.with_name(f"{folder.name}-again")
    done = run("import", source, "--out", again, "--server", server.address)
    assert done.exit_code == 0, done.stderr
    assert (again / "resources/listeners.yaml").read_text() == (folder / "resources/listeners.yaml").read_text()
    return lab.start_envoy(yaml.safe_load((again / "bootstrap.yaml").read_text()))


GOOD = {"web/": "blue", "web/green": "green", "other/": "green", "raw/": "green", "secure": "blue"}


def test_an_imported_bootstrap_and_its_config_dump_answer_as_before(
    lab: Lab, tmp_path: Path, before: tuple[dict[str, Any], Envoy]
):
    config, envoy = before
    becomes(lambda: answers(envoy), GOOD)
    source, dump = tmp_path / "envoy.yaml", tmp_path / "dump.json"
    source.write_text(yaml.safe_dump(config))
    dump.write_text(envoy.admin("/config_dump?include_eds"))
    envoy.close()

    # the bootstrap
    folder = tmp_path / "imported"
    done = run("import", source, "--out", folder)
    assert done.exit_code == 0, done.stderr
    assert run("check", folder / "resources").exit_code == 0
    served = start(lab, folder, source)
    becomes(lambda: answers(served), GOOD)
    assert {*served.clusters()} == {"blue", "green"}  # by CDS
    assert served.stat("cluster.statsd.membership_total") == 1  # static, as the bootstrap names it
    assert served.stats("update_rejected") == dict.fromkeys(served.stats("update_rejected"), 0)
    again = tmp_path / "dynamic.json"
    again.write_text(served.admin("/config_dump?include_eds"))
    served.close()

    # the dump of the Envoy that had it in its bootstrap, and that of the one that fetched it
    for number, each in enumerate((dump, again)):
        folder = tmp_path / f"from-dump-{number}"
        done = run("import", each, "--out", folder)
        assert done.exit_code == 0, done.stderr
        assert "a dump has no secrets" in done.stderr
        assert not (folder / "resources/secrets.yaml").exists()
        shutil.copy(tmp_path / "imported/resources/secrets.yaml", folder / "resources")  # the real one
        checked = run("check", folder / "resources")
        assert checked.exit_code == 0, checked.stderr
        fetched = start(lab, folder, each)
        becomes(lambda envoy=fetched: answers(envoy), GOOD)
        fetched.close()
    assert json.loads(dump.read_text())["configs"][0]["bootstrap"]["static_resources"]["secrets"]
