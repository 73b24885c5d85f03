"""Build the requests of one type on one stream to a server: subscriptions, ACKs and NACKs, in SotW and in delta.

This is the client's counterpart of a server's session. Each stream begins with a new builder; the state that outlives
streams (cached resources and their versions) is passed in. `want`, `unwant` and `answer` only take notes. `poll` makes
the requests, so that all changes since the last poll go out in as few requests as possible.

An example in delta:

    want a, want b          poll -> subscribe [a, b], initial_resource_versions of what is cached
    answer(nonce 1)         poll -> response_nonce 1                                              (an ACK)
    unwant b, want c        poll -> subscribe [c], unsubscribe [b]

and in SotW:

    want a, want b          poll -> resource_names [a, b], version_info of the last stream
    answer(nonce 1)         poll -> resource_names [a, b], response_nonce 1, version_info of the response
    unwant b, want c        poll -> resource_names [a, c], response_nonce 1, the same version_info
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from ..model.dialect import RequestForm
from ..model.events import WILDCARD, DeltaRequest, Key, Rejection, SotwRequest
from ..model.steps import Steps, finish
from ..model.types import TypeSpec
from .wanted_keys import ALL, WantedKeys

# Names that one delta request subscribes or unsubscribes at most, where the protocol lets the client split.
PORTION = 2_048


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to send, and its keys that are new on this stream: their timers start when it goes out (CLI-11)."""

    body: SotwRequest | DeltaRequest
    fresh: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class AckOrNack:
    """An ACK, or a NACK if there is an error; each response gets exactly one (NAK-23)."""

    nonce: str
    version: str
    error: Rejection | None = None
    is_reviewed: bool = False  # `StreamRequests.decide_answer` may turn it into a NACK (PRX-18)


class RequestBuilder(ABC):
    """Makes the requests of one type on one stream: an interface, of which SotW and delta are the two kinds.

    What both know, which keys are wanted and which of them the server was told, is in `keys`.
    """

    keys: WantedKeys

    @abstractmethod
    def want(self, key: Key) -> None:
        """Subscribe to a key with the next request."""

    @abstractmethod
    def unwant(self, key: Key) -> None:
        """Unsubscribe from a key with the next request; a key that was never sent is just forgotten."""

    @abstractmethod
    def decide(self, form: RequestForm, retracted: Iterable[Key]) -> bool:
        """Set the form, as `WantedKeys.decide` does."""

    @abstractmethod
    def answer(self, answer: AckOrNack) -> None:
        """Queue an ACK or NACK for the next poll."""

    @abstractmethod
    def polling(self) -> Steps[list[Asked]]:
        """Return the requests to send now, in order; in steps."""

    def poll(self) -> list[Asked]:
        """Return the requests to send now, in order."""
        return finish(self.polling())

    @property
    def is_behind(self) -> bool:
        """Whether to poll again once these requests are written."""
        return False


