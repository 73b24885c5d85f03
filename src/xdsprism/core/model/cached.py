"""What a cache knows of one name: the variants and the negative answers that a server gave, with their constraints.

TP2, Caching: whoever holds a variant can tell by its constraints whom it is for. So a cache may answer a client that
the server has never heard of, with a variant that another client asked for; or with the news that there is none, if the
server pinned that to what the client has in common with the other (DESIGN 6.4). Where neither matches, nothing is
known, which is not the same as nothing being there.

A store proves that its variants can't overlap. A cache can't: two answers may overlap in passing, and a server may be
wrong. Then the one received last wins (DESIGN 6.10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from typing import Self

from .constraint_index import FirstMatch, NewestMatch
from .constraints import TRUE, Constraint, canonical, keys, matches
from .events import WILDCARD
from .staged_changes import StagedChanges
from .table import Table
from .types import Category, Change, Params, ResourceProblem, TypeSpec, Variant, category
from .variants import Moved, VariantSet, pins

REMEMBERED = 4096  # classes of params per name

NEVER: Mapping[Params, int] = {}

_NUMBERS = count(1)
_variant_of = attrgetter("variant")

# What a finding is known by: its constraints, and for whom alone it is if they do not say all of it.
Form = tuple[Constraint, Params | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer: a variant, or that there is none, for those whom the constraints match.

    Not every answer says whom else it is for. A variant that is withdrawn leaves whoever had it with nothing, but not
    all others whom it was for: those may have got another. Such an answer is `only` for the params it was given to.
    """

    constraint: Constraint
    variant: Variant | None
    stale: bool = False  # no server stands for it any more: it is there until it is known what comes in its place
    withdrawn: bool = False  # stale, since the server took it back: who has it keeps it until then (PRX-5)
    since: float = 0.0
    stale_since: float | None = None
    only: Params | None = None
    revision: int = 0  # of the store; where it is not for those who come after that (PRX-17)
    kept: bool = False  # it is what an earlier run knew, and no server has said so yet (PRX-25)
    aged: bool = False  # for too long no server could have said otherwise: it is not for those who ask now (PRX-25)

    @property
    def stands(self) -> bool:
        """Whether it is an answer for all who are alike, and up to date."""
        return not self.stale and self.only is None

    @property
    def do_not_cache(self) -> bool:
        """PRX-17: it is not for those who come later."""
        return self.variant is not None and self.variant.do_not_cache

    @property
    def form(self) -> Form:
        return canonical(self.constraint), self.only


@dataclass(frozen=True, slots=True)
class UpstreamProblem:
    """TP3: what a server says is wrong with a resource, or that there is nobody to ask; for whom, code and text."""

    constraint: Constraint
    code: int
    message: str
    unresolved: bool = False  # VHD-19: clients that know no errors are told that there is nothing
    only: Params | None = None  # for these params alone, whoever else the constraint matches
    refused: bool = (
        False  # PRX-35: a relay has no room for it; all are told, and who has nothing, that there is nothing
    )

    def concerns(self, params: Mapping[str, str]) -> bool:
        return matches(self.constraint, params) if self.only is None else self.only == params


