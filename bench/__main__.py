"""python -m bench [engine|daemon|client|relay|vhosts|peers|soak|start]: everything but the last two, or one part.

`peers` and `soak` take options, see --help; `start` the sources of another version, to compare with.
"""

from __future__ import annotations

import sys

from bench import client, daemon, engine, peers, relay, soak, start, vhosts

PARTS = {
    "engine": engine.run,
    "daemon": daemon.run,
    "client": client.run,
    "relay": relay.run,
    "vhosts": vhosts.run,
    "peers": peers.run,
}


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    if chosen[0] == "soak":  # only if asked for: it takes ten minutes
        soak.run(chosen[1:])
        return
    if chosen[0] == "start":  # tells more beside another version
        start.run(chosen[1:])
        return
    if chosen[0] == "peers" and chosen[1:]:
        peers.run(chosen[1:])
        return
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for part in chosen:
        PARTS[part]()


main()
