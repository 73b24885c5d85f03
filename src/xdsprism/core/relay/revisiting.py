"""Ask servers from time to time for names that sessions forgot (VHD-25).

Envoy asks for a host or a cluster on demand once, keeps the answer that there is none, and waits for a push. A session
with too many such names forgets some of them. A server sees each name that is created and which sessions forgot it
(serve/forgotten_names.py). A relay sees only the names that it subscribes to. So it subscribes to forgotten names in
batches, and drops each name that still has no resource as soon as the server says so; no server carries more
subscriptions for it. If there is a resource, the relay gets it as if a client wanted it, and the sessions that forgot
the name find it in the store.

The faster the server answers a batch, the sooner the next one follows: the relay asks during a quarter of the time at
most, or one batch every EVERY seconds. It asks for each name once in EVERY seconds at most.

A batch takes room on the streams that the shares of PRX-35 do not count. So it takes no room from clients: where an
upstream subscription finds none, the open batch ends first (`give_way`), and its names wait for their next turn. What a
batch found counts for the clients that wait for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from ..model.limits import Limits, Refusal, Scarce
from ..model.steps import Steps, pieces
from ..model.types import Params, TypeUrl
from ..watch.query_params import question_params
from .upstream_feed import Carried, UpstreamFeed
from .upstream_subscription import is_awaited

EVERY = 5.0  # seconds that a server has to answer a batch, and between two subscriptions to one name
PAUSE = 1.0  # seconds from the answer to a batch until the next one, at least
REST = 3.0  # times as long as the server took to answer, at least
AT_ONCE = 500  # names in a batch
LOOKED_AT = 10 * AT_ONCE  # names of the queue for one batch; some of them no client waits for any more
ENDED = 32  # of these, in one step where they give way
MOST = 100_000  # names in the queue; the oldest are dropped
MOST_BYTES = 16 * 1024 * 1024  # of these names, in all

Forgotten = tuple[TypeUrl, str, Params]


class Revisits:
    """Asks for forgotten names, each in its turn.

    waiting: with which params clients still wait for a name; none, if a policy denies it to all of them now; None: no
    client waits. limits: those of a locator, by name; None: the server is asked without params.
    """

    def __init__(
        self,
        feed: UpstreamFeed,
        waiting: Callable[[TypeUrl, str], Sequence[Params] | None],
        limits: Callable[[str], Limits | None] = lambda _: None,
    ) -> None:
        self._feed = feed
        self._who_waits = waiting
        self._limits = limits
        self._waiting: OrderedDict[Forgotten, float] = OrderedDict()  # with the earliest time to ask for each
        self._bytes = 0
        self._asked: dict[Forgotten, Carried] = {}  # the batch: names without an answer
        self._found: dict[Forgotten, Carried] = {}  # names with a resource, since the last batch
        self._asked_at: float | None = None  # when the open batch was sent
        self._due: float | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def due(self) -> float | None:
        """When to call `poll` again; None: there is nothing to ask for."""
        return self._due

    def add(self, type_url: TypeUrl, name: str, params: Params, not_before: float = 0.0) -> None:
        """Queue a forgotten name. If the queue is too long, the oldest names are dropped."""
        each = type_url, name, params
        if each not in self._waiting:
            self._waiting[each] = not_before
            self._bytes += len(name)
        while len(self._waiting) > MOST or self._bytes > MOST_BYTES:
            self._pop()

    def poll(self, now: float) -> tuple[list[Forgotten], list[Forgotten]]:
        """Take answers, and send the next batch if it is due.

        Returns the names that have a resource, which the caller must want until the next batch, and those of the last
        batch that it must stop wanting.
        """
        found = self._take_answers()
        left: list[Forgotten] = []
        if self._due is None and self._waiting:
            self._due = now + PAUSE
        if self._asked_at is not None and not self._asked:
            self._due, self._asked_at = self._next_batch(self._asked_at, now), None
        if self._due is not None and now >= self._due:
            left = [*self._found]
            self._let_go(self._asked, [*self._asked])
            self._let_go(self._found, left)
            for each in [*islice(self._next(now), AT_ONCE)]:
                self._ask(each, now)
            self._asked_at = now if self._asked else None
            self._due = self._deadline(now, is_any_found=bool(found))
        self._found.update(found)
        return [*found], left

    def give_way(self) -> Steps[bool]:
        """End the open batch, in steps, since a client needs the room. Return whether there was one."""
        asked = [*self._asked]
        for piece in pieces(asked, ENDED):
            self._let_go(self._asked, piece)
            if len(piece) == ENDED:
                yield
        return bool(asked)

    def _next_batch(self, asked: float, answered: float) -> float:
        """Return when to send the next batch, REST times as long after the answer as the server took.

        A slow server gets a batch no less often than a server that does not answer at all.
        """
        soonest = answered + PAUSE
        return max(soonest, min(answered + REST * (answered - asked), asked + EVERY))

    def _deadline(self, now: float, *, is_any_found: bool) -> float | None:
        """Return when to look again after a batch was sent, or found nothing to send."""
        if self._asked:
            return now + EVERY
        first = next(iter(self._waiting.values()), None)
        if first is not None:
            return max(first, now + PAUSE)
        return now + PAUSE if is_any_found else None

    def _ask(self, each: Forgotten, now: float) -> None:
        """Subscribe to one name, and queue it again for later."""
        if each in self._asked:
            return
        type_url, name, params = each
        self.add(*each, not_before=now + EVERY)
        limits = self._limits(name)
        asked = question_params(params, (), limits) if limits is not None else params
        carried = self._feed.subscribe(type_url, name, asked) if not isinstance(asked, Refusal) else None
        if carried is not None and not isinstance(carried, Scarce):
            self._asked[each] = carried

    def _take_answers(self) -> dict[Forgotten, Carried]:
        """Return the names that have a resource by now, and drop the subscriptions of those without."""
        answered = [each for each, carried in self._asked.items() if not is_awaited(carried.entry)]
        found = {each: self._asked.pop(each) for each in answered if self._asked[each].entry.variant is not None}
        self._let_go(self._asked, [each for each in answered if each not in found])
        return found

    def _let_go(self, asked: dict[Forgotten, Carried], names: Iterable[Forgotten]) -> None:
        """Drop the subscriptions of these names."""
        for each in names:
            asked.pop(each).end()

    def _next(self, now: float) -> Iterator[Forgotten]:
        """Yield the names that have waited longest, each once, if a client still waits for them."""
        for _ in range(LOOKED_AT):
            if not self._waiting or next(iter(self._waiting.values())) > now:
                return
            type_url, name, params = each = self._pop()
            wanted = self._who_waits(type_url, name)
            if wanted:  # the policy may have given its clients other params since
                yield each if params in wanted else (type_url, name, wanted[0])
            elif wanted is not None:  # another policy may allow it again
                self.add(*each, not_before=now + EVERY)

    def _pop(self) -> Forgotten:
        """Remove the oldest name from the queue."""
        each, _ = self._waiting.popitem(last=False)
        self._bytes -= len(each[1])
        return each
