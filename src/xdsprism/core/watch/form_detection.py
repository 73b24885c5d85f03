"""Find out whether a server understands locators, and hold back plain answers until that is known (PRX-32).

While the form is UNKNOWN, each subscription with params goes out both as a locator and as a plain name. `dialect.py`
has the table of events that decide the form. Until then plain answers wait in `UnreadAnswers.waiting`: a server that
understands locators chooses plain answers by the params of the relay's own node, so they are wrong for the relay's
clients.

This module also finds out how large the locators of a server may be: the client does not repeat a locator for which the
server ended the stream (PRX-35).
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
    """Reads the form of each response, and switches the upstream's requests to the form that the server understands."""

    def __init__(self, topics: Mapping[TypeUrl, WatchedType], facts: list[Fact]) -> None:
        self._topics = topics
        self._facts = facts

    def readable(self, upstream: Upstream, response: Response, now: float) -> list[Response]:
        """Return the responses to apply now: this one after the waiting ones, or none while the form is unknown."""
        dialect = upstream.dialect
        if dialect.is_fixed:
            return [response]
        form = form_of(response)
        upstream.has_located |= form is RequestForm.LOCATORS
        if dialect.form is RequestForm.UNKNOWN:
            return self._recognise(upstream, response, form, now)
        if upstream.form is not dialect.form:  # another stream to the same server has decided
            waiting = self._decide(upstream, dialect.form, now)
            return [*waiting, _without_probes(upstream, response, now)]
        # A probe was answered: the server has learned locators, for instance by an upgrade.
        if dialect.form is RequestForm.NAMES and form is RequestForm.LOCATORS:
            self._begin_anew(upstream, RequestForm.LOCATORS)
            return []
        # The server changed for one without locators, which took a request with nothing else for a wildcard.
        if dialect.form is RequestForm.LOCATORS and self._is_read_as_wildcard(upstream, response):
            self._begin_anew(upstream, RequestForm.UNKNOWN)
            return []
        if dialect.answered():
            self._facts.append(FormFound(upstream.label, dialect.form))
        return [_without_probes(upstream, response, now)]

    def tick(self, upstream: Upstream, now: float) -> list[Response]:
        """Return the responses that waited long enough for an answer in the form of locators."""
        for type_url, name in [owed for owed, until in upstream.unread.owed.items() if until <= now]:
            del upstream.unread.owed[type_url, name]
            topic = self._topics.get(type_url)
            if topic is not None and any(entry.lacking for entry in topic.known(name, upstream)):
                upstream.renew()  # the server takes both for answered: a new stream asks by locator alone
        if not upstream.unread.waiting or upstream.unread.until > now:
            return []
        known = upstream.dialect.form  # another stream to the same server may have decided meanwhile
        return self._decide(upstream, RequestForm.NAMES if known is RequestForm.UNKNOWN else known, now)

    def note_culprit(self, upstream: Upstream, params: Params | None, now: float) -> None:
        """Ask with small locators from now on, if the subscription that ended the stream had a large one (PRX-35)."""
        if is_wide(params):
            upstream.dialect.narrow(now)

    def ended(self, upstream: Upstream, status: str, now: float) -> None:
        """Ask with small locators again, if the server refused large ones before and may have done so now."""
        blames = upstream.dialect.was_narrow and status in BLAMING
        if blames and any(is_wide(entry.params) for entry in upstream.pending.awaited):
            upstream.dialect.narrow(now)

    def _recognise(self, upstream: Upstream, response: Response, form: RequestForm, now: float) -> list[Response]:
        """Decide the form by this response, or let the response wait."""
        # It may answer the plain name, while the answer to the locator is still to come.
        if form is RequestForm.NAMES and upstream.requests.says_names(response.type_url):
            upstream.unread.wait(response, now)
            return []
        if form is RequestForm.UNKNOWN:
            if not upstream.unread.waiting:
                return [response]  # it has no resource, so it can't be for the wrong client
            upstream.unread.wait(response, now)  # SotW responses keep their order, so it waits behind the others
            return []
        return [*self._decide(upstream, form, now), _without_probes(upstream, response, now)]

    def _decide(self, upstream: Upstream, form: RequestForm, now: float) -> list[Response]:
        """Fix the form; return the responses that waited for it, without the answers to probes."""
        waiting, upstream.unread.waiting[:] = upstream.unread.waiting[:], []
        if upstream.decide(form):
            self._facts.append(FormFound(upstream.label, form))
        return [_without_probes(upstream, each, now) for each in waiting]

    def _begin_anew(self, upstream: Upstream, form: RequestForm) -> None:
        """Switch to another form, and subscribe to everything again on a new stream.

        `source = None` keeps the new stream from naming held versions: a version may be that of another variant of the
        name.
        """
        if upstream.decide(form) and form is not RequestForm.UNKNOWN:
            self._facts.append(FormFound(upstream.label, form))
        for topic in self._topics.values():
            for entry in topic:
                if entry.sent_by is upstream:
                    entry.sent_by = None
                    entry.offer_again()
        upstream.renew()

    def _is_read_as_wildcard(self, upstream: Upstream, response: Response) -> bool:
        """Whether the server answers locators with plain resources that have no subscription."""
        topic = self._topics.get(response.type_url)
        if upstream.has_located or topic is None or upstream.requests.says_names(response.type_url):
            return False
        return any(not each.located and not topic.has_asked(each.variant.name) for each in response.arrivals)


def _without_probes(upstream: Upstream, response: Response, now: float) -> Response:
    """Remove the answers to probes from a response.

    If no answer to the locator of such a name comes in PATIENCE seconds, `FormDetection.tick` asks for it again.
    """
    left, names = upstream.requests.without_probes(response)
    upstream.unread.owe(response.type_url, names, now)
    return left
