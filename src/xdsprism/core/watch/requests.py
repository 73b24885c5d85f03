"""One resource type on one stream to a server: what to ask for, and which answers are owed. Client side.

The mirror image of a session. A new stream begins with a new object; what has to outlive streams (which resources are
held, in which version) is handed in. Requests are made when they are asked for, so that whatever was wanted meanwhile
goes out as one.
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

_ALL: Key = (WILDCARD, None)

PORTION = 2_048  # names that one delta request subscribes, or unsubscribes, where that is up to the client


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
    is_reviewed: bool = False  # somebody else may yet find that it is a NACK (PRX-18)


class RequestBuilder(ABC):
    """What both protocols share."""

    def __init__(self, spec: TypeSpec, wanted: Mapping[Key, None], form: RequestForm = RequestForm.LOCATORS) -> None:
        self.form = form  # which of the keys say the same in two forms
        self._spec = spec
        self._wanted = dict(wanted)
        self._unsent = dict(wanted)  # the server has not heard of these yet
        self._dropped: dict[Key, None] = {}  # ... and still believes these to be wanted
        self._answers: deque[Answer] = deque()
        self._begun = False  # the first request was sent
        self._nameless = False  # the server still takes an empty list of names for everything

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

    def decide(self, form: RequestForm, retracted: Iterable[Key]) -> bool:
        """The form is known, and these keys were asked only to find out; whether a wildcard among them was never said.

        A server that understands locators did not take an empty list of names for a wildcard where there were any.
        """
        self.form = form
        self._touched()
        unsaid = False
        for key in retracted:
            if key == _ALL and self._nameless and key in self._wanted:
                del self._wanted[key]
                self._unsent.pop(key, None)
                unsaid = True
            else:
                self.unwant(key)
        self._nameless = self._nameless and not unsaid
        return unsaid

    def answer(self, answer: Answer) -> None:
        self._answers.append(answer)

    @property
    def says_names(self) -> bool:
        """Whether the server was asked for anything by a plain name."""
        said = (name for name, params in self._wanted if params is None)
        return any(name != WILDCARD or not self._nameless for name in said)

    @property
    def _legacy(self) -> bool:
        """WLD-1: an empty first request means all, and is the one form of it that every server understands."""
        return not self._begun and self._is_all

    @property
    def _is_all(self) -> bool:
        """Whether all that is wanted can be said without a name. A locator beside it is the same in another form."""
        if not self._spec.wildcard or _ALL not in self._wanted:
            return False
        if self.form is RequestForm.LOCATORS:
            return len(self._wanted) == 1
        return all(name == WILDCARD for name, _ in self._wanted)

    @property
    def needs_stream(self) -> bool:
        """Whether a wildcard is wanted that can't be asked for on this stream any more.

        Servers that know nothing but names may take `*` for one too, and an empty list after names for nothing (WLD-5).
        """
        wild = self._spec.wildcard and _ALL in self._wanted
        return wild and self.form is RequestForm.NAMES and self._begun and not self._nameless

    @property
    def _again(self) -> bool:
        """Something was dropped and is wanted again: said in one breath the server would have nothing to send."""
        return not self._unsent.keys().isdisjoint(self._dropped)

    def poll(self) -> list[Asked]:
        """The requests to send now, in order."""
        return finish(self.polling())

    @abstractmethod
    def polling(self) -> Steps[list[Asked]]:
        """What `poll` does, in steps."""

    @property
    def is_behind(self) -> bool:
        """Whether there is more to send, once these are written."""
        return False

    def _touched(self) -> None:  # noqa: B027 # only one of the two keeps anything that it derived from this
        """What is wanted changed."""


class SotwRequestBuilder(RequestBuilder):
    """CLI-2: each request lists everything."""

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
        self._is_believed = is_believed  # of names: the server does not send what a version says that the client has
        self.version = version  # CLI-5: of the last response that was good; it outlives the stream
        self._nonce = ""
        self._told: tuple[Key, ...] = ()  # what the last request listed
        self._listed: tuple[Key, ...] | None = None

    def want(self, key: Key) -> None:
        """CLI-5: a first request that has this too can't say that the client has everything in that version."""
        if (self._is_believed or key == _ALL) and not self._begun and key not in self._wanted:
            self.version = ""
        super().want(key)

    def polling(self) -> Steps[list[Asked]]:
        yield from ()  # to list what is wanted is short
        asked = []
        while self._answers:
            answer = self._answers.popleft()
            self._nonce = answer.nonce  # CLI-3, CLI-4
            if answer.error is None:
                self.version = answer.version
            # CLI-4: a server may ignore a request whose nonce is not its newest, so that one changes nothing. What is
            # left out of a request to be asked for again in the next would not be sent again otherwise.
            asked.append(self._ask(self._told, answer.error) if self._answers else self._step(answer.error))
        while (self._unsent or self._dropped) and (self._wanted or self._begun):
            asked.append(self._step())
        return asked

    @property
    def _is_all(self) -> bool:
        """Where servers are asked by names, a wildcard has what is wanted by name too: there it says all of it."""
        wild = self._spec.wildcard and _ALL in self._wanted
        return wild if self.form is RequestForm.NAMES else super()._is_all

    def _step(self, error: Rejection | None = None) -> Asked:
        """One request on the way to what is wanted: nearly always the only one."""
        if self._nameless and self.form is RequestForm.NAMES and self._is_all:
            return self._whole(error)
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
        self._nameless = self._nameless and self._is_all
        if self._listed is None:
            located = (key for key in self._wanted if key[1] is not None)
            self._listed = tuple(located if self._nameless else self._wanted)
        return self._ask(self._listed, error, fresh)

    def _ask(self, wanted: Sequence[Key], error: Rejection | None = None, fresh: tuple[Key, ...] = ()) -> Asked:
        self._begun = True
        # The same tuple for as long as it says the same, as it is encoded once.
        self._told = tuple(wanted)
        return Asked(SotwRequest(self._told, self.version, self._nonce, error), fresh)

    def _touched(self) -> None:
        self._listed = None


