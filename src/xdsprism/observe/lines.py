"""Writes log lines: the logger, and how the texts of peers are cut."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec

from ..core.model.expr import show
from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..core.model.types import TYPES, Variant

log = logging.getLogger("xdsprism")
P = ParamSpec("P")

NAMED = 5  # resources that a line names

_WORDS = {spec.url: spec.label for spec in TYPES}


def word_of(type_url: str) -> str:
    """Return the short name of a type, or the message name."""
    return _WORDS.get(type_url) or short(label(type_url))


def listed(names: Sequence[str], most: int, more: int = 0) -> str:
    """Return the first names, and how many there are beyond these and beyond the list: `a, b and 3 more`."""
    more += max(0, len(names) - most)
    return ", ".join(names[:most]) + (f" and {more:,} more" if more else "")


def described(variant: Variant) -> dict[str, str | None]:
    """Return the fields that tell people which variant this is, and where it is written."""
    return {
        "name": short(variant.name),
        "version": short(variant.version),
        "constraint": bounded(show(variant.shown), TEXT_BYTES),
        "origin": str(variant.origin) if variant.origin is not None else None,
    }


def named(type_url: str, row: Mapping[str, str | None]) -> str:
    """Name a variant: `rds/main [env=prod] (routes.yaml:7)`."""
    constraint = bounded(row["constraint"] or "", NAME_BYTES)
    variant = f" [{constraint}]" if constraint != "true" else ""
    return f"{word_of(type_url)}/{row['name']}{variant}" + (f" ({row['origin']})" if row["origin"] else "")


def label(type_url: str) -> str:
    return type_url.rpartition("/")[2]


def short(name: str) -> str:
    return bounded(name, NAME_BYTES)


def say(level: int, message: str, **fields: object) -> None:
    """Write a line, and cut its texts, as peers may have sent them. In JSON each field has its name."""
    cut = {key: bounded(value, TEXT_BYTES) if isinstance(value, str) else value for key, value in fields.items()}
    say_in_full(level, message, **cut)


def say_in_full(level: int, message: str, **fields: object) -> None:
    """Write a line without cutting its texts."""
    log.log(level, message, fields)


def logging_errors(call: Callable[P, None], text: str) -> Callable[P, None]:
    """Make a function that logs the errors of `call` under this text, and raises none of them (OPS-10)."""

    def call_safely(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception:  # OPS-10
            log.exception("%s", text)

    return call_safely
