"""Virtual hosts: which of them serves a host, and which hosts that were asked for a change of them concerns.

A client asks for `<route configuration>/<host>`, split at the last slash (VHD-2), and gets the virtual host that Envoy
itself would choose: by the exact domain, else by the longest wildcard in front, else by the longest one at the end,
else by `*` (VHD-6). A virtual host can have variants, and so can what it serves: then the answer depends on the params,
and what is found for a host is a view of several virtual hosts that chooses among them.

The other way round, from a virtual host that appears to those who asked for what it serves, exact domains are looked
up. Hosts that match a wildcard lie next to each other where they are sorted, read forwards or backwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import chain, islice

from .constraints import All, Constraint, Not, canonical
from .staged_changes import StagedChanges
from .steps import Steps, finish, pieces
from .table import Table
from .types import VIRTUAL_HOST, Change, TypeSpec, Variant, make_variant
from .variants import VariantSet, shared

UNSORTED = 256  # hosts that are looked through one by one before they are sorted in
RUN = 2_048  # hosts that are sorted in at once

Candidate = tuple[VariantSet, str | None]  # and the domain by which it serves the host; None: it is meant by its name


def split(string: str) -> tuple[str, str]:
    """VHD-2: the route configuration, whose name may have slashes of its own, and the host."""
    config, _, host = string.rpartition("/")
    return config, host


def without_port(host: str) -> str:
    """As Envoy does it: what follows the last colon, if that is a port; `[::1]:80` has one and `[::1]` none."""
    head, colon, port = host.rpartition(":")
    return head if colon and port.isdigit() and not (":" in head and not head.endswith("]")) else host


def explicit(domains: Iterable[str]) -> Iterator[str]:
    return (domain for domain in domains if "*" not in (domain[:1], domain[-1:]))


class HostSet(VariantSet):
    """What serves one host: virtual hosts in the order in which they count, each for some params or for all."""

    __slots__ = ("_candidates",)

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        sets = [known for known, _ in candidates]
        mentioned = sorted({key for known in sets for key in known.keys})
        super().__init__(tuple(variant for known in sets for variant in known.variants), tuple(mentioned), None)
        self._candidates = candidates

    def select(self, params: Mapping[str, str]) -> Variant | None:
        for known, domain in self._candidates:
            found = known.select(params)
            if found is not None and (domain is None or domain in found.domains):
                return found
        return None

    def proven(self, params: Mapping[str, str]) -> Variant | None:
        """With constraints that leave out those for whom one that counts more is there."""
        before: list[Constraint] = []
        for known, domain in self._candidates:
            serving = [variant for variant in known.variants if domain is None or domain in variant.domains]
            found = known.select(params)
            if found in serving:
                return _narrowed(found, before) if before else found
            before += [Not(variant.constraint) for variant in serving]
        return None


class PortedSet(VariantSet):
    """What serves a host with a port, where it depends on the params whether the port counts."""

    __slots__ = ("_kept", "_routes", "_stripped")

    def __init__(self, routes: VariantSet, kept: VariantSet | None, stripped: VariantSet | None) -> None:
        sets = [known for known in (kept, stripped) if known is not None]
        mentioned = sorted({key for known in (routes, *sets) for key in known.keys})
        super().__init__(tuple({variant: None for known in sets for variant in known.variants}), tuple(mentioned), None)
        self._routes, self._kept, self._stripped = routes, kept, stripped

    def select(self, params: Mapping[str, str]) -> Variant | None:
        route = self._routes.select(params)
        known = self._stripped if route is not None and _ignores_port(route) else self._kept
        return known.select(params) if known is not None else None

    def proven(self, params: Mapping[str, str]) -> Variant | None:
        """For those alone who are alike in all that may matter."""
        found = self.select(params)
        return _narrowed(found, [self.negative(params)]) if found is not None else None


class Patterns:
    """The wildcard domains of one route configuration, the longest first."""

    def __init__(self) -> None:
        self._ends: dict[int, dict[str, dict[str, None]]] = {}  # `*.example.com`: by length, rest, and who has it
        self._starts: dict[int, dict[str, dict[str, None]]] = {}  # `www.*`
        self._all: dict[str, None] = {}  # `*`

    def __bool__(self) -> bool:
        return bool(self._ends or self._starts or self._all)

    def add(self, domain: str, name: str) -> None:
        self._owners(domain)[name] = None

    def remove(self, domain: str, name: str) -> None:
        owners = self._owners(domain)
        owners.pop(name, None)
        if owners or domain == "*":
            return
        lengths, length = self._side(domain), len(domain) - 1
        del lengths[length][_rest(domain)]
        if not lengths[length]:
            del lengths[length]

    def _owners(self, domain: str) -> dict[str, None]:
        if domain == "*":
            return self._all
        return self._side(domain).setdefault(len(domain) - 1, {}).setdefault(_rest(domain), {})

    def _side(self, domain: str) -> dict[int, dict[str, dict[str, None]]]:
        return self._ends if domain.startswith("*") else self._starts

    def owners(self, domain: str) -> tuple[str, ...]:
        names = self._all if domain == "*" else self._side(domain).get(len(domain) - 1, {}).get(_rest(domain), {})
        return tuple(names)

    def matching(self, host: str) -> Iterator[tuple[str, str]]:
        """Whoever serves this host, and by which domain. A wildcard stands for one character at least."""
        for length in sorted(self._ends, reverse=True):
            if length < len(host):
                yield from ((name, f"*{host[-length:]}") for name in self._ends[length].get(host[-length:], ()))
        for length in sorted(self._starts, reverse=True):
            if length < len(host):
                yield from ((name, f"{host[:length]}*") for name in self._starts[length].get(host[:length], ()))
        yield from ((name, "*") for name in self._all)


class HostTable(Table):
    """The virtual hosts."""

    def __init__(self, spec: TypeSpec, routes: Callable[[str], VariantSet | None]) -> None:
        super().__init__(spec)
        self._routes = routes  # route configurations by name
        # By route configuration and domain; the latter is the variant's own string, since there can be a million.
        self._exact: dict[str, dict[str, str | tuple[str, ...]]] = {}
        self._patterns: dict[str, Patterns] = {}  # by route configuration
        self._base: dict[str, VariantSet] = {}  # what wildcards can see
        self._counts: Counter[str] = Counter()  # virtual hosts, by route configuration

    def get(self, name: str) -> VariantSet | None:
        known = self.given(name)
        return known if known is not None or self.authoritative else self._sets.get(self.question(name))

    def question(self, name: str) -> str:
        config, slash, host = name.rpartition("/")
        return config + slash + host.lower()

    def given(self, name: str) -> VariantSet | None:
        config, host = split(name)
        routes = self._routes(config)
        stripped = without_port(host)
        if routes is None or stripped == host or not any(map(_ignores_port, routes.variants)):
            return self._serving(name, config, host)
        bare = self._serving(f"{config}/{stripped}", config, stripped)
        if all(map(_ignores_port, routes.variants)):
            return bare
        kept = self._serving(name, config, host)
        return PortedSet(routes, kept, bare) if kept is not None or bare is not None else None

    def _serving(self, name: str, config: str, host: str) -> VariantSet | None:
        found: list[Candidate] = []
        for known, domain in self._candidates(name, config, host.lower()):
            found.append((known, domain))
            if len(known.variants) == 1 and not known.keys:
                break  # it serves everybody, so that nobody gets to the others
        if not found:
            return None
        return found[0][0] if len(found) == 1 and _serves_always(*found[0]) else HostSet(tuple(found))

    def _candidates(self, name: str, config: str, host: str) -> Iterator[Candidate]:
        for owner in self.owners(config, host):
            yield self._sets[owner], host
        own = self._sets.get(name)
        if own is None:
            own = self._sets.get(self._aliases.get(name, ""))
        if own is not None and not own.made:
            yield own, None
        patterns = self._patterns.get(config)
        if patterns is not None:
            yield from ((self._sets[owner], domain) for owner, domain in patterns.matching(host))

    def configs(self) -> Iterable[str]:
        return self._counts

    def owners(self, config: str, domain: str) -> tuple[str, ...]:
        """The virtual hosts that have this domain."""
        if next(explicit([domain]), None) is None:
            return self._patterns[config].owners(domain) if config in self._patterns else ()
        exact = self._exact.get(config, {}).get(domain, ())
        return (exact,) if isinstance(exact, str) else exact

    def _listed(self) -> Iterable[tuple[str, VariantSet]]:
        return self._base.items()

    def _count(self, name: str, known: VariantSet, step: int) -> None:
        super()._count(name, known, step)
        self._index(name, known, step)

    def commit_all(self, tally: StagedChanges) -> None:
        super().commit_all(tally)
        for step in (-1, 1):
            for change in tally.changes:
                known, other = (change.before, change.after) if step < 0 else (change.after, change.before)
                if known is not None and (other is None or not _is_indexed_alike(known, other)):
                    self._index(change.name, known, step)
        for change in tally.listed:
            if change.after is not None and change.after.is_listed and not change.after.made:
                self._base[change.name] = change.after

    def _index(self, name: str, known: VariantSet, step: int) -> None:
        if known.made:
            return  # for the host that it was asked for, and no other
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
        elif step < 0:
            self._base.pop(name, None)

    def _count_exact(self, config: str, domain: str, name: str, step: int) -> None:
        """Mostly one has it; several may, each for other params."""
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
    """V12: domains that two virtual hosts of a route configuration have for the same clients. Envoy takes neither."""
    hosts = [change for change in changes if change.type_url == VIRTUAL_HOST]
    touched = {change.name for change in hosts}
    claimed: dict[tuple[str, str], list[Variant]] = {}
    for variant in chain.from_iterable(change.after.variants for change in hosts if change.after is not None):
        config, _ = split(variant.name)
        for domain in variant.domains:
            rivals = claimed.setdefault((config, domain), [])
            if isinstance(table, HostTable):
                names = (name for name in table.owners(config, domain) if name not in touched)
                sets = filter(None, map(table.named, names))
                rivals = [*rivals, *(each for known in sets for each in known.variants if domain in each.domains)]
            for rival in rivals:
                why = shared(variant, rival) if rival.name != variant.name else None
                if why is not None:
                    yield f"domain {domain!r} of {variant.name!r} is also one of {rival.name!r}: {why}", variant
            claimed[config, domain].append(variant)


class AskedHosts:
    """Every `<route configuration>/<host>` that somebody asked for, found by the domains that may serve it."""

    def __init__(self) -> None:
        self._configs: dict[str, _Hosts] = {}

    def add(self, string: str) -> None:
        config, host = split(string)
        self._configs.setdefault(config, _Hosts()).add(host, string)

    def remove(self, string: str) -> None:
        config, host = split(string)
        hosts = self._configs[config]
        hosts.remove(host, string)
        if not hosts:
            del self._configs[config]

    def under(self, config: str) -> Iterable[str]:
        """All of one route configuration. New ones may be added while it is iterated over, and are not found."""
        return self._configs[config].matching("*") if config in self._configs else ()

    def weight(self, change: Change) -> int:
        """How many hosts this change of a virtual host, or of a route configuration, may concern, at most."""
        is_host = change.type_url == VIRTUAL_HOST
        hosts = self._configs.get(split(change.name)[0] if is_host else change.name)
        return len(hosts) if hosts is not None and not (is_host and _serves_alike(change)) else 0

    def sorting(self, change: Change) -> Steps[None]:
        """Do what takes long of `concerned` before it is asked, in steps."""
        hosts = self._configs.get(split(change.name)[0])
        if hosts is not None and not _serves_alike(change):
            yield from hosts.sorting()

    def concerned(self, change: Change) -> Iterator[str]:
        """For whom it may be another virtual host now. Who has one, and keeps it, hears of it by its name.

        New ones may be added while it is iterated over, and need not be found: they see the virtual host as it is.
        """
        config, host = split(change.name)
        hosts = self._configs.get(config)
        if hosts is not None and any(known is not None and known.made for known in (change.before, change.after)):
            yield from hosts.matching(host)
        if hosts is not None and not _serves_alike(change):
            sets = (known for known in (change.before, change.after) if known is not None)
            variants = chain.from_iterable(known.variants for known in sets)
            for domain in dict.fromkeys(domain for variant in variants for domain in variant.domains):
                yield from hosts.matching(domain)


class _Hosts:
    """The hosts of one route configuration: in lower case, those with a port without it too, and what was asked."""

    def __init__(self) -> None:
        self._strings: dict[str, dict[str, None]] = {}  # what was asked, by form
        self._new: dict[str, None] = {}  # forms that are not sorted in yet
        self._forwards = _Sorted(self._strings)
        self._backwards = _Sorted(self._strings, step=-1)

    def __len__(self) -> int:
        return len(self._strings)

    def add(self, host: str, string: str) -> None:
        for form in forms(host):
            if form not in self._strings:
                self._strings[form] = {}
                self._new[form] = None
            self._strings[form][string] = None

    def remove(self, host: str, string: str) -> None:
        """Of those in order, what is gone stays for a while. VHD-25: new ones may come and go for ever."""
        for form in forms(host):
            self._strings[form].pop(string, None)
            if not self._strings[form]:
                del self._strings[form]
                self._new.pop(form, None)

    def sorting(self) -> Steps[None]:
        """Sort in what is new, in steps, where it is worth it."""
        while len(self._new) > UNSORTED:
            new = [*islice(self._new, RUN)]
            for form in new:
                del self._new[form]
            self._forwards.take(new)
            self._backwards.take(new)
            yield

    def matching(self, domain: str) -> Iterator[str]:
        """What was asked that this domain serves; if by several forms, perhaps several times."""
        if next(explicit([domain]), None) is not None:
            yield from [*self._strings.get(domain, ())]
            return
        forms: Iterable[str] = [*self._strings] if domain == "*" else self._matching(domain)
        for form in forms:
            yield from [*self._strings.get(form, ())]

    def _matching(self, domain: str) -> Iterator[str]:
        """The forms that a wildcard stands for; that is one character at least."""
        finish(self.sorting())
        rest = _rest(domain)
        at_end = domain.startswith("*")
        fits = str.endswith if at_end else str.startswith
        yield from [form for form in self._new if fits(form, rest) and len(form) > len(rest)]
        yield from (self._backwards if at_end else self._forwards).beginning_with(rest)


class _Sorted:
    """Hosts in order, by their letters from the front or the back: in runs, so that to sort some in takes short."""

    def __init__(self, living: Container[str], step: int = 1) -> None:
        self._living = living
        self._step = step
        self._runs: list[list[str]] = []  # each in order, and never changed

    def take(self, forms: Iterable[str]) -> None:
        """Sort these in, and drop what is gone of the oldest run: there can't be much more than what is alive."""
        found = [form[:: self._step] for form in forms]
        if len(self._runs) > 1:
            found += self._alive(self._runs.pop(0))
        if self._runs and len(self._runs[-1]) < RUN:
            found += self._alive(self._runs.pop())
        self._runs += pieces(sorted({*found}), 2 * RUN)

    def _alive(self, run: Iterable[str]) -> list[str]:
        return [each for each in run if each[:: self._step] in self._living]

    def beginning_with(self, start: str) -> Iterator[str]:
        """Those that begin with this, or end with it, and go on."""
        start = start[:: self._step]
        for run in [*self._runs]:
            for each in islice(run, bisect_left(run, start), None):
                if not each.startswith(start):
                    break
                form = each[:: self._step]
                if len(each) > len(start) and form in self._living:
                    yield form


