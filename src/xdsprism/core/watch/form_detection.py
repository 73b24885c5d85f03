"""Which responses can be read, as long as it is unknown in which form a server understands subscriptions (PRX-32).

And how large its locators may be: what it ends a stream for is not repeated (PRX-35).

`dialect.py` has the table of what decides. Until then plain answers wait: a server that understands locators gives them
to the relay's own node, and they are nobody else's.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.dialect import RequestForm, form_of
from ..model.facts import Fact, FormFound
from ..model.responses import Response
from ..model.types import Params, TypeUrl
from .quarantine import BLAMING
from .query_params import is_wide
from .upstream import Upstream
from .watched_type import WatchedType


class FormDetection:
    """Watches what servers say, and tells their upstreams how to ask."""

    def __init__(self, topics: Mapping[TypeUrl, WatchedType], facts: list[Fact]) -> None:
        self._topics = topics
        self._facts = facts

    def readable(self, upstream: Upstream, response: Response, now: float) -> list[Response]:
        """What can be read now that this has come: nothing, as long as it is unclear whom plain answers are for."""
        dialect = upstream.dialect
        if dialect.is_fixed:
            return [response]
        form = form_of(response)
        upstream.has_located |= form is RequestForm.LOCATORS
        if dialect.form is RequestForm.UNKNOWN:
            return self._recognise(upstream, response, form, now)
        if upstream.form is not dialect.form:  # another stream to the server has found out
            waiting = self._decide(upstream, dialect.form, now)
            return [*waiting, upstream.without_probes(response, now)]
        if dialect.form is RequestForm.NAMES and form is RequestForm.LOCATORS:
            self._begin_anew(upstream, RequestForm.LOCATORS)
            return []
        if dialect.form is RequestForm.LOCATORS and self._is_read_as_wildcard(upstream, response):
            self._begin_anew(upstream, RequestForm.UNKNOWN)
            return []
        if dialect.answered():
            self._facts.append(FormFound(upstream.label, dialect.form))
        return [upstream.without_probes(response, now)]

    def tick(self, upstream: Upstream, now: float) -> list[Response]:
        """What has waited long enough for an answer in the form of locators."""
        for type_url, name in [owed for owed, until in upstream.owed.items() if until <= now]:
            del upstream.owed[type_url, name]
            topic = self._topics.get(type_url)
            if topic is not None and any(entry.lacking for entry in topic.known(name, upstream)):
                upstream.renew()  # the plain answer was to the locator too: it comes again where only that is asked
        if not upstream.waiting or upstream.waits_until > now:
            return []
        known = upstream.dialect.form  # another stream to the server may have found out meanwhile
        return self._decide(upstream, RequestForm.NAMES if known is RequestForm.UNKNOWN else known, now)

    def blamed(self, upstream: Upstream, params: Params | None, now: float) -> None:
        """PRX-35: a question with these params was found to be why a server ended the stream."""
        if is_wide(params):
            upstream.dialect.narrow(now)

    def ended(self, upstream: Upstream, status: str, now: float) -> None:
        """A stream is over. A server that took only small locators once is not asked twice with a large one."""
        blames = upstream.dialect.was_narrow and status in BLAMING
        if blames and any(is_wide(entry.key[1]) for entry in upstream.awaited):
            upstream.dialect.narrow(now)

    def _recognise(self, upstream: Upstream, response: Response, form: RequestForm, now: float) -> list[Response]:
        if form is RequestForm.NAMES and upstream.says_names(response.type_url):
            upstream.wait(response, now)
            return []
        if form is RequestForm.UNKNOWN:
            if not upstream.waiting:
                return [response]  # there is nothing in it that could be for somebody else
            upstream.wait(response, now)  # but SotW has an order
            return []
        return [*self._decide(upstream, form, now), upstream.without_probes(response, now)]

    def _decide(self, upstream: Upstream, form: RequestForm, now: float) -> list[Response]:
        """The form is known; returns what has waited for that."""
        waiting, upstream.waiting[:] = upstream.waiting[:], []
        if upstream.decide(form):
            self._facts.append(FormFound(upstream.label, form))
        return [upstream.without_probes(each, now) for each in waiting]

    def _begin_anew(self, upstream: Upstream, form: RequestForm) -> None:
        """A server understands something else than was known: everything is asked for again, on another stream.

        The server is not told what is held: its versions may be those of something else by the same name.
        """
        if upstream.decide(form) and form is not RequestForm.UNKNOWN:
            self._facts.append(FormFound(upstream.label, form))
        for entry in (each for topic in self._topics.values() for each in topic if each.source is upstream):
            entry.source = None
            entry.unsettle()
        upstream.renew()

    def _is_read_as_wildcard(self, upstream: Upstream, response: Response) -> bool:
        """Whether a server that was asked by locators alone sends what nobody asked for: it does not know them."""
        topic = self._topics.get(response.type_url)
        if upstream.has_located or topic is None or upstream.says_names(response.type_url):
            return False
        return any(not each.located and not topic.has_asked(each.variant.name) for each in response.arrivals)