class DeltaRequestBuilder(RequestBuilder):
    """CLI-6: the first request says what is held; later ones say what changes."""

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
        self._is_listed = is_listed  # whether the wildcard has a name
        self._unsaid: dict[Key, None] = {}  # not wanted any more, which the server was not told

    def want(self, key: Key) -> None:
        if key in self._unsaid:
            self._wanted[key] = self._unsaid.pop(key)
        else:
            super().want(key)

    def unwant(self, key: Key) -> None:
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
        """Whether a name is better not given up: what a wildcard has too is not heard of any more on some servers."""
        covered = self.form is RequestForm.NAMES and self._nameless and _ALL in self._wanted
        return covered and key in self._wanted and key not in self._unsent and key != _ALL and self._is_listed(key[0])

    def polling(self) -> Steps[list[Asked]]:
        # CLI-3: an answer has a nonce, a change of subscriptions has none: two requests.
        asked = [Asked(DeltaRequest(nonce=answer.nonce, error=answer.error)) for answer in self._answers]
        self._answers.clear()
        if not self._begun:
            if self._wanted:
                asked += yield from self._first()
                return asked
        elif self._again:
            asked += [self._change((), tuple(self._dropped)), self._change(tuple(self._unsent), ())]
        elif self._unsent or self._dropped:
            asked.append(self._change(self._portion(self._unsent), self._portion(self._dropped)))
            return asked
        self._unsent.clear()
        self._dropped.clear()
        return asked

    @property
    def is_behind(self) -> bool:
        return self._begun and bool(self._unsent or self._dropped)

    def _portion(self, keys: dict[Key, None]) -> tuple[Key, ...]:
        """Take out what one request says: a server is told of very many in several, each of which is soon written."""
        if len(keys) <= PORTION:
            taken = tuple(keys)
            keys.clear()
            return taken
        taken = tuple(islice(keys, PORTION))
        rest = dict.fromkeys(islice(keys, PORTION, None))  # nothing is taken fast from the front of a dict
        keys.clear()
        keys.update(rest)
        return taken

    def _first(self) -> Steps[list[Asked]]:
        """Nearly always one request. A wildcard that is said by an empty list has to be alone in its own.

        What is wanted, or not any more, between two steps goes into a later request.
        """
        wild = self.form is RequestForm.NAMES and self._spec.wildcard and _ALL in self._wanted
        self._nameless = self._legacy or wild
        self._begun = True
        self._unsent.clear()
        self._dropped.clear()
        wanted = tuple(self._wanted)
        subscribe = tuple(key for key in wanted if key != _ALL) if self._nameless else wanted
        held = yield from self._held()
        if not wild and not held and len(subscribe) > PORTION:  # versions would be of what is asked for later
            kept = (key for key in subscribe if key in self._wanted)
            self._unsent = {**dict.fromkeys(kept), **self._unsent}
            self._dropped.clear()
            now = self._portion(self._unsent)
            return [Asked(DeltaRequest(now), now)]
        if not wild:
            return [Asked(DeltaRequest(subscribe, initial_versions=held), wanted)]
        probes = tuple(key for key in subscribe if key[0] == WILDCARD)
        named = tuple(key for key in subscribe if key[0] != WILDCARD)
        first = Asked(DeltaRequest(probes, initial_versions=held), (_ALL, *probes))
        return [first, self._change(named, ())] if named else [first]

    def _change(self, subscribe: tuple[Key, ...], unsubscribe: tuple[Key, ...]) -> Asked:
        return Asked(DeltaRequest(subscribe, unsubscribe), subscribe)
