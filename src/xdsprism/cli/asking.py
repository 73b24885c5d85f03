"""What `get` and `watch` share: their options, the client that these make, and how troubles are told."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from ..core.model.type_versions import as_v3
from ..core.model.types import TYPES, VIRTUAL_HOST, TypeUrl, resolve_type
from ..core.model.xdstp import authority_of, canonical
from ..errors import UsageError, WatchError
from .options import ENVIRONMENT, Address, params_option
from .variables import choose_typed

if TYPE_CHECKING:
    from ..client.bootstrap import Bootstrap
    from ..client.client import Client
    from ..core.model.facts import Lost

NODE = {"id": "xdsprism"}  # where no bootstrap says otherwise
LASTING = 1.0  # seconds: a stream that was open for longer was a success, although there was nothing to say

_LABELS = {spec.url: spec.label for spec in TYPES}


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask for, and whom."""

    type_url: TypeUrl
    names: tuple[str, ...]
    params: dict[str, str] | None  # None: those of the bootstrap, if it has any
    server: str | None
    bootstrap: str | None
    delta: bool | None  # None: where the server has it (PRX-33)
    transport: Literal["v2", "v3"] | None

    def client(self) -> Client:
        """What a server removes is shown as removed, so nothing is kept that it does not have any more."""
        from ..client.client import Client

        bootstrap = self._bootstrap()
        if self.params and not self._sends_params(bootstrap):
            raise UsageError("--param needs v3, and dynamic parameters switched on: nothing else has a place for it")
        return Client(bootstrap, delta=self.delta, transport=self.transport or "auto", fail_on_data_errors=True)

    def _bootstrap(self) -> Bootstrap:
        from ..client.bootstrap import Bootstrap

        if self.server is not None:
            authorities = {authority_of(name) for name in self.names} - {None}  # whose they are, it is this one to ask
            return Bootstrap.for_server(self.server, node=NODE, authorities=[*filter(None, authorities)])
        return Bootstrap.load(self.bootstrap)

    def _sends_params(self, bootstrap: Bootstrap) -> bool:
        servers = [*bootstrap.servers, *[each for one in bootstrap.authorities.values() for each in one.servers]]
        v3 = any(server.v3 for server in servers) if self.transport is None else self.transport == "v3"
        return v3 and bootstrap.dynamic_parameters


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments and options of a command that asks a server; it is given the question that they make."""

    @wraps(command)
    def ask(
        type_word: str,
        names: tuple[str, ...],
        server: str | None,
        bootstrap: str | None,
        params: dict[str, str],
        *,
        delta: bool | None,
        transport: Literal["v2", "v3"] | None,
        **rest: Any,
    ) -> None:
        server, bootstrap = typed_first(server, bootstrap)
        _check_whom(server, bootstrap)
        type_url = resolve_type(type_word)
        if as_v3(type_url) == VIRTUAL_HOST and delta is False:  # VHD-1
            raise UsageError("virtual hosts are served incrementally only: leave out --sotw")
        once = tuple(dict.fromkeys(map(canonical, names)))
        command(Question(type_url, once, params or None, server, bootstrap, delta, transport), **rest)

    made: Callable[..., None] = ask
    for decorate in (
        click.option(
            "-o", "--output", type=click.Choice(["yaml", "json", "name", "wide"]), default="yaml", show_default=True
        ),
        click.option(
            "--transport",
            type=click.Choice(["v2", "v3"]),
            help="The version of xDS.  [default: v3, or as the bootstrap's server_features say]",
        ),
        click.option(
            "--delta/--sotw",
            default=None,
            help="Incremental, or state of the world.  [default: delta, or SotW where the server has no delta]",
        ),
        params_option,
        click.option(
            "--bootstrap",
            type=click.Path(exists=True, dir_okay=False),
            help="A gRPC bootstrap that says whom to ask, and as whom.  "
            f"[default: ${ENVIRONMENT[0]}, or the text in ${ENVIRONMENT[1]}]",
        ),
        click.option("--server", type=Address(), help="The xDS server to ask, in plain text."),
        click.argument("names", metavar="[NAME]...", nargs=-1),
        click.argument("type_word", metavar="TYPE"),
    ):
        made = decorate(made)
    return made


def typed_first(server: str | None, bootstrap: str | None) -> tuple[str | None, str | None]:
    """Both say whom to ask: one that is typed counts for more than the other, if that is from a variable."""
    by_server, by_bootstrap = choose_typed("server", "bootstrap")
    return server if by_server else None, bootstrap if by_bootstrap else None


def _check_whom(server: str | None, bootstrap: str | None) -> None:
    if server is not None and bootstrap is not None:
        raise UsageError("--server and --bootstrap both say whom to ask: give one of them")
    if server is None and bootstrap is None and not any(os.environ.get(name) for name in ENVIRONMENT):
        raise UsageError(f"whom to ask? Give --server or --bootstrap, or set {' or '.join(ENVIRONMENT)}")


class Happenings:
    """Reads what happens on the streams: so as to tell a server that is gone from one that has no such resource."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.outages: dict[str, str] = {}  # the servers that could not be asked, by what was said of it
        self.nameless: list[str] = []  # invalid resources that no watcher hears of
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
        """There is no stream, and no answer."""

    def refused(self, reasons: list[str]) -> None:
        self.nameless += reasons

    def is_outage(self, error: WatchError | None) -> bool:
        return str(error) in self.outages

    def is_first(self, error: WatchError) -> bool:
        """The server in question was never there for us."""
        return not self.is_known(self.outages[str(error)])

    def is_known(self, server: str) -> bool:
        return server in self._known


def title(type_url: str, name: str) -> str:
    """`cds/shop`, as kubectl writes `pod/web`."""
    return f"{_LABELS.get(type_url, type_url.rpartition('/')[2])}/{name}"


def complaint(type_url: str, name: str, error: WatchError) -> str:
    """Why there is no such resource, or none to use."""
    if error.status != "NOT_FOUND":
        return f"{title(type_url, name)}: {error.message}"
    known = error.message.startswith(f"{name!r} does not exist")  # nothing that the line does not say anyway
    return f"{title(type_url, name)} does not exist{'' if known else f': {error.message}'}"
