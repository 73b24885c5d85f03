"""Index which upstream subscription holds which finding of one name, so that a small event needs little work.

The relay examines a name again whenever a subscription of it changes. A name may have thousands of params with a
variant each, and one event must not cost a look at all of them. In the usual state an event concerns only the clients
that share the finding, and those that a new finding matches. The usual state is:

- every subscription has a variant, or waits for its first answer;
- no finding is stale, too old, an absence, from the disk cache, or for certain params only;
- no variant is marked `do_not_cache`, has aliases, or is a virtual host;
- no finding comes from a wildcard, no subscription is late, and there is no error.

A `FindingIndex` exists exactly while a name is in this state. For anything else planning.py examines the whole name
(`Planner._plan`), and then builds an index again if the name qualifies.

The index is derived: from the cached answers of the name, and from what its upstream subscriptions say. planning.py
keeps it up to date with their answers (`apply`, `tidy`), and `UpstreamSubscriptions` with those that come and end
(`add`, `drop`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..model.cached import CachedSet, Finding, FindingId
from ..model.constraint_index import NewestMatch
from ..model.constraints import keys
from ..model.steps import EVERY, Steps, pieces
from ..model.types import Params
from ..model.variants import Moved
from ..watch.entry import State
from .findings import Pin, UpstreamAnswers, kept, listen
from .upstream_subscription import UpstreamAnswer, UpstreamSubscription, is_awaited


@dataclass(slots=True)
class IndexUpdate:
    """The answers of some subscriptions of a name, and the findings that they change."""

    said: UpstreamAnswers
    came: list[Finding] = field(default_factory=list)  # findings that are new or have other contents
    went: list[Finding] = field(default_factory=list)


class FindingIndex:
    """The findings and upstream subscriptions of one name in the usual state."""

    __slots__ = ("findings", "holders", "newest", "pending")

    def __init__(self) -> None:
        self.findings: dict[FindingId, Finding] = {}  # by constraint, oldest first
        self.holders: dict[FindingId, dict[UpstreamSubscription, None]] = {}  # by `UpstreamSubscription.holds`
        self.pending: dict[Params, UpstreamSubscription] = {}  # those without an answer, by params
        self.newest: NewestMatch[Finding] = NewestMatch()

    @classmethod
    def of(
        cls, known: CachedSet, said: UpstreamAnswers, asked: Mapping[Params, UpstreamSubscription]
    ) -> Steps[FindingIndex | None]:
        """Build the index for a name, in steps; None: the name is not in the usual state."""
        if known.problems or known.late or said.listed or said.doubtful:
            return None
        if not all(map(_is_usual, known.findings)) or not all(map(_is_fit, asked.values())):
            return None
        made = cls()
        for findings in pieces(known.findings[::-1]):
            for finding in findings:
                made._put(finding)
            if len(findings) == EVERY:
                yield
        for each in asked.values():
            each.holds = None
        for some in pieces(said.holders.items()):
            for finding_id, holders in some:
                for each in holders:
                    if asked.get(each.params) is each:
                        made._hold(each, finding_id)
            if len(some) == EVERY:
                yield
        made.pending.update((params, each) for params, each in asked.items() if each.entry.variant is None)
        return made if made.findings.keys() == made.holders.keys() else None

    def answers_for(
        self, some: Iterable[Params], asked: Mapping[Params, UpstreamSubscription], known: CachedSet, pin: Pin
    ) -> IndexUpdate | None:
        """Return the answers of these params' subscriptions and of all that hold the same findings.

        The scope grows until no finding in it has a holder outside. None: the name left the usual state, a new
        constraint mentions another key, which changes the classes, or a variant was removed. Then the whole name must
        be examined.
        """
        scope = dict.fromkeys(asked[params] for params in some if params in asked)
        while True:
            for finding_id in {each.holds for each in scope if each.holds is not None}:
                scope.update(self.holders[finding_id])
            if not all(map(_is_fit, scope)):
                return None
            said = listen([UpstreamAnswer(each, each.entry, wild=False, wanted=True) for each in scope], known, pin)
            # Another subscription may hold a finding that is new in the scope: both must be seen together.
            others = [
                each for finding_id in said.findings for each in self.holders.get(finding_id, ()) if each not in scope
            ]
            if not others:
                break
            scope.update(dict.fromkeys(others))
        known_keys = {*known.keys}
        if said.doubtful or not all(_is_usual(each) for each in said.findings.values()):
            return None
        if any(not known_keys.issuperset(keys(each.constraint)) for each in said.findings.values()):
            return None  # a new key: the classes change
        if any(each.holds is not None and each.holds not in said.findings for each in scope):
            return None  # a variant was removed
        return IndexUpdate(said)

    def apply(self, part: IndexUpdate, now: float) -> None:
        """Update the index from the answers, and note in `part` which findings came and went."""
        for finding_id, holders in part.said.holders.items():
            for each in holders:
                self._hold(each, finding_id)
        for finding_id, finding in part.said.findings.items():
            old = self.findings.get(finding_id)
            newest = kept(old, finding, now)
            if newest is not old:
                part.came.append(newest)
                part.went.extend([old] if old is not None else [])
                self._put(newest)

    def add(self, subscription: UpstreamSubscription) -> None:
        """Note a new upstream subscription."""
        self.pending[subscription.params] = subscription

    def waiting(self, some: Iterable[Params], classes: Iterable[Mapping[Params, int]]) -> list[Params]:
        """Return the subscriptions without an answer, among these params and the members of these classes."""
        found = dict.fromkeys(params for params in some if params in self.pending)
        for alike in classes:
            fewer: Iterable[Params] = alike if len(alike) < len(self.pending) else self.pending
            found.update(dict.fromkeys(params for params in fewer if params in self.pending and params in alike))
        return [*found]

    def drop(self, subscription: UpstreamSubscription) -> None:
        """Remove a subscription that ended."""
        self.pending.pop(subscription.params, None)
        finding_id, subscription.holds = subscription.holds, None
        if finding_id is not None:
            self.holders[finding_id].pop(subscription)
            if not self.holders[finding_id]:
                del self.holders[finding_id]

    def tidy(self, finding_ids: Iterable[FindingId], part: IndexUpdate) -> bool:
        """Drop those of these findings that no subscription holds any more. Return whether there are any.

        Nothing would keep them up to date. A finding that came in the same part cancels out; any other is noted as
        gone.
        """
        lost = [
            finding_id for finding_id in finding_ids if finding_id in self.findings and finding_id not in self.holders
        ]
        for finding_id in lost:
            gone = self.findings.pop(finding_id)
            self.newest.discard(finding_id)
            if gone in part.came:
                part.came.remove(gone)
            else:
                part.went.append(gone)
        return bool(lost)

    def derived(self, before: CachedSet, part: IndexUpdate) -> CachedSet:
        """Return the cached set after the changes of `part`; the same object if there are none."""
        if not part.came and not part.went:
            return before
        came, went = (tuple(each.variant for each in moved if each.variant) for moved in (part.came, part.went))
        return CachedSet.derived(before, reversed(self.findings.values()), self.newest, Moved(came, went))

    def _put(self, finding: Finding) -> None:
        """Add a finding as the newest, in place of the one with the same constraint."""
        finding_id = finding.id
        self.findings.pop(finding_id, None)
        self.findings[finding_id] = finding
        self.newest.put(finding_id, finding.constraint, finding)

    def _hold(self, subscription: UpstreamSubscription, finding_id: FindingId) -> None:
        """Note that a subscription holds a finding."""
        self.pending.pop(subscription.params, None)
        subscription.holds = finding_id
        self.holders.setdefault(finding_id, {})[subscription] = None


def _is_usual(finding: Finding) -> bool:
    """Whether a finding is a current variant for all clients that its constraints match, without special rules."""
    variant = finding.variant
    if variant is None or finding.stale or finding.only is not None or finding.aged or finding.kept:
        return False
    return not variant.do_not_cache and variant.base is None and not variant.aliases


def _is_fit(subscription: UpstreamSubscription) -> bool:
    """Whether a subscription has a variant or waits for its first answer, and no others share its entry.

    It shares its entry if the relay sent other params than the client has.
    """
    entry = subscription.entry
    if entry.key[1] != subscription.params or entry.error is not None or entry.kept_at is not None or entry.for_all:
        return False
    return entry.state is State.ACKED if entry.variant is not None else is_awaited(entry)
