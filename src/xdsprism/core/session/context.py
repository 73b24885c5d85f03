"""Hold what the parts of a session refer to and none of them changes: the stream, the table, the settings.

A session is one resource type on one stream. Its parts (session.py lists them) are separate objects, and each of them
gets this context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..model.events import WILDCARD, Key
from ..model.facts import Denied, Facts
from ..model.limits import StreamBudget
from ..model.settings import Settings
from ..model.table import Table
from ..model.types import NO_PARAMS, Params, TypeUrl
from ..model.xdstp import complaint, is_wild, member_prefix
from ..policy.grant import Claim, Denial, Grant
from .interest import Interest, Interested


@dataclass(slots=True)
class StreamContext:
    """What all sessions of one stream share. The stream sets the params before it makes the first session."""

    number: int
    interest: Interest
    settings: Settings
    params: Params  # the params of plain subscriptions, taken from the node
    facts: Facts
    budget: StreamBudget  # of subscriptions, over all sessions (DYN-46)
    delta: bool
    is_aggregated: bool  # the stream is ADS, and not of the service of one type
    grant: Grant | None = None  # what the client may have; None: there is no policy
    claim: Claim | None = None  # what the grant makes of the node's params


class SessionContext:
    """The type, the stream and the client that a session is about."""

    __slots__ = (
        "_denials",
        "budget",
        "delta",
        "facts",
        "full_state",
        "grant",
        "interest",
        "node_claim",
        "params",
        "session",
        "settings",
        "stream",
        "table",
        "type_url",
    )
    __deletable__ = ("session",)  # compiled, no other attribute can be deleted

    def __init__(self, session: Interested, table: Table, stream: StreamContext) -> None:
        self.session = session  # as the index of subscriptions knows it; deleted when the session closes
        self.table = table
        self.type_url: TypeUrl = table.spec.url
        self.interest = stream.interest
        self.settings = stream.settings
        self.params = stream.params
        self.grant = stream.grant
        self.node_claim = stream.claim
        # Denials that were answered and not reported yet: how many, and the first name.
        self._denials: dict[Denial, tuple[int, str]] | None = None
        self.stream = stream.number
        self.facts = stream.facts
        self.budget = stream.budget
        self.delta = stream.delta
        self.full_state = table.spec.full_state and not stream.delta  # SOT-4: each response holds everything

    def regrant(self, table: Table, stream: StreamContext) -> None:
        """Take what the client may have from now on: another part of the type, or other params."""
        self.table = table
        self.params = stream.params
        self.grant = stream.grant
        self.node_claim = stream.claim

    def claim(self, key: Key) -> Claim | None:
        """Return what the policy makes of this subscription; None: there is no policy."""
        grant, plain = self.grant, self.node_claim
        if grant is None or plain is None:
            return None
        name, tag = key
        # The listing of a wildcard leaves out what the client may not have. It is denied if that is everything.
        if is_wild(name):
            denial = grant.denies_wildcard(self.type_url, member_prefix(name))
        else:
            denial = grant.denies(self.type_url, name)
        if denial is not None:
            return Claim(NO_PARAMS, denial)
        if tag:
            return grant.claim_locator(tag)
        params = self.plain_params(name)
        return plain if params is plain.params else replace(plain, params=params)

    def shows(self, name: str) -> bool:
        """Whether the policy lets the client have a resource of this name, with whichever params."""
        return self.grant is None or self.grant.denies(self.type_url, name) is None

    def may_have(self, name: str) -> bool:
        """Whether the policy lets the client have this name by a plain subscription."""
        claim = self.claim(Key(name))
        return claim is None or claim.denial is None

    def note_denied(self, denial: Denial, name: str) -> None:
        """Count a subscription that is answered by a denial."""
        self._denials = self._denials or {}
        count, first = self._denials.get(denial, (0, name))
        self._denials[denial] = count + 1, first

    def report_denied(self) -> None:
        """Report the denials since the last call, as a fact for each reason."""
        if self._denials is not None and self.grant is not None:
            for denial, (count, name) in self._denials.items():
                self.budget.note_denied(denial.kind, count)
                self.facts.append(
                    Denied(self.stream, self.type_url, denial.kind, count, name, denial.message, self.grant.rule)
                )
            self._denials = None

    def close(self) -> None:
        """End the reference cycle with the session, which would otherwise wait for the garbage collector."""
        del self.session

    def plain_params(self, name: str) -> Params:
        """Return the params of a subscription to `name` that sends none (DESIGN 6.2)."""
        return self.settings.plain_params(self.params, name)

    def is_wildcard(self, name: str) -> bool:
        """Whether this name is a wildcard: `*`, or a glob collection (XTP-3).

        A glob collection that can't have members, as its URL is malformed or of another type, is a name that nothing
        has (XTP-9). SotW knows none (XTP-8).
        """
        if not is_wild(name):
            return False
        return name == WILDCARD or (self.table.spec.has_xdstp_names and self.complaint(name) is None)

    def complaint(self, name: str) -> str | None:
        """Return why no server can have a resource of this name, or None (XTP-9)."""
        return complaint(name, self.type_url, globs=self.delta) if self.table.spec.has_xdstp_names else None
