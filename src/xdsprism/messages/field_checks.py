"""Defines the checks of one message type, by field: envoy_network.py and envoy_routes.py list them by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .faults import Check


@dataclass(frozen=True, slots=True)
class FieldChecks:
    """The checks of a message type. They run only on messages in which the fields concerned are set."""

    values: Mapping[str, Check]  # field: a check of its value, with paths that begin at the value
    whole: Check | None = None  # a check of the message, if one of the fields in `leading` is set
    leading: Sequence[str] = ()
