"""Remember what servers answered about each name, and decide which clients an answer covers.

TP2, Caching: the constraints of a variant say which params get it. So a cache may answer a client that the server has
never heard of with a variant that another client asked for, or with the news that there is none, if the server pinned
that negative answer to params that both clients share (DESIGN 6.4). Where no answer matches, nothing is known, which is
not the same as "does not exist":

| the newest finding for the params is    | `knows` | `select`     | the session                                     |
|-----------------------------------------|---------|--------------|-------------------------------------------------|
| a variant                               | True    | that variant | sends it                                        |
| a negative answer                       | True    | None         | says that the resource does not exist           |
| a removed variant (PRX-38)              | False   | None         | sends nothing; a client that has it keeps it    |
| missing                                 | False   | None         | waits for the server                            |

A store proves that its variants can't overlap. A cache can't: two answers may overlap for a while, and a server may be
wrong. Then the answer received last wins (DESIGN 6.10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from typing import Self

from .constraint_index import FirstMatch, NewestMatch
from .constraints import FALSE, TRUE, Constraint, canonical, keys, matches
from .types import Category, Params, Variant, category
from .variants import Explanation, Moved, VariantSet, aliases_of, base_keys, explained, in_base, pins

REMEMBERED = 4096  # classes of params whose answer is cached, per name: these, or twice the findings if that is more

NOT_QUOTED = "the relay can't get it from its servers; the relay's log and pages say why"

NEVER: Mapping[Params, int] = {}  # no question is late

_NUMBERS = count(1)  # tells sets apart in `CachedSet.difference` without keeping the older set alive
_variant_of = attrgetter("variant")

# The identity of a finding: its canonical constraint, and the exact params if it is for these alone.
FindingId = tuple[Constraint, Params | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of a server: a variant, or that there is none, for all params that the constraint matches.

    Not every answer says which other clients it covers. When the server removes a variant, the client that had it has
    nothing now, but other clients whom the variant covered may have got another one. Such an answer is `only` for the
    params to which the server gave it.
    """

    constraint: Constraint
    variant: Variant | None
    stale: bool = False  # no server vouches for it any more; it stays until its replacement is known
    removed: bool = False  # stale because the server removed it: a client that has it keeps it until then (PRX-5)
    since: float = 0.0
    stale_since: float | None = None
    only: Params | None = None
    revision: int = 0  # of the store: with do_not_cache, clients that come after it don't get the variant (PRX-17)
    kept: bool = False  # it is from an earlier run of the process, and no server has confirmed it yet (PRX-25)
    aged: bool = False  # no server could be reached for too long: clients that ask now don't get it (PRX-25)
    hidden: bool = False  # it is an absence to some clients, because they may not have the resource (OPS-2)

    @property
    def stands(self) -> bool:
        """Whether it is up to date and covers every client that its constraint matches."""
        return not self.stale and self.only is None

    @property
    def do_not_cache(self) -> bool:
        """PRX-17: whether clients that come later must not get it from the cache."""
        return self.variant is not None and self.variant.do_not_cache

    @property
    def id(self) -> FindingId:
        """Return the identity of the finding among those of its name."""
        return canonical(self.constraint), self.only


@dataclass(frozen=True, slots=True)
class UpstreamProblem:
    """Why a relay can't get a resource: a server's TP3 error, or no server to ask. For whom, code and message."""

    constraint: Constraint
    code: int
    message: str
    unresolved: bool = False  # VHD-19: clients that can't read errors are told that the resource does not exist
    only: Params | None = None  # concerns these params alone, whatever else the constraint matches
    # PRX-35: the relay has no room for the subscription. Clients that have nothing are told that the resource does
    # not exist; clients that have it keep it.
    refused: bool = False
    is_quoted: bool = False  # the message has words of a server, which may name resources

    def without_words(self) -> UpstreamProblem:
        """Return the problem as clients see it that may not have every resource (OPS-2)."""
        return replace(self, message=NOT_QUOTED, is_quoted=False) if self.is_quoted else self

    def concerns(self, params: Mapping[str, str]) -> bool:
        """Whether the problem concerns a client with these params."""
        return matches(self.constraint, params) if self.only is None else self.only == params


