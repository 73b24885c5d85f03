"""Find the versions that a client names in the first request of a stream: `initial_resource_versions` (CLI-6).

A version tells the server that every subscription to the name has that resource, so the server will not send it. The
client therefore names an empty version where any subscription still waits, or where the version came from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model.constraints import matches
from ..model.steps import EVERY, Steps, pieces
from ..model.types import VIRTUAL_HOST, Variant
from .entry import Entry, State
from .upstream import Held, Upstream
from .watched_type import WatchedType

SOME = 4 * EVERY  # entries to collect held versions of in one step


def find_held(topic: WatchedType, upstream: Upstream) -> Steps[Held]:
    """Return, in steps, the versions of what this server sent and is current (CLI-6, NAK-24).

    Only names of which one variant is held (DYN-40). A resource from another server, or from disk, has no version
    that means anything to this server. It is named with an empty version, so that the server sends it or says that
    it is gone: about a name that it never heard of, it would say nothing.
    """
    own: dict[str, Variant] = {}
    unsure: set[str] = set()  # strings for which the server has to say again which resource they stand for
    foreign: dict[str, str] = {}
    several: set[str] = set()
    complete = True
    for number, entry in enumerate([*topic]):
        if number % SOME == SOME - 1:
            yield
        if upstream not in entry.authority.active:
            continue
        if upstream.keeps(entry):  # PRX-35: the request lacks it, so its version must not be named
            complete = False
            continue
        variant = entry.variant
        if _is_unsure(entry):
            unsure.add(entry.name)
        if variant is None or entry.sent_by is not upstream:
            # Nothing from this server: `complete` holds only if the server said that there is nothing, for exactly
            # these params.
            complete = complete and not entry.unknown and variant is None and not _is_absent_for_others(entry)
            if variant is not None and (entry.params is None or entry.member_of is not None):
                foreign[variant.name] = ""
        # A second variant of the name: one version can't stand for both (DYN-40).
        elif own.setdefault(variant.name, variant).version != variant.version:
            several.add(variant.name)
    versions = {name: variant.version for name, variant in own.items()}
    versions.update(dict.fromkeys(_possible_answers(own.values(), unsure), ""))
    named = {name: version for name, version in (foreign | versions).items() if name not in several}
    yield from _blank_lacked(topic, named, own, upstream)
    for name in several:  # otherwise the server would not report that such a member is gone (DLT-14)
        if any(name in each.members for each in topic.covering(name)):
            named[name] = ""
    return Held(named, complete)


def _blank_lacked(
    topic: WatchedType, named: dict[str, str], own: Mapping[str, Variant], upstream: Upstream
) -> Steps[None]:
    """Name an empty version of each resource that an entry still lacks: with another the server would not send it."""
    for names in pieces([*named], SOME):
        named.update((name, "") for name in names if _is_lacked(topic, name, upstream))
        named.update((name, "") for name in names if name in own and _is_missed(topic, own[name]))
        if len(names) == SOME:
            yield


def _is_lacked(topic: WatchedType, name: str, upstream: Upstream) -> bool:
    """Whether an entry for this name still has nothing: a version would say that every entry has it."""
    known = topic.answerable_by(name)
    return any(_lacks(entry, name) for entry in known if upstream in entry.authority.active)


def _is_missed(topic: WatchedType, variant: Variant) -> bool:
    """Whether a wildcard whose params the variant matches does not have it.

    The first response after a wildcard was subscribed counts as its answer, and may have been in flight before. If
    the stream ended then, the server has yet to answer the wildcard, and would skip a resource whose version the
    client names.
    """
    if topic.spec.on_demand:  # VHD-13: a wildcard has only the base set of virtual hosts
        return False
    lacking = [each.entry for each in topic.covering(variant.name) if variant.name not in each.members]
    return any(each.params is not None and matches(variant.constraint, each.params) for each in lacking)


def _is_absent_for_others(entry: Entry) -> bool:
    """Whether the entry knows that the resource does not exist for more params than its own.

    A server corrects that only on the stream on which it said so. On a new stream it has to say it again, which it
    would not do for a client that says it has everything (PRX-31).
    """
    return entry.variant is None and entry.params is not None and entry.absence is not None


def _is_unsure(entry: Entry) -> bool:
    """Whether a new stream has to answer the entry again: another virtual host may serve its host by now (VHD-12)."""
    return entry.unknown or (entry.type_url == VIRTUAL_HOST and not entry.holds(entry.name))


def _possible_answers(variants: Iterable[Variant], strings: set[str]) -> list[str]:
    """Return the held resources that one of these strings may stand for: no version of them is named.

    A server that knows that they are held would have nothing to answer, since it can't know under which strings.
    Aliases tell which strings a resource answers; but a virtual host may also answer by a domain such as
    `*.example.com`.
    """
    tables = {string.rpartition("/")[0] for string in strings}  # VHD-2: the route configurations
    return [
        variant.name
        for variant in variants
        if not strings.isdisjoint(variant.aliases)
        or (variant.type_url == VIRTUAL_HOST and variant.name.rpartition("/")[0] in tables)
    ]


def _lacks(entry: Entry, name: str) -> bool:
    """Whether the entry still waits for a resource of this name."""
    if entry.collection is not None:
        return entry.state is State.REQUESTED and name not in entry.collection.members
    return entry.unknown
