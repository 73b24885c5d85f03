"""Logs what happens to the configuration: what a revision changed, what was refused or held back, and the end."""

from __future__ import annotations

import logging

from ..core.model.facts import (
    ChangeHeldBack,
    ChangeLetThrough,
    ConfigLoaded,
    Drained,
    PolicyRefused,
    PolicyTaken,
    Published,
    Refused,
)
from ..core.model.history import Revision
from .lines import NAMED, listed, say, say_in_full, short, word_of

ConfigFact = (
    Published | ConfigLoaded | Drained | Refused | ChangeHeldBack | ChangeLetThrough | PolicyTaken | PolicyRefused
)


def write_change(fact: ConfigFact) -> None:
    """Log one fact about the configuration."""
    match fact:
        case Published():
            _published(fact)
        case ConfigLoaded(files, resources):
            text = "configuration loaded: %(resources)d resources in %(files)d files"
            say(logging.INFO, text, resources=resources, files=files)
        case Drained():
            _drained(fact)
        case PolicyTaken() | PolicyRefused():
            _policy(fact)
        case _:
            _refused(fact)


def _published(fact: Published) -> None:
    """Log what a revision changed. Of a cache that only learned of absences there is nothing to tell."""
    revision = fact.record
    if revision is None or not revision.total:
        return
    say(
        logging.INFO,
        "revision %(revision)d by %(by)s: %(summary)s",
        revision=revision.number,
        by=revision.by,
        summary=summary(revision),
        total=revision.total,
        **{kind: names[:NAMED] for kind, names in _by_kind(revision).items()},
    )


def summary(revision: Revision) -> str:
    """Say in a line what a revision changed: `added cds/a, cds/b and 3 more, removed rds/c`."""
    parts = [f"{kind} {listed(names, NAMED)}" for kind, names in _by_kind(revision).items()]
    if revision.more:
        parts.append(f"{revision.more:,} not listed" if parts else f"{revision.more:,} resources")
    return ", ".join(parts)


def _by_kind(revision: Revision) -> dict[str, list[str]]:
    """Return the names of the resources that were added, changed and removed."""
    found: dict[str, list[str]] = {}
    for change in revision.changes:
        found.setdefault(change.change, []).append(f"{word_of(change.type_url)}/{short(change.name)}")
    return found


def _drained(fact: Drained) -> None:
    if fact.event == "started":
        say(logging.INFO, "shutting down: %(streams)d streams are open", streams=fact.streams)
    else:
        say(logging.INFO, "all streams have ended, after %(seconds).1f s", seconds=round(fact.seconds, 3))


def _refused(fact: Refused | ChangeHeldBack | ChangeLetThrough) -> None:
    """Log why a configuration was refused or held back. Its texts are not cut, as they are the operator's own."""
    match fact:
        case Refused((), known):
            text = "configuration refused again for problems logged before (/api/config lists them): %(known)d"
            say_in_full(logging.WARNING, text, known=known)
        case Refused(problems, known):
            more = "; and %(known)d that were logged before" if known else ""
            text = f"configuration refused, the last good one stays: %(problems)s{more}"
            say_in_full(logging.ERROR, text, problems="; ".join(problems), known=known)
        case ChangeHeldBack(change, remedy):
            text = "configuration held back (%(id)s), the last good one stays: %(why)s; to let it through: %(remedy)s"
            say_in_full(logging.WARNING, text, id=change.id, why="; ".join(change.reasons), remedy=remedy)
        case ChangeLetThrough(change):
            text = "configuration that was held back (%(id)s) is confirmed, %(removed)s removed: %(why)s"
            say_in_full(logging.WARNING, text, id=change.id, removed=change.summary, why="; ".join(change.reasons))


def _policy(fact: PolicyTaken | PolicyRefused) -> None:
    """Log that another policy is in force, or why it is not. Its texts are the operator's own."""
    match fact:
        case PolicyTaken(rules, streams):
            text = "another policy is in force, of %(rules)d rules: %(n)d open streams may have something else now"
            say(logging.INFO, text, rules=rules, n=streams)
        case PolicyRefused(problems):
            text = "changed policy refused, the one in force stays: %(problems)s"
            say_in_full(logging.ERROR, text, problems="; ".join(problems))