class CachedSet(VariantSet):
    """All findings of one name, newest first, stale ones last; immutable. Sessions use it like any set of variants.

    `made`: a provider made them for the subscriptions by name. No wildcard lists them, because a provider could make
    resources of further names.

    PRX-38: no client is given a removed variant. While nothing is known, a session lets its client keep what it has.
    So a client that has the removed variant keeps it, and no other client gets it.

    Where many params have a variant each, `derived` builds the next set from the one before it and from what moved,
    because looking at every finding again would cost too much for each update.
    """

    __slots__ = (
        "_classes",
        "_edition",
        "_first",
        "_late_classes",
        "_member_keys",
        "_newest",
        "_own_problems",
        "_shared",
        "_shared_problems",
        "_step",
        "aliases",
        "findings",
        "is_clear",
        "is_limited",
        "keys",
        "late",
        "made",
        "number",
        "own",
        "problems",
        "variants",
    )

    sole: Variant | None = None

    def __init__(
        self,
        findings: Iterable[Finding],
        problems: tuple[UpstreamProblem, ...] = (),
        late: Mapping[Params, int] = NEVER,
        *,
        made: bool = False,
    ) -> None:
        self.made = made
        self.problems = problems
        self.late = late  # how late each question about this name is, if any is late (relay/timers.py)
        self.findings = tuple(sorted(findings, key=_rank))
        mentioned = frozenset[str]().union(*(keys(finding.constraint) for finding in self.findings))
        self.variants = tuple(finding.variant for finding in self.findings if finding.variant is not None)
        self.keys = tuple(sorted(mentioned))
        self.aliases = aliases_of(self.variants)
        self.own = {finding.only: finding for finding in self.findings if finding.only is not None}
        self.is_limited = any(each.aged or each.do_not_cache for each in self.findings)
        self._shared = tuple(finding for finding in self.findings if finding.only is None)
        self._classes: dict[Category, Finding | None] = {}
        self._first: FirstMatch | None = None  # made at the first question
        self._late_classes: dict[Category, int] | None = None
        self._own_problems = {each.only: each for each in reversed(problems) if each.only is not None}
        self._shared_problems = tuple(each for each in problems if each.only is None)
        # An index shared with later sets. Only while it has this edition does it describe the findings of this set.
        self._newest: NewestMatch[Finding] | None = None
        self._edition = 0
        self._member_keys: frozenset[str] | None = None
        self.number = next(_NUMBERS)
        self._step: tuple[int, Moved] | None = None  # the number of the set before, and what moved since, if known
        self.is_clear = False  # a client whose variant in the set before is still here gets the same one here

    @classmethod
    def derived(cls, before: CachedSet, findings: Iterable[Finding], index: NewestMatch[Finding], moved: Moved) -> Self:
        """Build the set that follows `before`, given what moved.

        Both sets must be free of special cases (relay/finding_index.py). findings: all findings of the new set, newest
        first; index: the same findings by constraint, as it is now.
        """
        made = cls(())  # `__new__` alone does not do: compiled, it runs `__init__`
        made._derive(before, tuple(findings), index, moved)
        return made

    def _derive(
        self, before: CachedSet, findings: tuple[Finding, ...], index: NewestMatch[Finding], moved: Moved
    ) -> None:
        """Fill in every attribute without a look at each finding: keys and aliases stay as they were."""
        self.problems, self.late, self.own, self.is_limited = (), NEVER, {}, False
        self.findings = self._shared = findings
        self.variants = tuple(map(_variant_of, findings))
        self.keys, self.aliases, self.made = before.keys, before.aliases, before.made
        self._classes, self._first, self._late_classes = {}, None, None
        self._own_problems, self._shared_problems = {}, ()
        self._newest, self._edition, self._member_keys = index, index.edition, before.member_keys
        self.number, self.is_clear = next(_NUMBERS), False
        self._step = before.number, moved

    @property
    def is_singular(self) -> bool:
        """Whether an answer is for exact params only."""
        return bool(self.own)

    @property
    def has_problem(self) -> bool:
        """Whether there is a problem to tell."""
        return bool(self.problems)

    @property
    def is_listed(self) -> bool:
        return not self.made and any(variant.base != FALSE for variant in self.variants)

    @property
    def member_keys(self) -> frozenset[str]:
        """Return the keys that decide what a wildcard sees, computed once."""
        if self._member_keys is None:
            self._member_keys = base_keys(self.keys, self.variants) if not self.made else frozenset()
        return self._member_keys

    def moved(self, before: VariantSet) -> Moved | None:
        """Return the variants that came and went since `before`, if these alone tell sessions what to do."""
        moved = self.difference(before) if self.is_clear else None
        # session/interest.py finds clients by the variant that they have, but does not index those without constraints.
        if moved is None or any(variant.constraint == TRUE for variant in moved.went):
            return None
        return moved

    def difference(self, before: VariantSet | None) -> Moved | None:
        """Return which variants came and which went since `before`, if that is known."""
        known = self._step is not None and isinstance(before, CachedSet) and before.number == self._step[0]
        return self._step[1] if self._step is not None and known else None

    def find(self, params: Mapping[str, str]) -> Finding | None:
        """Return the finding for these params. An answer for exactly these params wins over answers for others too."""
        own = self.own.get(Params(params)) if self.own else None
        return own or self._classes.get(category(params, self.keys)) or self.shared(params)

    def classify(self, params: Params) -> tuple[tuple[Category, tuple[str, ...]], Finding | None]:
        """Return the class of these params, with the keys that make it, and their finding.

        The relay needs both for every subscription that comes or goes, and so computes the class once.
        """
        same = category(params, self.keys)
        found = self._classes.get(same) if not self.own else None
        return (same, self.keys), found or self.find(params)

    def shared(self, params: Mapping[str, str]) -> Finding | None:
        """Return the finding for all clients of the same class as these params, found once per class (DESIGN 6.3)."""
        alike = category(params, self.keys)
        if alike not in self._classes:
            if len(self._classes) >= REMEMBERED and len(self._classes) >= 2 * len(self._shared):
                self._classes.clear()
            self._classes[alike] = self._find_shared(params)
        return self._classes[alike]

    def _find_shared(self, params: Mapping[str, str]) -> Finding | None:
        """Search by the shared index if it still describes this set, else by an index of its own."""
        if self._newest is not None and self._newest.edition == self._edition:
            return self._newest.find(params, self.keys)
        if self._first is None:
            self._first = FirstMatch([finding.constraint for finding in self._shared])
        found = self._first.find(params)
        return self._shared[found] if found is not None else None

    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant to send to these params, if one is known and was not removed."""
        found = self._answer(params)
        return found.variant if found is not None else None

    def select_for_cache(self, params: Mapping[str, str]) -> Variant | None:
        """Return the same variant as `select`: the constraints are the server's own."""
        return self.select(params)

    def mentioned(self, params: Mapping[str, str]) -> Iterable[str]:
        """Return the keys that decide what these params get: those of their own variant.

        Which keys the answers to other clients mention is not for this client to find out (OPS-2). An absence may
        mention what was asked about by somebody else.
        """
        found = self.find(params)
        return keys(found.constraint) if found is not None and found.variant is not None else ()

    def only(self, allows: Callable[[str], bool]) -> CachedSet:
        """Return the set with an absence in place of each variant of a resource that is not allowed.

        A string that a relay asked for may be an alias, or a host: the resource has another name.
        """
        # `derived` sets are of resources that are called as they were asked for (relay/finding_index.py).
        if self._newest is not None or all(allows(variant.name) for variant in self.variants):
            return self
        kept = [
            each if each.variant is None or allows(each.variant.name) else replace(each, variant=None, hidden=True)
            for each in self.findings
        ]
        return CachedSet(kept, self.problems, self.late, made=self.made)

    def _answer(self, params: Mapping[str, str]) -> Finding | None:
        """Return the finding for these params, unless the server removed it: then nothing is known for now."""
        found = self.find(params)
        return found if found is not None and not found.removed else None

    def member(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant that a wildcard with these params sees: none that is stale.

        A server tells a wildcard of a removal and its replacement in one response, so nothing is in doubt (PRX-5).
        """
        found = self.find(params) if not self.made else None
        return in_base(found.variant, params) if found is not None and not found.stale else None

    def knows(self, params: Mapping[str, str], *, sure: bool = False) -> bool:
        """Whether the answer for these params is known; `sure`: a negative answer of an earlier run does not count."""
        found = self._answer(params)
        return found is not None and not (sure and found.kept and found.variant is None)

    def lateness(self, params: Params) -> int:
        """Return how late the question for these params is (relay/timers.py: 0 is not late).

        If these params were not asked for yet, the latest question of the same class counts: its answer covers them.
        """
        if not self.late or params in self.late:
            return self.late.get(params, 0)
        if self._late_classes is None:
            self._late_classes = {}
            for each, late in self.late.items():
                same = category(each, self.keys)
                self._late_classes[same] = max(late, self._late_classes.get(same, 0))
        return self._late_classes.get(category(params, self.keys), 0)

    def problem(self, params: Mapping[str, str]) -> UpstreamProblem | None:
        """Return the problem that concerns these params; one for exactly these params comes first."""
        if not self.problems:
            return None
        own = self._own_problems.get(Params(params)) if self._own_problems else None
        return own or next((each for each in self._shared_problems if each.concerns(params)), None)

    def negative(self, params: Mapping[str, str], beside: Iterable[str] = ()) -> Constraint:
        """Return the constraint of a negative answer: the server's own, or else one for exactly these params.

        The latter says to which client the relay answers, and no more: other clients that have these params and further
        ones may get a variant. Downstream relays therefore do not apply it to other params (Upstream.is_relay).
        """
        found = self.find(params)
        if found is not None and found.variant is None and found.only is None:
            return found.constraint
        return pins({key: params.get(key) for key in {*self.keys, *params, *beside}})

    def explain(self, params: Mapping[str, str]) -> Explanation:
        return explained(self.select(params), self.variants, params)


def _rank(finding: Finding) -> int:
    """Sort stale findings last, whenever they were received.

    PRX-31: a negative answer for all params comes after the variants, because it does not take away a variant that the
    server gave to certain params.
    """
    if finding.stale:
        return 2
    return 1 if finding.variant is None and finding.constraint == TRUE and not finding.hidden else 0


NOTHING = CachedSet(())  # a name about which nothing is known
