"""Defines what `get` and `watch` share: options, the client that these describe, and the texts of errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from ..core.model.type_names import resolve_type
from ..core.model.type_versions import as_v3
from ..core.model.types import TYPES, VIRTUAL_HOST, TypeUrl
from ..core.model.xdstp import authority_of, canonical
from ..errors import UsageError, WatchError, XdsError
from ..printable import printable
from ..similar import did_you_mean
from . import output as out
from .completion import complete_asked_name, complete_type
from .options import ENVIRONMENT, Address, params_option
from .server_access import NODE, ServerAccess, access_options
from .variables import choose_typed

if TYPE_CHECKING:
    from ..client.bootstrap import Bootstrap
    from ..client.client import Client
    from ..core.model.facts import Lost

LASTING = 1.0  # seconds: a stream that was open for longer counts as a success, even if nothing came

_KEYS = 8  # that a note lists

_LABELS = {spec.url: spec.label for spec in TYPES}


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask for, and which server."""

    type_url: TypeUrl
    names: tuple[str, ...]
    params: dict[str, str] | None  # None: those of the bootstrap
    server: str | None
    bootstrap: str | None
    delta: bool | None  # None: if the server has it (PRX-33)
    transport: Literal["v2", "v3"] | None
    secrets: bool = False  # whether to print them
    access: ServerAccess = field(default_factory=ServerAccess)

    def client(self) -> Client:
        """Make a client that drops what the server removes, so that the command can show the removal."""
        from ..client.client import Client

        bootstrap = self._bootstrap()
        if self.params and not self._sends_params(bootstrap):
            raise UsageError("--param needs v3 with dynamic parameters switched on: other requests can't carry it")
        return Client(bootstrap, delta=self.delta, transport=self.transport or "auto", fail_on_data_errors=True)

    def _bootstrap(self) -> Bootstrap:
        from ..client.bootstrap import Bootstrap

        if self.server is not None:
            authorities = {authority_of(name) for name in self.names} - {None}  # --server answers for every authority
            return Bootstrap.for_server(
                self.server,
                node={"id": self.access.node_id or NODE},
                authorities=[*filter(None, authorities)],
                channel_creds=self.access.channel_creds(),
            )
        found = Bootstrap.load(self.bootstrap)
        return found if self.access.node_id is None else replace(found, node=_renamed(found.node, self.access.node_id))

    def _sends_params(self, bootstrap: Bootstrap) -> bool:
        servers = [*bootstrap.servers, *[each for one in bootstrap.authorities.values() for each in one.servers]]
        v3 = any(server.v3 for server in servers) if self.transport is None else self.transport == "v3"
        return v3 and bootstrap.dynamic_parameters


