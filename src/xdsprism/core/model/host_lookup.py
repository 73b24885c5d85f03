"""Find the virtual host that serves a host (VHDS).

A client that subscribes to `<route configuration>/<host>` gets the virtual host that Envoy itself would choose (VHD-6):

| order | domain of the virtual host          | example           |
|-------|-------------------------------------|-------------------|
| 1     | the exact host                      | `www.example.com` |
| 2     | the longest wildcard at the front   | `*.example.com`   |
| 3     | the longest wildcard at the end     | `www.*`           |
| 4     | any host                            | `*`               |

A virtual host can have variants, and each variant its own domains. Then the answer depends on the params: for one host
several virtual hosts may be candidates, and `InOrder` tries them in this order for given params.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from .constraints import All, Constraint, Not, canonical
from .hosts import explicit, rest_of, split, without_port
from .lookup import Lookup
from .staged_changes import StagedChanges
from .table import Table
from .types import VIRTUAL_HOST, Change, ResourceProblem, Variant, make_variant
from .variants import Answer, Explanation, VariantSet, aliases_of, explained, pins, shared

# A virtual host and the domain by which it serves the host; None: the client asked for the virtual host by its name.
Candidate = tuple[VariantSet, str | None]


class Choice(ABC):
    """Chooses which of several virtual hosts serves one host, by the params: an interface without state."""

    __slots__ = ()

    sets: tuple[Answer, ...]  # that the choice is made from, the preferred one first
    keys: frozenset[str]  # all params keys that may decide

    @abstractmethod
    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant that serves the host for these params."""

    @abstractmethod
    def select_for_cache(self, params: Mapping[str, str]) -> Variant | None:
        """Return the same variant, for those clients only of which it is certain that they get it, too.

        A cache may then hand the variant to any client that the constraint matches.
        """


class InOrder(Choice):
    """The virtual hosts that may serve one host, in Envoy's order, each for some params or for all."""

    __slots__ = ("_candidates", "keys", "sets")

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self.sets = tuple(known for known, _ in candidates)
        self.keys = frozenset(key for known in self.sets for key in known.keys)
        self._candidates = candidates

    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant of the first virtual host that has one for these params, with the domain in question."""
        for known, domain in self._candidates:
            found = known.select(params)
            if found is not None and (domain is None or domain in found.domains):
                return found
        return None

    def select_for_cache(self, params: Mapping[str, str]) -> Variant | None:
        """Leave out the clients whom a virtual host earlier in the order serves."""
        before: list[Constraint] = []
        for known, domain in self._candidates:
            serving = [variant for variant in known.variants if domain is None or domain in variant.domains]
            found = known.select(params)
            if found in serving:
                return _narrowed(found, before) if before else found
            before += [Not(variant.constraint) for variant in serving]
        return None


class ByPort(Choice):
    """The answers for a host with and without its port, where the params decide whether the routes ignore ports."""

    __slots__ = ("_kept", "_routes", "_stripped", "keys", "sets")

    def __init__(self, routes: VariantSet, kept: Answer | None, stripped: Answer | None) -> None:
        self.sets = tuple(known for known in (kept, stripped) if known is not None)
        self.keys = frozenset(key for known in (routes, *self.sets) for key in known.keys)
        self._routes, self._kept, self._stripped = routes, kept, stripped

    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant for the host with or without its port, as the client's variant of the routes demands."""
        route = self._routes.select(params)
        known = self._stripped if route is not None and _ignores_port(route) else self._kept
        return known.select(params) if known is not None else None

    def select_for_cache(self, params: Mapping[str, str]) -> Variant | None:
        """Leave out the clients that differ from these params in a key that may matter."""
        found = self.select(params)
        return _narrowed(found, [pins({key: params.get(key) for key in self.keys})]) if found is not None else None


