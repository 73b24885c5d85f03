"""Programs that use gRPC's own xDS client: each calls a target for ever and prints a line of JSON per call."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.programs import Program
from tests.support.waiting import eventually


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended: with the name of the backend that answered, or with an error."""

    method: str
    reply: str | None
    error: str | None


def bootstrap(
    control_plane_port: int, metadata: Mapping[str, str], features: Sequence[str] = ("xds_v3",)
) -> dict[str, Any]:
    """What gRPC reads from GRPC_XDS_BOOTSTRAP_CONFIG. `features`: those of the server, and so the version to speak."""
    server = {
        "server_uri": f"127.0.0.1:{control_plane_port}",
        "channel_creds": [{"type": "insecure"}],
        "server_features": list(features),
    }
    locality = {"region": "here"}  # grpc-js refuses a node without one
    node = {"id": "caller", "cluster": "lab", "locality": locality, "metadata": dict(metadata)}
    return {"xds_servers": [server], "node": node}


class Caller:
    """One running client program. The bootstrap is global to a process, so each has its own."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        methods: Sequence[str],
        folder: Path,
        config: dict[str, Any],
        target: str = "xds:///svc",
        **env: str,
    ) -> None:
        """`env`: further variables of its environment."""
        env["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(config)
        self.program = Program("caller", [*argv, target, *methods], folder / "caller.log", env=env, pipe=True)
        self._outcomes: list[Outcome] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.program.stdout:
            self._outcomes.append(Outcome(**json.loads(line)))

    def outcome(self, method: str) -> Outcome | None:
        """How the newest call of the method ended; None before the first."""
        self.program.require_alive()
        return next((each for each in reversed(self._outcomes) if each.method == method), None)

    def reaches(self, backend: str, method: str = "Say") -> None:
        """Wait until calls of the method are answered by the backend."""
        eventually(lambda: self.outcome(method), lambda seen: seen is not None and seen.reply == backend)

    def fails(self, method: str) -> None:
        """Wait until calls of the method fail since there is no usable cluster. Only the status has one name in all
        languages, and even that in two spellings."""
        eventually(
            lambda: self.outcome(method),
            lambda seen: seen is not None and seen.error is not None and "unavailable" in seen.error.lower(),
        )

    def replies(self, method: str = "Say") -> list[str | None]:
        """Who answered, call after call, since the start; None for a failed call."""
        return [each.reply for each in self._outcomes if each.method == method]

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """How every call ended since the start, in order."""
        return self._outcomes

    def close(self) -> None:
        self.program.kill()
        self._reader.join()
        self.program.stdout.close()