class SotwRequestBuilder(RequestBuilder):
    """SotW: each request lists everything that is wanted (CLI-2)."""

    def __init__(
        self,
        spec: TypeSpec,
        wanted: Mapping[Key, None],
        version: str,
        form: RequestForm = RequestForm.LOCATORS,
        *,
        is_believed: bool = True,
    ) -> None:
        self.keys = WantedKeys(spec, wanted, form)
        self._answers: deque[AckOrNack] = deque()
        self._is_believed = is_believed  # a version makes the server skip names too, not only members of a wildcard
        self.version = version  # CLI-5: of the last ACKed response; it outlives the stream
        self._nonce = ""
        self._told: tuple[Key, ...] = ()  # the keys in the last request
        # The keys of a full request; None: the wanted keys changed since.
        self._listed: tuple[Key, ...] | None = None

    def want(self, key: Key) -> None:
        """Add a key. A first request that is yet to be sent then names no version: that lacks the key (CLI-5)."""
        if (self._is_believed or key == ALL) and not self.keys.has_begun and key not in self.keys.wanted:
            self.version = ""
        if self.keys.add(key):
            self._listed = None

    def unwant(self, key: Key) -> None:
        if self.keys.remove(key):
            self._listed = None

    def decide(self, form: RequestForm, retracted: Iterable[Key]) -> bool:
        self._listed = None
        return self.keys.decide(form, retracted)

    def answer(self, answer: AckOrNack) -> None:
        self._answers.append(answer)

    def polling(self) -> Steps[list[Asked]]:
        """Return one request for each answer, and more if subscriptions changed and no answer could say so."""
        yield from ()  # it takes no time worth splitting
        asked = []
        while self._answers:
            answer = self._answers.popleft()
            self._nonce = answer.nonce  # CLI-3, CLI-4
            if answer.error is None:
                self.version = answer.version
            # CLI-4: a server may ignore a request whose nonce is not its newest, so only the last answer may change the
            # list of names. A name that one ignored request drops and the next one adds again would not be sent again.
            asked.append(self._ask(self._told, answer.error) if self._answers else self._step(answer.error))
        keys = self.keys
        while (keys.unsent or keys.dropped) and (keys.wanted or keys.has_begun):
            asked.append(self._step())
        return asked

    @property
    def _is_all(self) -> bool:
        """Whether a request without names says everything: by names, the wildcard also covers the single names."""
        return self.keys.has_wildcard if self.keys.form is RequestForm.NAMES else self.keys.is_all

    def _step(self, error: Rejection | None = None) -> Asked:
        """Return the next request towards the wanted keys: nearly always the only one."""
        keys = self.keys
        # Still the empty list: this server may not know `*`.
        if keys.is_nameless and keys.form is RequestForm.NAMES and self._is_all:
            return self._whole(error)
        if keys.is_nameless and (keys.has_returned or not keys.wanted):
            keys.is_nameless = False  # WLD-5: only after a name does an empty list mean nothing
            return self._ask([ALL], error)
        if keys.has_returned:
            # First leave the key out; the next step lists it again, and only then does the server send it again.
            keys.dropped.clear()
            return self._ask([key for key in keys.wanted if key not in keys.unsent], error)
        return self._whole(error)

    def _whole(self, error: Rejection | None = None) -> Asked:
        """Return a request with all wanted keys."""
        keys = self.keys
        fresh = tuple(keys.unsent)
        keys.note_sent()
        # WLD-1: a wildcard is spelled as an empty first request, which every server understands.
        keys.is_nameless = self._is_all and (keys.is_nameless or not keys.has_begun)
        if self._listed is None:
            located = (key for key in keys.wanted if key.is_locator)
            self._listed = tuple(located if keys.is_nameless else keys.wanted)
        return self._ask(self._listed, error, fresh)

    def _ask(self, wanted: Sequence[Key], error: Rejection | None = None, fresh: tuple[Key, ...] = ()) -> Asked:
        """Return a request with these keys, and remember them as said."""
        self.keys.has_begun = True
        # Keep the identity of the tuple while its contents stay: `RequestEncoder` encodes one tuple only once.
        self._told = tuple(wanted)
        return Asked(SotwRequest(self._told, self.version, self._nonce, error), fresh)


