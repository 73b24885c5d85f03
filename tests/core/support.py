"""A bench for sessions: a store, streams without a network, a clock that is a number, and a notation.

Most tests of the protocol are transcripts:

    play(
        '''
        store cds a=1 b=1
        > cds +a
        < cds a=1

        > cds ack
        store cds a=2 -b
        < cds a=2
        '''
    )

Blank lines part it into blocks. A block first does what its lines say, in one turn of the loop, then every stream is
polled and must say exactly what the `<` lines hold: no such line means silence.

- `store cds a=1 -b; rds main[env=prod]=p main[env!=prod]=t` is one transaction. What follows the `=` is the body.
  `l=2>rds.main>cds.a` refers to a route configuration and a cluster; clusters that refer to nothing have endpoints.
  A name with brackets has variants, and those that are written are all that it has; `a(x, y)=1` has two aliases.
- `vhds main/shop<shop.example,*.shop.example>^=1` is a virtual host with two domains; `^` puts it into the base set.
  `rds main<on_demand,no_port>=1` is a route configuration with `vhds` that ignores ports.
- `> cds +a -b +c{env=prod}` (delta) subscribes and unsubscribes; braces make it a locator.
- `> cds a b c{}` (SotW) lists all that is wanted; `> cds none` is the empty list, and no names at all repeat the last.
- `ack` and `nack` answer what was heard of that type and not yet answered; `ack@1` the first response of the type.
  `@1` (SotW) only sends its nonce, `@0` none, `@?` one that nobody sent. `have a=1` fills initial_resource_versions.
- `> ack` answers everything. `wait 5` moves the clock.
- `< cds a=1 main[env=prod]=p -b -main[env=test] !x[]=NOT_FOUND`: plain and located resources, removals of both forms,
  errors, `?main/host` a host that there is none for. `< cds nothing` is an empty response. The order of lines counts,
  the order within a line does not.
- A letter in front of `>` or `<` tells streams apart.
- A name may end in context parameters, as xdstp names do: `foo?shard=1&zone=a=7` is one with the body `7`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

from tests.support import insides
from xdsprism.core.model.constraints import FALSE, TRUE, Constraint
from xdsprism.core.model.events import (
    Absence,
    DeltaRequest,
    Key,
    Node,
    Rejection,
    Request,
    ResourceError,
    Send,
    SotwRequest,
)
from xdsprism.core.model.expr import parse, show
from xdsprism.core.model.facts import Fact, Facts
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.store import Applied, Store
from xdsprism.core.model.type_names import resolve_type
from xdsprism.core.model.types import (
    CLUSTER,
    ENDPOINT,
    ROUTE,
    VIRTUAL_HOST,
    Params,
    Reference,
    Routing,
    TypeSpec,
    TypeUrl,
    Variant,
    make_variant,
)
from xdsprism.core.serve.stream import Stream
from xdsprism.core.session.interest import Interest
from xdsprism.core.session.session import Session

CODES = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED"}

ENTRY = re.compile(
    r"(?P<sign>[-+!]?)(?P<name>[^\s\[\]{}=()<>+!;-][^\s\[\]{}=()<>;?]*(?:\?(?:[^\s\[\]{}=;&]+=[^\s\[\]{}=;&]*&?)*)?)"
    r"(?:\((?P<aliases>[^)]*)\))?(?:<(?P<domains>[^>]*)>)?(?P<base>\^)?"
    r"(?:\[(?P<when>[^\]]*)\])?(?:\{(?P<params>[^}]*)\})?(?:=(?P<tag>[^\s;]+))?"
)


# -- the notation, in


def entries(text: str) -> list[dict[str, str]]:
    return [
        {key: value for key, value in found.groupdict().items() if value is not None} for found in ENTRY.finditer(text)
    ]


def variant(type_word: str, text: str) -> Variant:
    """One variant: `a=1`, `main[env=prod]=p`, `a(alias)=1`. Every cluster learns its endpoints by EDS."""
    (entry,) = entries(text)
    return _variant(resolve_type(type_word), entry)


def _variant(type_url: TypeUrl, entry: Mapping[str, str]) -> Variant:
    name = entry["name"]
    tags = entry.get("domains", "").split(",")
    aliases = tuple(alias.strip() for alias in entry["aliases"].split(",")) if "aliases" in entry else ()
    return make_variant(
        type_url,
        name,
        entry["tag"].encode(),
        parse(entry["when"]) if entry.get("when") else TRUE,
        aliases=aliases,
        extras=",".join(aliases).encode(),
        references=_references(type_url, name, entry["tag"]),
        base=(TRUE if "base" in entry else FALSE) if type_url == VIRTUAL_HOST else None,
        domains=tuple(entry["domains"].split(",")) if type_url == VIRTUAL_HOST and "domains" in entry else (),
        routing=Routing("on_demand" in tags, "no_port" in tags) if type_url == ROUTE else None,
    )


def _references(type_url: TypeUrl, name: str, tag: str) -> tuple[Reference, ...]:
    """`l=1>rds.main>cds.a`: to what the body refers."""
    written = (word.partition(".") for word in tag.split(">")[1:])
    found = tuple((resolve_type(word), referred) for word, _, referred in written)
    return ((ENDPOINT, name),) if type_url == CLUSTER and not found else found


def changeset(text: str) -> dict[tuple[TypeUrl, str], tuple[Variant, ...]]:
    """`cds a=1 -b; eds a=1` as the store takes it."""
    found: dict[tuple[TypeUrl, str], tuple[Variant, ...]] = {}
    for part in filter(None, text.split(";")):
        word, _, rest = part.strip().partition(" ")
        type_url = resolve_type(word)
        for entry in entries(rest):
            key = type_url, entry["name"]
            found[key] = () if entry["sign"] else (*found.get(key, ()), _variant(type_url, entry))
    return found


def key_of(entry: Mapping[str, str]) -> Key:
    """`a` is a plain name, `a{env=prod}` a locator, `a{}` a locator without params."""
    if "params" not in entry:
        return Key(entry["name"])
    pairs = (pair.split("=") for pair in entry["params"].split(",") if pair)
    return Key(entry["name"], Params((key.strip(), value.strip()) for key, value in pairs))


# -- the notation, out


def shown(send: Send) -> str:
    count = len(send.plain)
    plain, located = send.aliases[:count] or ((),) * count, send.aliases[count:] or ((),) * len(send.located)
    tokens = [_token(each, further, located=False) for each, further in zip(send.plain, plain, strict=True)]
    tokens += [_token(each, further, located=True) for each, further in zip(send.located, located, strict=True)]
    tokens += [f"?{name}" for name in send.unresolved]
    tokens += [f"-{name}" for name in send.removed]
    tokens += [f"-{_about(absence)}" for absence in send.withdrawn]
    tokens += [f"!{_about(error.about)}={CODES[error.code]}" for error in send.errors]
    return _line(_word(send.type_url), tokens)


def _token(variant: Variant, further: tuple[str, ...], *, located: bool) -> str:
    known = (*variant.aliases, *further)
    aliases = f"({','.join(known)})" if known else ""
    when = f"[{_when(variant.constraint)}]" if located else ""
    return f"{variant.name}{aliases}{when}={variant.body.decode()}"


def _about(absence: Absence) -> str:
    return f"{absence.name}[{_when(absence.constraint)}]"


def _when(constraint: Constraint) -> str:
    return "" if constraint == TRUE else show(constraint)


def _line(word: str, tokens: Iterable[str]) -> str:
    return " ".join([word, *(sorted(tokens) or ["nothing"])])


def _word(type_url: TypeUrl) -> str:
    return Store().spec(type_url).label


def expected(text: str) -> str:
    """A `<` line in the form that `shown` gives, so that the two can be compared."""
    word, _, rest = text.partition(" ")
    tokens = [_normal(found) for found in ENTRY.finditer(rest)]
    return _line(_word(resolve_type(word)), [] if tokens == ["nothing"] else tokens)


def _normal(found: re.Match[str]) -> str:
    aliases = found["aliases"]
    when = found["when"]
    text = found["sign"] + found["name"] + (f"({aliases.replace(' ', '')})" if aliases is not None else "")
    if when is not None:
        text += f"[{_when(parse(when)) if when else ''}]"
    return text + (f"={found['tag']}" if found["tag"] is not None else "")


# -- the bench


class Thorough:
    """A stream that never takes the fast path, so that each request and response is a fact of its own."""

    def __init__(self, *shared: Any, **options: Any) -> None:
        self._stream = Stream(*shared, **options)

    def receive(self, request: Request, now: float) -> bool:
        self._stream.stir(None)
        return self._stream.receive(request, now)

    def poll(self, now: float) -> list[Send]:
        self._stream.stir(None)
        return self._stream.poll(now)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@dataclass
class Bench:
    """Everything that streams share, and a clock."""

    settings: Settings = field(default_factory=Settings)
    types: tuple[TypeSpec, ...] = ()
    now: float = 100.0
    kind: Callable[..., Any] = Stream

    def __post_init__(self) -> None:
        self.store = Store(self.types)
        self.interest = Interest()
        self.facts = Facts()
        self.store.listeners.append(self._applied)
        self._count = 0
        self._streams: dict[int, Stream] = {}

    def _applied(self, applied: Applied) -> None:
        self.notify(applied)  # looked up now: a test may count the calls

    def notify(self, applied: Applied) -> None:
        """As the hub does it."""
        for session in self.interest.notify(applied.changes):
            number = getattr(session, "stream", None)
            if number in self._streams:
                self._streams[number].stir(session)

    def put(self, text: str) -> Applied:
        """One transaction, in the notation of `store` lines."""
        return self.store.apply(changeset(text))

    def delta(self, only_type: TypeUrl | None = None, **metadata: str) -> Peer:
        return self.connect(Node("envoy-1", metadata=Params(metadata)), delta=True, only_type=only_type)

    def sotw(self, only_type: TypeUrl | None = None, **metadata: str) -> Peer:
        return self.connect(Node("envoy-1", metadata=Params(metadata)), delta=False, only_type=only_type)

    def connect(self, node: Node | None, *, delta: bool, only_type: TypeUrl | None = None) -> Peer:
        self._count += 1
        stream = self.kind(
            self._count, self.store, self.interest, self.settings, self.facts, delta=delta, only_type=only_type
        )
        self._streams[self._count] = stream
        return Peer(self, stream, node)

    def left_behind(self) -> dict[str, object]:
        """OPS-7: what is still kept for streams in what they share; nothing once all of them are closed.

        Nobody can see from outside that something was left behind, so this looks inside. Tests of leaks call it.
        """
        kept = insides.kept_of_interest(self.interest)
        for table in self.store.tables():
            label, listing = table.spec.label, table.everything
            kept |= {f"log {label}": insides.log(listing), f"cursors {label}": insides.cursors(listing)}
            kept[f"globs {label}"] = insides.globs(table)
        return {what: found for what, found in kept.items() if found}

    def said(self, kind: type) -> list[Fact]:
        """The facts of one kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]


