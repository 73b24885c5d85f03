"""What one server understands: subscriptions by locators or by plain names only, delta or SotW only (PRX-32, PRX-33).

Control planes in the field ignore `resource_locators`. As long as it is unknown whether a server does, each
subscription goes out in both forms, and what the server answers decides:

| form so far | event                                                                   | form from then on           |
|-------------|-------------------------------------------------------------------------|-----------------------------|
| UNKNOWN     | an answer in the form of locators, or from a server of ours             | LOCATORS                    |
| UNKNOWN     | a plain answer for a type that no plain name was asked of               | NAMES                       |
| UNKNOWN     | a plain answer otherwise                                                | NAMES, after PATIENCE       |
| UNKNOWN     | a response with nothing in it, or silence                               | UNKNOWN                     |
| UNKNOWN     | the stream ends before any answer, with a status for what makes no sense| NAMES, on trial             |
| NAMES       | an answer in the form of locators                                       | LOCATORS                    |
| NAMES, trial| the stream ends before any answer: the form was not the reason          | UNKNOWN                     |
| LOCATORS    | plain resources that nobody asked for, first on a stream: another server| UNKNOWN                     |

The last line is how a server without locators reads a request that has nothing else: as a wildcard. So such a request
is never sent while the form is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from .constraints import TRUE, canonical
from .responses import Heartbeat, InvalidResource, Response, Unresolved

PATIENCE = 0.5  # seconds for which a plain answer waits for one in the form of locators

NARROW = 600.0  # seconds for which it is not tried again whether a server takes larger locators, at least

OUR_SERVERS = "xdsprism"  # what control_plane.identifier begins with (SRV-20)

# How servers end a stream on which they read something that they do not expect.
_NOT_UNDERSTOOD = frozenset({"INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL", "UNKNOWN"})


class RequestForm(Enum):
    """How subscriptions with params are put to a server."""

    UNKNOWN = "unknown"  # in both forms
    LOCATORS = "locators"
    NAMES = "names"  # params are left out: an answer is for all who asked for its name


class Dialect:
    """Belongs to a server, not to a stream: it is remembered for as long as the process lives."""

    def __init__(
        self, form: RequestForm = RequestForm.LOCATORS, *, fixed: bool = True, needs_delta: bool = True
    ) -> None:
        self.form = form
        self.needs_delta = needs_delta  # somebody insists on delta, where it is what streams begin with
        self.is_fixed = fixed  # somebody chose the form, and nothing that the server says changes it
        # PRX-35: it ended a stream for a locator that is within our limits, and not within NARROW; once, or of late.
        self.was_narrow = self.is_narrow = False
        self._narrow_until = 0.0
        self.lacks_delta = False  # UNIMPLEMENTED; until the connection is a new one (PRX-33)
        self._is_on_trial = False
        self._avoids_locators = False  # a stream that has one ends
        self._announced: set[RequestForm | None] = set()

    @property
    def by_names(self) -> bool:
        return self.form is RequestForm.NAMES

    @property
    def probes(self) -> bool:
        """Whether each new stream has a locator or two, for a server that has learned to understand them."""
        return self.by_names and not self.is_fixed and not self._avoids_locators

    def decide(self, form: RequestForm) -> bool:
        """The form is known, or known to have changed; whether that was never said before."""
        self.form, self._is_on_trial, self._avoids_locators = form, False, False
        return self.is_news(form)

    def refused(self, status: str) -> bool:
        """A stream ended before any answer; whether that may be on account of the locators on it."""
        if self.is_fixed:
            return False
        if self._is_on_trial:
            self.form, self._is_on_trial, self._avoids_locators = RequestForm.UNKNOWN, False, False
            return False
        if self.form is not RequestForm.UNKNOWN or status not in _NOT_UNDERSTOOD:
            return False
        self.form, self._is_on_trial, self._avoids_locators = RequestForm.NAMES, True, True
        return True

    def answered(self) -> bool:
        """A stream got its first answer; whether that shows, as news, that the form on trial is the right one."""
        was_on_trial, self._is_on_trial = self._is_on_trial, False
        return was_on_trial and self.is_news(self.form)

    def narrow(self, now: float) -> None:
        """PRX-35: it ended a stream for a locator that other servers take."""
        self.was_narrow = self.is_narrow = True
        self._narrow_until = now + NARROW

    def connect_anew(self, now: float, *, sotw: bool) -> None:
        """The next connection is a new one, perhaps to a server that was upgraded. sotw: the last stream was in SotW.

        Larger locators are not tried on every one: it may cost the first stream of the connection.
        """
        self.lacks_delta = self.lacks_delta and not sotw  # PRX-33
        self.is_narrow = self.is_narrow and now < self._narrow_until

    def is_news(self, what: RequestForm | None) -> bool:
        """Whether it was never said before: a form, or None for the lack of delta. Operators are told once."""
        news = what not in self._announced
        self._announced.add(what)
        return news


def form_of(response: Response) -> RequestForm:
    """The form of what is in a response; UNKNOWN where it has nothing that is in one form only.

    Errors without constraints are in none: our servers write them for locators of names that do not exist.
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
    """Leave out the answers to plain names that were asked only to find out the form; and which names these are of."""
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
