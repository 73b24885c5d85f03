"""Says what each path of the admin port answers, and by which parameters.

`/api` shows it, and the reference in the documentation is made from it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

# What each parameter of a query means, wherever it occurs.
PARAMETERS: Final = {
    "bodies": "1: with the contents, secrets redacted; 0, the default, without",
    "brief": "1: without what the clients asked for",
    "from": "the older revision",
    "id": "the id of the change that is held back, as /api/config has it; without it, whichever is held back now",
    "limit": "how many rows at most; by default 1,000, and never more than 10,000",
    "name": "the name of a resource, or an alias",
    "node": "the id of a node; where clients or events are listed a glob may be used, such as edge-*",
    "offset": "how many rows to leave out at the start",
    "param": "a parameter of the client, KEY=VALUE with the = written as %3D; may be given several times",
    "search": "a text that names contain",
    "since": "a revision: only what came after it",
    "state": "SYNCED, STALE, NOT_SENT or NACKED",
    "stream": "the number of a stream, as /api/clients has it",
    "to": "the newer revision; the current one if it is left out",
    "type": "a resource type: cds, rds and the like, a message's full name, or a type URL",
}


class Described(NamedTuple):
    """A path of the admin port."""

    path: str
    text: str
    parameters: tuple[str, ...] = ()
    method: str = "GET"
    only: str = ""  # the daemon that has it; empty: both


PATHS: Final = (
    Described("/", "The dashboard, for a browser; its files are below /static/."),
    Described("/healthz", "Whether the process is alive: always 200."),
    Described("/readyz", "Whether clients should connect: 200, or 503 with the reason."),
    Described("/metrics", "The metrics, for Prometheus."),
    Described("/api", "This list."),
    Described("/api/overview", "The state of everything in a few numbers; computed once in two seconds at most."),
    Described(
        "/api/resources",
        "The resources, each with its variants: constraints, version, origin. A relay shows what is cached, how "
        "old it is and from which server.",
        ("type", "name", "search", "offset", "limit", "bodies"),
    ),
    Described(
        "/api/resources",
        "Drops a resource from the cache, and asks for it again. Clients keep what they have until the answer comes.",
        ("type", "name"),
        "DELETE",
        "relay",
    ),
    Described(
        "/api/explain",
        "Which variant a client gets, and why not the others.",
        ("type", "name", "param", "node"),
    ),
    Described(
        "/api/matrix",
        "Which variant answers which combination of the values that the constraints of a resource mention.",
        ("type", "name", "param"),
    ),
    Described(
        "/api/holders",
        "Which clients have which variant of a resource.",
        ("type", "name", "offset", "limit"),
    ),
    Described(
        "/api/clients",
        "The clients that are connected, the state of each of their types, and what they asked for.",
        ("node", "type", "state", "brief", "offset", "limit"),
    ),
    Described(
        "/api/client",
        "One client, resource by resource: what it has, what is current, and what it rejected. Needs node or stream.",
        ("node", "stream", "type", "state", "bodies", "offset", "limit"),
    ),
    Described(
        "/api/loads",
        "The loads that clients reported (LRS).",
        ("offset", "limit"),
    ),
    Described(
        "/api/history",
        "The last 1,000 revisions: when, who made each, and what it changed.",
        ("since", "limit"),
    ),
    Described(
        "/api/diff",
        "The difference between two revisions, by resource and variant.",
        ("from", "to", "type", "name", "limit"),
    ),
    Described(
        "/api/events",
        "What happens, as it happens, as server-sent events. A reader that comes back with Last-Event-ID, or since, "
        "gets the revisions that it missed.",
        ("since", "type", "node"),
    ),
    Described(
        "/api/config", "The last load of the files, its errors and warnings, and what is held back.", (), "GET", "serve"
    ),
    Described("/api/config/confirm", "Lets through the change that is held back.", ("id",), "POST", "serve"),
    Described(
        "/api/upstreams",
        "The upstream servers: connected or not, since when, and how they are asked.",
        (),
        "GET",
        "relay",
    ),
)


HEAD: Final = """# Admin API

This is what the admin port of `serve` and `relay` answers (`--admin`, by default 127.0.0.1:18001). Everything under
`/api` is JSON, but for `/api/events`. An unknown parameter is an error. No answer has a key, a password or a token.
[operate.md](operate.md) says what to ask when, and [tls.md](tls.md#the-admin-port) who gets in.
"""


def page() -> str:
    """Return the reference as a page of the documentation."""
    parts = [HEAD, "| path | answers | parameters |", "|---|---|---|"]
    for each in PATHS:
        method = f"{each.method} " if each.method != "GET" else ""
        only = f" Only `{each.only}` has it." if each.only else ""
        names = ", ".join(f"`{name}`" for name in each.parameters)
        parts.append(f"| `{method}{each.path}` | {each.text}{only} | {names} |")
    parts += ["\n## Parameters\n", "| parameter | meaning |", "|---|---|"]
    parts += [f"| `{name}` | {text} |" for name, text in PARAMETERS.items()]
    return "\n".join(parts) + "\n"
