"""Answer one request with one SotW response, where there is no stream: unary Fetch, and REST.

A `Fetch` opens a stream for the request and ends it with the response, so all rules of streams hold. Three things
differ, since the client does not listen after the response:

- The response waits until everything is known that the client asks for, in a relay or with a provider (PRX-11).
- The response is complete, whatever version the client has.
- If the client has, or NACKed, this very version, there is no response until something changes, or until the client's
  time is over (RST-2, RST-4). The fetch is held meanwhile. Each change makes it ask again from the start.

    receive -> poll: None (something is unknown) ... -> poll: Send
                     or None (held) ... -> poll: Send (after a change), or UNCHANGED (time is over)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

from ...errors import PeerError
from ..model.concealment import NOT_SHOWN
from ..model.events import Key, Rejection, Request, Send, SotwRequest
from ..model.facts import Fact, Facts, Joined, Nacked, Requested, Suppressed
from ..model.steps import Steps, finish
from ..model.types import SECRET, TypeUrl
from ..session.session import Session
from .stream import Stream

NOTHING = f"{0:016x}"  # the version of an empty response: versions are sums of hashes
ANSWER = 10.0  # seconds to wait for an upstream, if the client does not say how long it waits


@dataclass(frozen=True, slots=True)
class Patience:
    """Until when the client can wait: for a version that is new to it, and for any response at all."""

    news: float
    answer: float


class Unchanged:
    """The outcome of a fetch whose client has the current version."""


UNCHANGED = Unchanged()


class Fetch:
    """One request on a stream of its own. `facts` belongs to this stream alone."""

    def __init__(self, stream: Stream, facts: Facts, type_url: TypeUrl) -> None:
        self.reported_facts: list[Fact] = []  # the facts that the server's readers are to be told
        self._stream = stream
        self._facts = facts
        self._type_url = type_url
        self._request: Request | None = None
        self._patience = Patience(0.0, 0.0)
        self._known: frozenset[str] = frozenset()  # versions that are not new to the client
        self._sends: list[Send] = []
        self._until = 0.0
        self.is_held = False  # it waits for a change
        self._was_held = False

    @property
    def is_asked(self) -> bool:
        """Whether the request has been received."""
        return self._request is not None

    def receive(self, request: Request, now: float, patience: Patience | None = None) -> None:
        """Take the request. Without `patience` it is answered even if the client has this version. Raises PeerError."""
        finish(self.receiving(request, now, patience))

    def receiving(self, request: Request, now: float, patience: Patience | None = None) -> Steps[None]:
        """Do what `receive` does, in steps."""
        body = cast("SotwRequest", request.body)  # there is no fetch in delta
        # The client has `version`, and NACKed `nonce`, which is a version, too (RST-4).
        if patience is not None:
            self._known = frozenset({body.version, body.nonce if body.error is not None else ""} - {""})
        # SOT-12 is for streams: here an empty response would tell the client that everything is gone.
        request = replace(request, body=replace(body, version=""))
        self._request = request
        self._patience = patience or Patience(now, now + ANSWER)
        self._until = self._patience.answer
        yield from self._ask(now)
        self.reported_facts += [fact for fact in self._facts if isinstance(fact, (Joined, Requested))]
        if body.error is not None:
            # RST-4: the nonce of a fetched response is its version, since there is no stream to count in.
            number, nonce = self._stream.number, body.nonce
            error = body.error
            if self._type_url == SECRET:  # OPS-14: it may quote what it was sent, which nobody remembers
                error = Rejection(error.code, NOT_SHOWN)
            self.reported_facts.append(Nacked(number, self._type_url, nonce, nonce, error))

    def poll(self, now: float) -> Send | Unchanged | None:
        """Return the response, or UNCHANGED; None: not yet. Raises PeerError if there can be none."""
        return finish(self.polling(now))

    @property
    def backlog(self) -> int:
        """Return about how many items the next poll looks at."""
        return self._session.count if self.is_held else self._stream.backlog

    def polling(self, now: float) -> Steps[Send | Unchanged | None]:
        """Do what `poll` does, in steps."""
        if self._request is None:
            return None
        # Something woke a held fetch: close the sessions of its stream, and ask anew.
        if self.is_held:
            if now >= self._until:
                return self._unchanged()
            yield from self._ask_again(now)
        elif self._stream.is_regranted:  # what was collected by another policy does not count
            yield from self._ask_again(now)
        self._sends += yield from self._stream.polling(now)
        # PRX-11: wait for the upstream while the client can. Then answer what is known, if anything is.
        if self._waits:
            if now < self._until:
                return None
            if not self._sends:
                return self._nothing_known()
        answer = self._answer()
        # A version that is new to the client ends the fetch.
        if answer.version not in self._known:
            self.reported_facts += [fact for fact in self._facts if not isinstance(fact, (Joined, Requested))]
            return answer
        self._hold(answer.version, now)
        return self._unchanged() if now >= self._until else None

    def deadline(self) -> float | None:
        """Return when the client's time is over."""
        return self._until if self._request is not None else None

    def hurry(self, now: float) -> None:
        """Make the next poll final: wait for nothing any more."""
        self._patience = Patience(now, now)
        self._until = now

    def _hold(self, version: str, now: float) -> None:
        """Wait for a change: the client has this version, or NACKed it.

        The stream is given the matching ACK or NACK, so that status pages show it as that of any other client (RST-4).
        """
        self.is_held = self._was_held = True
        self._until = self._patience.news
        if self._sends and self._request is not None and isinstance(self._request.body, SotwRequest):
            body = self._request.body
            error = body.error if body.nonce == version else None
            body = replace(body, version=version, nonce=self._sends[-1].nonce, error=error)
            self._stream.receive(replace(self._request, body=body), now)

    def _ask_again(self, now: float) -> Steps[None]:
        """Start over with the same request: something may have changed."""
        self.is_held = False
        self._facts.clear()
        self._sends.clear()
        yield from self._stream.closing()
        yield from self._ask(now)

    def _nothing_known(self) -> Unchanged:
        """Tell a client that was held before that nothing changed; fail with UNAVAILABLE for any other.

        The held client's version was current a moment ago, so it keeps that.
        """
        if self._was_held:
            return self._unchanged()
        raise PeerError("UNAVAILABLE", "the answer is not known yet: the upstream server or provider has not answered")

    def _ask(self, now: float) -> Steps[None]:
        """Give the request to the stream, in steps."""
        if self._request is not None:
            yield from self._stream.receiving(self._request, now)

    def _unchanged(self) -> Unchanged:
        """Count the resources that need not be sent."""
        resources = sum(send.count for send in self._sends)
        self.reported_facts.append(Suppressed(self._stream.number, self._type_url, resources))
        return UNCHANGED

    def _answer(self) -> Send:
        """Join the responses of the stream into one. Where a stream would send nothing, return an empty response."""
        if not self._sends:
            return Send(self._type_url, False, NOTHING, NOTHING)  # noqa: FBT003
        # A full state replaces those before it. Otherwise the responses add up.
        newest = self._sends[-1]
        whole = self._session.table.spec.full_state
        sends = self._sends[-1:] if whole else self._sends
        plain = {variant.name: variant for send in sends for variant in send.plain}
        located = {variant.identity: variant for send in sends for variant in send.located}
        errors = {error: None for send in sends for error in send.errors}
        other = {name for name, _ in located} | {error.about.name for error in errors}
        if not whole and not other.isdisjoint(plain):  # DYN-15
            message = "one response can't have a name both as a plain name and as a locator: use a stream"
            raise PeerError("INVALID_ARGUMENT", message)
        return replace(
            newest,
            nonce=newest.version,
            plain=tuple(plain.values()),
            located=tuple(located.values()),
            errors=tuple(errors),
            ttl=any(send.ttl for send in sends),
        )

    @property
    def _session(self) -> Session:
        """Return the only session of the stream."""
        return self._stream.sessions[self._type_url]

    @property
    def _waits(self) -> bool:
        """Whether a subscription is neither known to exist nor known not to (PRX-11)."""
        session = self._session
        return not session.table.authoritative and any(_unknown(session, session.subscriptions))


def _unknown(session: Session, keys: Iterable[Key]) -> Iterable[Key]:
    """Yield the keys for which a cache knows no answer yet."""
    knowledge = session.table.knowledge
    for key in keys:
        want = session.subscriptions.find(key)
        if want is not None and session.availability.denial(want) is not None:
            continue  # that is an answer
        params = want.params if want is not None else key.tag or session.context.plain_params(key.name)  # DYN-13
        wild = session.subscriptions.wildcard(key)
        if wild is not None:
            known = session.availability.lists(wild)
        else:
            # An error, or a timeout, or a name that can't exist is an answer, too.
            known = knowledge.knows(key.name, params) or knowledge.problem(key.name, params) is not None
            known = known or knowledge.is_late(key.name, params, is_returning=False)
            known = known or session.context.complaint(key.name) is not None
        if not known:
            yield key
