"""Writes log lines: the logger, and how the texts of peers are cut."""

from __future__ import annotations

import logging

from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ..core.model.types import TYPES

log = logging.getLogger("xdsprism")

_WORDS = {spec.url: spec.label for spec in TYPES}


def word_of(type_url: str) -> str:
    """Return the short name of a type, or the message name."""
    return _WORDS.get(type_url) or short(label(type_url))


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
