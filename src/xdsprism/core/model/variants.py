"""The variants of one name: proof that they can't clash, and an index from params to the one that matches.

TP2, Matching Behavior and Best Practices: the variants of a resource are mutually exclusive, and a control plane must
not accept any others. They should also list the same keys: `padded` adds those that a variant leaves out (DYN-34).
Proof and index are one structure: labelling each constraint's diagram with its variant and merging them all either
meets an overlap or leaves the index behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

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
from .decisions import BUDGET, Decisions, Node, TooComplex, joining, lookup, paths
from .expr import show
from .types import ResourceProblem, Variant, padded_variant

_NO_ALIASES: frozenset[str] = frozenset()
_LONGEST = 300  # characters of a constraint in a message


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
    """Why a client gets what it gets."""

    chosen: Variant | None
    refused: tuple[tuple[Variant, Constraint], ...]  # each of the others, with the part of it that doesn't hold


@dataclass(frozen=True, slots=True)
class Moved:
    """Which variants came, and which went; what has other contents did both."""

    came: tuple[Variant, ...]
    went: tuple[Variant, ...]


class VariantSet:
    """The variants of one (type, name); immutable. Most have one variant for everybody: then it is its own index."""

    __slots__ = ("_index", "aliases", "keys", "sole", "variants")

    variants: tuple[Variant, ...]
    keys: tuple[str, ...]  # all that are mentioned, sorted
    aliases: frozenset[str]
    made = False  # by a provider, for those who asked (providing.py)
    _index: Node  # ends in a Variant, or None

    def __init__(self, variants: tuple[Variant, ...], mentioned: tuple[str, ...], index: Node) -> None:
        self.variants = variants
        self.keys = mentioned
        self.aliases = frozenset(alias for variant in variants for alias in variant.aliases) or _NO_ALIASES
        self.sole = index if isinstance(index, Variant) else None  # the one that is for everybody
        self._index = index

    @classmethod
    def build(cls, variants: Sequence[Variant], budget: int = BUDGET) -> VariantSet:
        """Check and index; raises Clash. The store has padded them (`padded`)."""
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
        return f"VariantSet({', '.join(show(variant.shown) for variant in self.variants)})"

    def moved(self, before: VariantSet) -> Moved | None:
        """What became of another set: who has a variant that stays has it still. None: that can't be told."""
        if not (type(self) is type(before) is VariantSet) or len(before.variants) < 2 or before.aliases != self.aliases:
            return None
        stay = {*self.variants}
        return Moved(self.variants, tuple(variant for variant in before.variants if variant not in stay))

    def select(self, params: Mapping[str, str]) -> Variant | None:
        """The variant for these params; None: the resource does not exist for them (DYN-10)."""
        found: Variant | None = lookup(self._index, params)
        return found

    def proven(self, params: Mapping[str, str]) -> Variant | None:
        """The same, with constraints that say for whom else it is; of one name, each variant has these anyway."""
        return self.select(params)

    def member(self, params: Mapping[str, str]) -> Variant | None:
        """What of it a wildcard with these params sees (VHD-13: of virtual hosts, the base set)."""
        found = self.select(params)
        return found if found is None or found.base is None or matches(found.base, params) else None

    @property
    def is_listed(self) -> bool:
        """Whether there are wildcards that see something of it."""
        return any(variant.base != FALSE for variant in self.variants)

    @property
    def member_keys(self) -> frozenset[str]:
        """All that decides what a wildcard sees of it."""
        bases = (variant.base for variant in self.variants if variant.base is not None)
        return frozenset(self.keys).union(*map(keys, bases))

    def knows(self, params: Mapping[str, str], *, sure: bool = False) -> bool:  # noqa: ARG002 # a cache may not
        """Whether it is known what these params get, be it nothing; `sure`: and not only from an earlier run."""
        return True

    def trouble(self, params: Mapping[str, str]) -> ResourceProblem | None:  # noqa: ARG002
        """What is wrong with getting what these params should have, where it comes from somewhere else (TP3)."""
        return None

    def negative(self, params: Mapping[str, str], beside: Iterable[str] = ()) -> Constraint:  # noqa: ARG002
        """What to say to a client for which there is no variant; `beside`: that also asks by these keys.

        DYN-11: each mentioned key pinned to the client's value, or to its absence. Only mentioned keys decide, so
        this covers exactly the clients that are alike, and none that has a variant.
        """
        return pins({key: params.get(key) for key in self.keys})

    def gaps(self, limit: int) -> list[dict[str, str]]:
        """Up to `limit` examples of params that no variant covers; `{}` is a client that sends none of the keys."""
        ways = paths(self._index, None, [variant.constraint for variant in self.variants])
        return [_present(way) for way in islice(ways, limit)]

    def explain(self, params: Mapping[str, str]) -> Explanation:
        """Which variant, and what each of the others asks for in vain."""
        chosen = self.select(params)
        others = [variant for variant in self.variants if variant is not chosen]
        return Explanation(chosen, tuple((variant, failing(variant.constraint, params)) for variant in others))


