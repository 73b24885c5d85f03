"""The resources that a client rejected. None of them is sent again until it changes (NAK-3).

Which resource of a NACKed response was bad is known if there was only one. A SotW client may go on with the old version
of any of them, so all of them count as rejected. For delta, isolation.py finds out by sending each of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..model.constraints import Constraint, unpadded
from ..model.events import Rejection, Send
from ..model.expr import show
from ..model.types import Variant
from .in_flight import InFlightResponse


@dataclass(frozen=True, slots=True)
class ResponsePart:
    """One resource that a response is about: added or changed, or removed."""

    name: str
    located: bool
    variant: Variant | None  # None: removed
    label: str


@dataclass(frozen=True, slots=True)
class RejectedResource:
    """A resource that the client NACKed."""

    number: int  # of the response
    error: Rejection
    part: ResponsePart
    at: float  # when, on the clock of the session


# Nearly always nothing is rejected, so one empty mapping serves all sessions.
_NOTHING: Mapping[str, RejectedResource] = MappingProxyType({})


class Rejections:
    """What one client has rejected of one type, by the label that status pages show."""

    __slots__ = ("by_label",)

    def __init__(self) -> None:
        self.by_label: Mapping[str, RejectedResource] = _NOTHING

    def __bool__(self) -> bool:
        return bool(self.by_label)

    def add(self, parts: Mapping[str, ResponsePart], response: InFlightResponse, error: Rejection, now: float) -> None:
        rejected = {label: RejectedResource(response.number, error, part, now) for label, part in parts.items()}
        self.by_label = {**self.by_label, **rejected}

    def accept(self, send: Send, is_current: Callable[[ResponsePart], bool]) -> list[RejectedResource]:
        """Forget what the client now accepted, and what an accepted resource took the place of. Return these."""
        before = self.by_label
        labels, names = set(), set()
        for part in parts_of(send):
            labels.add(part.label)
            names.add((part.name, part.located))
        self._keep(
            [
                label
                for label, rejected in self.by_label.items()
                if label not in labels
                and ((rejected.part.name, rejected.part.located) not in names or is_current(rejected.part))
            ]
        )
        return [rejected for label, rejected in before.items() if label not in self.by_label]

    def discard_unless(self, keep: Callable[[ResponsePart], bool]) -> bool:
        """Forget each rejected resource for which `keep` says no. Return whether that left none."""
        had_some = bool(self.by_label)
        self._keep([label for label, rejected in self.by_label.items() if keep(rejected.part)])
        return had_some and not self.by_label

    def _keep(self, labels: Iterable[str]) -> None:
        """Forget all other resources."""
        self.by_label = {label: self.by_label[label] for label in labels} or _NOTHING

    def has_variant_of(self, name: str, *, located: bool) -> bool:
        """Whether a variant of this name was rejected in this form: then the client still has the one before."""
        parts = [rejected.part for rejected in self.by_label.values()]
        return any(part.variant is not None and (part.name, part.located) == (name, located) for part in parts)


def parts_of(send: Send) -> Iterator[ResponsePart]:
    """The resources that a response is about. A variant that was withdrawn beside its successor is not one of them."""
    for variant in send.plain:
        yield ResponsePart(variant.name, False, variant, variant.name)  # noqa: FBT003
    for name in send.removed:
        yield ResponsePart(name, False, None, name)  # noqa: FBT003
    names = {variant.name for variant in send.located}
    for variant in send.located:
        yield ResponsePart(variant.name, True, variant, _label(variant.name, variant.constraint))  # noqa: FBT003
    for gone in send.withdrawn:
        if gone.name not in names and not gone.never:  # a client can't reject that there is nothing
            yield ResponsePart(gone.name, True, None, _label(gone.name, gone.constraint))  # noqa: FBT003


def _label(name: str, constraint: Constraint) -> str:
    return f"{name} [{show(unpadded(constraint))}]"
