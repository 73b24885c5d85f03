"""Index which upstream subscription holds which finding of one name, so that a small event needs little work.

The relay examines a name again whenever a subscription of it changes. A name may have thousands of params with a
variant each, and one event must not cost a look at all of them. In the usual state an event concerns only the clients
that share the finding, and those that a new finding matches. The usual state is:

- every subscription has a variant, or waits for its first answer;
- no finding is stale, too old, an absence, from the disk cache, or for certain params only;
- no variant is marked `do_not_cache`, has aliases, or is a virtual host;
- no finding comes from a wildcard, no question is late, and there is no error.

A `Standing` exists exactly while a name is in this state. For anything else relaying.py examines the whole name
(`Relaying._plan`), and then builds a `Standing` again if the name qualifies.
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
    """The answers of some subscriptions of a name, and the findings that they change."""

    said: UpstreamAnswers
    came: list[Finding] = field(default_factory=list)  # findings that are new or have other contents
    went: list[Finding] = field(default_factory=list)


class Standing:
    """The findings and upstream subscriptions of one name in the usual state."""

    __slots__ = ("_forms", "findings", "holders", "index", "pending")

    def __init__(self) -> None:
        self.findings: dict[Form, Finding] = {}  # by constraint, oldest first
        self.holders: dict[Form, dict[Params, None]] = {}
        self.pending: dict[Params, None] = {}  # subscriptions without an answer
        self.index: NewestMatch[Finding] = NewestMatch()
        self._forms: dict[Params, Form] = {}

    @classmethod
    def of(cls, known: CachedSet, said: UpstreamAnswers, asked: Mapping[Params, Entry]) -> Steps[Standing | None]:
        """Build the index for a name, in steps; None: the name is not in the usual state."""
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
        """Return the answers of these params' subscriptions and of all that hold the same findings.

        The scope grows until no finding in it has a holder outside. None: the name left the usual state, a new
        constraint mentions another key, which changes the classes, or a variant was withdrawn. Then the whole name must
        be examined.
        """
        scope = dict.fromkeys(params for params in some if params in asked)
        while True:
            for form in {self._forms[params] for params in scope if params in self._forms}:
                scope.update(self.holders[form])
            if not all(_is_fit(params, asked[params]) for params in scope):
                return None
            voices = [UpstreamAnswer(params, asked[params], wild=False, wanted=True) for params in scope]
            said = listen(voices, known, pin)
            # Another subscription may hold a finding that is new in the scope: both must be seen together.
            others = [each for form in said.findings for each in self.holders.get(form, ()) if each not in scope]
            if not others:
                break
            scope.update(dict.fromkeys(others))
        known_keys = {*known.keys}
        if said.doubtful or not all(_is_usual(each) for each in said.findings.values()):
            return None
        if any(not known_keys.issuperset(keys(each.constraint)) for each in said.findings.values()):
            return None  # a new key: the classes change
        if any(self._forms[params] not in said.findings for params in scope if params in self._forms):
            return None  # a variant was withdrawn
        return Part(said)

    def take(self, part: Part, now: float) -> None:
        """Update the index from the answers, and note in `part` which findings came and went."""
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
        """Note a new upstream subscription."""
        self.pending[params] = None

    def waiting(self, some: Iterable[Params], classes: Iterable[Mapping[Params, int]]) -> list[Params]:
        """Return the subscriptions without an answer, among these params and the members of these classes."""
        found = dict.fromkeys(params for params in some if params in self.pending)
        for alike in classes:
            fewer, more = (alike, self.pending) if len(alike) < len(self.pending) else (self.pending, alike)
            found.update(dict.fromkeys(params for params in fewer if params in more))
        return [*found]

    def drop(self, params: Params) -> None:
        """Remove a subscription that ended."""
        self.pending.pop(params, None)
        form = self._forms.pop(params, None)
        if form is not None:
            self.holders[form].pop(params)
            if not self.holders[form]:
                del self.holders[form]

    def tidy(self, forms: Iterable[Form], part: Part) -> bool:
        """Drop those of these findings that no subscription holds any more. Return whether there are any.

        Nothing would keep them up to date. A finding that came in the same part cancels out; any other is noted as
        gone.
        """
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
        """Return the cached set after the changes of `part`; the same object if there are none."""
        if not part.came and not part.went:
            return before
        came, went = (tuple(each.variant for each in moved if each.variant) for moved in (part.came, part.went))
        return CachedSet.derived(before, reversed(self.findings.values()), self.index, Moved(came, went))

    def _put(self, finding: Finding) -> None:
        """Add a finding as the newest, in place of the one with the same constraint."""
        form = finding.form
        self.findings.pop(form, None)
        self.findings[form] = finding
        self.index.put(form, finding.constraint, finding)

    def _stand(self, params: Params, form: Form) -> None:
        """Note that a subscription holds a finding."""
        self.pending.pop(params, None)
        self._forms[params] = form
        self.holders.setdefault(form, {})[params] = None


def _is_usual(finding: Finding) -> bool:
    """Whether a finding is a current variant for all clients that its constraints match, without special rules."""
    variant = finding.variant
    if variant is None or finding.stale or finding.only is not None or finding.aged or finding.kept:
        return False
    return not variant.do_not_cache and variant.base is None and not variant.aliases


def _is_fit(params: Params, entry: Entry) -> bool:
    """Whether a subscription has a variant or waits for its first answer, and no other params share it.

    A subscription shares its entry if the relay sent other params than the client has.
    """
    if entry.key[1] != params or entry.error is not None or entry.kept_at is not None or entry.for_all:
        return False
    return entry.state is State.ACKED if entry.variant is not None else is_awaited(entry)
