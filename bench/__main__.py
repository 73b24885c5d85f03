"""python -m bench [engine|daemon|client|relay|vhosts]: everything, or one part."""

from __future__ import annotations

import sys

from bench import client, daemon, engine, relay, vhosts

PARTS = {
    "engine": engine.run,
    "daemon": daemon.run,
    "client": client.run,
    "relay": relay.run,
    "vhosts": vhosts.run,
}


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for part in chosen:
        PARTS[part]()


main()