class DeltaRequestBuilder(RequestBuilder):
    """Delta: the first request names the held versions, later ones only changes (CLI-6)."""

    def __init__(
        self,
        spec: TypeSpec,
        wanted: Mapping[Key, None],
        held: Callable[[], Steps[Mapping[str, str]]],
        form: RequestForm = RequestForm.LOCATORS,
        *,
        is_listed: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.keys = WantedKeys(spec, wanted, form)
        self._answers: deque[AckOrNack] = deque()
        self._held = held
        self._is_listed = is_listed  # whether the wildcard has a member of this name
        self._unsaid: dict[Key, None] = {}  # unwanted, but deliberately not unsubscribed (`_is_kept`)

    def want(self, key: Key) -> None:
        """Add a key; one that is still subscribed (`_is_kept`) needs no request."""
        if key in self._unsaid:
            self.keys.wanted[key] = self._unsaid.pop(key)
        else:
            self.keys.add(key)

    def unwant(self, key: Key) -> None:
        """Drop a key; with the wildcard, also unsubscribe from the names that it had kept subscribed."""
        if self._is_kept(key):
            del self.keys.wanted[key]
            self._unsaid[key] = None
            return
        self.keys.remove(key)
        if key == ALL:
            self.keys.is_nameless = False
            self.keys.dropped |= self._unsaid
            self._unsaid = {}

    def _is_kept(self, key: Key) -> bool:
        """Whether to leave a name subscribed because a plain wildcard covers it.

        Some servers stop updating a resource when its name is unsubscribed, although the wildcard has it too.
        """
        keys = self.keys
        covered = keys.form is RequestForm.NAMES and keys.is_nameless  # which it is only as long as `*` is wanted
        return covered and key in keys.wanted and key not in keys.unsent and key != ALL and self._is_listed(key.name)

    def decide(self, form: RequestForm, retracted: Iterable[Key]) -> bool:
        return self.keys.decide(form, retracted)

    def answer(self, answer: AckOrNack) -> None:
        self._answers.append(answer)

    def polling(self) -> Steps[list[Asked]]:
        """Return the answers, and then the changes of subscriptions, in portions."""
        # CLI-3: an ACK or NACK has a nonce, a change of subscriptions has none. So these are separate requests.
        asked = [Asked(DeltaRequest(nonce=answer.nonce, error=answer.error)) for answer in self._answers]
        self._answers.clear()
        keys = self.keys
        if not keys.has_begun:
            if keys.wanted:
                asked += yield from self._first()
                return asked
        elif keys.has_returned:
            # Unsubscribe first and subscribe in a second request, so that the server sends the resource again.
            asked += [self._change((), tuple(keys.dropped)), self._change(tuple(keys.unsent), ())]
        elif keys.unsent or keys.dropped:
            asked.append(self._change(self._portion(keys.unsent), self._portion(keys.dropped)))
            return asked
        keys.note_sent()
        return asked

    @property
    def is_behind(self) -> bool:
        """Whether changes are left over, beyond one portion."""
        return self.keys.has_begun and bool(self.keys.unsent or self.keys.dropped)

    def _portion(self, keys: dict[Key, None]) -> tuple[Key, ...]:
        """Remove and return the keys for one request, so that each request is written soon."""
        if len(keys) <= PORTION:
            taken = tuple(keys)
            keys.clear()
            return taken
        taken = tuple(islice(keys, PORTION))
        rest = dict.fromkeys(islice(keys, PORTION, None))  # removing many first items of a dict one by one is slow
        keys.clear()
        keys.update(rest)
        return taken

    def _first(self) -> Steps[list[Asked]]:
        """Return the first request, or two: a wildcard that is spelled as an empty list needs a request of its own.

        The wanted keys may change between two steps; such changes go into a later request.
        """
        keys = self.keys
        wild = keys.form is RequestForm.NAMES and keys.has_wildcard
        keys.is_nameless = keys.is_all or wild  # WLD-1
        keys.has_begun = True
        keys.note_sent()
        wanted = tuple(keys.wanted)
        subscribe = tuple(key for key in wanted if key != ALL) if keys.is_nameless else wanted
        held = yield from self._held()
        # Split only if there are no held versions: they would name resources that a later request subscribes to.
        if not wild and not held and len(subscribe) > PORTION:
            kept = (key for key in subscribe if key in keys.wanted)
            keys.unsent = {**dict.fromkeys(kept), **keys.unsent}
            keys.dropped.clear()
            now = self._portion(keys.unsent)
            return [Asked(DeltaRequest(now), now)]
        if not wild:
            return [Asked(DeltaRequest(subscribe, initial_versions=held), wanted)]
        probes = tuple(key for key in subscribe if key.name == WILDCARD)
        named = tuple(key for key in subscribe if key.name != WILDCARD)
        first = Asked(DeltaRequest(probes, initial_versions=held), (ALL, *probes))
        return [first, self._change(named, ())] if named else [first]

    def _change(self, subscribe: tuple[Key, ...], unsubscribe: tuple[Key, ...]) -> Asked:
        """Return a request that changes subscriptions."""
        return Asked(DeltaRequest(subscribe, unsubscribe), subscribe)
