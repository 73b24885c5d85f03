"""One resource type on one stream to a server: what to ask for, and which answers are owed. Client side.

The mirror image of a session. A new stream begins with a new object; what has to outlive streams (which resources are
held, in which version) is handed in. Requests are made when they are asked for, so that whatever was wanted meanwhile
goes out as one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .events import WILDCARD, DeltaRequest, Key, Rejection, SotwRequest
from .types import TypeSpec

_ALL: Key = (WILDCARD, None)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to send, and the keys that no earlier one on this stream had: their timers start with it (CLI-11)."""

    body: SotwRequest | DeltaRequest
    fresh: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """An ACK, or a NACK where there is an error. NAK-23: one for each response."""

    nonce: str
    version: str
    error: Rejection | None = None


class Asking(ABC):
    """What both protocols share."""

    def __init__(self, spec: TypeSpec, wanted: Mapping[Key, None]) -> None:
        self._spec = spec
        self._wanted = dict(wanted)
        self._unsent = dict(wanted)  # the server has not heard of these yet
        self._dropped: dict[Key, None] = {}  # ... and still believes these to be wanted
        self._answers: deque[Answer] = deque()
        self._begun = False  # the first request was sent

    def want(self, key: Key) -> None:
        if key not in self._wanted:
            self._wanted[key] = None
            self._unsent[key] = None
            self._touched()

    def unwant(self, key: Key) -> None:
        if key in self._wanted:
            del self._wanted[key]
            if key in self._unsent:
                del self._unsent[key]
            else:
                self._dropped[key] = None
            self._touched()

    def answer(self, answer: Answer) -> None:
        self._answers.append(answer)

    @property
    def _legacy(self) -> bool:
        """WLD-1: an empty first request means all, and is the one form of it that every server understands."""
        return not self._begun and self._spec.wildcard and [*self._wanted] == [_ALL]

    @property
    def _again(self) -> bool:
        """Something was dropped and is wanted again: said in one breath the server would have nothing to send."""
        return not self._unsent.keys().isdisjoint(self._dropped)

    @abstractmethod
    def poll(self) -> list[Asked]:
        """The requests to send now, in order."""

    def _touched(self) -> None:  # noqa: B027 # only one of the two keeps anything that it derived from this
        """What is wanted changed."""


class SotwAsking(Asking):
    """CLI-2: each request lists everything."""

    def __init__(self, spec: TypeSpec, wanted: Mapping[Key, None], version: str) -> None:
        super().__init__(spec, wanted)
        self.version = version  # CLI-5: of the last response that was good; it outlives the stream
        self._nonce = ""
        self._nameless = False  # the server still takes an empty list for everything
        self._listed: tuple[Key, ...] | None = None

    def poll(self) -> list[Asked]:
        asked = []
        while self._answers:
            answer = self._answers.popleft()
            self._nonce = answer.nonce  # CLI-3, CLI-4
            if answer.error is None:
                self.version = answer.version
            asked.append(self._step(answer.error))
        while (self._unsent or self._dropped) and (self._wanted or self._begun):
            asked.append(self._step())
        return asked

    def _step(self, error: Rejection | None = None) -> Asked:
        """One request on the way to what is wanted: nearly always the only one."""
        if self._nameless and (self._again or not self._wanted):
            self._nameless = False  # WLD-5: only after a name does an empty list mean nothing
            return self._ask([_ALL], error)
        if self._again:
            self._dropped.clear()
            return self._ask([key for key in self._wanted if key not in self._unsent], error)
        return self._whole(error)

    def _whole(self, error: Rejection | None = None) -> Asked:
        """A request with everything that is wanted."""
        fresh = tuple(self._unsent)
        self._unsent.clear()
        self._dropped.clear()
        if self._legacy:
            self._nameless = True
        if self._nameless and [*self._wanted] == [_ALL]:
            return self._ask((), error, fresh)
        self._nameless = False
        if self._listed is None:
            self._listed = tuple(self._wanted)
        return self._ask(self._listed, error, fresh)

    def _ask(self, wanted: Sequence[Key], error: Rejection | None = None, fresh: tuple[Key, ...] = ()) -> Asked:
        self._begun = True
        # The same tuple for as long as it says the same, as it is encoded once.
        return Asked(SotwRequest(tuple(wanted), self.version, self._nonce, error), fresh)

    def _touched(self) -> None:
        self._listed = None


class DeltaAsking(Asking):
    """CLI-6: the first request says what is held; later ones say what changes."""

    def __init__(self, spec: TypeSpec, wanted: Mapping[Key, None], held: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(spec, wanted)
        self._held = held

    def poll(self) -> list[Asked]:
        # CLI-3: an answer has a nonce, a change of subscriptions has none: two requests.
        asked = [Asked(DeltaRequest(nonce=answer.nonce, error=answer.error)) for answer in self._answers]
        self._answers.clear()
        if not self._begun:
            if self._wanted:
                asked.append(self._first())
        elif self._again:
            asked += [self._change((), tuple(self._dropped)), self._change(tuple(self._unsent), ())]
        elif self._unsent or self._dropped:
            asked.append(self._change(tuple(self._unsent), tuple(self._dropped)))
        self._unsent.clear()
        self._dropped.clear()
        return asked

    def _first(self) -> Asked:
        subscribe = () if self._legacy else tuple(self._wanted)
        self._begun = True
        return Asked(DeltaRequest(subscribe, initial_versions=self._held()), tuple(self._wanted))

    def _change(self, subscribe: tuple[Key, ...], unsubscribe: tuple[Key, ...]) -> Asked:
        return Asked(DeltaRequest(subscribe, unsubscribe), subscribe)