def shared(first: Variant, second: Variant) -> str | None:
    """Who matches both, in words; None: nobody does."""
    try:
        _merged((first, second), BUDGET)
    except Clash as clash:
        return clash.message
    except TooComplex as reason:
        return f"too complex to prove disjoint: {reason}"
    return None


def padded(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Have every variant of a name mention the same keys; raises Clash if one would get too large.

    DYN-34: an idle clause is added for each key that only other variants mention, and goes again with the last of
    them. The result depends on the set of variants alone, so versions are the same on every replica. A variant that
    mentions these keys already is kept as it is.
    """
    if len(variants) == 1 and variants[0].stated is variants[0].constraint:
        return tuple(variants)
    wanted = frozenset[str]().union(*(keys(variant.stated) for variant in variants))
    return tuple(_mentioning(variant, wanted, variants) for variant in variants)


def _mentioning(variant: Variant, wanted: frozenset[str], variants: Sequence[Variant]) -> Variant:
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
    """The index: all diagrams merged in one walk, not pair by pair."""
    decisions = Decisions(_order(variants), budget)

    def overlap(first: Variant, second: Variant) -> Node:
        raise _overlap(first, second, variants)

    labelled = (decisions.only(decisions.constraint(variant.stated), variant) for variant in variants)
    return decisions.fold(joining(overlap, identity=None), labelled)


def _order(variants: Iterable[Variant]) -> list[str]:
    """The order of keys decides how large diagrams get. First those that most variants pin to a few values.

    There the variants part, each value with its own few, and no later key is met by all of them at once. Else as
    written: keys that belong together tend to stand together, and diagrams are small if they stay so.
    """
    pinned: Counter[str] = Counter()
    for variant in variants:
        pinned.update(dict.fromkeys((atom.key for atom in atoms(variant.stated)), 0))
        pinned.update(_pinned(variant.stated))
    return sorted(pinned, key=lambda key: -pinned[key])


def _pinned(constraint: Constraint) -> set[str]:
    match constraint:
        case Eq(key, _):
            return {key}
        case All(items):
            return set().union(*map(_pinned, items))
        case AnyOf((first, *rest)):
            return _pinned(first).intersection(*map(_pinned, rest))
        case _:
            return set()


def _overlap(first: Variant, second: Variant, variants: tuple[Variant, ...]) -> Clash:
    """Say what a client must send to match both. DYN-37."""
    decisions = Decisions(_order((first, second)))
    both = decisions.both(decisions.constraint(first.stated), decisions.constraint(second.stated))
    way = next(paths(both, True, [variant.constraint for variant in variants]))  # noqa: FBT003 - a terminal
    where = show(pins(way)) if way else "every client"
    message = f"both match {where}: {_quoted(first)} and {_quoted(second)}"
    return Clash(message, first, second, _present(way))


def _quoted(variant: Variant) -> str:
    text = show(variant.shown)
    return f"`{text}`" if len(text) <= _LONGEST else f"`{text[:_LONGEST]}...`"


def pins(way: Mapping[str, str | None]) -> Constraint:
    """Exactly the clients that agree with this one on these keys."""
    pins = (Not(Exists(key)) if value is None else Eq(key, value) for key, value in sorted(way.items()))
    items: tuple[Constraint, ...] = tuple(pins)
    return items[0] if len(items) == 1 else All(items)


def _present(way: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in sorted(way.items()) if value is not None}
