"""A real Envoy: where its binary is, how it is started, and what its admin port shows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from tests.support import web
from tests.support.programs import Program
from tests.support.waiting import eventually

_REPOSITORY = Path(__file__).parents[2]
# By default the waits between two tries grow to 30 s.
_RETRY = {"retry_back_off": {"base_interval": "0.1s", "max_interval": "0.5s"}}
_HTTP2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def binary() -> Path:
    """The Envoy to run. It lives in a venv of its own, since its package and xds-protos share files."""
    named = os.environ.get("XDSPRISM_ENVOY")
    venv = _REPOSITORY / ".venv-envoy"
    candidates = [Path(named)] if named else [venv / "bin/envoy", *venv.glob("lib/python*/site-packages/**/*bin/envoy")]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    where = named or venv
    message = (
        f"no Envoy at {where}. `make envoy` installs one into {venv}; "
        f"for one of your own set XDSPRISM_ENVOY to the path of the binary."
    )
    raise FileNotFoundError(message)


def bootstrap(mode: str, control_plane_port: int, node: dict[str, Any]) -> dict[str, Any]:
    """LDS and CDS over ADS, in one of the two modes: `delta` or `sotw`."""
    api_type = {"delta": "DELTA_GRPC", "sotw": "GRPC"}[mode]
    endpoint = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": control_plane_port}}}
    ads = {"ads": {}, "resource_api_version": "V3"}
    http2 = {"@type": f"type.googleapis.com/{_HTTP2}", "explicit_http_config": {"http2_protocol_options": {}}}
    return {
        "node": node,
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {
            "ads_config": {
                "api_type": api_type,
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "control_plane", "retry_policy": _RETRY}}],
            },
            "lds_config": ads,
            "cds_config": ads,
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "control_plane",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": {_HTTP2: http2},
                    "load_assignment": {
                        "cluster_name": "control_plane",
                        "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
                    },
                }
            ]
        },
    }


class Envoy:
    """One running Envoy."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        file, self._admin_file = folder / "envoy.yaml", folder / "admin.txt"
        file.write_text(yaml.safe_dump(config))
        argv: list[str | Path] = [binary(), "-c", file, "--admin-address-path", self._admin_file]
        argv += ["--disable-hot-restart", "--concurrency", "1", "--drain-time-s", "1", "--log-level", "warning"]
        self.program = Program("envoy", argv, folder / "envoy.log")
        self._admin = eventually(self._admin_address)

    def _admin_address(self) -> str:
        self.program.require_alive()
        return self._admin_file.read_text()

    def admin(self, path: str) -> str:
        self.program.require_alive()
        return web.get(*web.split(self._admin), path).body

    def stats(self, pattern: str) -> dict[str, int]:
        """Counters and gauges whose name matches, by name."""
        stats = json.loads(self.admin(f"/stats?format=json&filter={pattern}"))["stats"]
        return {stat["name"]: stat["value"] for stat in stats if "name" in stat}

    def stat(self, name: str) -> int:
        """One counter or gauge; 0 before Envoy has made it."""
        return self.stats(f"^{name}$").get(name, 0)

    def clusters(self, state: str = "dynamic_active_clusters") -> dict[str, dict[str, Any]]:
        """The clusters of the control plane, by name: active ones, or `dynamic_warming_clusters`."""
        dump = json.loads(self.admin(f"/config_dump?resource={state}"))
        return {entry["cluster"]["name"]: entry["cluster"] for entry in dump.get("configs", [])}

    def listeners(self) -> dict[str, int]:
        """The port of each listener that accepts connections, by name."""
        statuses = json.loads(self.admin("/listeners?format=json")).get("listener_statuses", [])
        return {each["name"]: each["local_address"]["socket_address"]["port_value"] for each in statuses}

    def get(self, path: str, listener: str = "web") -> str:
        """One request through a listener: the body of a good answer, else the status, else why there was none."""
        port = self.listeners().get(listener)
        if port is None:
            return "no listener"
        answer = web.get("127.0.0.1", port, path)
        return answer.body if answer.status == 200 else f"HTTP {answer.status}"

    def traffic(self, path: str = "/", listener: str = "web") -> web.Traffic:
        """Requests through a listener for as long as the block runs."""
        return web.Traffic("127.0.0.1", self.listeners()[listener], path)

    def close(self) -> None:
        self.program.kill()
