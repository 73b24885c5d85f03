"""Every error says whose fault it is.

XdsError
├── ConfigError     the operator: a file or a transaction; carries one Problem per fault, with file:line
├── PeerError       the other end of a stream: carries the gRPC status that ends the stream
├── WatchError      a resource that can't be had, or not be trusted to be new: carries the gRPC status of why
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
    """Write a path as `virtual_hosts[0].routes[1].route`, and a map's key that has dots as `["a.b"]`."""
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
    """The root of everything that xdsprism raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a configuration: what is wrong, where, and what to do about it."""

    message: str
    file: str = ""
    line: int = 0
    path: str = ""  # inside the document, as `virtual_hosts[0].routes[2]`

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        parts = [part for part in (where, self.path) if part]
        return ": ".join([*parts, self.message])


class ConfigError(XdsError):
    """The configuration was refused, all of it; what was current before stays current."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = [Problem(problems)]
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PeerError(XdsError):
    """The peer broke the protocol so that its stream can't go on; no other stream is touched."""

    def __init__(self, status: str, message: str) -> None:
        self.status = status  # the name of a gRPC status code: "INVALID_ARGUMENT"
        self.message = message
        super().__init__(f"{status}: {message}")


class UsageError(XdsError):
    """The caller asked for something that makes no sense; the text says what would."""


# gRFC A54: these are for applications. A call that fails with one of them would be blamed on the wrong program.
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
    """Why a watched resource is not there, or why what is there may be out of date."""

    def __init__(self, status: str, message: str) -> None:
        self.status = status  # the name of a gRPC status code: "NOT_FOUND"
        self.message = message
        super().__init__(f"{status}: {message}")

    @property
    def call_status(self) -> tuple[str, str]:
        """Status and text for calls that fail because of it: never one that is reserved for applications (CLI-22)."""
        if self.status not in _RESERVED:
            return self.status, self.message
        return ("UNAVAILABLE" if self.status == "NOT_FOUND" else "INTERNAL"), str(self)
