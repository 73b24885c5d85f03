"""Prove that the variants of one name can't overlap, and find the one that matches a client's params.

TP2, Matching Behavior and Best Practices: the variants of a resource are mutually exclusive, and a control plane must
not accept any others. They should also mention the same keys: `padded` adds those that a variant leaves out (DYN-34).
For example, of two variants

    env=prod                     is padded to   env=prod and (tier exists or not tier exists)
    env=test and tier=a          stays as it is

Proof and index are one structure. Each constraint becomes a decision diagram (decisions.py) that ends in its variant
where the constraint holds, and all diagrams are merged into one. If two variants meet at one end, they overlap, and the
way there is the witness: params that match both. If none meet, the merged diagram is the index from params to variant:

    env -- prod ----------------------> first variant
     |---- test --> tier -- a --------> second variant
     |               `----- other ----> None: the resource does not exist for these params
     `---- other value, or absent ----> None
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from ...errors import UsageError
from .constraints import (
    FALSE,
    TRUE,
    All,
    AnyOf,
    Constraint,
    Eq,
    Exists,
    Not,
    atoms,
    canonical,
    check_limits,
    failing,
    keys,
    matches,
    mentioning,
)
from .decisions import BUDGET, Decisions, Node, TooComplex, expression, joining, lookup, paths
from .expr import show
from .types import ResourceProblem, Variant, padded_variant

_NO_ALIASES: frozenset[str] = frozenset()
_LONGEST = 300  # characters of a constraint that a message quotes


class Clash(Exception):
    """These variants can't be the variants of one name. The store adds where they were written."""

    def __init__(self, message: str, first: Variant, second: Variant, witness: Mapping[str, str] | None = None) -> None:
        self.message = message
        self.first = first
        self.second = second
        self.witness = dict(witness or {})  # DYN-37: params that match both
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a client gets the variant that it gets, or none."""

    chosen: Variant | None
    refused: tuple[tuple[Variant, Constraint], ...]  # every other variant, and the part of it that does not match


@dataclass(frozen=True, slots=True)
class Moved:
    """The variants that came and those that went between two sets; one with new contents does both."""

    came: tuple[Variant, ...]
    went: tuple[Variant, ...]


class Answer(Protocol):
    """What is known of a string that a client subscribes to: of a name, an alias, or a host (hosts.py)."""

    variants: tuple[Variant, ...]  # all of which some params get one
    keys: tuple[str, ...]  # all keys that the constraints mention, sorted
    aliases: frozenset[str]

    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant for these params; None: the resource does not exist for them (DYN-10)."""

    def select_for_cache(self, params: Mapping[str, str]) -> Variant | None:
        """Return the same variant, with constraints that say exactly which other clients get it too."""

    def mentioned(self, params: Mapping[str, str]) -> Iterable[str]:
        """Return the keys that decide what these params get, as far as that is known."""

    def knows(self, params: Mapping[str, str], *, sure: bool = False) -> bool:
        """Whether the answer for these params is known, be it that there is none.

        sure: an answer known only from an earlier run of the process does not count.
        """

    def problem(self, params: Mapping[str, str]) -> ResourceProblem | None:
        """Return why these params can't get a resource that comes from an upstream server or a provider (TP3)."""

    def negative(self, params: Mapping[str, str], beside: Iterable[str] = ()) -> Constraint:
        """Return the constraint of a negative answer, for a client that no variant matches (DYN-11).

        beside: further keys in the client's subscription, which matter to a cache only.
        """

    def explain(self, params: Mapping[str, str]) -> Explanation:
        """Say which variant these params get, and which part of each other variant does not match."""


