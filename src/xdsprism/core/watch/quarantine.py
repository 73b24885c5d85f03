"""Find the subscription for which a server ends the stream, and stop sending it (PRX-35).

A server may refuse a subscription by ending the stream, and with it all other subscriptions. If the client repeated
such a subscription after each reconnect, it would starve all the others. So the client suspects the subscriptions that
it sent right before such an end, and sends them again apart from the rest:

    state         sent on a stream                             next state
    ------------  -------------------------------------------  ---------------------------------------------------------
    free          in the first requests, or when it is wanted  suspected: the server ended the stream with a status that
                                                               blames a request, at most SETTLED seconds (and LATER
                                                               requests) after this went out, and had not answered it
    suspected     in groups: each when everything sent before  free: answered, or SETTLED seconds have passed
                  it is answered, or SETTLED seconds have      suspected, in a group of half the size: the stream ended
                  passed                                       accused: the stream ended, and this was its whole group
    accused       alone, on a stream that is good              free: as above
                                                               quarantined: the stream ended
    quarantined   never                                        accused: after RETRY seconds

This is a binary search. A group that does not end the stream doubles the size of the next group, so that many innocent
subscriptions do not wait for long.

A stream is good once the server has answered something on it, or has kept it open for SETTLED seconds after a request.
A server that ends every stream objects to the client, not to a subscription. If the stream was good already, a
subscription that was a whole group is quarantined at once.

While anything is suspected, new subscriptions join the suspects, so that only one group can be the reason for an end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ..model.events import Key
from ..model.types import TypeUrl

SETTLED = 3.0  # seconds without an end of the stream, after which the server has accepted a request
LATER = 32  # later requests, after which the server has accepted a request, however fast they came
RETRY = 600.0  # seconds until a quarantined subscription is sent once more
REMEMBERED = 10_000  # quarantined subscriptions at most; the oldest are dropped
OFTEN = 32  # ends of streams within RETRY seconds, after which groups go out less often
PAUSE = 30.0  # seconds between such an end and the next group

# Statuses that blame a request; and statuses that do so only if the same subscriptions preceded two ends in a row.
BLAMING = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"})
DOUBTFUL = frozenset({"INTERNAL", "UNKNOWN"})

# A subscription: type, name and params.
Question = tuple[TypeUrl, Key]
IsOpen = Callable[[Question], bool]  # whether it is subscribed, and the server has not answered it on this stream


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A subscription that the client does not send: until when, and the error that ended the stream."""

    question: Question
    until: float
    error: str


