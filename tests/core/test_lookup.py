"""Finding what matches by index gives the same as trying everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xdsprism.core.model.constraint_index import FEW, FirstMatch, NewestMatch, ParamsIndex, demands
from xdsprism.core.model.constraints import All, AnyOf, Constraint, Eq, Exists, Not, matches
from xdsprism.core.model.events import Key
from xdsprism.core.model.types import Params
from xdsprism.core.relay.audience import Audience
from xdsprism.core.watch.authority import Authority
from xdsprism.core.watch.entry import Entry
from xdsprism.core.watch.entry_index import EntryIndex

KEYS, VALUES = st.sampled_from("abc"), st.sampled_from("xyz")
LEAVES = st.one_of(st.builds(Eq, KEYS, VALUES), st.builds(Exists, KEYS))
CONSTRAINTS: st.SearchStrategy[Constraint] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)
PARAMS = st.dictionaries(KEYS, VALUES).map(Params)


def entry(params: Params | None) -> Entry:
    return Entry("type", Key("name", params), Authority("", ()), [])


# DYN-45, PRX-4
@given(st.lists(CONSTRAINTS, max_size=3 * FEW), PARAMS)
def test_the_first_that_matches_is_found(constraints: list[Constraint], params: Params) -> None:
    tried = next((at for at, each in enumerate(constraints) if matches(each, params)), None)
    assert FirstMatch(constraints).find(params) == tried


# DYN-6
@given(CONSTRAINTS, PARAMS)
def test_matching_params_have_every_demanded_value(constraint: Constraint, params: Params) -> None:
    if matches(constraint, params):
        assert all(params.get(key) in values for key, values in demands(constraint).items())


# DYN-59, DYN-60
@given(st.lists(PARAMS, unique=True, max_size=3 * FEW), st.lists(CONSTRAINTS, max_size=4), st.data())
def test_an_index_finds_all_params_that_a_constraint_matches(
    known: list[Params], constraints: list[Constraint], data: st.DataObject
) -> None:
    askers, entries = EntryIndex(), [entry(params) for params in (*known, None)]  # one asks by the plain name
    for number, each in enumerate(entries):
        askers.add(each)
        if constraints:
            askers.concerned(constraints[number % len(constraints)])  # which makes indexes
    left = data.draw(st.sets(st.sampled_from(entries))) if entries else set()
    for each in left:
        askers.discard(each)
    here = [each for each in entries if each not in left]
    strays = here[:1]
    for each in strays:
        askers.note_stray(each, strays=True)
    for constraint in constraints:
        found = {*askers.concerned(constraint)}
        assert found >= {each for each in here if matches(constraint, each.key[1] or {})}
        assert found >= {*strays}
        assert found <= {*here}


def test_only_params_with_the_demanded_value_are_tried() -> None:
    # PRX-14
    askers = EntryIndex()
    entries = [entry(Params({"pod": str(number), "env": "prod"})) for number in range(100)]
    for each in entries:
        askers.add(each)
    assert [*askers.concerned(All((Eq("env", "prod"), Eq("pod", "7"))))] == [entries[7]]


# DYN-45, PRX-4
@given(st.lists(st.tuples(st.integers(0, 5), st.none() | CONSTRAINTS), max_size=3 * FEW), PARAMS)
def test_the_newest_that_matches_is_found_whatever_was_put_and_discarded(
    changes: list[tuple[int, Constraint | None]], params: Params
) -> None:
    found: NewestMatch[int] = NewestMatch()
    there: dict[int, Constraint] = {}  # oldest first
    for name, constraint in changes:
        edition = found.edition
        there.pop(name, None)
        if constraint is None:
            found.discard(name)
        else:
            found.put(name, constraint, name)
            there[name] = constraint
        assert found.edition != edition
    tried = next((name for name, each in reversed(there.items()) if matches(each, params)), None)
    assert found.find(params, "abc") == tried


# PRX-31
@given(st.lists(PARAMS, max_size=3 * FEW), CONSTRAINTS)
def test_an_index_tells_whether_any_params_match_a_constraint(known: list[Params], constraint: Constraint) -> None:
    assert ParamsIndex(known).has_any(constraint) == any(matches(constraint, params) for params in known)


# DESIGN 6.3
@given(st.lists(st.tuples(PARAMS, st.booleans()), max_size=4 * FEW), st.lists(CONSTRAINTS, min_size=1, max_size=4))
def test_all_classes_that_a_constraint_matches_are_concerned(
    changes: list[tuple[Params, bool]], constraints: list[Constraint]
) -> None:
    audience = Audience()
    audience.classes(("a", "b", "c"))
    for number, (params, comes) in enumerate(changes):
        if comes:
            audience.add(params)
        elif params in audience:
            audience.remove(params)
        [*audience.concerned(constraints[number % len(constraints)])]  # which makes indexes
    classes = audience.classes(("a", "b", "c"))
    for each in constraints:
        matching = {same for same, alike in classes.items() if matches(each, next(iter(alike)))}
        assert matching <= {*audience.concerned(each)} <= classes.keys()