class Peer:
    """The other end of one stream. It answers when it is told to."""

    def __init__(self, bench: Bench, stream: Stream, node: Node | None) -> None:
        self.bench = bench
        self.stream = stream
        self.heard: dict[TypeUrl, list[Send]] = {}
        self.unanswered: dict[TypeUrl, list[Send]] = {}
        self.wanted: dict[TypeUrl, tuple[Key, ...]] = {}
        self.version: dict[TypeUrl, str] = {}
        self.stale: set[TypeUrl] = set()  # SRV-13: the last request had an old nonce, and no response has come since
        self._node = node

    def session(self, word: str) -> Session:
        return self.stream.sessions[resolve_type(word)]

    # -- in

    def receive(self, type_url: TypeUrl, body: SotwRequest | DeltaRequest) -> None:
        """Hand a request over; only the first one has the node (SRV-6)."""
        node, self._node = self._node, None
        asks = isinstance(body, DeltaRequest) and (body.subscribe or body.unsubscribe or body.initial_versions)
        plain = body.error is None and not asks
        newest = self.heard[type_url][-1].nonce if self.heard.get(type_url) else ""
        self.stale.discard(type_url)
        if isinstance(body, SotwRequest) and body.nonce not in ("", newest):
            self.stale.add(type_url)
        self.stream.receive(Request(type_url, body, node, is_plain=plain), self.bench.now)

    def ask(self, text: str) -> None:
        """One `>` line."""
        if text == "ack":
            for word in [_word(type_url) for type_url, sends in self.unanswered.items() if sends]:
                self.ask(f"{word} ack")
            return
        word, _, rest = text.partition(" ")
        type_url = resolve_type(word)
        wishes, _, have = rest.partition("have ")
        (self._ask_delta if self.stream.delta else self._ask_sotw)(type_url, wishes, have)

    def _ask_delta(self, type_url: TypeUrl, wishes: str, have: str) -> None:
        verdict, answered = self._verdict(type_url, wishes)
        items = [entry for entry in entries(wishes) if entry["sign"]]
        signs = {sign: tuple(key_of(entry) for entry in items if entry["sign"] == sign) for sign in "+-"}
        initial = {entry["name"]: _variant(type_url, entry).version for entry in entries(have)}
        for send in answered[:-1]:
            self.receive(type_url, DeltaRequest(nonce=send.nonce, error=verdict))
        nonce = answered[-1].nonce if answered else ("bogus" if "@?" in wishes else "")
        self.receive(type_url, DeltaRequest(signs["+"], signs["-"], initial, nonce, verdict))

    def _ask_sotw(self, type_url: TypeUrl, wishes: str, _: str) -> None:
        verdict, answered = self._verdict(type_url, wishes)
        names = [entry for entry in entries(wishes) if not entry["name"].startswith(("ack", "nack", "@"))]
        if names:
            self.wanted[type_url] = tuple(key_of(entry) for entry in names if entry["name"] != "none")
        heard = self.heard.get(type_url, [])
        if "@?" in wishes:
            nonce = "bogus"
        elif "@0" in wishes:
            nonce = ""
        else:
            nonce = (answered[-1:] or heard[-1:] or [None])[0].nonce if heard else ""
        if answered and verdict is None:
            self.version[type_url] = answered[-1].version
        self.receive(
            type_url,
            SotwRequest(self.wanted.get(type_url, ()), self.version.get(type_url, ""), nonce, verdict),
        )

    def _verdict(self, type_url: TypeUrl, wishes: str) -> tuple[Rejection | None, list[Send]]:
        """Which responses are answered, and how."""
        found = re.search(r"(?:^|\s)(ack|nack)?(?:@(\d+))?(?=\s|$)", wishes)
        said, number = (found[1], found[2]) if found else (None, None)
        rejection = Rejection(13, "does not compute") if said == "nack" else None
        unanswered = self.unanswered.setdefault(type_url, [])
        if number is not None:
            answered = self.heard[type_url][int(number) - 1 : int(number)] if number != "0" else []
        elif said is None and self.stream.delta:
            return None, []
        else:
            answered = unanswered[-1:] if said == "nack" else unanswered[:]
        self.unanswered[type_url] = [send for send in unanswered if send not in answered]
        return rejection, answered

    # -- out

    def poll(self) -> list[Send]:
        """Take what there is, and check what holds for every response there can be."""
        sends = self.stream.poll(self.bench.now)
        for send in sends:
            check_response(send, self.heard.get(send.type_url, []))
            self.stale.discard(send.type_url)
            self.heard.setdefault(send.type_url, []).append(send)
            self.unanswered.setdefault(send.type_url, []).append(send)
        deadline = self.stream.deadline()
        assert deadline is None or deadline > self.bench.now, "a deadline that is past makes the shell spin"
        assert sends == [] or self.stream.poll(self.bench.now) == [], "one poll says all there is to say"
        return sends

    def hears(self) -> list[str]:
        return [shown(send) for send in self.poll()]

    def close(self) -> None:
        self.stream.close()


