"""Builds what the admin port shows of the revisions of the store. Nothing here awaits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ..core.model.expr import show
from ..core.model.history import History, ResourceChange, Revision, VariantChange
from ..core.model.store import Store
from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..core.model.types import TYPES, TypeUrl
from .read_model import LIMIT, Page, Row, time_of_day

SHOWN = 100  # variants of one revision, in an event and in the list of revisions

_LABELS = {spec.url: spec.label for spec in TYPES}


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