class CachedSet(VariantSet):
    """The findings of one name, newest first; immutable, and to a session like any other set of variants.

    PRX-38: what was withdrawn is not given to anybody. A session keeps what its client has as long as nothing is known;
    so whoever has a withdrawn variant keeps it, and nobody gets one that was taken from it before.
    """

    __slots__ = (
        "_classes",
        "_edition",
        "_first",
        "_late_classes",
        "_member_keys",
        "_newest",
        "_own_troubles",
        "_shared",
        "_shared_troubles",
        "_step",
        "findings",
        "is_clear",
        "is_limited",
        "late",
        "number",
        "own",
        "troubles",
    )

    def __init__(
        self,
        findings: Iterable[Finding],
        troubles: tuple[UpstreamProblem, ...] = (),
        late: Mapping[Params, int] = NEVER,
    ) -> None:
        self.troubles = troubles
        self.late = late  # of each question that was put, where one is late: see lateness.py
        self.findings = tuple(sorted(findings, key=_rank))
        mentioned = frozenset[str]().union(*(keys(finding.constraint) for finding in self.findings))
        variants = tuple(finding.variant for finding in self.findings if finding.variant is not None)
        super().__init__(variants, tuple(sorted(mentioned)), None)
        self.own = {finding.only: finding for finding in self.findings if finding.only is not None}
        self.is_limited = any(each.aged or each.do_not_cache for each in self.findings)
        self._shared = tuple(finding for finding in self.findings if finding.only is None)
        self._classes: dict[Category, Finding | None] = {}
        self._first: FirstMatch | None = None  # made when somebody asks
        self._late_classes: dict[Category, int] | None = None
        self._own_troubles = {each.only: each for each in reversed(troubles) if each.only is not None}
        self._shared_troubles = tuple(each for each in troubles if each.only is None)
        self._newest: NewestMatch[Finding] | None = None  # an index that changes, and which edition of it is this one's
        self._edition = 0
        self._member_keys: frozenset[str] | None = None
        self.number = next(_NUMBERS)
        self._step: tuple[int, Moved] | None = None  # what moved since which other, where that is known
        self.is_clear = False  # whoever had there what is here too, has it here

    @classmethod
    def derived(cls, before: CachedSet, findings: Iterable[Finding], index: NewestMatch[Finding], moved: Moved) -> Self:
        """The same set, but for what moved; there was nothing unusual in it (standing.py), and is not.

        findings: all of them, newest first; index: the same by constraint, as it is now.
        """
        made = cls.__new__(cls)
        made._derive(before, tuple(findings), index, moved)  # noqa: SLF001 # its own
        return made

    def _derive(
        self, before: CachedSet, findings: tuple[Finding, ...], index: NewestMatch[Finding], moved: Moved
    ) -> None:
        self.troubles, self.late, self.own, self.is_limited = (), NEVER, {}, False
        self.findings = self._shared = findings
        self.variants = tuple(map(_variant_of, findings))
        self.keys, self.aliases, self.sole, self._index = before.keys, before.aliases, None, None
        self._classes, self._first, self._late_classes = {}, None, None
        self._own_troubles, self._shared_troubles = {}, ()
        self._newest, self._edition, self._member_keys = index, index.edition, before.member_keys
        self.number, self.is_clear = next(_NUMBERS), False
        self._step = before.number, moved

    @property
    def member_keys(self) -> frozenset[str]:
        if self._member_keys is None:
            self._member_keys = super().member_keys
        return self._member_keys

    def moved(self, before: VariantSet) -> Moved | None:
        moved = self.difference(before) if self.is_clear else None
        if moved is None or any(variant.constraint == TRUE for variant in moved.went):  # who has that, nobody noted
            return None
        return moved

    def difference(self, before: VariantSet | None) -> Moved | None:
        """What came and what went, if that is known."""
        known = self._step is not None and isinstance(before, CachedSet) and before.number == self._step[0]
        return self._step[1] if self._step is not None and known else None

    def find(self, params: Mapping[str, str]) -> Finding | None:
        """The answer for these params. What was said to them alone counts more than what was said to others too."""
        own = self.own.get(Params(params)) if self.own else None
        return own or self._classes.get(category(params, self.keys)) or self.shared(params)

    def classify(self, params: Params) -> tuple[tuple[Category, tuple[str, ...]], Finding | None]:
        """Its class, by which keys, and the answer: both are asked for together, by each who comes or goes."""
        same = category(params, self.keys)
        found = self._classes.get(same) if not self.own else None
        return (same, self.keys), found or self.find(params)

    def shared(self, params: Mapping[str, str]) -> Finding | None:
        """The answer for all who are of one class with these; looked for once (DESIGN 6.3)."""
        alike = category(params, self.keys)
        if alike not in self._classes:
            if len(self._classes) >= REMEMBERED:
                self._classes.clear()
            self._classes[alike] = self._find_shared(params)
        return self._classes[alike]

    def _find_shared(self, params: Mapping[str, str]) -> Finding | None:
        if self._newest is not None and self._newest.edition == self._edition:
            return self._newest.find(params, self.keys)
        if self._first is None:
            self._first = FirstMatch([finding.constraint for finding in self._shared])
        found = self._first.find(params)
        return self._shared[found] if found is not None else None

    def select(self, params: Mapping[str, str]) -> Variant | None:
        found = self._answer(params)
        return found.variant if found is not None else None

    def _answer(self, params: Mapping[str, str]) -> Finding | None:
        found = self.find(params)
        return found if found is not None and not found.withdrawn else None

    def member(self, params: Mapping[str, str]) -> Variant | None:
        """A wildcard is told of what goes in the same response as of what comes: to it nothing is in doubt (PRX-5)."""
        found = self.find(params)
        return super().member(params) if found is not None and not found.stale else None

    def knows(self, params: Mapping[str, str], *, sure: bool = False) -> bool:
        found = self._answer(params)
        return found is not None and not (sure and found.kept and found.variant is None)

    def lateness(self, params: Params) -> int:
        """How late its own question is; before that was put, any that could have answered it too."""
        if not self.late or params in self.late:
            return self.late.get(params, 0)
        if self._late_classes is None:
            self._late_classes = {}
            for each, late in self.late.items():
                same = category(each, self.keys)
                self._late_classes[same] = max(late, self._late_classes.get(same, 0))
        return self._late_classes.get(category(params, self.keys), 0)

    def trouble(self, params: Mapping[str, str]) -> UpstreamProblem | None:
        if not self.troubles:
            return None
        own = self._own_troubles.get(Params(params)) if self._own_troubles else None
        return own or next((each for each in self._shared_troubles if each.concerns(params)), None)

    def negative(self, params: Mapping[str, str], beside: Iterable[str] = ()) -> Constraint:
        """As the server gave it; where it did not say for whom there is nothing, for nobody who is any different.

        In the latter case that says to whom it is an answer, and no more: others who have these params, and further
        ones, may have a variant. So other relays do not take it for more (Upstream.is_relay).
        """
        found = self.find(params)
        if found is not None and found.variant is None and found.only is None:
            return found.constraint
        return pins({key: params.get(key) for key in {*self.keys, *params, *beside}})


