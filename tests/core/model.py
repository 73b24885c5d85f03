"""The model that sessions are compared with: a correct client and a naive store, in plain dictionaries.

The store is a dictionary from (type, name) to what was put there; which variant params see is found by trying each. The
client applies responses by the book and knows nothing of how the server keeps its accounts. What it holds is keyed by
(name, params), with None for the params of plain subscriptions: the same resource in two forms is two things (DYN-15).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from xdsprism.core.model.constraints import Constraint, canonical, matches
from xdsprism.core.model.events import Absence, Key, Send
from xdsprism.core.model.types import ENDPOINT, TYPES, Params, TypeUrl, Variant
from xdsprism.core.model.xdstp import is_wild, wildcards

FULL_STATE = frozenset(spec.url for spec in TYPES if spec.full_state)
REFERRERS = {spec.url: spec.referrers for spec in TYPES}
LEGACY_WILDCARD = frozenset(spec.url for spec in TYPES if spec.wildcard)

Identity = tuple[str, Constraint]


def bad(variant: Variant) -> bool:
    """Every client in these tests rejects contents that begin so."""
    return variant.body.startswith(b"bad")


@dataclass
class ModelStore:
    contents: dict[tuple[TypeUrl, str], tuple[Variant, ...]] = field(default_factory=dict)

    def apply(self, changes: Mapping[tuple[TypeUrl, str], tuple[Variant, ...]]) -> None:
        self.contents.update(changes)

    def names(self, type_url: TypeUrl) -> list[str]:
        return [name for (known, name), variants in self.contents.items() if known == type_url and variants]

    def resolve(self, type_url: TypeUrl, string: str) -> str:
        """The name that a name or alias stands for (DLT-20)."""
        if self.contents.get((type_url, string)):
            return string
        for name in self.names(type_url):
            if any(string in variant.aliases for variant in self.contents[type_url, name]):
                return name
        return string

    def strings(self, type_url: TypeUrl, string: str) -> set[str]:
        """Everything that stands for the same resource."""
        name = self.resolve(type_url, string)
        known = self.contents.get((type_url, name), ())
        return {name} | {alias for variant in known for alias in variant.aliases} if known else set()

    def select(self, type_url: TypeUrl, name: str, params: Params) -> Variant | None:
        found = [v for v in self.contents.get((type_url, name), ()) if matches(v.constraint, params)]
        assert len(found) <= 1
        return found[0] if found else None

    def view(self, type_url: TypeUrl, wanted: Iterable[Key], node: Params) -> dict[Key, Variant]:
        """What a client with these subscriptions should hold."""
        view: dict[Key, Variant] = {}
        for string, tag in wanted:
            known = self.names(type_url)
            all_of = [name for name in known if string in wildcards(name)]
            for name in all_of if is_wild(string) else [self.resolve(type_url, string)]:
                found = self.select(type_url, name, tag or node)  # DYN-13
                if found is not None:
                    view[name, tag] = found
        return view


class ModelType:
    """What a client wants and holds of one type."""

    def __init__(self, node: Params) -> None:
        self.node = node
        self.wanted: dict[Key, None] = {}
        self.view: dict[Key, Variant] = {}
        self.cache: set[Identity] = set()  # of locators: by identity, as a relay keeps them (TP2)
        self.carried: set[Key] = set()  # held since an earlier stream
        self.nonce = ""  # SotW: of the response that was answered last
        self.version = ""
        self.moved = False  # the list changed on this stream
        self.seen = False

    def fits(self, constraint: Constraint, tag: Params | None) -> bool:
        """DYN-13: a locator without params is matched like a plain name."""
        return matches(constraint, tag or self.node)

    def covers(self, key: Key, aliases: Iterable[str] = ()) -> bool:
        name, tag = key
        return any((string, tag) in self.wanted for string in (*wildcards(name), name, *aliases))

    def keys(self, variant: Variant, *, located: bool) -> Iterator[Key]:
        """The subscriptions, by the params they use, that a resource answers."""
        for tag in {tag for _, tag in self.wanted}:
            covered = self.covers((variant.name, tag), variant.aliases) and (tag is not None) == located
            if covered and (tag is None or self.fits(variant.constraint, tag)):
                yield variant.name, tag

    def drop_uncovered(self) -> None:
        """WLD-9, SOT-10: what nothing asks for any more is the client's to drop."""
        self.view = {key: held for key, held in self.view.items() if self.covers(key, held.aliases)}
        self.carried &= self.view.keys()
        tags = [key for key in self.wanted if key[1] is not None]
        self.cache = {
            (name, constraint)
            for name, constraint in self.cache
            if any(string in (name, *wildcards(name)) and self.fits(constraint, tag) for string, tag in tags)
        }

    def apply(self, send: Send, *, whole: bool, good_only: bool) -> None:
        """Take a response in. `whole`: what is not in it does not exist (SOT-4)."""
        if whole:
            rejected = {key for variant in send.plain if bad(variant) for key in [(variant.name, None)]}
            rejected |= {key for v in send.located if bad(v) for key in self.keys(v, located=True)}
            self.view = {key: held for key, held in self.view.items() if key in rejected}
            self.carried &= self.view.keys()
        for name in send.removed:
            for key in [key for key, held in self.view.items() if key[1] is None and self._means(name, held)]:
                del self.view[key]
            self.carried &= self.view.keys()
        for absence in send.withdrawn:
            self._withdraw(absence)
        for variant, located in everything(send):
            if good_only and bad(variant):
                continue
            for key in self.keys(variant, located=located):
                if key in self.carried:  # what replaced it was said to nobody, or to the stream before
                    self.carried.discard(key)
                    self.cache.discard(self.view[key].identity)
                self.view[key] = variant
            if located:
                self.cache.add(variant.identity)
                self._reconsider(variant)

    def _means(self, string: str, held: Variant) -> bool:
        """Whether this is what a removed name, or an alias that stands for nothing any more, is about."""
        by_alias = string in held.aliases and not self.covers((held.name, None), set(held.aliases) - {string})
        return held.name == string or by_alias

    def _reconsider(self, variant: Variant) -> None:
        """A new version of a variant may have lost the alias by which it was wanted."""
        now = set(self.keys(variant, located=True))
        for key, held in list(self.view.items()):
            if key[1] is not None and held.identity == variant.identity and key not in now:
                del self.view[key]

    def _withdraw(self, absence: Absence) -> None:
        identity = identity_of(absence)
        self.cache.discard(identity)
        for key, held in list(self.view.items()):
            if key[1] is None or key[0] != absence.name:
                continue
            if held.identity == identity or (key in self.carried and self.fits(absence.constraint, key[1])):
                del self.view[key]
                self.carried.discard(key)
                self.cache.discard(held.identity)


