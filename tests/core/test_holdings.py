"""The table of states and events at the head of holdings.py, cell by cell, and that nothing else changes a state."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.core.support import Bench
from xdsprism.core.model.events import Key
from xdsprism.core.model.types import NO_PARAMS, Variant
from xdsprism.core.model.views import Transition
from xdsprism.core.session import holdings as holdings_module
from xdsprism.core.session.holdings import ResourceState
from xdsprism.core.session.session import Session
from xdsprism.core.session.subscription import NameSubscription

KEY = Key("a")
SERVE = Path(holdings_module.__file__).parent
OWNER = "holdings.py"

# What each event makes of a resource in each state. "gone": the client does not subscribe to it. "-": it can't happen.
TABLE = """
    event        nothing  WANTED  ABSENT  HELD       RESENDING  LEAVING   MEMBER     MEMBER_LEAVING
    begin        WANTED   -       -       -          -          -         RESENDING  LEAVING
    ask_again    -        WANTED  WANTED  RESENDING  RESENDING  LEAVING   RESENDING  -
    tell_again   -        WANTED  WANTED  RESENDING  RESENDING  LEAVING   -          -
    deliver      -        HELD    HELD    HELD       HELD       HELD      MEMBER     MEMBER
    bring        -        HELD    -       -          -          -         -          -
    miss         -        ABSENT  ABSENT  LEAVING    LEAVING    LEAVING   LEAVING    LEAVING
    release      -        -       -       -          -          ABSENT    -          gone
    decline      -        -       -       -          -          -         DECLINED   DECLINED
    take_back    -        -       -       -          -          -         MEMBER     -
    forget       -        gone    gone    gone       gone       gone      -          -
"""


def cells() -> Iterator[tuple[str, str, str]]:
    head, *rows = [line.split() for line in TABLE.strip().splitlines()]
    for event, *outcomes in rows:
        yield from ((event, state, after) for state, after in zip(head[1:], outcomes, strict=True) if after != "-")


class Client:
    """A client of clusters, and the resource `a` in the state that the test begins with."""

    def __init__(self, state: str) -> None:
        self.bench = Bench()
        self.peer = self.bench.delta()
        if state in ("HELD", "RESENDING", "LEAVING", "MEMBER", "MEMBER_LEAVING"):
            self.bench.put("cds a=1")
        asked = {"nothing": "+other", "MEMBER": "+*", "MEMBER_LEAVING": "+*"}
        self.peer.ask(f"cds {asked.get(state, '+a')}")
        if state != "WANTED":
            self.peer.poll()
        if state == "RESENDING":
            self.peer.ask("cds +a")
        elif state in ("LEAVING", "MEMBER_LEAVING"):
            self.miss()

    @property
    def session(self) -> Session:
        return self.peer.session("cds")

    @property
    def want(self) -> NameSubscription:
        found = self.found
        assert found is not None
        return found

    @property
    def found(self) -> NameSubscription | None:
        return self.session.subscriptions.find(KEY)

    @property
    def state(self) -> str:
        state = self.session.holdings.state_of(KEY)
        return state.name if state is not None else "gone"

    def variant(self, body: str) -> Variant:
        self.bench.put(f"cds a={body}")
        found = self.session.table.select("a", NO_PARAMS)
        assert found is not None
        return found

    # -- events

    def begin(self) -> None:
        self.session.lifecycle.begin(KEY)

    def ask_again(self) -> None:
        if self.found is not None:
            self.session.holdings.ask_again(self.found)
        else:
            self.session.holdings.owe(KEY)

    def tell_again(self) -> None:
        self.session.holdings.tell_again(self.want)

    def deliver(self) -> None:
        before = self.session.table.select("a", NO_PARAMS)
        after = self.variant("2")
        if self.found is not None:
            assert self.session.holdings.deliver(self.found, after)
        else:
            _, is_due = self.session.holdings.deliver_member(KEY, Transition("a", before, after))
            assert is_due

    def bring(self) -> None:
        self.session.holdings.bring(self.want, self.variant("1"))

    def miss(self) -> None:
        before = self.session.table.select("a", NO_PARAMS)
        self.bench.put("cds -a")
        if self.found is not None:
            self.session.holdings.miss(self.found, None)
        else:
            self.session.holdings.deliver_member(KEY, Transition("a", before, None))

    def release(self) -> None:
        assert [*self.session.holdings.release([KEY])] == [KEY]

    def decline(self) -> None:
        self.session.holdings.decline(KEY)

    def take_back(self) -> None:
        self.session.holdings.decline(KEY)
        self.session.holdings.take_back([KEY])

    def forget(self) -> None:
        self.session.lifecycle.end(self.want)


@pytest.mark.parametrize(("event", "state", "after"), [*cells()])
def test_an_event_takes_a_resource_from_one_state_to_the_next(event: str, state: str, after: str) -> None:
    client = Client(state)
    assert client.state == {"nothing": "gone", "MEMBER_LEAVING": "LEAVING"}.get(state, state)
    happens: Callable[[], None] = getattr(client, event)
    happens()
    assert client.state == after


def test_the_table_has_all_states() -> None:
    words = set(TABLE.split())
    assert {state.name for state in ResourceState} <= words


# -- no other module changes a state

OF_SUBSCRIPTIONS = ("answered", "held", "absence")
OF_HOLDINGS = ("leaving", "declined")
CHANGES = ("pop", "popitem", "update", "clear", "setdefault")
# A subscription begins with these, and a hold of removals.py counts the responses that were answered.
ALLOWED = {("subscription.py", "self"), ("removals.py", "hold")}


def state_changes(source: str, file: str) -> list[str]:
    """What a module does to the state of a resource, by line."""
    found = [line for node in ast.walk(ast.parse(source)) for line in _changes(node, file)]
    return [f"{file}:{line}" for line in sorted(found)]


def _changes(node: ast.AST, file: str) -> Iterator[int]:
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        if node.attr in OF_HOLDINGS or (node.attr in OF_SUBSCRIPTIONS and (file, owner) not in ALLOWED):
            yield node.lineno
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _name(node.value) in OF_HOLDINGS:
        yield node.lineno
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        if _name(node.func.value) in OF_HOLDINGS:
            yield node.lineno
    elif isinstance(node, ast.Call) and _name(node.func) == "setattr":
        yield node.lineno


def _name(node: ast.expr) -> str:
    """The last part of `a.b.leaving`, or a local name for it."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("path", [path for path in sorted(SERVE.glob("*.py")) if path.name != OWNER], ids=str)
def test_only_the_holdings_change_the_state_of_a_resource(path: Path) -> None:
    assert state_changes(path.read_text(encoding="utf-8"), path.name) == []


@pytest.mark.parametrize(
    "planted",
    [
        "want.answered = True",
        "answered, want.answered = want.answered, True",
        "want.held = None",
        "del want.held",
        "want.absence: object = None",
        "self.answered = True",
        "session.holdings.leaving[key] = variant",
        "del session.leaving[key]",
        "leaving.pop(key)",
        "holdings.leaving.update(others)",
        "holdings.leaving = {}",
        "holdings.declined |= {key}",
        "setattr(want, name, None)",
    ],
)
def test_a_change_of_state_elsewhere_is_found(planted: str) -> None:
    assert state_changes(f"def planted():\n    {planted}\n", "collecting.py") == ["collecting.py:2"]


def test_the_holdings_themselves_would_be_found() -> None:
    assert len(state_changes((SERVE / OWNER).read_text(encoding="utf-8"), OWNER)) > 10