def forms(host: str) -> tuple[str, ...]:
    """How domains may have it: in lower case, and without its port too."""
    lower = host.lower()
    bare = without_port(lower)
    return (lower,) if bare == lower else (lower, bare)


def _rest(domain: str) -> str:
    return domain[1:] if domain.startswith("*") else domain[:-1]


def _ignores_port(variant: Variant) -> bool:
    return variant.routing is not None and variant.routing.ignores_port


def _narrowed(variant: Variant, further: Iterable[Constraint]) -> Variant:
    """The same contents, for fewer."""
    return make_variant(
        variant.type_url,
        variant.name,
        variant.body,
        canonical(All((variant.constraint, *further))),
        aliases=variant.aliases,
        extras=variant.extras,
        origin=variant.origin,
        ttl=variant.ttl,
        base=variant.base,
        domains=variant.domains,
    )


def _serves_always(known: VariantSet, domain: str | None) -> bool:
    return domain is None or all(domain in variant.domains for variant in known.variants)


def _is_indexed_alike(one: VariantSet, other: VariantSet) -> bool:
    """Whether both are found by the same domains, and in the same base set: mostly only the routes change."""
    if (one.made, one.is_listed) != (other.made, other.is_listed):
        return False
    return [variant.domains for variant in one.variants] == [variant.domains for variant in other.variants]


def _serves_alike(change: Change) -> bool:
    """Whether it serves the same hosts as before, for the same clients."""
    return _serving(change.before) == _serving(change.after)


def _serving(known: VariantSet | None) -> frozenset[tuple[Constraint, tuple[str, ...]]]:
    variants = known.variants if known is not None else ()
    return frozenset((variant.constraint, variant.domains) for variant in variants)
