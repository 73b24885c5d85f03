"""Builds what the admin port and `xdsprism matrix` show of one resource: the variants over all values that matter."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.model.matrix import Axis, Cell, Matrix, tabulate
from ..core.model.steps import EVERY, Steps
from ..core.model.table import Table
from ..core.model.truncation import NAME_BYTES, bounded
from ..core.model.types import Variant
from ..core.model.xdstp import spelled
from .read_model import Row, variant_row

OTHER = "other"  # any value that no constraint mentions
ABSENT = "absent"  # the client does not have the key
VALUE = "value"


def matrix(table: Table, name: str, given: Mapping[str, str]) -> Steps[Row | None]:
    """Tabulate a resource, in steps; `given`: the keys to hold, with their values. None: there is no such resource."""
    known = table.named(spelled(name)) or table.get(spelled(name))
    if known is None:
        return None
    found = yield from tabulate(known, given)
    numbers: dict[Variant, int] = {}
    cells = [_cell(cell, numbers) for cell in found.cells]
    rows: list[Row] = []
    for variant in numbers:
        rows.append(variant_row(variant))
        if len(rows) % EVERY == 0:
            yield
    return {
        "type": table.spec.label,
        "type_url": table.spec.url,
        "name": known.variants[0].name if known.variants else name,
        "keys": [_axis(axis, found) for axis in found.axes],
        "variants": rows,
        "variants_left_out": len(known.variants) - len(rows),
        "cells": cells,
    }


def _cell(cell: Cell, numbers: dict[Variant, int]) -> int | str | None:
    """Return the number of the variant; None: the resource does not exist for these params."""
    if cell.variant is None:
        return None if cell.is_known else "unknown"
    return numbers.setdefault(cell.variant, len(numbers))


def _axis(axis: Axis, found: Matrix) -> Row:
    """Describe a key. `held` is there for one that is no axis of the table, with the choice at which it is held."""
    choices: list[Row] = [{"is": VALUE, "value": bounded(value, NAME_BYTES)} for value in axis.values]
    row: Row = {"key": axis.key, "choices": [*choices, {"is": OTHER}, {"is": ABSENT}], "values_left_out": axis.left_out}
    if axis.key in found.held:
        value = found.held[axis.key]
        row["held"] = {"is": VALUE, "value": bounded(value, NAME_BYTES)} if value is not None else {"is": ABSENT}
    return row
