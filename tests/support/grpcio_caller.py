"""A program: grpcio's own xDS client. Usage: grpcio_caller.py TARGET METHOD...

Calls each method in turn, as /echo.Echo/METHOD with raw bytes, and prints one line of JSON per call:
{"method", "reply", "error"}. The control plane and the node's metadata come from GRPC_XDS_BOOTSTRAP_CONFIG, and
the deadline of each call in seconds from CALLER_DEADLINE.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time

import grpc

_PAUSE = 0.05
_DEADLINE = float(os.environ.get("CALLER_DEADLINE", "2.0"))


def call(channel: grpc.Channel, method: str) -> dict[str, str | None]:
    try:
        reply = channel.unary_unary(f"/echo.Echo/{method}")(b"hello", timeout=_DEADLINE)
    except grpc.RpcError as error:
        return {"method": method, "reply": None, "error": f"{error.code().name}: {error.details()}"}
    return {"method": method, "reply": reply.decode(), "error": None}


def main(target: str, *methods: str) -> None:
    with grpc.insecure_channel(target) as channel:
        for method in itertools.cycle(methods):
            print(json.dumps(call(channel, method)), flush=True)
            time.sleep(_PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