def check_response(send: Send, before: Iterable[Send]) -> None:
    """SRV-8, SRV-19, DLT-1, DLT-19, DYN-15, ERR-2: of any response, whatever led to it."""
    assert send.nonce, "a response without a nonce"
    assert send.nonce not in {earlier.nonce for earlier in before}, "a nonce was used twice"
    plain = [*(variant.name for variant in send.plain), *send.removed]
    assert len(plain) == len(set(plain)), f"a name twice in {shown(send)}"
    located = [*(variant.identity for variant in send.located), *(_identity(gone) for gone in send.withdrawn)]
    assert len(located) == len(set(located)), f"a variant twice in {shown(send)}"
    if send.delta:
        both = {name for name, _ in located}.intersection(plain)
        assert not both, f"both forms of {both} in {shown(send)}"
    assert all(variant.type_url == send.type_url for variant in (*send.plain, *send.located))
    assert all(variant.version for variant in (*send.plain, *send.located))
    assert not {_identity(error.about) for error in send.errors}.intersection(located[: len(send.located)])


def _identity(absence: Absence) -> tuple[str, Constraint]:
    return make_variant("", absence.name, b"", absence.constraint).identity


# -- transcripts


def play(
    script: str,
    *,
    mode: str = "delta",
    modes: Mapping[str, str] | None = None,
    node: Mapping[str, str] | None = None,
    nodes: Mapping[str, Mapping[str, str]] | None = None,
    settings: Settings | None = None,
    types: tuple[TypeSpec, ...] = (),
    kind: Callable[..., Any] = Stream,
) -> Bench:
    """Act a transcript out. `modes` and `nodes` are by stream; the one without a letter has `mode` and `node`."""
    bench = Bench(settings or Settings(), types, kind=kind)
    peers: dict[str, Peer] = {}

    def peer(letter: str) -> Peer:
        if letter not in peers:
            metadata = Params((nodes or {}).get(letter, node or {}))
            delta = (modes or {}).get(letter, mode) == "delta"
            peers[letter] = bench.connect(Node("envoy-1", metadata=metadata), delta=delta)
        return peers[letter]

    for block in _blocks(script):
        wanted: list[str] = []
        for line in block:
            letter, sign, rest = _read(line)
            if sign == ">":
                peer(letter).ask(rest)
            elif sign == "<":
                wanted.append(f"{letter}< {expected(rest)}")
            elif sign == "store":
                bench.put(rest)
            else:
                bench.now += float(rest)
        heard = [f"{letter}< {line}" for letter in sorted(peers) for line in peers[letter].hears()]
        assert heard == wanted, "\n".join(["after", *block])
    return bench


def _blocks(script: str) -> Iterator[list[str]]:
    for block in dedent(script).strip().split("\n\n"):
        lines = [line.split("#")[0].strip() for line in block.splitlines()]
        yield [line for line in lines if line]


def _read(line: str) -> tuple[str, str, str]:
    found = re.match(r"(?:([a-z]?)([<>])|(store|wait))\s*(.*)$", line)
    assert found, f"not a line of a transcript: {line}"
    return found[1] or "", found[2] or found[3], found[4]


def error_about(error: ResourceError) -> str:
    return _about(error.about)
