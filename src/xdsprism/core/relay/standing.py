"""Which subscription of a relay stands for which finding of one name; kept where nothing about the name is unusual.

A relay looks at a name again whenever something happens to it. Where many parameter sets have a variant each, that must
not mean to look at all of them: what happens to one concerns those who share its finding, and those whom a new finding
matches. That holds as long as every subscription has a variant or waits for one, and nothing is stale, wrong, late, for
certain params only, or from a wildcard. There is a `Standing` exactly then; for anything else, all of the name is
looked at (relaying.py), and afterwards there is a `Standing` again, or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..model.cached import CachedSet, Finding, Form
from ..model.constraint_index import NewestMatch
from ..model.constraints import keys
from ..model.steps import EVERY, Steps, pieces
from ..model.types import Params
from ..model.variants import Moved
from ..watch.entry import Entry, State
from .findings import Pin, UpstreamAnswer, UpstreamAnswers, is_awaited, kept, listen


@dataclass(slots=True)
class Part:
    """What some subscriptions of a name say now."""

    said: UpstreamAnswers
    came: list[Finding] = field(default_factory=list)  # of these, what is new or has other contents
    went: list[Finding] = field(default_factory=list)


class Standing:
    """The subscriptions of one name."""

    __slots__ = ("_forms", "findings", "holders", "index", "pending")

    def __init__(self) -> None:
        self.findings: dict[Form, Finding] = {}  # oldest first
        self.holders: dict[Form, dict[Params, None]] = {}
        self.pending: dict[Params, None] = {}  # have no answer yet
        self.index: NewestMatch[Finding] = NewestMatch()
        self._forms: dict[Params, Form] = {}

    @classmethod
    def of(cls, known: CachedSet, said: UpstreamAnswers, asked: Mapping[Params, Entry]) -> Steps[Standing | None]:
        """None: there is something about the name that concerns more than single findings."""
        if known.troubles or known.late or said.listed or said.doubtful:
            return None
        if not all(map(_is_usual, known.findings)) or not all(_is_fit(*each) for each in asked.items()):
            return None
        made = cls()
        for findings in pieces(known.findings[::-1]):
            for finding in findings:
                made._put(finding)
            if len(findings) == EVERY:
                yield
        for some in pieces(said.holders.items()):
            for form, holders in some:
                for params in holders:
                    if params in asked:
                        made._stand(params, form)
            if len(some) == EVERY:
                yield
        made.pending.update((params, None) for params, entry in asked.items() if entry.variant is None)
        return made if made.findings.keys() == made.holders.keys() else None

    def look(self, some: Iterable[Params], asked: Mapping[Params, Entry], known: CachedSet, pin: Pin) -> Part | None:
        """What these say now, and all who stand for the same. None: that is not all that has to be looked at."""
        scope = dict.fromkeys(params for params in some if params in asked)
        while True:
            for form in {self._forms[params] for params in scope if params in self._forms}:
                scope.update(self.holders[form])
            if not all(_is_fit(params, asked[params]) for params in scope):
                return None
            voices = [UpstreamAnswer(params, asked[params], wild=False, wanted=True) for params in scope]
            said = listen(voices, known, pin)
            others = [each for form in said.findings for each in self.holders.get(form, ()) if each not in scope]
            if not others:
                break
            scope.update(dict.fromkeys(others))
        known_keys = {*known.keys}
        if said.doubtful or not all(_is_usual(each) for each in said.findings.values()):
            return None
        if any(not known_keys.issuperset(keys(each.constraint)) for each in said.findings.values()):
            return None  # who is of one class depends on the keys
        if any(self._forms[params] not in said.findings for params in scope if params in self._forms):
            return None  # a variant was withdrawn
        return Part(said)

    def take(self, part: Part, now: float) -> None:
        """Note who stands for what, what is new, and what it replaces."""
        for form, holders in part.said.holders.items():
            for params in holders:
                self._stand(params, form)
        for form, finding in part.said.findings.items():
            old = self.findings.get(form)
            newest = kept(old, finding, now)
            if newest is not old:
                part.came.append(newest)
                part.went.extend([old] if old is not None else [])
                self._put(newest)

    def asked(self, params: Params) -> None:
        self.pending[params] = None

    def waiting(self, some: Iterable[Params], classes: Iterable[Mapping[Params, int]]) -> list[Params]:
        """Who has no answer yet, of these and of these classes."""
        found = dict.fromkeys(params for params in some if params in self.pending)
        for alike in classes:
            fewer, more = (alike, self.pending) if len(alike) < len(self.pending) else (self.pending, alike)
            found.update(dict.fromkeys(params for params in fewer if params in more))
        return [*found]

    def drop(self, params: Params) -> None:
        """There is no such subscription any more."""
        self.pending.pop(params, None)
        form = self._forms.pop(params, None)
        if form is not None:
            self.holders[form].pop(params)
            if not self.holders[form]:
                del self.holders[form]

    def tidy(self, forms: Iterable[Form], part: Part) -> bool:
        """What no subscription stands for any more is not known: it may have changed. Whether there is such."""
        lost = [form for form in forms if form in self.findings and form not in self.holders]
        for form in lost:
            gone = self.findings.pop(form)
            self.index.discard(form)
            if gone in part.came:
                part.came.remove(gone)
            else:
                part.went.append(gone)
        return bool(lost)

    def derived(self, before: CachedSet, part: Part) -> CachedSet:
        """What is known now."""
        if not part.came and not part.went:
            return before
        came, went = (tuple(each.variant for each in moved if each.variant) for moved in (part.came, part.went))
        return CachedSet.derived(before, reversed(self.findings.values()), self.index, Moved(came, went))

    def _put(self, finding: Finding) -> None:
        form = finding.form
        self.findings.pop(form, None)
        self.findings[form] = finding
        self.index.put(form, finding.constraint, finding)

    def _stand(self, params: Params, form: Form) -> None:
        self.pending.pop(params, None)
        self._forms[params] = form
        self.holders.setdefault(form, {})[params] = None


def _is_usual(finding: Finding) -> bool:
    """Whether it is a variant for all whom its constraints match, and up to date."""
    variant = finding.variant
    if variant is None or finding.stale or finding.only is not None or finding.aged or finding.kept:
        return False
    return not variant.do_not_cache and variant.base is None and not variant.aliases


def _is_fit(params: Params, entry: Entry) -> bool:
    """Whether a subscription has a variant, or waits for its first answer; and nobody else has the same."""
    if entry.key[1] != params or entry.error is not None or entry.kept_at is not None or entry.for_all:
        return False
    return entry.state is State.ACKED if entry.variant is not None else is_awaited(entry)
