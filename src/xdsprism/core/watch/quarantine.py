"""Subscriptions that make a server end the stream: found one by one, and not repeated (PRX-35).

A server may refuse a subscription by ending the stream, with everything else that is on it. Asked again after each
reconnect, one such subscription would starve all the others. So whatever was asked right before such an end is
suspected, and is asked again apart from the rest:

    state         asked on a stream                            leaves it
    ------------  -------------------------------------------  ---------------------------------------------------------
    free          in the first requests, or when it is wanted  suspected: the server ended the stream and blamed a
                                                               request, at most SETTLED seconds (and LATER requests)
                                                               after this was asked, and had not answered it
    suspected     in groups: each when all that was asked      free: answered, or SETTLED seconds have passed
                  before it is answered, or SETTLED seconds    suspected, in a group of half the size: the stream ended
                  have passed                                  accused: the stream ended, and this was all of its group
    accused       by itself, on a stream that is good          free: as above
                                                               quarantined: the stream ended
    quarantined   not at all                                   accused: after RETRY seconds

A group that does not end the stream doubles the size of the next one, so that many innocent ones do not wait for long.
A stream is good when the server has answered something on it, or has let something stand for SETTLED seconds: one that
ends every stream has something against the client, and not against a subscription. Where the stream was good already,
what was all of its group is quarantined at once.

While something is suspected, what is newly wanted joins it, so that there is never a doubt what ended a stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ..model.events import Key
from ..model.types import TypeUrl

SETTLED = 3.0  # seconds after which the server has accepted what it was asked
LATER = 32  # requests after which it has, however fast they came
RETRY = 600.0  # seconds until what was quarantined is asked once more
REMEMBERED = 10_000  # quarantined subscriptions; the oldest are forgotten
OFTEN = 32  # ends of streams within RETRY seconds, after which groups are asked less often
PAUSE = 30.0  # seconds after such an end until the next group is asked

# Statuses that blame what was asked; and those that do if the same subscriptions come before them twice in a row.
BLAMING = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"})
DOUBTFUL = frozenset({"INTERNAL", "UNKNOWN"})

Question = tuple[TypeUrl, Key]
IsOpen = Callable[[Question], bool]  # whether it is wanted, and the server has not answered it on this stream


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A subscription that is not asked any more: until when, and how the server ended the stream."""

    question: Question
    until: float
    error: str


