"""Find out what a server understands: locators or plain names only, delta or SotW only (PRX-32, PRX-33).

Control planes in the field ignore `resource_locators`. While it is unknown whether a server does, each subscription
goes out in both forms, and the server's answers decide:

| form so far | event                                                                   | form from then on           |
|-------------|-------------------------------------------------------------------------|-----------------------------|
| UNKNOWN     | an answer in the form of locators, or from a server of this project     | LOCATORS                    |
| UNKNOWN     | a plain answer for a type without any subscription by plain name        | NAMES                       |
| UNKNOWN     | any other plain answer                                                  | NAMES, after PATIENCE       |
| UNKNOWN     | a response with nothing in it, or silence                               | UNKNOWN                     |
| UNKNOWN     | the stream ends before any answer, as if the server understood nothing  | NAMES, on trial             |
| NAMES       | an answer in the form of locators                                       | LOCATORS                    |
| NAMES, trial| the stream ends before any answer: the form was not the reason          | UNKNOWN                     |
| LOCATORS    | unrequested plain resources, first on a stream: it is another server now| UNKNOWN                     |

The last line follows from how a server without locators reads a request that contains nothing but locators: as a
wildcard. So such a request is never sent while the form is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from .constraints import TRUE, canonical
from .responses import Heartbeat, InvalidResource, Response, Unresolved

PATIENCE = 0.5  # seconds to wait for an answer in the form of locators after a plain one

NARROW = 600.0  # seconds, at least, until larger locators are tried again on a server that refused them

OUR_SERVERS = "xdsprism"  # the beginning of control_plane.identifier of this project's servers (SRV-20)

# Statuses with which servers end a stream after a request that they do not understand.
_NOT_UNDERSTOOD = frozenset({"INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL", "UNKNOWN"})


class RequestForm(Enum):
    """How subscriptions with params are written in requests to a server."""

    UNKNOWN = "unknown"  # write both forms
    LOCATORS = "locators"
    NAMES = "names"  # leave out the params: an answer is for every subscription to its name


class Dialect:
    """What the client knows of one server from all of its streams; kept for as long as the process lives."""

    def __init__(
        self, form: RequestForm = RequestForm.LOCATORS, *, fixed: bool = True, needs_delta: bool = True
    ) -> None:
        self.form = form
        self.needs_delta = needs_delta  # the configuration insists on delta: do not fall back to SotW
        self.is_fixed = fixed  # the configuration sets the form, and no answer of the server changes it
        # PRX-35: the server ended a stream over a locator that is within this project's limits, but larger than NARROW
        # in watch/query_params.py: ever, or recently.
        self.was_narrow = self.is_narrow = False
        self._narrow_until = 0.0
        self.lacks_delta = False  # the method is UNIMPLEMENTED; tried again on a new connection (PRX-33)
        self._is_on_trial = False  # NAMES is a guess after a failed stream, and no answer has confirmed it
        self._avoids_locators = False  # the server ends streams that have a locator, so send none even as a probe
        self._announced: set[RequestForm | None] = set()  # see `is_news`

    @property
    def by_names(self) -> bool:
        """Whether subscriptions go out as plain names only."""
        return self.form is RequestForm.NAMES

    @property
    def probes(self) -> bool:
        """Whether each new stream includes a locator or two, in case the server has learned to understand them."""
        return self.by_names and not self.is_fixed and not self._avoids_locators

    def decide(self, form: RequestForm) -> bool:
        """Set the form that an answer showed; return whether this was not reported before."""
        self.form, self._is_on_trial, self._avoids_locators = form, False, False
        return self.is_news(form)

    def refused(self, status: str) -> bool:
        """Note that a stream ended before any answer; return whether its locators may be the reason."""
        if self.is_fixed:
            return False
        if self._is_on_trial:  # it failed without locators too: they were not the reason
            self.form, self._is_on_trial, self._avoids_locators = RequestForm.UNKNOWN, False, False
            return False
        if self.form is not RequestForm.UNKNOWN or status not in _NOT_UNDERSTOOD:
            return False
        self.form, self._is_on_trial, self._avoids_locators = RequestForm.NAMES, True, True
        return True

    def answered(self) -> bool:
        """Note the first answer on a stream; return whether it confirms the form on trial and that is news."""
        was_on_trial, self._is_on_trial = self._is_on_trial, False
        return was_on_trial and self.is_news(self.form)

    def narrow(self, now: float) -> None:
        """PRX-35: note that the server ended a stream over a locator that other servers take."""
        self.was_narrow = self.is_narrow = True
        self._narrow_until = now + NARROW

    def connect_anew(self, now: float, *, sotw: bool) -> None:
        """Prepare for a new connection, perhaps to an upgraded server. sotw: the last stream was in SotW.

        Larger locators are not tried on every new connection, because a failure costs the first stream.
        """
        self.lacks_delta = self.lacks_delta and not sotw  # PRX-33
        self.is_narrow = self.is_narrow and now < self._narrow_until

    def is_news(self, what: RequestForm | None) -> bool:
        """Whether this was not reported yet: a form, or None for the lack of delta. Marks it as reported."""
        news = what not in self._announced
        self._announced.add(what)
        return news


def form_of(response: Response) -> RequestForm:
    """Return the form that the contents of a response are in; UNKNOWN if they fit both forms.

    Errors without constraints fit both: this project's servers write them for locators of names that do not exist.
    """
    if response.server.startswith(OUR_SERVERS):
        return RequestForm.LOCATORS
    named: list[Heartbeat | InvalidResource | Unresolved] = [
        *response.heartbeats,
        *response.flaws,
        *response.unresolved,
    ]
    located = bool(response.withdrawn) or any(arrival.located for arrival in response.arrivals)
    located = located or any(item.constraint is not None for item in named)
    if located or any(canonical(error.about.constraint) != TRUE for error in response.errors):
        return RequestForm.LOCATORS
    return RequestForm.NAMES if response.arrivals or response.removed or named else RequestForm.UNKNOWN


def without_plain(response: Response, is_probed: Callable[[str], bool]) -> tuple[Response, set[str]]:
    """Leave out the answers to plain names that were sent only to find out the form; also return these names."""
    plain = {each.variant.name for each in response.arrivals if not each.located}
    plain |= {each.name for each in response.heartbeats if each.constraint is None}
    plain |= {each.name for each in response.flaws if each.constraint is None}
    plain |= {string for each in response.unresolved if each.constraint is None for string in each.strings}
    plain = {name for name in (*plain, *response.removed) if is_probed(name)}
    if not plain:
        return response, plain
    left = replace(
        response,
        arrivals=tuple(each for each in response.arrivals if each.located or each.variant.name not in plain),
        heartbeats=tuple(each for each in response.heartbeats if each.constraint is not None or each.name not in plain),
        flaws=tuple(each for each in response.flaws if each.constraint is not None or each.name not in plain),
        removed=tuple(name for name in response.removed if name not in plain),
        unresolved=tuple(each for each in response.unresolved if each.constraint or plain.isdisjoint(each.strings)),
    )
    return left, plain