class VariantSet(ABC):
    """The variants of one (type, name), as a table holds them; an interface without state.

    Each is immutable, and is an `Answer` too. Two classes implement this: `DisjointVariants`, what a store has, and
    `CachedSet` (cached.py), which a relay got from its servers or a provider made.
    """

    __slots__ = ()

    variants: tuple[Variant, ...]
    keys: tuple[str, ...]
    aliases: frozenset[str]
    sole: Variant | None  # the variant that every client gets
    made: bool  # a provider made it for the clients that asked (provide/providing.py)
    # What a table counts, since with none of these its answers need no second look (knowledge.py).
    is_limited: bool  # an answer may not go to clients that come now

    @abstractmethod
    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant for these params; None: the resource does not exist for them (DYN-10)."""

    @abstractmethod
    def select_for_cache(self, params: Mapping[str, str]) -> Variant | None:
        """Return the same variant, with constraints that say exactly which other clients get it too."""

    def mentioned(self, params: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        """Return the keys that decide what these params get, as in `Answer`. A store pads all variants (DYN-34)."""
        return self.keys

    def only(self, allows: Callable[[str], bool]) -> VariantSet:  # noqa: ARG002
        """Return the set without variants of resources that are not allowed. A store's are all of this name."""
        return self

    @abstractmethod
    def member(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant that a wildcard with these params sees. VHD-13: of virtual hosts, only the base set."""

    @property
    @abstractmethod
    def is_singular(self) -> bool:
        """Whether an answer is for exact params only, and not for others of the same class."""

    @property
    @abstractmethod
    def has_problem(self) -> bool:
        """Whether there is a problem to tell."""

    @property
    @abstractmethod
    def is_listed(self) -> bool:
        """Whether any wildcard can see one of the variants."""

    @property
    @abstractmethod
    def member_keys(self) -> frozenset[str]:
        """Return the keys that decide what a wildcard sees: those of the constraints and of the base sets."""

    @abstractmethod
    def moved(self, before: VariantSet) -> Moved | None:
        """Compare with the set before: which variants clients may have to replace. None: it can't be told.

        A client whose variant stays needs no notice; with None, every subscription to the name gets one.
        """

    @abstractmethod
    def difference(self, before: VariantSet | None) -> Moved | None:
        """Return which variants came and which went since `before`, if that is known without a comparison."""

    @abstractmethod
    def knows(self, params: Mapping[str, str], *, sure: bool = False) -> bool:
        """Whether the answer for these params is known, as in `Answer`."""

    @abstractmethod
    def problem(self, params: Mapping[str, str]) -> ResourceProblem | None:
        """Return why these params can't get the resource, as in `Answer`."""

    @abstractmethod
    def negative(self, params: Mapping[str, str], beside: Iterable[str] = ()) -> Constraint:
        """Return the constraint of a negative answer, as in `Answer`."""

    @abstractmethod
    def explain(self, params: Mapping[str, str]) -> Explanation:
        """Say which variant these params get, and why not another one."""


class DisjointVariants(VariantSet):
    """The variants of one (type, name) that were proven not to overlap; immutable.

    Most names have one variant without constraints. Then that variant itself is the index, a diagram without branches.
    """

    __slots__ = ("_index", "aliases", "keys", "sole", "variants")

    made = False
    is_limited = False
    _index: Node  # a decision diagram that ends in a Variant, or in None

    def __init__(self, variants: tuple[Variant, ...], mentioned: tuple[str, ...], index: Node) -> None:
        self.variants = variants
        self.keys = mentioned
        self.aliases = aliases_of(variants)
        self.sole = index if isinstance(index, Variant) else None
        self._index = index

    @classmethod
    def build(cls, variants: Sequence[Variant], budget: int = BUDGET) -> DisjointVariants:
        """Check and index the variants, which the store has padded (`padded`); raise Clash if they overlap."""
        variants = tuple(variants)
        if not variants:
            return cls((), (), None)
        if len(variants) == 1 and variants[0].constraint == TRUE:
            return cls(variants, (), variants[0])
        try:
            index = _merged(variants, budget)
        except TooComplex as reason:
            raise Clash(f"too complex to prove disjoint: {reason}", variants[0], variants[-1]) from reason
        mentioned = frozenset[str]().union(*(keys(variant.constraint) for variant in variants))
        return cls(variants, tuple(sorted(mentioned)), index)

    def __repr__(self) -> str:
        return f"DisjointVariants({', '.join(show(variant.shown) for variant in self.variants)})"

    @property
    def is_singular(self) -> bool:
        """Return False: the constraints alone say for whom a variant is."""
        return False

    @property
    def has_problem(self) -> bool:
        """Return False: what a store has, it has without problems."""
        return False

    def moved(self, before: VariantSet) -> Moved | None:
        """Compare with the set before. `came` is every variant, for those clients that have none yet."""
        if not isinstance(before, DisjointVariants) or len(before.variants) < 2 or before.aliases != self.aliases:
            return None
        stay = {*self.variants}
        return Moved(self.variants, tuple(variant for variant in before.variants if variant not in stay))

    def difference(self, before: VariantSet | None) -> Moved | None:  # noqa: ARG002
        """Return None: only a cache builds a set from the one before it."""
        return None

    def select(self, params: Mapping[str, str]) -> Variant | None:
        found: Variant | None = lookup(self._index, params)
        return found

    def select_for_cache(self, params: Mapping[str, str]) -> Variant | None:
        """Return the same variant as `select`: since none overlap, its constraints are exact as they are."""
        return self.select(params)

    def member(self, params: Mapping[str, str]) -> Variant | None:
        return in_base(self.select(params), params)

    @property
    def is_listed(self) -> bool:
        return any(variant.base != FALSE for variant in self.variants)

    @property
    def member_keys(self) -> frozenset[str]:
        return base_keys(self.keys, self.variants)

    def knows(self, params: Mapping[str, str], *, sure: bool = False) -> bool:  # noqa: ARG002
        """Return True: what does not match does not exist."""
        return True

    def problem(self, params: Mapping[str, str]) -> ResourceProblem | None:  # noqa: ARG002
        """Return None: nothing has to be fetched."""
        return None

    def negative(self, params: Mapping[str, str], beside: Iterable[str] = ()) -> Constraint:  # noqa: ARG002
        """Pin each mentioned key to the client's value, or to its absence.

        DYN-11: only mentioned keys decide, so this covers exactly the clients of the same class, and none that has a
        variant.
        """
        return pins({key: params.get(key) for key in self.keys})

    def gaps(self, limit: int) -> list[dict[str, str]]:
        """Return up to `limit` examples of params that no variant covers; `{}` is a client with none of the keys."""
        ways = paths(self._index, None, [variant.constraint for variant in self.variants])
        return [_present(way) for way in islice(ways, limit)]

    def explain(self, params: Mapping[str, str]) -> Explanation:
        return explained(self.select(params), self.variants, params)


def explained(chosen: Variant | None, variants: Iterable[Variant], params: Mapping[str, str]) -> Explanation:
    """Say why these params get the chosen variant. Others that match too, of a cache or of a host, are left out."""
    others = [each for each in variants if each is not chosen and not matches(each.constraint, params)]
    return Explanation(chosen, tuple((each, failing(each.constraint, params)) for each in others))


def aliases_of(variants: Iterable[Variant]) -> frozenset[str]:
    """Return the aliases of all these variants."""
    return frozenset(alias for variant in variants for alias in variant.aliases) or _NO_ALIASES


def in_base(found: Variant | None, params: Mapping[str, str]) -> Variant | None:
    """Return the variant that was found if a wildcard with these params sees it: it is in their base set (VHD-13)."""
    return found if found is None or found.base is None or matches(found.base, params) else None


def base_keys(mentioned: Iterable[str], variants: Iterable[Variant]) -> frozenset[str]:
    """Return the keys that decide what a wildcard sees: those mentioned, and those of the variants' base sets."""
    bases = (variant.base for variant in variants if variant.base is not None)
    return frozenset(mentioned).union(*map(keys, bases))


def shared(first: Variant, second: Variant) -> str | None:
    """Say who matches both variants; None: no params do."""
    try:
        _merged((first, second), BUDGET)
    except Clash as clash:
        return clash.message
    except TooComplex as reason:
        return f"too complex to prove disjoint: {reason}"
    return None


def padded(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Make every variant of a name mention the same keys; raise Clash if one gets too large.

    DYN-34: a variant gets an idle clause for each key that only other variants mention, and loses it when the last of
    them goes. The result depends on the set of variants alone, so versions are the same on every replica. A variant
    that mentions all keys already is kept as it is.
    """
    if len(variants) == 1 and variants[0].stated is variants[0].constraint:
        return tuple(variants)  # a single variant that was never padded
    wanted = frozenset[str]().union(*(keys(variant.stated) for variant in variants))
    return tuple(_mentioning(variant, wanted, variants) for variant in variants)


def _mentioning(variant: Variant, wanted: frozenset[str], variants: Sequence[Variant]) -> Variant:
    """Pad one variant; keep the object if it mentions all `wanted` keys already."""
    whole = mentioning(variant.stated, wanted)
    if whole == variant.constraint or canonical(whole) == canonical(variant.constraint):
        return variant
    try:
        check_limits(whole)
    except UsageError as error:
        second = next(each for each in variants if each is not variant)
        added = ", ".join(sorted(wanted - keys(variant.stated)))
        message = f"{_quoted(variant)} is too large once it mentions what other variants do ({added}): {error}"
        raise Clash(message, variant, second) from error
    return padded_variant(variant, whole)


def _merged(variants: tuple[Variant, ...], budget: int) -> Node:
    """Return the index: the diagrams of all variants merged, each ending in its variant. Raises Clash at an overlap."""
    decisions = Decisions(_order(variants), budget)

    def overlap(first: Variant, second: Variant) -> Node:
        raise _overlap(first, second, variants)

    labelled = [decisions.only(decisions.constraint(variant.stated), variant) for variant in variants]
    return decisions.fold(joining(overlap, identity=None), labelled)


def _order(variants: Iterable[Variant]) -> list[str]:
    """Choose the order of the keys, which decides how large diagrams get: first those that most variants pin to values.

    At such a key the variants part, each value with its own few, so that later keys are looked at for a few variants
    only. Other keys stay in the order written: keys that belong together tend to stand together, and diagrams are small
    if they stay so.
    """
    pinned: Counter[str] = Counter()
    for variant in variants:
        pinned.update(dict.fromkeys((atom.key for atom in atoms(variant.stated)), 0))
        pinned.update(_pinned(variant.stated))
    return sorted(pinned, key=lambda key: -pinned[key])


def _pinned(constraint: Constraint) -> set[str]:
    """Return the keys that the constraint restricts to listed values, wherever it matches."""
    match constraint:
        case Eq(key, _):
            return {key}
        case All(items):
            return set().union(*map(_pinned, items))
        case AnyOf(items) if items:
            return _pinned(items[0]).intersection(*map(_pinned, items[1:]))
        case _:
            return set()


def _overlap(first: Variant, second: Variant, variants: tuple[Variant, ...]) -> Clash:
    """Make the Clash that says which params match both variants. DYN-37."""
    decisions = Decisions(_order((first, second)))
    both = decisions.both(decisions.constraint(first.stated), decisions.constraint(second.stated))
    way = next(paths(both, True, [variant.constraint for variant in variants]))  # noqa: FBT003 - a terminal
    where = show(pins(way)) if way else "every client"
    message = f"both match {where}: {_quoted(first)} and {_quoted(second)}"
    return Clash(message, first, second, _present(way))


def complement(variants: Iterable[Variant]) -> Constraint | None:
    """Return a short constraint for the params that none of these variants match; None: it takes too long to find."""
    given = tuple(variants)
    try:
        decisions = Decisions(_order(given))
        return expression(decisions.constraint(Not(AnyOf(tuple([each.stated for each in given])))))
    except TooComplex:
        return None


def _quoted(variant: Variant) -> str:
    """Quote a variant's constraint for a message, cut if it is long."""
    text = show(variant.shown)
    return f"`{text}`" if len(text) <= _LONGEST else f"`{text[:_LONGEST]}...`"


def pins(way: Mapping[str, str | None]) -> Constraint:
    """Return the constraint that matches exactly the clients with these values; None: the key is absent."""
    pins = (Not(Exists(key)) if value is None else Eq(key, value) for key, value in sorted(way.items()))
    items: tuple[Constraint, ...] = tuple(pins)
    return items[0] if len(items) == 1 else All(items)


def _present(way: Mapping[str, str | None]) -> dict[str, str]:
    """Return the params of an example, without the keys that are absent."""
    return {key: value for key, value in sorted(way.items()) if value is not None}