class HostAnswer:
    """What is known of one host, where the params decide which virtual host serves it: an `Answer` (variants.py)."""

    __slots__ = ("_choice", "aliases", "keys", "variants")

    def __init__(self, choice: Choice) -> None:
        self.variants = tuple(dict.fromkeys(variant for known in choice.sets for variant in known.variants))
        self.keys = tuple(sorted(choice.keys))
        self.aliases = aliases_of(self.variants)
        self._choice = choice

    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant for these params; None: nothing serves the host for them."""
        return self._choice.select(params)

    def select_for_cache(self, params: Mapping[str, str]) -> Variant | None:
        """Return the same variant, for those clients only of which it is certain that they get it, too."""
        return self._choice.select_for_cache(params)

    def mentioned(self, params: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        """Return all keys that may decide."""
        return self.keys

    def knows(self, params: Mapping[str, str], *, sure: bool = False) -> bool:  # noqa: ARG002
        """Return True: virtual hosts that were written serve the host."""
        return True

    def problem(self, params: Mapping[str, str]) -> ResourceProblem | None:  # noqa: ARG002
        """Return None, as above."""
        return None

    def negative(self, params: Mapping[str, str], beside: Iterable[str] = ()) -> Constraint:  # noqa: ARG002
        """Pin each key that may decide to the client's value, or to its absence (DYN-11)."""
        return pins({key: params.get(key) for key in self.keys})

    def explain(self, params: Mapping[str, str]) -> Explanation:
        """Say which variant these params get, and which part of each other variant does not match."""
        return explained(self.select(params), self.variants, params)


class Patterns:
    """The wildcard domains of one route configuration, longest first."""

    def __init__(self) -> None:
        # `*.example.com`: by the length of `.example.com`, then by that text, the names of its virtual hosts.
        self._ends: dict[int, dict[str, dict[str, None]]] = {}
        self._starts: dict[int, dict[str, dict[str, None]]] = {}  # `www.*`
        self._all: dict[str, None] = {}  # `*`: the names of the virtual hosts

    def __bool__(self) -> bool:
        return bool(self._ends or self._starts or self._all)

    def add(self, domain: str, name: str) -> None:
        """Note that the virtual host of this name has this wildcard domain."""
        self._owners(domain)[name] = None

    def remove(self, domain: str, name: str) -> None:
        """Undo `add`, and drop entries that become empty."""
        owners = self._owners(domain)
        owners.pop(name, None)
        if owners or domain == "*":
            return  # other virtual hosts have the domain, or it is `*`, whose mapping is never dropped
        lengths, length = self._side(domain), len(domain) - 1
        del lengths[length][rest_of(domain)]
        if not lengths[length]:
            del lengths[length]

    def _owners(self, domain: str) -> dict[str, None]:
        """Return the virtual hosts with this wildcard domain, as a mapping to change."""
        if domain == "*":
            return self._all
        return self._side(domain).setdefault(len(domain) - 1, {}).setdefault(rest_of(domain), {})

    def _side(self, domain: str) -> dict[int, dict[str, dict[str, None]]]:
        """Return the index for wildcards at the front, or for those at the end."""
        return self._ends if domain.startswith("*") else self._starts

    def owners(self, domain: str) -> tuple[str, ...]:
        """Return the names of the virtual hosts that have exactly this wildcard domain."""
        names = self._all if domain == "*" else self._side(domain).get(len(domain) - 1, {}).get(rest_of(domain), {})
        return tuple(names)

    def matching(self, host: str) -> Iterator[tuple[str, str]]:
        """Yield the virtual hosts that serve this host, and by which domain, in Envoy's order.

        A wildcard stands for at least one character.
        """
        for length in sorted(self._ends, reverse=True):
            if length < len(host):
                yield from [(name, f"*{host[-length:]}") for name in self._ends[length].get(host[-length:], ())]
        for length in sorted(self._starts, reverse=True):
            if length < len(host):
                yield from [(name, f"{host[:length]}*") for name in self._starts[length].get(host[:length], ())]
        yield from [(name, "*") for name in self._all]


