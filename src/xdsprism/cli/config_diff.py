"""Finds what a running server would change if it loaded a configuration: `xdsprism diff CONFIG`.

The version of a variant is a hash of its contents and constraints, the same wherever it is computed. So the files are
read here, the server only lists its versions, and no contents of files leave this machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import XdsError

if TYPE_CHECKING:
    from ..core.model.store import Store
    from ..core.model.types import Variant
    from ..messages.validation import Validate
    from .admin_port import AdminClient

PAGE = 1_000  # resources that are listed in one answer
ATTEMPTS = 5  # to list all resources while none changes
TEXTS = 1_000  # resources whose contents are compared; each takes a request

Row = dict[str, Any]
Subject = tuple[str, str]  # type and name


def compare(
    config: tuple[str, ...],
    validate: Validate,
    admin: AdminClient,
    type_url: str | None,
    name: str | None,
    *,
    with_texts: bool,
) -> list[Row]:
    """Return what loading the configuration would change, by resource and variant.

    Raises ConfigError if it has problems, and XdsError if the server can't be asked, or loads no files.
    """
    from .loading import load

    store, _ = load(config, validate)
    status, answer = admin.request("/api/config")
    if status == 404:
        raise XdsError(f"{admin.address}: this server loads no configuration, so CONFIG would change nothing there")
    if status != 200:
        raise XdsError(f"{admin.address}: {answer.get('error', status)}")
    served = _served(admin)
    own = _own(store)
    rows: list[Row] = []
    for subject in sorted({*served, *own}):
        if type_url in (None, subject[0]) and name in (None, subject[1]):
            rows += _compared(store, subject, served.get(subject, {}), own.get(subject, {}))
    if with_texts:
        _add_texts(rows, admin, served, own)
    return rows


def _served(admin: AdminClient) -> dict[Subject, dict[str, Row]]:
    """Return the variants that the server has, by constraint, of one revision."""
    for _ in range(ATTEMPTS):
        found: dict[Subject, dict[str, Row]] = {}
        revisions = set()
        offset, total = 0, 1
        while offset < total:
            page = admin.page("/api/resources", offset=offset, limit=PAGE)
            revisions.add(page["revision"])
            total = page["total"]
            for row in page["resources"]:
                found[row["type_url"], row["name"]] = {each["constraint"]: each for each in row["variants"]}
            offset += max(1, len(page["resources"]))
        if len(revisions) <= 1:
            return found
    raise XdsError(f"{admin.address}: the resources change too often to list all of one revision: try again")


def _own(store: Store) -> dict[Subject, dict[str, Variant]]:
    """Return the variants that the files have, by constraint."""
    from ..core.model.expr import show

    return {
        (table.spec.url, name): {show(variant.shown): variant for variant in known.variants}
        for table in store.tables()
        for name, known in table
    }


def _compared(store: Store, subject: Subject, served: dict[str, Row], own: dict[str, Variant]) -> Iterator[Row]:
    type_url, name = subject
    for constraint in dict.fromkeys([*served, *own]):
        before, after = served.get(constraint), own.get(constraint)
        old = before["version"] if before is not None else None
        new = after.version if after is not None else None
        if old == new:
            continue
        origin = after.origin if after is not None else before["origin"] if before is not None else None
        yield {
            "type": store.spec(type_url).label,
            "type_url": type_url,
            "name": name,
            "constraint": constraint,
            "change": "added" if old is None else "removed" if new is None else "changed",
            "old_version": old,
            "new_version": new,
            "origin": str(origin) if origin is not None else None,
            "diff": None,
        }


def _add_texts(
    rows: list[Row], admin: AdminClient, served: Collection[Subject], own: dict[Subject, dict[str, Variant]]
) -> None:
    """Compare the contents, without secrets on both sides."""
    from ..admin.bodies import redacted
    from .change_text import variant_text
    from .differences import difference

    asked: dict[Subject, dict[str, Any]] = {}
    for row in rows:
        subject = row["type_url"], row["name"]
        if subject not in asked:
            if len(asked) >= TEXTS:
                row["why_no_diff"] = "there are many differences: choose with --type and --name"
                continue
            asked[subject] = _bodies(admin, subject) if subject in served else {}
        before = asked[subject].get(row["constraint"])
        variant = own.get(subject, {}).get(row["constraint"])
        after = redacted(variant.type_url, variant.body) if variant is not None else None
        title = variant_text(row, row)
        row["diff"] = "\n".join(difference(before, after, f"{title} as served", f"{title} in CONFIG")) or None
        if row["diff"] is None:
            row["why_no_diff"] = "only what is redacted differs, or what is not in the contents"


def _bodies(admin: AdminClient, subject: Subject) -> dict[str, Any]:
    """Return the contents of the variants of a resource, as the server shows them."""
    page = admin.page("/api/resources", type=subject[0], name=subject[1], bodies=1)
    return {each["constraint"]: each["body"] for row in page["resources"] for each in row["variants"]}