class Quarantine:
    """The subscriptions that are withheld from one server.

    The caller reports what it sends (`asked`) and what happens to each stream (`opened`, `note_response`, `ended`,
    `closed`), and sends what `release` returns.
    """

    def __init__(self) -> None:
        self._held: dict[Question, Quarantined] = {}  # in the order in which they are due
        # In the order in which they go out; False: new, never sent before an end.
        self._suspects: dict[Question, bool] = {}
        self._accused: dict[Question, None] = {}  # in the order in which they go out
        # The suspects, or the accused one, that are on trial on this stream.
        self._group: frozenset[Question] = frozenset()
        self._size = 1  # of the next group
        # Sent of late, perhaps not accepted yet.
        self._recent: deque[tuple[float, TypeUrl, Sequence[Key]]] = deque(maxlen=LATER)
        self._doubted: frozenset[Question] = frozenset()  # sent before the last end with a doubtful status
        self._ends: deque[float] = deque(maxlen=OFTEN)  # times at which a request ended a stream
        self._is_open = False  # there is a stream
        self._is_good = False  # the server has answered on this stream, or kept it open for SETTLED seconds

    def __bool__(self) -> bool:
        """Whether any subscription is kept back."""
        return bool(self._suspects or self._accused or self._held)

    @property
    def held(self) -> list[Quarantined]:
        """The quarantined subscriptions, without suspects."""
        return [*self._held.values()]

    def find(self, question: Question) -> Quarantined | None:
        return self._held.get(question)

    def keeps(self, question: Question) -> bool:
        """Whether the subscription must not be sent now."""
        return question in self._suspects or question in self._accused or question in self._held

    def admits(self, question: Question) -> bool:
        """Whether a new subscription goes out at once. If not, `release` returns it later."""
        if self._is_open and (self._suspects or self._accused) and not self.keeps(question):
            self._suspects[question] = False
        return not self.keeps(question)

    def drop(self, question: Question) -> None:
        """Forget a suspect without watchers, unless it may have ended a stream."""
        if self._suspects.get(question) is False:
            del self._suspects[question]

    # -- the life of a stream

    def opened(self) -> None:
        self._is_open, self._is_good = True, False

    def asked(self, type_url: TypeUrl, keys: Sequence[Key], now: float) -> None:
        """Note the subscriptions of one request that are new on this stream."""
        self._expire(now)
        fresh = [key for key in keys if (type_url, key) not in self._group] if self._group else keys
        if fresh:
            self._recent.append((now, type_url, fresh))

    def note_response(self) -> None:
        """Note that the server answered on this stream."""
        self._is_good = True

    def ended(self, status: str, error: str, now: float, is_open: IsOpen) -> Quarantined | None:
        """Handle the end of a stream, or a failure to open one; return the subscription that it now quarantines."""
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
        """Forget the stream; the group on trial is suspected again."""
        self._suspects = {**dict.fromkeys(self._group, True), **self._suspects}
        self._is_open = self._is_good = False
        self._group = frozenset()
        self._recent.clear()

    def _blamed(self, status: str, recent: list[Question]) -> list[Question]:
        """Return which of the recent subscriptions the status blames."""
        doubted, self._doubted = self._doubted, frozenset(recent if status in DOUBTFUL else ())
        if status in DOUBTFUL:
            return [question for question in recent if question in doubted]
        return recent if status in BLAMING else []

    def _hold(self, found: Quarantined) -> Quarantined:
        """Quarantine a subscription; drop the oldest one if there are too many."""
        self._held[found.question] = found
        if len(self._held) > REMEMBERED:
            del self._held[next(iter(self._held))]
        return found

    # -- asking again

    @property
    def due(self) -> float | None:
        """When to call `release`; None: not before something happens."""
        # The first end of a quarantine; and while suspects wait, the time at which the last request counts as accepted.
        times = [next(iter(self._held.values())).until] if self._held else []
        if self._is_open and (self._suspects or self._accused or self._group):
            last = self._recent[-1][0] + SETTLED if self._recent else 0.0
            times.append(max(last, self._pause()))
        return min(times, default=None)

    def release(self, now: float, is_open: IsOpen) -> list[Question]:
        """Return the kept subscriptions to send now: the next group, or one that is accused."""
        while self._held and (first := next(iter(self._held.values()))).until <= now:
            del self._held[first.question]
            self._accused[first.question] = None
        self._expire(now)
        if not self._is_open or not (self._suspects or self._accused or self._group):
            return []
        if any(map(is_open, self._unsettled())):
            return []
        # The group went unpunished: its members are free, and the next group is larger.
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
        """Return the next group: some suspects, or one that is accused.

        An accused one needs a good stream, unless no suspects are left that could show whether the stream is good.
        """
        if self._accused and (self._is_good or not self._suspects):
            return (next(iter(self._accused)),)
        return tuple(islice(self._suspects, self._size))

    def _pause(self) -> float:
        """Until when the next group waits, if streams end often."""
        often = len(self._ends) == OFTEN and self._ends[0] > self._ends[-1] - RETRY
        return self._ends[-1] + PAUSE if often else 0.0

    def _unsettled(self) -> Iterator[Question]:
        """The subscriptions that the server may not have accepted yet."""
        for _, type_url, keys in self._recent:
            for key in keys:
                yield type_url, key

    def _expire(self, now: float) -> None:
        """Count requests older than SETTLED seconds as accepted."""
        while self._recent and self._recent[0][0] + SETTLED <= now:
            self._recent.popleft()
            self._is_good = True