class HostLookup(Lookup):
    """Finds virtual hosts by `<route configuration>/<host>`, as well as by name.

    routes: returns a route configuration by name.
    """

    def __init__(
        self, sets: Mapping[str, VariantSet], aliases: Mapping[str, str], routes: Callable[[str], VariantSet | None]
    ) -> None:
        self._sets = sets
        self._aliases = aliases
        self._routes = routes
        # The names of the virtual hosts that have an exact domain, by route configuration and domain. The domain is
        # the variant's own string object and a sole owner is no tuple, because there can be a million of them.
        self._exact: dict[str, dict[str, str | tuple[str, ...]]] = {}
        self._patterns: dict[str, Patterns] = {}  # by route configuration
        self._base: dict[str, VariantSet] = {}  # the virtual hosts that wildcards can see: the base set
        self.listed = self._base
        self._counts: Counter[str] = Counter()  # number of virtual hosts per route configuration

    def get(self, name: str) -> Answer | None:
        """Return what serves this host; if nothing that was written does, what a provider made for the host itself."""
        known = self.given(name)
        if known is not None:
            return known
        own = self._sets.get(self.question(name))
        return own if own is not None and own.made else None

    def question(self, name: str) -> str:
        """Return the string with the host in lower case, as domains are."""
        config, slash, host = name.rpartition("/")
        return config + slash + host.lower()

    def given(self, name: str) -> Answer | None:
        """Return what serves this host, unless a provider made it; the port counts as the route configuration says."""
        config, host = split(name)
        routes = self._routes(config)
        stripped = without_port(host)
        # Three cases: no variant of the routes ignores the port, all of them do, or it depends on the params.
        if routes is None or stripped == host or not any(map(_ignores_port, routes.variants)):
            return self._serving(name, config, host)
        bare = self._serving(f"{config}/{stripped}", config, stripped)
        if all(map(_ignores_port, routes.variants)):
            return bare
        kept = self._serving(name, config, host)
        return HostAnswer(ByPort(routes, kept, bare)) if kept is not None or bare is not None else None

    def _serving(self, name: str, config: str, host: str) -> Answer | None:
        """Return what serves this host as it is spelled: one virtual host, a view of several, or None."""
        found: list[Candidate] = []
        for known, domain in self._candidates(name, config, host.lower()):
            found.append((known, domain))
            if len(known.variants) == 1 and not known.keys:
                break  # it serves all params, so no client gets to the candidates after it
        if not found:
            return None
        return found[0][0] if len(found) == 1 and _serves_always(*found[0]) else HostAnswer(InOrder(tuple(found)))

    def _candidates(self, name: str, config: str, host: str) -> Iterator[Candidate]:
        """Yield all that may serve this host, in order: exact domain, virtual host of this name or alias, wildcards."""
        for owner in self.owners(config, host):
            yield self._sets[owner], host
        own = self._sets.get(name)
        if own is None:
            own = self._sets.get(self._aliases.get(name, ""))
        if own is not None and not own.made:
            yield own, None
        patterns = self._patterns.get(config)
        if patterns is not None:
            for owner, domain in patterns.matching(host):
                yield self._sets[owner], domain

    def configs(self) -> Iterable[str]:
        """Return the route configurations that have virtual hosts here."""
        return self._counts

    def owners(self, config: str, domain: str) -> tuple[str, ...]:
        """Return the names of the virtual hosts that have this domain, exact or wildcard."""
        if next(explicit([domain]), None) is None:
            return self._patterns[config].owners(domain) if config in self._patterns else ()
        exact = self._exact.get(config, {}).get(domain, ())
        return (exact,) if isinstance(exact, str) else exact

    def note_all(self, staged: StagedChanges) -> None:
        """Take a large transaction. Leave the indexes alone for virtual hosts whose domains stay the same."""
        # First remove what goes, then add what comes: a virtual host that changes its domains may keep some of them.
        for step in (-1, 1):
            for change in staged.changes:
                known, other = (change.before, change.after) if step < 0 else (change.after, change.before)
                if known is not None and (other is None or not _is_indexed_alike(known, other)):
                    self.note(change.name, known, step)
        for change in staged.listed:
            if change.after is not None and change.after.is_listed and not change.after.made:
                self._base[change.name] = change.after

    def note(self, name: str, known: VariantSet, step: int) -> None:
        """Add the domains of a virtual host to the indexes (step 1), or remove them (step -1)."""
        if known.made:
            return  # a provider made it for one host, and it serves no other
        config, _ = split(name)
        for domain in dict.fromkeys(domain for variant in known.variants for domain in variant.domains):
            if next(explicit([domain]), None) is not None:
                self._count_exact(config, domain, name, step)
            elif step > 0:
                self._patterns.setdefault(config, Patterns()).add(domain, name)
            else:
                self._patterns[config].remove(domain, name)
                if not self._patterns[config]:
                    del self._patterns[config]
        self._counts[config] += step
        if not self._counts[config]:
            del self._counts[config]
        if step > 0 and known.is_listed:
            self._base[name] = known
        else:
            self._base.pop(name, None)

    def _count_exact(self, config: str, domain: str, name: str, step: int) -> None:
        """Add or remove an owner of an exact domain. Usually there is one; several may have it for different params."""
        exact = self._exact.setdefault(config, {})
        there = exact.get(domain, ())
        names = [owner for owner in ((there,) if isinstance(there, str) else there) if owner != name]
        names += [name] if step > 0 else []
        if names:
            exact[domain] = names[0] if len(names) == 1 else tuple(names)
        else:
            exact.pop(domain, None)
        if not exact:
            del self._exact[config]