class Quarantine:
    """What is kept from one server. Whoever asks it says what is asked, and what becomes of each stream."""

    def __init__(self) -> None:
        self._held: dict[Question, Quarantined] = {}  # those that are due first come first
        self._suspects: dict[Question, bool] = {}  # in the order in which they are asked; False: only newly wanted
        self._accused: dict[Question, None] = {}  # in the order in which they are asked
        self._group: frozenset[Question] = frozenset()  # of both, the ones that are asked now
        self._size = 1  # of the next group
        self._recent: deque[tuple[float, TypeUrl, Sequence[Key]]] = deque(maxlen=LATER)  # perhaps not accepted yet
        self._doubted: frozenset[Question] = frozenset()  # asked before the last end with a doubtful status
        self._ends: deque[float] = deque(maxlen=OFTEN)  # of streams, by what was asked on them
        self._is_open = False  # there is a stream
        self._is_good = False  # the server has answered on this stream, or has let something stand

    def __bool__(self) -> bool:
        """Whether anything is kept back."""
        return bool(self._suspects or self._accused or self._held)

    @property
    def held(self) -> list[Quarantined]:
        return [*self._held.values()]

    def find(self, question: Question) -> Quarantined | None:
        return self._held.get(question)

    def keeps(self, question: Question) -> bool:
        """Whether it is not to be asked now."""
        return question in self._suspects or question in self._accused or question in self._held

    def admits(self, question: Question) -> bool:
        """Whether something that is newly wanted is asked at once. If not, `release` gives it back."""
        if self._is_open and (self._suspects or self._accused) and not self.keeps(question):
            self._suspects[question] = False
        return not self.keeps(question)

    def drop(self, question: Question) -> None:
        """Nobody wants it any more. One that may have ended a stream is remembered."""
        if self._suspects.get(question) is False:
            del self._suspects[question]

    # -- the life of a stream

    def opened(self) -> None:
        self._is_open, self._is_good = True, False

    def asked(self, type_url: TypeUrl, keys: Sequence[Key], now: float) -> None:
        """These went out for the first time on this stream, in one request."""
        self._expire(now)
        fresh = [key for key in keys if (type_url, key) not in self._group] if self._group else keys
        if fresh:
            self._recent.append((now, type_url, fresh))

    def heard(self) -> None:
        self._is_good = True

    def ended(self, status: str, error: str, now: float, is_open: IsOpen) -> Quarantined | None:
        """The stream is over, or could not be opened. What was found to be the reason, if that is known now."""
        self._expire(now)
        blamed = self._blamed(status, [question for question in self._unsettled() if is_open(question)])
        group, was_good = self._group, self._is_good
        self._group = group.intersection(blamed) if blamed else group
        self.closed()
        if not blamed:
            return None
        self._ends.append(now)
        self._size = max(1, len(blamed) // 2)
        self._suspects = {**dict.fromkeys(blamed, True), **self._suspects}
        if len(blamed) > 1 or blamed[0] not in group:
            return None
        del self._suspects[blamed[0]]
        if was_good:
            return self._hold(Quarantined(blamed[0], now + RETRY, error))
        self._accused[blamed[0]] = None
        return None

    def closed(self) -> None:
        """There is no stream, whoever ended it."""
        self._suspects = {**dict.fromkeys(self._group, True), **self._suspects}
        self._is_open = self._is_good = False
        self._group = frozenset()
        self._recent.clear()

    def _blamed(self, status: str, recent: list[Question]) -> list[Question]:
        doubted, self._doubted = self._doubted, frozenset(recent if status in DOUBTFUL else ())
        if status in DOUBTFUL:
            return [question for question in recent if question in doubted]
        return recent if status in BLAMING else []

    def _hold(self, found: Quarantined) -> Quarantined:
        self._held[found.question] = found
        if len(self._held) > REMEMBERED:
            del self._held[next(iter(self._held))]
        return found

    # -- asking again

    @property
    def due(self) -> float | None:
        """When `release` has something to do; None: not before something happens."""
        times = [next(iter(self._held.values())).until] if self._held else []
        if self._is_open and (self._suspects or self._accused or self._group):
            last = self._recent[-1][0] + SETTLED if self._recent else 0.0
            times.append(max(last, self._pause()))
        return min(times, default=None)

    def release(self, now: float, is_open: IsOpen) -> list[Question]:
        """What is to be asked now, of what was kept back."""
        while self._held and (first := next(iter(self._held.values()))).until <= now:
            del self._held[first.question]
            self._accused[first.question] = None
        self._expire(now)
        if not self._is_open or not (self._suspects or self._accused or self._group):
            return []
        if any(map(is_open, self._unsettled())):
            return []
        if self._group:
            self._size, self._group, self._is_good = self._size * 2, frozenset(), True
        group = self._next_group() if self._pause() <= now else ()
        for question in group:
            self._suspects.pop(question, None)
            self._accused.pop(question, None)
        self._group = frozenset(group)
        for type_url in dict.fromkeys(type_url for type_url, _ in group):
            self._recent.append((now, type_url, [key for each, key in group if each == type_url]))
        return [*group]

    def _next_group(self) -> tuple[Question, ...]:
        """An accused one where the stream is good, or nothing else is left by which that could be seen."""
        if self._accused and (self._is_good or not self._suspects):
            return (next(iter(self._accused)),)
        return tuple(islice(self._suspects, self._size))

    def _pause(self) -> float:
        """Until when the next group waits, where streams keep ending."""
        often = len(self._ends) == OFTEN and self._ends[0] > self._ends[-1] - RETRY
        return self._ends[-1] + PAUSE if often else 0.0

    def _unsettled(self) -> Iterator[Question]:
        return ((type_url, key) for _, type_url, keys in self._recent for key in keys)

    def _expire(self, now: float) -> None:
        while self._recent and self._recent[0][0] + SETTLED <= now:
            self._recent.popleft()
            self._is_good = True
