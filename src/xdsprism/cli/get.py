"""`xdsprism get`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from ..core.model.events import WILDCARD
from ..core.model.xdstp import is_glob
from . import output as out
from .asking import Question, StreamOutcomes, asking, describe_error, note_unmentioned, title
from .failures import error_row

if TYPE_CHECKING:
    from ..client.client import Client
    from ..client.updates import Update
    from ..core.model.types import Variant
    from ..errors import WatchError


@click.command(short_help="Ask an xDS server for resources, and print them.")
@asking
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="Seconds to wait for all answers.",
)
def get(question: Question, *, output: str, timeout: float) -> None:
    """Ask a server for resources of TYPE, for all of them or for each NAME, and print them.

    TYPE is one of lds, rds, srds, vhds, cds, eds, leds, sds, rtds, ecds, a message's full name or a type URL. `serve`
    can read the YAML and JSON that this command prints. Exit status 1: a name does not exist, is invalid or was not
    answered in time, or the server can't be reached.

    Ask for a virtual host (vhds) by ROUTE_CONFIG/HOST: the virtual host that serves HOST is printed. Without a NAME,
    the base set is printed, which clients get without asking.

    \b
    Example:
      xdsprism get rds main --server 127.0.0.1:18000 --param env=prod
      xdsprism get cds --bootstrap bootstrap.json -o wide
      xdsprism get vhds main/shop.example.com --server 127.0.0.1:18000
      xdsprism get cds --server xds.example.com:443 --ca ca.pem --cert me.pem --key me.key --node-id web-1
    """  # noqa: D301
    import asyncio

    found = asyncio.run(_ask(question, timeout))
    reasons = [*_reasons(question, found, timeout)]
    outage = [str(found.outage)] if found.outage is not None else []
    _print(question, list(found.held.values()), output, [*reasons, *outage])
    for reason in reasons:
        out.note(reason)
    if not (found.held or reasons or outage):
        out.note("no resources")
    if found.is_answered and question.params:
        names = ", ".join(title(question.type_url, name) for name in question.names)
        note_unmentioned(names or "these resources", question.params, found.mentioned)
    if found.outage is not None:
        raise found.outage
    if found.errors or found.unanswered or found.nameless:
        click.get_current_context().exit(1)


@dataclass(slots=True)
class Answers:
    """The answers to a question."""

    unanswered: dict[str, None]
    held: dict[str, Variant] = field(
        default_factory=dict
    )  # by their own names: several aliases may lead to one resource
    errors: dict[str, WatchError] = field(default_factory=dict)
    nameless: list[str] = field(default_factory=list)  # invalid resources without a readable name
    outage: WatchError | None = None  # a server can't be reached
    mentioned: set[str] = field(default_factory=set)  # the params that constraints mention, of absences too
    is_answered: bool = False  # by a variant, or by an absence that mentions params: there are variants

    def add(self, update: Update) -> None:
        from ..core.model.constraints import keys

        self.unanswered.pop(update.name, None)
        constraint = update.variant.constraint if update.variant is not None else update.absence
        if constraint is not None:
            mentioned = keys(constraint)
            self.is_answered |= update.variant is not None or bool(mentioned)
            self.mentioned |= mentioned
        if update.resource is not None and update.variant is not None:
            self.held[update.variant.name] = update.variant
        elif update.error is not None:
            self.errors[update.name] = update.error


async def _ask(question: Question, seconds: float) -> Answers:
    import asyncio

    outcomes = StreamOutcomes(asyncio.get_running_loop().time)
    asked = question.names or (WILDCARD,)
    found = Answers(dict.fromkeys(asked))
    named = [name for name in asked if not _is_collection(name)]
    async with question.client() as client:
        client.readers[:] = [outcomes]
        lists = [_all(client, question, name, seconds, found, outcomes) for name in asked if _is_collection(name)]
        await asyncio.gather(*lists, *([_by_name(client, question, named, seconds, found, outcomes)] if named else ()))
    found.nameless = outcomes.nameless
    return found


def _is_collection(name: str) -> bool:
    return name == WILDCARD or is_glob(name)


async def _by_name(
    client: Client, question: Question, names: list[str], seconds: float, found: Answers, outcomes: StreamOutcomes
) -> None:
    import asyncio
    from contextlib import suppress

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), client.watch(question.type_url, names, params=question.params) as updates:
            async for update in updates:
                if outcomes.is_outage(update.error):
                    found.unanswered.pop(update.name, None)
                    found.outage = update.error
                else:
                    found.add(update)
                if found.unanswered.keys().isdisjoint(names):
                    return


async def _all(
    client: Client, question: Question, name: str, seconds: float, found: Answers, outcomes: StreamOutcomes
) -> None:
    from ..errors import WatchError

    try:
        for update in await client.list(question.type_url, name, params=question.params, timeout=seconds):
            found.add(update)
    except WatchError as error:
        if error.status == "DEADLINE_EXCEEDED" and not outcomes.is_outage(error):
            return
        found.outage = error
    del found.unanswered[name]


def _reasons(question: Question, found: Answers, seconds: float) -> Iterator[str]:
    """Say why something is missing."""
    for name, error in found.errors.items():
        yield describe_error(question.type_url, name, error)
    yield from found.nameless
    for name in found.unanswered:
        what = title(question.type_url, name) if question.names else "no resources"
        hint = (
            "" if question.delta is not False or _is_collection(name) else " (it may not exist: --delta tells at once)"
        )
        yield f"{what}: no answer within {seconds:g} s{hint}"


def _row(resource: Variant) -> list[str]:
    from .documents import columns

    return [title(resource.type_url, resource.name), *columns(resource), str(len(resource.body))]


def _print(question: Question, resources: list[Variant], output: str, reasons: Sequence[str]) -> None:
    """Print the resources; in JSON also why something is missing."""
    from .documents import Documents, aliases

    document = Documents(secrets=question.secrets)

    if output == "name":
        for resource in resources:
            out.say(title(resource.type_url, resource.name))
    elif output == "wide":
        heading, rows = ["RESOURCE", "VARIANT", "VERSION", "BYTES"], [_row(resource) for resource in resources]
        if any(resource.aliases for resource in resources):
            heading.append("ALIASES")
            rows = [[*row, aliases(resource)] for row, resource in zip(rows, resources, strict=True)]
        out.table(heading, rows)
    elif output == "yaml":
        out.as_yaml(*[document(resource) for resource in resources])
    elif len(question.names) == 1 and not _is_collection(question.names[0]) and resources and not reasons:
        out.as_json(document(resources[0]))
    else:
        listed = {"resources": [document(resource) for resource in resources]}
        out.as_json(listed | ({"errors": [*map(error_row, reasons)]} if reasons else {}))
    document.tell()
