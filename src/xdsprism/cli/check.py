"""`xdsprism check`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..core.model.types import Origin
from ..errors import Problem
from . import output as out
from .failures import problem_row
from .options import (
    FILES_VALIDATED,
    descriptors_option,
    keys,
    node_params_option,
    policy_option,
    validate_option,
)

if TYPE_CHECKING:
    from ..core.model.store import Store
    from ..core.model.types import Variant
    from ..messages.validation import Validate

GAPS = 5  # examples shown of each resource
VARIANTS = 20  # shown of each resource, on a terminal


@click.command(short_help="Validate files, and list resources and variants.")
@click.argument("config", nargs=-1, type=click.Path(exists=True, allow_dash=True))
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json", "name", "wide"]), help="The output format.  [default: a table]"
)
@node_params_option(
    "The value that `serve` will get: warn about keys in constraints that no client can have by its node."
)
@validate_option("envoy", FILES_VALIDATED)
@policy_option("The policy file that `serve` will get: validate it, too, or alone if there is no CONFIG.")
@descriptors_option
def check(
    config: tuple[str, ...], output: str | None, node_params: str | None, validate: Validate, policy: str | None
) -> None:
    """Validate CONFIG (files, directories of them, or - for the standard input) and list resources and their variants.

    Also lists params that no variant of a resource covers, although other params have one. If `serve` would refuse
    CONFIG, prints every problem on stderr and exits with status 1. Warnings go to stderr: what Envoy would refuse
    although `serve` does not, and what is probably a mistake.

    Variants of one name may mention different keys as long as they do not overlap. The server adds the missing keys to
    each variant, in clauses that are always true. `-o wide` shows the result; other formats show what is written.

    \b
    Example:
      xdsprism check examples/config -o wide
      xdsprism check examples/config --node-params env,version,node.locality.zone
      xdsprism check config --validate warn --descriptors own-filters.binpb
      xdsprism check --policy policy.yaml
      xdsprism get rds -o yaml --server 127.0.0.1:18000 | xdsprism check -
    """  # noqa: D301
    from ..errors import UsageError
    from .loading import load

    if policy is not None:
        _check_policy(policy)
        if not config:
            return
    if not config:
        raise UsageError("give CONFIG, --policy, or both")
    is_sent = _sent_by_nodes(node_params)
    store, report = load(config, validate)
    rows = _rows(store, padded=output == "wide")
    warnings = [*report.warnings, *_unsendable(store, is_sent)]
    if output == "name":
        for row in rows:
            out.say(f"{row['type']}/{row['name']}")
    elif output == "json":
        out.as_json({"resources": rows} | ({"warnings": [*map(problem_row, warnings)]} if warnings else {}))
    elif output == "yaml":
        out.as_yaml({"resources": rows})
    else:
        _table(rows, wide=output == "wide", cut=output is None and sys.stdout.isatty())
    for warning in warnings:
        out.note(f"warning: {warning}")
    variants = sum(len(row["variants"]) for row in rows)
    out.note(f"valid: {report.resources} resources, {variants} variants, {report.files} files")


def _check_policy(path: str) -> None:
    from ..sources.policy_file import load_policy

    policy = load_policy(path)
    for warning in policy.warnings():
        out.note(f"warning: {warning}")
    keys = f", {policy.tokens.count} keys for tokens" if policy.tokens is not None else ""
    out.note(f"valid policy: {len(policy.rules)} rules, default: {policy.default}{keys}")


def _sent_by_nodes(text: str | None) -> Callable[[str], bool]:
    """Return a test for the keys that clients can have by their node; without a text, any key. Raises UsageError."""
    from ..core.model.node_params import can_send, check_names

    if text is None:
        return lambda _: True
    names = keys("--node-params", text)
    check_names(names)
    return partial(can_send, names)


def _unsendable(store: Store, is_sent: Callable[[str], bool]) -> Iterator[Problem]:
    """Yield a problem for each key in constraints that no node can give, at its first mention."""
    from ..core.model import constraints

    places: dict[str, list[Variant]] = {}
    for table in store.tables():
        for _, known in sorted(table):
            for variant in known.variants:
                mentioned = constraints.keys(variant.stated) | constraints.keys(variant.base or constraints.TRUE)
                for key in mentioned:
                    places.setdefault(key, []).append(variant)
    for key, variants in sorted(places.items()):
        why = _why_not(key, is_sent)
        if why is not None:
            first = variants[0]
            label = f"{store.spec(first.type_url).label}/{first.name}"
            others = len({(each.type_url, each.name) for each in variants}) - 1
            further = f" (and {others} more)" if others else ""
            origin = first.origin or Origin("")
            yield Problem(f"{label}{further} mentions {key!r}: {why}", origin.file, origin.line)


def _why_not(key: str, is_sent: Callable[[str], bool]) -> str | None:
    """Return why no client can have this param by its node; None if one can."""
    from ..core.model.node_params import NODE_FIELDS, is_unknown_field

    if is_unknown_field(key):
        return f"a node has no such field, so only locator clients can send it; there are {', '.join(NODE_FIELDS)}"
    if is_sent(key):
        return None
    return "only locator clients can send it; name it in --node-params if clients have it by their node"


def _rows(store: Store, *, padded: bool) -> list[dict[str, Any]]:
    """List resources as /api/resources does, with their gaps; `padded`: constraints as clients get them (DYN-34)."""
    from ..admin import read_model
    from ..core.model.expr import show
    from ..core.model.variants import DisjointVariants

    rows = [row for row in read_model.resources(store, limit=None).rows if row is not None]
    for row in rows:
        known = store.table(row["type_url"]).named(row["name"])
        row["not_covered"] = known.gaps(GAPS) if isinstance(known, DisjointVariants) else []
        if padded and known is not None:
            for shown, variant in zip(row["variants"], known.variants, strict=True):
                shown["constraint"] = show(variant.constraint)
    return rows


def _table(rows: list[dict[str, Any]], *, wide: bool, cut: bool) -> None:
    """Print a line for each variant; `cut`: no more of a resource, and none longer, than fits a terminal."""
    headers = ["RESOURCE", "VARIANT", *(["VERSION", "BYTES", "ORIGIN"] if wide else [])]
    lines = []
    for row in rows:
        variants = row["variants"]
        for variant in variants[:VARIANTS] if cut else variants:
            more = [variant["version"], str(variant["bytes"]), variant["origin"] or "-"] if wide else []
            lines.append([f"{row['type']}/{row['name']}", variant["constraint"], *more])
        if cut and len(variants) > VARIANTS:
            lines.append(["", f"... and {len(variants) - VARIANTS} more: -o wide lists all"])
    out.table(headers, lines, fit=cut)
    gaps = [(row, params) for row in rows for params in row["not_covered"]]
    if gaps:
        click.echo("\nNo variant for, among others:")
        for row, params in gaps:
            out.say(f"{row['type']}/{row['name']}{out.GAP}{out.params_text(params)}")