def _renamed(node: bytes, node_id: str) -> bytes:
    """Return an encoded node with another id."""
    from envoy.config.core.v3.base_pb2 import Node

    changed = Node.FromString(node)
    changed.id = node_id
    return bytes(changed.SerializeToString())


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options of a command that asks a server, and pass them to it as a Question."""

    @wraps(command)
    def ask(  # noqa: PLR0913 # each is an option
        type_word: str,
        names: tuple[str, ...],
        server: str | None,
        bootstrap: str | None,
        params: dict[str, str],
        *,
        delta: bool | None,
        transport: Literal["v2", "v3"] | None,
        show_secrets: bool,
        access: ServerAccess,
        **rest: Any,
    ) -> None:
        server, bootstrap = typed_first(server, bootstrap)
        _check_server(server, bootstrap)
        access.check(has_server=server is not None)
        type_url = resolve_type(type_word)
        if as_v3(type_url) == VIRTUAL_HOST and delta is False:  # VHD-1
            raise UsageError("virtual hosts need delta: leave out --sotw")
        once = tuple(dict.fromkeys(map(canonical, names)))
        given = params or None
        command(Question(type_url, once, given, server, bootstrap, delta, transport, show_secrets, access), **rest)

    made: Callable[..., None] = ask
    for decorate in (
        click.option(
            "-o",
            "--output",
            type=click.Choice(["yaml", "json", "name", "wide"]),
            default="yaml",
            show_default=True,
            help="The output format.",
        ),
        click.option(
            "--show-secrets",
            is_flag=True,
            help="Print keys, passwords and tokens. Without it they are [redacted].",
        ),
        click.option(
            "--transport",
            type=click.Choice(["v2", "v3"]),
            help="The xDS version to speak.  [default: v3, or what the bootstrap's server_features say]",
        ),
        click.option(
            "--delta/--sotw",
            default=None,
            help="The incremental or the state-of-the-world protocol.  [default: delta, or SotW if the server has no "
            "delta]",
        ),
        params_option,
        access_options,
        click.option(
            "--bootstrap",
            type=click.Path(exists=True, dir_okay=False),
            help="A gRPC bootstrap file: the servers to ask, and the node to ask as.  "
            f"[default: ${ENVIRONMENT[0]}, or the text in ${ENVIRONMENT[1]}]",
        ),
        click.option(
            "--server", type=Address(), help="The xDS server to ask, in plain text unless --tls or --ca is given."
        ),
        click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_asked_name),
        click.argument("type_word", metavar="TYPE", shell_complete=complete_type),
    ):
        made = decorate(made)
    return made


def typed_first(server: str | None, bootstrap: str | None) -> tuple[str | None, str | None]:
    """--server and --bootstrap exclude each other: one on the command line wins over one from a variable."""
    by_server, by_bootstrap = choose_typed("server", "bootstrap")
    return server if by_server else None, bootstrap if by_bootstrap else None


def _check_server(server: str | None, bootstrap: str | None) -> None:
    if server is not None and bootstrap is not None:
        raise UsageError("--server and --bootstrap exclude each other: give one of them")
    if server is None and bootstrap is None and not any(os.environ.get(name) for name in ENVIRONMENT):
        raise UsageError(f"no server to ask: give --server or --bootstrap, or set {' or '.join(ENVIRONMENT)}")


class StreamOutcomes:
    """Follows the streams by facts, to tell a server that can't be reached from one that lacks the resource."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.outages: dict[str, str] = {}  # error text -> the server that could not be asked
        self.nameless: list[str] = []  # invalid resources without a readable name, which no watcher is told of
        self._clock = clock
        self._since: dict[str, float] = {}
        self._known: set[str] = set()

    def __call__(self, facts: Sequence[object]) -> None:
        from ..core.model.facts import Lost, Reached, Rejected

        for fact in facts:
            if isinstance(fact, Reached):
                self._since[fact.server] = self._clock()
                self.reached(fact.server)
            elif isinstance(fact, Lost):
                self._note_end(fact)
            elif isinstance(fact, Rejected) and fact.nameless:
                self.refused([f"{fact.server} sent an invalid resource: {reason}" for reason in fact.nameless])

    def _note_end(self, fact: Lost) -> None:
        lasted = self._clock() - self._since.pop(fact.server, self._clock())
        if not fact.failed or lasted > LASTING:
            self._known.add(fact.server)
        if fact.failed:
            self.outages[fact.error] = fact.server
            self.lost(fact.server, fact.error)

    def reached(self, server: str) -> None:
        """A stream is open."""

    def lost(self, server: str, error: str) -> None:
        """A stream failed, or ended before any answer."""

    def refused(self, reasons: list[str]) -> None:
        self.nameless += reasons

    def is_outage(self, error: WatchError | None) -> bool:
        return str(error) in self.outages

    def is_first(self, error: WatchError) -> bool:
        """Whether the server of this error was never reached."""
        return not self.is_known(self.outages[str(error)])

    def is_known(self, server: str) -> bool:
        return server in self._known


def missing(type_url: str, name: str, near: Sequence[str], whom: str = "") -> XdsError:
    """Return the error for a resource that does not exist; `near`: names that are nearly this one."""
    hint = f"; did you mean {near[0]}?" if near else ""
    return XdsError(printable(f"{title(type_url, name)} does not exist{whom}{hint}"))


def note_unmentioned(what: str, params: Iterable[str], mentioned: Collection[str]) -> None:
    """Say on stderr which params no variant mentions: often a key is misspelled."""
    for key in params:
        if key not in mentioned:
            names = sorted(mentioned)
            some = ", ".join(names[:_KEYS]) + (", ..." if len(names) > _KEYS else "")
            known = f"the params that variants mention are {some}" if names else "variants mention no params"
            out.note(printable(f"no variant of {what} mentions {key}; {known}{did_you_mean(key, names)}"))


def title(type_url: str, name: str) -> str:
    """`cds/shop`, as kubectl writes `pod/web`."""
    return f"{_LABELS.get(type_url, type_url.rpartition('/')[2])}/{name}"


def describe_error(type_url: str, name: str, error: WatchError) -> str:
    """Say why a resource does not exist or can't be used."""
    if error.status != "NOT_FOUND":
        return f"{title(type_url, name)}: {error.message}"
    known = error.message.startswith(f"{name!r} does not exist")  # the line says that already
    return f"{title(type_url, name)} does not exist{'' if known else f': {error.message}'}"