class ModelClient:
    """One client, over any number of streams.

    `picky`: it applies nothing of a response that it rejects (S12, S13); others use what is good in it (A46).
    """

    def __init__(self, node: Params, *, delta: bool, picky: bool) -> None:
        self.node = node
        self.delta = delta
        self.picky = picky
        self.types: dict[TypeUrl, ModelType] = {}

    def of(self, type_url: TypeUrl) -> ModelType:
        return self.types.setdefault(type_url, ModelType(self.node))

    def apply(self, send: Send) -> bool:
        """Take a response in; returns whether it is accepted."""
        state = self.of(send.type_url)
        whole = not self.delta and send.type_url in FULL_STATE
        accepted = not any(bad(variant) for variant, _ in everything(send))
        if accepted or not self.picky:
            state.apply(send, whole=whole, good_only=not accepted)
        if accepted:
            state.version = send.version
        return accepted

    def reconnect(self) -> None:
        """What a delta client can't name to the new stream it had better forget, for nobody will remove it."""
        for type_url, state in self.types.items():
            if self.delta:
                named = self.initial_versions(type_url)
                state.view = {key: held for key, held in state.view.items() if key[0] in named and state.covers(key)}
            state.nonce = ""
            state.seen = False
            state.cache = {held.identity for (_, tag), held in state.view.items() if tag is not None}
            state.carried = set(state.view)

    def initial_versions(self, type_url: TypeUrl) -> dict[str, str]:
        """DYN-40: only of names of which one variant is held, and not where both forms may be asked for."""
        state = self.of(type_url)
        forms = {tag is None for _, tag in state.wanted}
        if len(forms) > 1:
            return {}
        held: dict[str, set[str]] = {}
        for (name, _), variant in state.view.items():
            wanted = [tag for string, tag in state.wanted if string in (name, *wildcards(name))]
            versions = {state.view[name, tag].version if (name, tag) in state.view else "" for tag in wanted}
            held[name] = versions | {variant.version}
        return {name: next(iter(versions)) for name, versions in held.items() if len(versions) == 1}


def everything(send: Send) -> Iterator[tuple[Variant, bool]]:
    """Every resource of a response, and whether it is in locator form."""
    yield from ((variant, False) for variant in send.plain)
    yield from ((variant, True) for variant in send.located)


def identity_of(absence: Absence) -> Identity:
    return absence.name, canonical(absence.constraint)


