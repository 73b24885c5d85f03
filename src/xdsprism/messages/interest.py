"""What is looked at in messages of one type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .faults import Check


@dataclass(frozen=True, slots=True)
class Interest:
    """Checks by the names of fields, for messages in which these are set."""

    values: Mapping[str, Check]  # of the field's value, with paths from there
    whole: Check | None = None  # of the message, where one of these is set
    leading: Sequence[str] = ()