def _rank(finding: Finding) -> int:
    """What is stale comes last, whenever it was received. PRX-31: "for nobody" takes nothing from a variant's own."""
    if finding.stale:
        return 2
    return 1 if finding.variant is None and finding.constraint == TRUE else 0


NOTHING = CachedSet(())


class StagedCacheChanges(StagedChanges):
    """What many changes come to in a table of a cache."""

    __slots__ = ("limited", "singular", "troubled")

    def __init__(self, changes: Sequence[Change], spec: TypeSpec) -> None:
        super().__init__(changes, spec)
        self.singular = self.limited = self.troubled = 0  # how many more names are such, or fewer

    def _count(self, known: VariantSet, step: int) -> None:
        super()._count(known, step)
        if isinstance(known, CachedSet):
            self.singular += step if known.own else 0
            self.limited += step if known.is_limited else 0
            self.troubled += step if known.troubles else 0


class CacheTable(Table):
    """The resources of one type, as far as they are known."""

    authoritative = False

    def __init__(self, spec: TypeSpec) -> None:
        super().__init__(spec)
        self.listed: set[tuple[str, Params]] = set()  # wildcards, and globs, that were answered
        self.unsure: set[tuple[str, Params]] = set()  # of these, by an earlier run
        self._wrong: dict[tuple[str, Params], UpstreamProblem] = {}  # with getting globs (ERR-6)
        self._singular = 0  # names of which something is known that is only for certain params
        self._limited = 0  # ... that is not for everybody who comes
        self._troubled = 0  # ... of which something is wrong
        self.tally = StagedCacheChanges

    def trouble(self, name: str, params: Params) -> ResourceProblem | None:
        if not self._wrong and not self._troubled:
            return None
        return self._wrong.get((name, params)) or super().trouble(name, params)

    def serves(self, name: str, params: Params, since: int) -> bool:
        if not self._limited:
            return True
        known = self.get(name)
        found = known.find(params) if isinstance(known, CachedSet) and known.is_limited else None
        if found is None:
            return True
        return not found.aged and (not found.do_not_cache or found.revision > since)

    def is_late(self, name: str, params: Params, *, claims: bool) -> bool:
        known = self.get(name)
        return isinstance(known, CachedSet) and known.lateness(params) > claims

    def lists(self, params: Params, name: str = WILDCARD, *, sure: bool = False) -> bool:
        return (name, params) in self.listed and not (sure and (name, params) in self.unsure)

    def unlist(self, params: Params, name: str = WILDCARD) -> None:
        """Nobody can say any more that these are all."""
        self.listed.discard((name, params))
        self.unsure.discard((name, params))
        self._wrong.pop((name, params), None)

    def note_wrong(self, glob: tuple[str, Params], wrong: UpstreamProblem | None) -> bool:
        """ERR-6: what is wrong with a glob as a whole; whether that is news."""
        before = self._wrong.pop(glob, None)
        if wrong is not None:
            self._wrong[glob] = wrong
        return wrong != before

    @property
    def is_singular(self) -> bool:
        return bool(self._singular)

    def commit_all(self, tally: StagedChanges) -> None:
        super().commit_all(tally)
        if isinstance(tally, StagedCacheChanges):
            self._singular += tally.singular
            self._limited += tally.limited
            self._troubled += tally.troubled

    def _recount(self, change: Change) -> None:
        """Where it is known what came and what went, nothing else is counted."""
        after = change.after
        moved = after.difference(change.before) if isinstance(after, CachedSet) else None
        if moved is None:
            super()._recount(change)
            return
        self.variants += len(moved.came) - len(moved.went)
        for variants, step in ((moved.went, -1), (moved.came, 1)):
            for variant in variants:
                self._count_references(variant, step)

    def _count(self, name: str, known: VariantSet, step: int) -> None:
        super()._count(name, known, step)
        if isinstance(known, CachedSet):
            self._singular += step if known.own else 0
            self._limited += step if known.is_limited else 0
            self._troubled += step if known.troubles else 0
