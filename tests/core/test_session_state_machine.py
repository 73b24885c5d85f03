"""Streams driven at random, against a correct client and a naive store in plain dictionaries (model.py).

At every quiet point the client holds what the store has for it, and on the way nothing was said without need. Two
machines differ in when a client sees what it was sent: at once, or some time later, with its requests crossing the
server's responses on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.core.model import (
    FULL_STATE,
    LEGACY_WILDCARD,
    REFERRERS,
    Accounts,
    ModelClient,
    ModelStore,
    ModelType,
    bad,
    everything,
    identity_of,
)
from tests.core.support import Bench, Peer, changeset, entries, key_of
from tests.support.examples import examples
from xdsprism.core.model import listing as listing_module
from xdsprism.core.model.events import WILDCARD, DeltaRequest, Key, Node, Rejection, Send, SotwRequest
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.type_names import resolve_type
from xdsprism.core.model.types import ENDPOINT, Params, TypeUrl, Variant, make_variant
from xdsprism.core.model.xdstp import is_wild, wildcards

Client = tuple[dict[str, str], bool, bool]  # its node's metadata; whether it is delta; whether it is picky

NAMES = ("a", "b", "c", "~/g/p", "~/g/q")  # `~` stands for the authority and type of xdstp names
ALIAS = "x"
NODES = ({}, {"env": "prod"}, {"env": "test"}, {"env": "prod", "v": "1"}, {"env": "qa", "v": "1"})
FAMILIES = (
    ("",),
    ("env=prod",),
    ("env=prod", "env!=prod"),
    ("env=test", "env=prod"),
    ("env in (prod, test)",),
    ("env exists", "not env exists"),
    ("env=prod and v=1", "env=prod and v!=1"),
    ("env=prod and (v exists or not v exists)", "env!=prod and v=1"),
)

tags = st.sampled_from(("", "", "", "{}", "{env=prod}", "{env=test}", "{env=prod,v=1}", "{env=qa,v=1}"))
names = st.sampled_from((*NAMES, ALIAS, "*", "*", "~/g/*", "~/none/*", "missing"))
signs = st.sampled_from(("+", "+", "-"))
bodies = st.sampled_from(("1", "2", "3", "bad"))
words = st.sampled_from(("cds", "eds", "lds", "rds"))
picks = st.integers(0, 10)
clients = st.tuples(st.sampled_from(NODES), st.booleans(), st.booleans())


@st.composite
def wishes(draw: st.DrawFn) -> str:
    """As in a transcript: `+a -b{env=prod}`. A SotW client takes what has a `+` for its whole list."""
    keys = draw(st.lists(st.tuples(names, tags), max_size=4, unique=True)) if draw(picks) else []
    return " ".join(draw(signs) + name + tag for name, tag in keys)


@st.composite
def changes(draw: st.DrawFn, most: int) -> str:
    """A transaction, as in a transcript: some names get a family of variants, or none."""
    touched = draw(st.lists(st.tuples(words, st.sampled_from(NAMES)), min_size=1, max_size=most, unique=True))
    return "; ".join(f"{word} {draw(families(spelled_out(name, word)))}" for word, name in touched)


def spelled_out(text: str, word: str) -> str:
    return text.replace("~", f"xdstp://x/{resolve_type(word).rpartition('/')[2]}")


@st.composite
def families(draw: st.DrawFn, name: str) -> str:
    if draw(picks) < 3:
        return f"-{name}"
    alias = f"({ALIAS})" if name == "a" and draw(st.booleans()) else ""
    return " ".join(f"{name}{alias}[{when}]={draw(bodies)}" for when in draw(st.sampled_from(FAMILIES)))


@dataclass
class Connection:
    """A client and the stream that it has now."""

    client: ModelClient
    peer: Peer
    accounts: Accounts = field(default_factory=Accounts)
    inbox: list[tuple[Send, bool | None]] = field(default_factory=list)  # with the verdict, once it was looked at


class Sessions(RuleBasedStateMachine):
    """Responses are seen at once; only their ACKs and NACKs take time."""

    crossing = False

    @initialize(
        limit=st.sampled_from((3_500_000, 400)),
        errors=st.sampled_from(("locators", "all", "none")),
        slack=picks,
        change=changes(12),
        clients=st.lists(clients, min_size=1, max_size=2),
    )
    def begin(self, limit: int, errors: str, slack: int, change: str, clients: list[Client]) -> None:
        self.patched = patch.object(listing_module, "LOG_SLACK", slack)  # so that logs are merged in these short runs
        self.patched.start()
        self.bench = Bench(Settings(response_bytes=limit, resource_errors=errors))  # type: ignore[arg-type]
        self.model = ModelStore()
        self.connections: list[Connection] = []
        self._apply(changeset(change))
        for client in clients:
            self._connect(client)

    # -- rules

    @rule(pick=picks, word=words, wish=wishes(), change=st.one_of(st.just(""), changes(3)), order=st.integers(0, 3))
    def turn(self, pick: int, word: str, wish: str, change: str, order: int) -> None:
        """A request and a transaction, one before the other, with a poll between them or after them or not at all."""
        connection = self._one(pick)
        steps = [lambda: self._ask(connection, word, wish), lambda: self._apply(changeset(change))]
        for step in steps if order % 2 else reversed(steps):
            step()
            if order > 1:
                self._poll(connection)

    @rule(pick=picks, word=words, wish=wishes())
    def ask(self, pick: int, word: str, wish: str) -> None:
        self._ask(self._one(pick), word, wish)

    @rule(change=changes(3))
    def transact(self, change: str) -> None:
        self._apply(changeset(change))

    @rule(pick=picks, answers=st.integers(0, 5))
    def poll(self, pick: int, answers: int) -> None:
        connection = self._one(pick)
        self._poll(connection)
        for _ in range(min(answers, len(connection.inbox))):
            self._answer(connection)

    @rule(pick=picks, word=words)
    def repeat(self, pick: int, word: str) -> None:
        """NAK-28, DLT-10: a request that says nothing new, with a nonce that was answered before or is unknown."""
        connection = self._one(pick)
        type_url = resolve_type(word)
        state = connection.client.of(type_url)
        if not state.seen:
            return
        if connection.client.delta:
            connection.peer.receive(type_url, DeltaRequest(nonce="unknown"))
        else:
            if type_url == ENDPOINT:
                connection.accounts.excuse(type_url, state.view)  # ORD-5
            connection.peer.receive(type_url, SotwRequest(self._wire(connection, type_url), state.version, state.nonce))

    @rule(seconds=st.sampled_from((1.0, 6.0)))
    def wait(self, seconds: float) -> None:
        self.bench.now += seconds

    @rule(pick=picks)
    def reconnect(self, pick: int) -> None:
        """The same client on a new stream, with what it has."""
        old = self._one(pick)
        old.peer.close()
        old.client.reconnect()
        new = self._open(old.client)
        self.connections[self.connections.index(old)] = new
        for type_url, state in old.client.types.items():
            self._resume(new, type_url, dict(state.wanted))

    @rule(pick=picks, client=clients)
    def come_and_go(self, pick: int, client: Client) -> None:
        connection = self._one(pick)
        connection.peer.close()
        self.connections.remove(connection)
        self._connect(client)

    @rule()
    def be_quiet(self) -> None:
        for connection in self.connections:
            self._drain(connection)
            self._compare(connection)

    @rule()
    def heal(self) -> None:
        """Every bad resource is mended: what NACKs held back must come now (NAK-4, ORD-4)."""
        mended = {
            key: tuple(_mended(variant) for variant in variants)
            for key, variants in self.model.contents.items()
            if any(bad(variant) for variant in variants)
        }
        self._apply(mended)
        for connection in self.connections:
            self._drain(connection)
            self._compare(connection)

    def _apply(self, change: dict[tuple[TypeUrl, str], tuple[Variant, ...]]) -> None:
        self.bench.store.apply(change)
        self.model.apply(change)

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        try:
            self.heal()
            for connection in self.connections:
                connection.peer.close()
            self._nothing_is_left()
        finally:
            self.patched.stop()

    # -- how

    def _connect(self, client: Client) -> None:
        node, delta, picky = client
        self.connections.append(self._open(ModelClient(Params(node), delta=delta, picky=picky)))

    def _ask(self, connection: Connection, word: str, wish: str) -> None:
        type_url = resolve_type(word)
        wish = spelled_out(wish, word)
        more = [key_of(entry) for entry in entries(wish) if entry["sign"] == "+"]
        less = [key_of(entry) for entry in entries(wish) if entry["sign"] == "-"]
        if connection.client.delta:
            self._change(connection, type_url, more, less)
        else:
            self._list(connection, type_url, more)

    def _one(self, pick: int) -> Connection:
        return self.connections[pick % len(self.connections)]

    def _open(self, client: ModelClient) -> Connection:
        node = Node("client", metadata=client.node)
        return Connection(client, self.bench.connect(node, delta=client.delta))

    def _change(self, connection: Connection, type_url: TypeUrl, more: list[Key], less: list[Key]) -> None:
        """A delta request.

        A wildcard is given up by a client that has read what it was sent. What it reads later it could not tell from
        the answer to another wildcard, and nobody would remove it.
        """
        while any(is_wild(name) for name, _ in less) and connection.inbox:
            self._answer(connection)
        state = connection.client.of(type_url)
        accounts = connection.accounts
        first, state.seen = not state.seen, True
        asked = list(more)
        if first and not more and not less and type_url in LEGACY_WILDCARD:
            asked = [Key(WILDCARD)]
        gone = [key for one in less if one not in more for key in self._meant(state, type_url, one) if key not in more]
        state.wanted.update(dict.fromkeys(asked))
        for key in gone:
            state.wanted.pop(key, None)
            for name in {key[0], self.model.resolve(type_url, key[0])}:
                if any((string, key[1]) in state.wanted for string in wildcards(name)):  # WLD-6, XTP-7
                    accounts.excuse(type_url, [(name, key[1])])
        state.drop_uncovered()
        accounts.forget(type_url, state)
        for name, tag in asked:
            accounts.excuse(type_url, [(name, tag), (self.model.resolve(type_url, name), tag)])
            if is_wild(name):
                accounts.due.add(type_url)
        # What is not subscribed is not unsubscribed by a correct client, except by mistake (DLT-8).
        connection.peer.receive(type_url, DeltaRequest(tuple(more), tuple(less)))

    def _meant(self, state: ModelType, type_url: TypeUrl, key: Key) -> list[Key]:
        """DLT-20: what is subscribed by one string can be unsubscribed by any other of that resource."""
        name, tag = key
        if key in state.wanted or is_wild(name):
            return [key] if key in state.wanted else []
        strings = self.model.strings(type_url, name)
        return [(string, tag) for string in strings if (string, tag) in state.wanted]

    def _list(self, connection: Connection, type_url: TypeUrl, wanted: list[Key]) -> None:
        """A SotW request; what it adds is answered."""
        state = connection.client.of(type_url)
        accounts = connection.accounts
        first, state.seen = not state.seen, True
        # XTP-8: globs, which to SotW are names that nothing has
        asked = [key for key in wanted if key[0] == WILDCARD or not is_wild(key[0])]
        if first and not wanted and type_url in LEGACY_WILDCARD:
            asked = [Key(WILDCARD)]
        elif not wanted and not first and self._legacy(connection, type_url):
            asked = [Key(WILDCARD)]
        repeated = not first and tuple(wanted) == self._wire(connection, type_url)
        connection.peer.wanted[type_url] = tuple(wanted)
        added = [key for key in asked if key not in state.wanted]
        if asked != list(state.wanted) and not first:
            state.moved = True
        state.wanted = dict.fromkeys(asked)
        state.drop_uncovered()
        accounts.forget(type_url, state)
        if type_url == ENDPOINT and repeated:
            accounts.excuse(type_url, state.view)  # ORD-5
        for name, tag in added:
            accounts.excuse(type_url, [(name, tag), (self.model.resolve(type_url, name), tag)])
        if added or first:
            accounts.due.add(type_url)
        connection.peer.receive(type_url, SotwRequest(tuple(wanted), state.version, state.nonce))

    def _legacy(self, connection: Connection, type_url: TypeUrl) -> bool:
        """WLD-1: an empty list goes on meaning everything for as long as nothing was named."""
        return connection.peer.wanted.get(type_url) == () and Key(WILDCARD) in connection.client.of(type_url).wanted

    def _wire(self, connection: Connection, type_url: TypeUrl) -> tuple[Key, ...]:
        return connection.peer.wanted.get(type_url, ())

    def _resume(self, connection: Connection, type_url: TypeUrl, wanted: Iterable[Key]) -> None:
        """The first message of a type on a new stream."""
        client, accounts = connection.client, connection.accounts
        state = client.of(type_url)
        state.seen = True
        wanted = tuple(wanted)
        accounts.due.add(type_url)
        if client.delta:
            initial = client.initial_versions(type_url)
            if not wanted and type_url in LEGACY_WILDCARD:
                wanted = (Key(WILDCARD),)
                state.wanted = dict.fromkeys(wanted)
            accounts.told[type_url] = {
                key: held for key, held in state.view.items() if initial.get(key[0]) == held.version
            }
            accounts.excuse(type_url, wanted)
            connection.peer.receive(type_url, DeltaRequest(wanted, (), initial, "from another stream"))
            return
        if not wanted and type_url in LEGACY_WILDCARD:
            state.wanted = {Key(WILDCARD): None}
        connection.peer.wanted[type_url] = wanted
        # SOT-12: a version stands for what was held under one list; who changed the list can't use it as a proof.
        state.version, state.moved = "" if state.moved else state.version, False
        connection.peer.receive(type_url, SotwRequest(wanted, state.version, "from another stream"))

    def _poll(self, connection: Connection) -> list[Send]:
        sends = connection.peer.poll()
        for send in sends:
            whole = not send.delta and send.type_url in FULL_STATE
            state = connection.client.of(send.type_url)
            if not self.crossing:
                connection.accounts.check(send, state, whole=whole)
            connection.inbox.append((send, None if self.crossing else connection.client.apply(send)))
        if not self.crossing:
            self._excuses_end(connection)
            self._forget_the_unsaid(connection)
        return sends

    def _forget_the_unsaid(self, connection: Connection) -> None:
        """SOT-7: SotW can't say that one of these went away; when it comes back, as it was or not, it is news."""
        node, accounts = connection.client.node, connection.accounts
        for type_url in () if connection.client.delta else accounts.told.keys() - FULL_STATE:
            there = [key for key in accounts.told[type_url] if self.model.select(type_url, key[0], key[1] or node)]
            accounts.told[type_url] = {key: accounts.told[type_url][key] for key in there}

    def _excuses_end(self, connection: Connection) -> None:
        """What was asked has been answered, unless a stale nonce put it off (SRV-14)."""
        for type_url, session in connection.peer.stream.sessions.items():
            if not (type_url in connection.peer.stale or session.isolation or session.leaving):
                connection.accounts.excused[type_url] = set()
                connection.accounts.due.discard(type_url)

    def _answer(self, connection: Connection) -> None:
        send, accepted = connection.inbox.pop(0)
        client = connection.client
        state = client.of(send.type_url)
        if accepted is None:
            accepted = client.apply(send)
        if not accepted:
            for variant, located in everything(send):
                if send.count + bool(send.removed) + len(send.withdrawn) > 1:
                    connection.accounts.excuse(send.type_url, state.keys(variant, located=located))
            connection.accounts.excuse(send.type_url, [Key(name) for name in send.removed])
            gone = [absence for absence in send.withdrawn if not absence.never]
            connection.accounts.doubtful |= {(send.type_url, *identity_of(absence)) for absence in gone}
            denied = {absence.name for absence in send.withdrawn if absence.never}
            connection.accounts.excuse(send.type_url, [(n, tag) for n in denied for _, tag in state.wanted])
        error = None if accepted else Rejection(13, "bad")
        if client.delta:
            connection.peer.receive(send.type_url, DeltaRequest(nonce=send.nonce, error=error))
            return
        state.nonce = send.nonce
        wanted = self._wire(connection, send.type_url)
        connection.peer.receive(send.type_url, SotwRequest(wanted, state.version, send.nonce, error))

    def _drain(self, connection: Connection) -> None:
        """Let everything be said and answered, and every timeout pass."""
        for _ in range(200):
            self._poll(connection)
            said = bool(connection.inbox)
            while connection.inbox:
                self._answer(connection)
            if not said:
                deadline = connection.peer.stream.deadline()
                if deadline is None:
                    break
                self.bench.now = max(self.bench.now, deadline)
        else:
            raise AssertionError("it never ends")
        assert self._poll(connection) == []

    def _compare(self, connection: Connection) -> None:
        client = connection.client
        for type_url, state in client.types.items():
            wanted = self.model.view(type_url, state.wanted, client.node)
            missing = {key: v for key, v in wanted.items() if not bad(v) and not _same(state.view.get(key), v)}
            if not client.delta and self._rejected(connection, type_url):
                missing = {} if client.picky else missing
            assert not missing, f"{type_url}: {missing} is not there; it holds {state.view}"
            extra = {key: v for key, v in state.view.items() if key not in wanted}
            if not client.delta and type_url not in FULL_STATE:
                extra = {}  # SOT-7: there is no way to say so
            if any(self._rejected(connection, other) for other in (type_url, *REFERRERS[type_url])):
                continue  # ORD-4: a removal may be held
            assert not extra, f"{type_url}: {extra} should be gone"
            if client.delta and not self.crossing:
                self._unambiguous(connection, type_url, wanted)

    def _rejected(self, connection: Connection, type_url: TypeUrl) -> bool:
        session = connection.peer.stream.sessions.get(type_url)
        return session is not None and bool(session.progress.nack or session.rejections)

    def _unambiguous(self, connection: Connection, type_url: TypeUrl, wanted: dict[Key, Variant]) -> None:
        """TP2, Matching Ambiguity: of what a relay keeps by name and constraints, each params match at most one."""
        state = connection.client.of(type_url)
        for name, tag in state.wanted:
            if tag is None or is_wild(name):
                continue
            held = [identity for identity in state.cache if identity[0] == name and state.fits(identity[1], tag)]
            assert len(held) == len([key for key in wanted if key == (name, tag) and not bad(wanted[key])]), held

    def _nothing_is_left(self) -> None:
        """OPS-7."""
        assert self.bench.left_behind() == {}


def _same(held: Variant | None, wanted: Variant) -> bool:
    return held is not None and held.version == wanted.version


def _mended(variant: Variant) -> Variant:
    body = b"mended" if bad(variant) else variant.body
    return make_variant(
        variant.type_url,
        variant.name,
        body,
        variant.constraint,
        aliases=variant.aliases,
        extras=variant.extras,
        references=variant.references,
    )


class CrossingSessions(Sessions):
    """Responses are under way for a while, so that requests are made without knowing them."""

    crossing = True


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=examples(200), stateful_step_count=30)
TestCrossingSessions = CrossingSessions.TestCase
TestCrossingSessions.settings = settings(max_examples=examples(200), stateful_step_count=30)