def conflicting_domains(table: Table | None, changes: Iterable[Change]) -> Iterator[tuple[str, Variant]]:
    """Find domains that two virtual hosts of a route configuration have for the same clients. V12: Envoy takes neither.

    Yields a message and the variant to blame, for each pair that some params match at once.
    """
    hosts = [change for change in changes if change.type_url == VIRTUAL_HOST]
    touched = {change.name for change in hosts}
    owners: dict[tuple[str, str], list[Variant]] = {}
    for variant in chain.from_iterable([change.after.variants for change in hosts if change.after is not None]):
        config, _ = split(variant.name)
        for domain in variant.domains:
            rivals = owners.setdefault((config, domain), [])  # in this transaction
            if table is not None:  # and in the table, as far as this transaction leaves it alone
                names = (name for name in table.lookup.owners(config, domain) if name not in touched)
                sets = filter(None, map(table.named, names))
                rivals = [*rivals, *(each for known in sets for each in known.variants if domain in each.domains)]
            for rival in rivals:
                why = shared(variant, rival) if rival.name != variant.name else None
                if why is not None:
                    yield f"domain {domain!r} of {variant.name!r} is also one of {rival.name!r}: {why}", variant
            owners[config, domain].append(variant)


def _ignores_port(variant: Variant) -> bool:
    """Whether this route configuration ignores the port of a host."""
    return variant.routing is not None and variant.routing.ignores_port


def _narrowed(variant: Variant, further: Iterable[Constraint]) -> Variant:
    """Return the variant with further constraints: the same contents for fewer clients."""
    narrowed = make_variant(
        variant.type_url,
        variant.name,
        variant.body,
        canonical(All((variant.constraint, *further))),
        aliases=variant.aliases,
        extras=variant.extras,
        origin=variant.origin,
        references=variant.references,
        ttl=variant.ttl,
        base=variant.base,
        domains=variant.domains,
    )
    narrowed.do_not_cache = variant.do_not_cache
    return narrowed


def _serves_always(known: VariantSet, domain: str | None) -> bool:
    """Whether every variant of the virtual host has the domain."""
    return domain is None or all(domain in variant.domains for variant in known.variants)


def _is_indexed_alike(one: VariantSet, other: VariantSet) -> bool:
    """Whether both sets have the same entries in the indexes. They mostly do: usually only the routes change."""
    if (one.made, one.is_listed) != (other.made, other.is_listed):
        return False
    return [variant.domains for variant in one.variants] == [variant.domains for variant in other.variants]