class Accounts:
    """What one stream was told, to find out what it is told without need.

    The spec's exceptions, for which a repetition is excused: asked again (DLT-3), left an explicit subscription under a
    wildcard (WLD-6), endpoints of a cluster that changed (ORD-11), taken apart after a NACK (NAK-29).
    """

    def __init__(self) -> None:
        self.told: dict[TypeUrl, dict[Key, Variant]] = {}
        self.absent: dict[TypeUrl, dict[Key, Constraint]] = {}
        self.excused: dict[TypeUrl, set[Key]] = {}
        self.whole: dict[TypeUrl, frozenset[tuple[str, bool]]] = {}
        self.due: set[TypeUrl] = set()
        self.doubtful: set[tuple[TypeUrl, str, Constraint]] = set()  # withdrawn by a response that was rejected

    def excuse(self, type_url: TypeUrl, keys: Iterable[Key]) -> None:
        self.excused.setdefault(type_url, set()).update(keys)

    def forget(self, type_url: TypeUrl, state: ModelType) -> None:
        told = self.told.setdefault(type_url, {})
        self.told[type_url] = {key: held for key, held in told.items() if state.covers(key, held.aliases)}
        absent = self.absent.setdefault(type_url, {})
        self.absent[type_url] = {key: c for key, c in absent.items() if state.covers(key)}

    def check(self, send: Send, state: ModelType, *, whole: bool) -> None:
        if whole:
            self._check_whole(send)
        for name in send.removed:
            self._check_removed(send.type_url, (name, None), state)
        for absence in send.withdrawn:
            self._check_withdrawn(send.type_url, absence, state)
        told = self.told.setdefault(send.type_url, {})
        for variant, located in everything(send):
            keys = list(state.keys(variant, located=located))
            assert keys, f"nobody asked for {variant.name}"
            needed = [key for key in keys if self._is_news(send.type_url, key, told.get(key), variant)]
            assert needed or whole, f"{variant.name} was sent again without need"
            if needed:
                self._changed(send.type_url, variant)
            for key in keys:
                told[key] = variant
                self.absent.setdefault(send.type_url, {}).pop(key, None)
                self.excused.get(send.type_url, set()).discard(key)
        if not (send.count or send.removed or send.withdrawn or send.errors):
            assert send.type_url in self.due or whole, "an empty response without need"
        self.due.discard(send.type_url)

    def _is_news(self, type_url: TypeUrl, key: Key, before: Variant | None, after: Variant) -> bool:
        if before is None or before.version != after.version:
            return True
        excused = self.excused.get(type_url, set())
        return key in excused or any((string, key[1]) in excused for string in wildcards(key[0]))

    def _changed(self, type_url: TypeUrl, variant: Variant) -> None:
        if variant.warms is not None:
            tags = {tag for _, tag in self.told.get(ENDPOINT, {})}
            self.excuse(ENDPOINT, [(variant.warms, tag) for tag in tags])

    def _check_whole(self, send: Send) -> None:
        now = frozenset((variant.version, located) for variant, located in everything(send))
        same = now == self.whole.get(send.type_url)
        assert not same or send.errors or send.type_url in self.due, "the full state was sent again without need"
        self.whole[send.type_url] = now
        told = self.told.setdefault(send.type_url, {})
        versions = {version for version, _ in now}
        self.told[send.type_url] = {key: held for key, held in told.items() if held.version in versions}

    def _check_removed(self, type_url: TypeUrl, key: Key, state: ModelType) -> None:
        excused = self.excused.setdefault(type_url, set())
        told = self.told.setdefault(type_url, {})
        assert key in told or key in excused, f"{key[0]} was removed without need"
        told.pop(key, None)
        excused.discard(key)

    def _check_withdrawn(self, type_url: TypeUrl, absence: Absence, state: ModelType) -> None:
        if absence.never:
            self._check_negative(type_url, absence, state)
            return
        told = self.told.setdefault(type_url, {})
        identity = identity_of(absence)
        gone = [key for key, held in told.items() if key[1] is not None and held.identity == identity]
        again = (type_url, *identity) in self.doubtful
        # By an alias and by a wildcard with the same params: two subscriptions that are one to this client.
        known = (absence.name, *wildcards(absence.name))
        again = again or any(tag is not None and string not in known for string, tag in state.wanted)
        excused = self.excused.setdefault(type_url, set())
        empty = (key for key in excused if key[0] == absence.name and is_wild(key[0]))  # XTP-5
        again = again or any(key[1] is not None and state.fits(absence.constraint, key[1]) for key in empty)
        assert gone or again, f"{identity} was withdrawn without need"
        for key in gone:
            del told[key]

    def _check_negative(self, type_url: TypeUrl, absence: Absence, state: ModelType) -> None:
        negatives = self.absent.setdefault(type_url, {})
        excused = self.excused.setdefault(type_url, set())
        keys = {(absence.name, tag) for _, tag in state.wanted if tag is not None}
        answered = [key for key in keys if state.covers(key) and state.fits(absence.constraint, key[1])]
        news = [key for key in answered if key in excused or negatives.get(key) != absence.constraint]
        assert news, f"{absence} was said without need"
        for key in answered:
            excused.discard(key)
            negatives[key] = absence.constraint
