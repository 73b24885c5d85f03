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

_ALL = Key(WILDCARD)

# Names that one delta request subscribes or unsubscribes at most, where the protocol lets the client split.
PORTION = 2_048


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to send, and its keys that are new on this stream: their timers start when it goes out (CLI-11)."""

    body: SotwRequest | DeltaRequest
    fresh: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """An ACK, or a NACK if there is an error; each response gets exactly one (NAK-23)."""

    nonce: str
    version: str
    error: Rejection | None = None
    is_reviewed: bool = False  # `StreamRequests.decide_answer` may turn it into a NACK (PRX-18)


class RequestBuilder(ABC):
    """The part that SotW and delta share: the wanted keys, the changes since the last request, and the open answers.

    A wildcard has two spellings: `*`, which newer servers know, and an empty list of names in the first request of the
    type, which every server knows (WLD-1). `_nameless` says that the stream uses the second one.
    """

    def __init__(self, spec: TypeSpec, wanted: Mapping[Key, None], form: RequestForm = RequestForm.LOCATORS) -> None:
        self.form = form  # with UNKNOWN, a name and its locators are one subscription in two forms
        self._spec = spec
        self._wanted = dict(wanted)
        self._unsent = dict(wanted)  # wanted, and in no request yet
        self._dropped: dict[Key, None] = {}  # unwanted, and no request has unsubscribed them yet
        self._answers: deque[Answer] = deque()
        self._begun = False  # the first request was sent
        self._nameless = False  # the server still reads an empty list of names as a wildcard

    def want(self, key: Key) -> None:
        """Subscribe to a key with the next request."""
        if key not in self._wanted:
            self._wanted[key] = None
            self._unsent[key] = None
            self._touched()

    def unwant(self, key: Key) -> None:
        """Unsubscribe from a key with the next request; a key that was never sent is just forgotten."""
        if key in self._wanted:
            del self._wanted[key]
            if key in self._unsent:
                del self._unsent[key]
            else:
                self._dropped[key] = None
            self._touched()

    def decide(self, form: RequestForm, retracted: Iterable[Key]) -> bool:
        """Set the form, and unsubscribe from the keys that only served to find it out.

        Return whether a plain wildcard among them never reached the server: one that understands locators does not read
        an empty list of names beside locators as a wildcard.
        """
        self.form = form
        self._touched()
        unsaid = False
        wanted, unsent, dropped = self._wanted, self._unsent, self._dropped
        for key in retracted:  # there may be as many as there are names: this is `unwant` without its calls
            if key == _ALL:
                if not (self._nameless and key in wanted):
                    self.unwant(key)
                    continue
                unsaid = True
                del wanted[key]
                unsent.pop(key, None)
            elif key in wanted:
                del wanted[key]
                if key in unsent:
                    del unsent[key]
                else:
                    dropped[key] = None
        self._nameless = self._nameless and not unsaid
        return unsaid

    def answer(self, answer: Answer) -> None:
        """Queue an ACK or NACK for the next poll."""
        self._answers.append(answer)

    @property
    def says_names(self) -> bool:
        """Whether the stream subscribes to anything by a plain name."""
        said = (name for name, params in self._wanted if params is None)
        return any(name != WILDCARD or not self._nameless for name in said)

    @property
    def _legacy(self) -> bool:
        """Whether to spell the wildcard as an empty first request, which every server understands (WLD-1)."""
        return not self._begun and self._is_all

    @property
    def _is_all(self) -> bool:
        """Whether a request without names says everything that is wanted.

        Unless the form is LOCATORS, a locator of the wildcard beside the plain one is the same subscription in another
        form.
        """
        if not self._spec.wildcard or _ALL not in self._wanted:
            return False
        if self.form is RequestForm.LOCATORS:
            return len(self._wanted) == 1
        return all(name == WILDCARD for name, _ in self._wanted)

    @property
    def needs_stream(self) -> bool:
        """Whether a wildcard is wanted that can't be subscribed to on this stream any more.

        A server that knows only names may read `*` as the name of a resource, and an empty list after names as no
        subscription at all (WLD-5). So the wildcard has to come first, on a new stream.
        """
        wild = self._spec.wildcard and _ALL in self._wanted
        return wild and self.form is RequestForm.NAMES and self._begun and not self._nameless

    @property
    def _again(self) -> bool:
        """Whether a key was dropped and is wanted again since the last poll.

        If one request said both, the server would see no change and send nothing.
        """
        return not self._unsent.keys().isdisjoint(self._dropped)

    def poll(self) -> list[Asked]:
        """Return the requests to send now, in order."""
        return finish(self.polling())

    @abstractmethod
    def polling(self) -> Steps[list[Asked]]:
        """Do what `poll` does, in steps."""

    @property
    def is_behind(self) -> bool:
        """Whether to poll again once these requests are written."""
        return False

    def _touched(self) -> None:  # noqa: B027 # only one of the two keeps anything that it derived from this
        """React to a change of the wanted keys."""


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
        super().__init__(spec, wanted, form)
        self._is_believed = is_believed  # a version makes the server skip names too, not only members of a wildcard
        self.version = version  # CLI-5: of the last ACKed response; it outlives the stream
        self._nonce = ""
        self._told: tuple[Key, ...] = ()  # the keys in the last request
        # The keys of a full request; None: the wanted keys changed since.
        self._listed: tuple[Key, ...] | None = None

    def want(self, key: Key) -> None:
        """Add a key. If the first request is not sent yet, it can't claim a version that lacks the key (CLI-5)."""
        if (self._is_believed or key == _ALL) and not self._begun and key not in self._wanted:
            self.version = ""
        super().want(key)

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
        while (self._unsent or self._dropped) and (self._wanted or self._begun):
            asked.append(self._step())
        return asked

    @property
    def _is_all(self) -> bool:
        """Whether a request without names says everything: by names, the wildcard also covers the single names."""
        wild = self._spec.wildcard and _ALL in self._wanted
        return wild if self.form is RequestForm.NAMES else super()._is_all

    def _step(self, error: Rejection | None = None) -> Asked:
        """Return the next request towards the wanted keys: nearly always the only one."""
        # Still the empty list: this server may not know `*`.
        if self._nameless and self.form is RequestForm.NAMES and self._is_all:
            return self._whole(error)
        if self._nameless and (self._again or not self._wanted):
            self._nameless = False  # WLD-5: only after a name does an empty list mean nothing
            return self._ask([_ALL], error)
        if self._again:
            # First leave the key out; the next step lists it again, and only then does the server send it again.
            self._dropped.clear()
            return self._ask([key for key in self._wanted if key not in self._unsent], error)
        return self._whole(error)

    def _whole(self, error: Rejection | None = None) -> Asked:
        """Return a request with all wanted keys."""
        fresh = tuple(self._unsent)
        self._unsent.clear()
        self._dropped.clear()
        if self._legacy:
            self._nameless = True
        self._nameless = self._nameless and self._is_all
        if self._listed is None:
            located = (key for key in self._wanted if key.is_locator)
            self._listed = tuple(located if self._nameless else self._wanted)
        return self._ask(self._listed, error, fresh)

    def _ask(self, wanted: Sequence[Key], error: Rejection | None = None, fresh: tuple[Key, ...] = ()) -> Asked:
        """Return a request with these keys, and remember them as said."""
        self._begun = True
        # Keep the identity of the tuple while its contents stay: `RequestEncoder` encodes one tuple only once.
        self._told = tuple(wanted)
        return Asked(SotwRequest(self._told, self.version, self._nonce, error), fresh)

    def _touched(self) -> None:
        self._listed = None


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
        super().__init__(spec, wanted, form)
        self._held = held
        self._is_listed = is_listed  # whether the wildcard has a member of this name
        self._unsaid: dict[Key, None] = {}  # unwanted, but deliberately not unsubscribed (`_is_kept`)

    def want(self, key: Key) -> None:
        """Add a key; one that is still subscribed (`_is_kept`) needs no request."""
        if key in self._unsaid:
            self._wanted[key] = self._unsaid.pop(key)
        else:
            super().want(key)

    def unwant(self, key: Key) -> None:
        """Drop a key; with the wildcard, also unsubscribe from the names that it had kept subscribed."""
        if self._is_kept(key):
            del self._wanted[key]
            self._unsaid[key] = None
            return
        super().unwant(key)
        if key == _ALL:
            self._nameless = False
            self._dropped |= self._unsaid
            self._unsaid = {}

    def _is_kept(self, key: Key) -> bool:
        """Whether to leave a name subscribed because a plain wildcard covers it.

        Some servers stop updating a resource when its name is unsubscribed, although the wildcard has it too.
        """
        covered = self.form is RequestForm.NAMES and self._nameless and _ALL in self._wanted
        return covered and key in self._wanted and key not in self._unsent and key != _ALL and self._is_listed(key.name)

    def polling(self) -> Steps[list[Asked]]:
        """Return the answers, and then the changes of subscriptions, in portions."""
        # CLI-3: an ACK or NACK has a nonce, a change of subscriptions has none. So these are separate requests.
        asked = [Asked(DeltaRequest(nonce=answer.nonce, error=answer.error)) for answer in self._answers]
        self._answers.clear()
        if not self._begun:
            if self._wanted:
                asked += yield from self._first()
                return asked
        elif self._again:
            # Unsubscribe first and subscribe in a second request, so that the server sends the resource again.
            asked += [self._change((), tuple(self._dropped)), self._change(tuple(self._unsent), ())]
        elif self._unsent or self._dropped:
            asked.append(self._change(self._portion(self._unsent), self._portion(self._dropped)))
            return asked
        self._unsent.clear()
        self._dropped.clear()
        return asked

    @property
    def is_behind(self) -> bool:
        """Whether changes are left over, beyond one portion."""
        return self._begun and bool(self._unsent or self._dropped)

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
        wild = self.form is RequestForm.NAMES and self._spec.wildcard and _ALL in self._wanted
        self._nameless = self._legacy or wild
        self._begun = True
        self._unsent.clear()
        self._dropped.clear()
        wanted = tuple(self._wanted)
        subscribe = tuple(key for key in wanted if key != _ALL) if self._nameless else wanted
        held = yield from self._held()
        # Split only if there are no held versions: they would name resources that a later request subscribes to.
        if not wild and not held and len(subscribe) > PORTION:
            kept = (key for key in subscribe if key in self._wanted)
            self._unsent = {**dict.fromkeys(kept), **self._unsent}
            self._dropped.clear()
            now = self._portion(self._unsent)
            return [Asked(DeltaRequest(now), now)]
        if not wild:
            return [Asked(DeltaRequest(subscribe, initial_versions=held), wanted)]
        probes = tuple(key for key in subscribe if key.name == WILDCARD)
        named = tuple(key for key in subscribe if key.name != WILDCARD)
        first = Asked(DeltaRequest(probes, initial_versions=held), (_ALL, *probes))
        return [first, self._change(named, ())] if named else [first]

    def _change(self, subscribe: tuple[Key, ...], unsubscribe: tuple[Key, ...]) -> Asked:
        """Return a request that changes subscriptions."""
        return Asked(DeltaRequest(subscribe, unsubscribe), subscribe)
