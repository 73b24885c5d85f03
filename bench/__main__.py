"""python -m bench PART: engine, daemon, client, relay, vhosts, peers, or what ALONE lists.

Without PART, the first six.

`peers` and all that come after it take options, see --help; `start` the sources of another version, to compare with,
and `--instructions` before them to count these in place of seconds.
"""

from __future__ import annotations

import sys

from bench import (
    chaos,
    client,
    cycles,
    daemon,
    dashboard,
    engine,
    fleet,
    operate,
    peers,
    policy,
    relay,
    soak,
    stalls,
    start,
    vhosts,
)

PARTS = {
    "engine": engine.run,
    "daemon": daemon.run,
    "client": client.run,
    "relay": relay.run,
    "vhosts": vhosts.run,
    "peers": peers.run,
}


# Only if asked for, with options of their own: they take minutes, or tell more beside another version.
ALONE = {
    "soak": soak.run,
    "cycles": cycles.run,
    "start": start.run,
    "chaos": chaos.run,
    "stalls": stalls.run,
    "fleet": fleet.run,
    "policy": policy.run,
    "operate": operate.run,
    "dashboard": dashboard.run,
}


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    if chosen[0] in ALONE:
        ALONE[chosen[0]](chosen[1:])
        return
    if chosen[0] == "peers" and chosen[1:]:
        peers.run(chosen[1:])
        return
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join([*PARTS, *ALONE])}")
    for part in chosen:
        PARTS[part]()


main()
