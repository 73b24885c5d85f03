"""Constraints as the second reading has them: plain tuples, an evaluator of its own, and other ways to say the same.

A shape is ("eq", key, value), ("has", key), ("not", shape), ("and", shape...) or ("or", shape...). What it means is its
region: which points of a small domain it matches. Two shapes with one region are one identity to this reading of TP2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product
from random import Random
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb

Shape = tuple[Any, ...]
Region = frozenset[int]

TRUE: Shape = ("and",)

# Every key that constraints depend on, with each value that they mention, another one, and none.
VALUES: Mapping[str, tuple[str | None, ...]] = {
    "env": (None, "prod", "test", "qa", "elsewhere"),
    "v": (None, "1", "2", "9"),
}
POINTS: tuple[dict[str, str], ...] = tuple(
    {key: value for key, value in zip(VALUES, point, strict=True) if value is not None}
    for point in product(*VALUES.values())
)
PADDING = ("env", "v", "x")  # keys that a clause which is always true may mention


def eq(key: str, value: str) -> Shape:
    return ("eq", key, value)


def has(key: str) -> Shape:
    return ("has", key)


def no(shape: Shape) -> Shape:
    return ("not", shape)


def both(*shapes: Shape) -> Shape:
    return ("and", *shapes)


def either(*shapes: Shape) -> Shape:
    return ("or", *shapes)


def holds(shape: Shape, params: Mapping[str, str]) -> bool:
    kind, *rest = shape
    if kind == "eq":
        return params.get(rest[0]) == rest[1]
    if kind == "has":
        return rest[0] in params
    if kind == "not":
        return not holds(rest[0], params)
    if kind == "and":
        return all(holds(each, params) for each in rest)
    assert kind == "or"
    return any(holds(each, params) for each in rest)


@cache
def region(shape: Shape) -> Region:
    return frozenset(number for number, point in enumerate(POINTS) if holds(shape, point))


def pinned(params: Mapping[str, str], keys: tuple[str, ...] = tuple(VALUES)) -> Shape:
    """Exactly those who have these values of the keys, or none."""
    return both(*(eq(key, params[key]) if key in params else no(has(key)) for key in keys))


# -- other ways to say the same


def reworded(shape: Shape, random: Random, *, times: int = 2) -> Shape:
    """The same constraints in another form."""
    for _ in range(random.randint(0, times)):
        shape = random.choice(_WAYS)(shape, random)
    return shape


def _reordered(shape: Shape, random: Random) -> Shape:
    kind, *rest = shape
    if kind not in ("and", "or"):
        return shape
    random.shuffle(rest)
    return (kind, *(_reordered(each, random) for each in rest))


def _twice_negated(shape: Shape, _: Random) -> Shape:
    return no(no(shape))


def _by_de_morgan(shape: Shape, _: Random) -> Shape:
    kind, *rest = shape
    if kind in ("and", "or") and rest:
        return no(("or" if kind == "and" else "and", *(no(each) for each in rest)))
    return shape


def _repeated(shape: Shape, random: Random) -> Shape:
    return (random.choice(("and", "or")), shape, shape)


def _padded(shape: Shape, random: Random) -> Shape:
    key = random.choice(PADDING)
    return both(shape, either(has(key), no(has(key))))


def _nested(shape: Shape, random: Random) -> Shape:
    return (random.choice(("and", "or")), shape)


_WAYS = (_reordered, _twice_negated, _by_de_morgan, _repeated, _padded, _nested)


# -- families of shapes that can't overlap

_ENV = (
    (eq("env", "prod"),),
    (eq("env", "prod"), eq("env", "test")),
    (eq("env", "prod"), no(eq("env", "prod"))),
    (either(eq("env", "prod"), eq("env", "test")),),
    (either(eq("env", "prod"), eq("env", "test")), eq("env", "qa")),
    (has("env"), no(has("env"))),
    (eq("env", "prod"), both(has("env"), no(eq("env", "prod"))), no(has("env"))),
)
_V = (
    (eq("v", "1"),),
    (eq("v", "1"), eq("v", "2")),
    (eq("v", "1"), no(eq("v", "1"))),
    (has("v"), no(has("v"))),
)


def family(random: Random) -> list[Shape]:
    """Shapes for the variants of one resource: disjoint, not always of the same keys, not always for everybody."""
    kind = random.random()
    if kind < 0.15:
        return []
    if kind < 0.3:
        return [TRUE]
    made: list[Shape] = []
    first, second = random.choice(((_ENV, _V), (_ENV, _V), (_V, _ENV)))
    for cell in random.choice(first):
        if random.random() < 0.35:
            made += [both(cell, each) for each in random.choice(second)]
        else:
            made.append(cell)
    if len(made) > 1 and random.random() < 0.3:
        made.remove(random.choice(made))
    if len(made) > 2 and random.random() < 0.2:
        one, other, *made = random.sample(made, len(made))
        made.append(either(one, other))
    return made


def split(shape: Shape, random: Random) -> list[Shape]:
    """The same clients in parts, of which some may be left out."""
    parts = [both(shape, each) for each in random.choice((*_ENV, *_V))]
    return [each for each in parts if region(each)]


# -- on the wire


def to_proto(shape: Shape, random: Random | None = None) -> Any:
    """TP2's message. True is the empty message, or an empty `and`."""
    proto = pb.DynamicParameterConstraints()
    if shape == TRUE and (random is None or random.random() < 0.5):
        return proto
    _fill(proto, shape)
    return proto


def _fill(proto: Any, shape: Shape) -> None:
    kind, *rest = shape
    if kind == "eq":
        proto.constraint.key, proto.constraint.value = rest
    elif kind == "has":
        proto.constraint.key = rest[0]
        proto.constraint.exists.SetInParent()
    elif kind == "not":
        _fill(proto.not_constraints, rest[0])
    else:
        listed = proto.and_constraints if kind == "and" else proto.or_constraints
        listed.SetInParent()
        for each in rest:
            _fill(listed.constraints.add(), each)


def text(proto: Any) -> str:
    """Constraints as a line of a transcript has them."""
    kind = proto.WhichOneof("type")
    if kind is None:
        return ""
    if kind == "constraint":
        single = proto.constraint
        return f"{single.key}={single.value}" if single.HasField("value") else f"{single.key}?"
    if kind == "not_constraints":
        return f"!{text(proto.not_constraints)}"
    listed = (proto.and_constraints if kind == "and_constraints" else proto.or_constraints).constraints
    return "(" + ("&" if kind == "and_constraints" else "|").join(text(each) for each in listed) + ")"
