"""Defines the errors of xdsprism. The class of an error says who made the mistake.

XdsError
├── ConfigError     the operator: a file or a transaction is invalid; carries a list of Problems with file:line
├── PeerError       the other end of a stream; carries the gRPC status that ends the stream
├── WatchError      a watched resource is unavailable, or may be out of date; carries a gRPC status
└── UsageError      the caller of this library or of the command line
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PLAIN_STEP = re.compile(r"[\w@$-]+")

# gRPC status codes, by number.
STATUS = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)


def show_path(path: Iterable[str | int]) -> str:
    """Format a path as `virtual_hosts[0].routes[1].route`, and a map's key that has dots as `["a.b"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_STEP.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


class XdsError(Exception):
    """The base class of all errors that xdsprism raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a configuration: what is wrong, where, and how to correct it."""

    message: str
    file: str = ""
    line: int = 0
    path: str = ""  # in the document, such as `virtual_hosts[0].routes[2]`

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        parts = [part for part in (where, self.path) if part]
        return ": ".join([*parts, self.message])


class ConfigError(XdsError):
    """The whole configuration was refused, and the one before it stays in use."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = [Problem(problems)]
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PeerError(XdsError):
    """The peer violated the protocol, which ends its stream. Other streams go on."""

    def __init__(self, status: str, message: str, retry_after: float = 0.0) -> None:
        self.status = status  # the name of a gRPC status code: "INVALID_ARGUMENT"
        self.message = message
        self.retry_after = retry_after  # seconds after which the same would be fine; 0: nobody knows
        super().__init__(f"{status}: {message}")


class UsageError(XdsError):
    """The caller used an invalid argument or option; the text says what would be valid."""


# gRFC A54: statuses for applications. A call that failed with one of them would seem to be the application's fault.
_RESERVED = frozenset(
    {
        "OK",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "DATA_LOSS",
    }
)


class WatchError(XdsError):
    """Says why a watched resource is unavailable, or why it may be out of date."""

    def __init__(self, status: str, message: str) -> None:
        self.status = status  # the name of a gRPC status code: "NOT_FOUND"
        self.message = message
        super().__init__(f"{status}: {message}")

    @property
    def call_status(self) -> tuple[str, str]:
        """The status and text for RPCs that fail because of it; never a status reserved for applications (CLI-22)."""
        if self.status not in _RESERVED:
            return self.status, self.message
        return ("UNAVAILABLE" if self.status == "NOT_FOUND" else "INTERNAL"), str(self)
