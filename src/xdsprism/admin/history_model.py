"""Builds what the admin port shows of the revisions of the store. Nothing here awaits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from ..core.model.expr import show
from ..core.model.history import History, ResourceChange, Revision, VariantChange
from ..core.model.history_difference import Difference, VariantDifference
from ..core.model.store import Store
from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..core.model.types import SECRET, TYPES, TypeUrl
from ..yaml_text import difference as text_difference
from .bodies import redacted
from .read_model import LIMIT, Page, Row, time_of_day

SHOWN = 100  # variants of one revision, in an event and in the list of revisions
COMPARED = 512 * 1024  # bytes of the contents of a variant, before and after, that are compared as text
LINES = 2_000  # of the text of a variant, that are compared
TEXTS = 1024 * 1024  # characters of the texts in one answer

_LABELS = {spec.url: spec.label for spec in TYPES}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which differences a page asks for."""

    type_url: TypeUrl | None = None
    name: str | None = None


def label_of(type_url: TypeUrl) -> str:
    """Return the short name of a type, or the message name; a client may send any."""
    return _LABELS.get(type_url) or bounded(type_url.rpartition("/")[2], NAME_BYTES)


def history(known: History, store: Store, *, since: int | None, limit: int = LIMIT) -> Page:
    """List revisions: those after `since` oldest first, or the last ones newest first."""
    later = known.since(since) if since is not None else None
    found: Iterable[Revision] = later if later is not None else known.newest_first()
    head = {
        "revision": store.revision,
        "oldest": known.oldest,
        "total": len(known),
        # Whether revisions after `since` are no longer known, or it is of another run of the server.
        "gap": since is not None and later is None,
    }
    return Page(head, "revisions", (revision_row(each) for each in [*islice(found, limit)]))


def revision_row(revision: Revision, type_url: TypeUrl | None = None) -> Row:
    """Describe a revision, as events and the list of revisions do; `type_url`: only changes of this type."""
    left = SHOWN
    rows: list[Row] = []
    own = [each for each in revision.changes if type_url in (None, each.type_url)]
    for change in own:
        if left <= 0:
            break
        rows.append(_resource(change, left))
        left -= max(1, len(change.variants))
    row: Row = {
        "revision": revision.number,
        "time": time_of_day(revision.time),
        "by": revision.by,
        "changes": rows,
        "total": revision.total,
        "more": len(own) - len(rows) + revision.more,
    }
    return row | ({"forgotten": True} if revision.is_forgotten else {})


def difference(found: Difference, old: int, new: int, wanted: Wanted, *, limit: int = LIMIT) -> Row:
    """Describe how two revisions differ. It may take seconds, as texts are compared: call it in a thread."""
    chosen = [
        each for each in found.variants if wanted.type_url in (None, each.type_url) and wanted.name in (None, each.name)
    ]
    rows: list[Row] = []
    left = TEXTS
    for each in sorted(chosen, key=lambda each: (label_of(each.type_url), each.name, show(each.constraint)))[:limit]:
        rows.append(_difference(each, old, new, left))
        left -= len(rows[-1].get("diff") or "")
    return {
        "from": old,
        "to": new,
        "total": len(chosen),
        "differences": rows,
        "more": len(chosen) - len(rows),
        # Of so many changes of resources nothing is known but that they happened: of any type and name.
        "unknown": found.unknown,
    }


def _difference(each: VariantDifference, old: int, new: int, left: int) -> Row:
    row: Row = {
        "type": label_of(each.type_url),
        "type_url": each.type_url,
        "name": bounded(each.name, TEXT_BYTES),
        "constraint": bounded(show(each.constraint), TEXT_BYTES),
        "change": each.change,
        "old_version": each.old or None,
        "new_version": each.new or None,
        "origin": str(each.origin) if each.origin is not None else None,
        "diff": None,
    }
    why = _why_no_text(each, left)
    if why is None:
        before, after = (
            redacted(each.type_url, body) if body is not None else None for body in (each.before, each.after)
        )
        title = f"{row['type']}/{row['name']} [{row['constraint']}]"
        lines = text_difference(before, after, f"{title} at revision {old}", f"{title} at revision {new}", LINES)
        row["diff"] = "\n".join(lines) or None
        why = "only what is redacted differs, or what is not in the contents" if row["diff"] is None else None
    return row | ({"why_no_diff": why} if why is not None else {})


def _why_no_text(each: VariantDifference, left: int) -> str | None:
    """Return why the texts of a variant are not compared; None: they are."""
    if each.type_url == SECRET:
        return "it is a secret"
    if (each.old and each.before is None) or (each.new and each.after is None):
        return "its former contents are not remembered any more"
    if len(each.before or b"") + len(each.after or b"") > COMPARED:
        return "its contents are too large to be compared here"
    return "the answer is long already: ask for one type and name" if left <= 0 else None


def _resource(change: ResourceChange, left: int) -> Row:
    row: Row = {
        "type": label_of(change.type_url),
        "type_url": change.type_url,
        "name": bounded(change.name, TEXT_BYTES),
        "change": change.change,
        "variants": [_variant(each) for each in change.variants[:left]],
    }
    more = change.more + max(0, len(change.variants) - left)
    return row | ({"more_variants": more} if more else {})


def _variant(each: VariantChange) -> Row:
    """Describe a variant; its version is the new one, and of a removed one the last."""
    return {
        "constraint": bounded(show(each.constraint), TEXT_BYTES),
        "change": each.change,
        "version": bounded(each.new or each.old, NAME_BYTES),
        "old_version": bounded(each.old, NAME_BYTES) or None,
        "origin": str(each.origin) if each.origin is not None else None,
    }
