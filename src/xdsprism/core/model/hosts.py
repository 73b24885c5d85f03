"""Decide which virtual host serves a host, and which subscriptions a change of a virtual host concerns (VHDS).

A client subscribes to `<route configuration>/<host>`, split at the last slash (VHD-2), and gets the virtual host that
Envoy itself would choose (VHD-6):

| order | domain of the virtual host          | example           |
|-------|-------------------------------------|-------------------|
| 1     | the exact host                      | `www.example.com` |
| 2     | the longest wildcard at the front   | `*.example.com`   |
| 3     | the longest wildcard at the end     | `www.*`           |
| 4     | any host                            | `*`               |

A virtual host can have variants, and each variant its own domains. Then the answer depends on the params: for one host
several virtual hosts may be candidates, and `HostSet` is the view that tries them in this order for given params.

`AskedHosts` answers the opposite question: a virtual host appears or changes its domains, and the sessions need every
subscribed host that it may serve. Exact domains are dictionary lookups. For wildcards the hosts are kept sorted, once
as they are and once reversed, because the hosts that match `www.*` or `*.example.com` are neighbours there.
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

UNSORTED = 256  # up to this many new hosts are searched one by one instead of being sorted in
RUN = 2_048  # hosts that are sorted in at once

# A virtual host and the domain by which it serves the host; None: the client asked for the virtual host by its name.
Candidate = tuple[VariantSet, str | None]


def split(string: str) -> tuple[str, str]:
    """Split a subscription into route configuration, whose name may contain slashes, and host (VHD-2)."""
    config, _, host = string.rpartition("/")
    return config, host


def without_port(host: str) -> str:
    """Drop the port as Envoy does: digits after the last colon. `[::1]:80` has a port, `[::1]` has none."""
    head, colon, port = host.rpartition(":")
    return head if colon and port.isdigit() and not (":" in head and not head.endswith("]")) else host


def explicit(domains: Iterable[str]) -> Iterator[str]:
    """Return the domains that are no wildcards."""
    return (domain for domain in domains if "*" not in (domain[:1], domain[-1:]))


class HostSet(VariantSet):
    """The virtual hosts that may serve one host, in Envoy's order, each for some params or for all."""

    __slots__ = ("_candidates",)

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        sets = [known for known, _ in candidates]
        mentioned = sorted({key for known in sets for key in known.keys})
        super().__init__(tuple(variant for known in sets for variant in known.variants), tuple(mentioned), None)
        self._candidates = candidates

    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant of the first virtual host that has one for these params, with the domain in question."""
        for known, domain in self._candidates:
            found = known.select(params)
            if found is not None and (domain is None or domain in found.domains):
                return found
        return None

    def proven(self, params: Mapping[str, str]) -> Variant | None:
        """Return the same variant, for fewer clients: not for those whom a virtual host earlier in the order serves.

        A cache may then hand the variant to any client that the constraint matches.
        """
        before: list[Constraint] = []
        for known, domain in self._candidates:
            serving = [variant for variant in known.variants if domain is None or domain in variant.domains]
            found = known.select(params)
            if found in serving:
                return _narrowed(found, before) if before else found
            before += [Not(variant.constraint) for variant in serving]
        return None


class PortedSet(VariantSet):
    """The answer for a host with a port, where the params decide whether the route configuration ignores ports."""

    __slots__ = ("_kept", "_routes", "_stripped")

    def __init__(self, routes: VariantSet, kept: VariantSet | None, stripped: VariantSet | None) -> None:
        sets = [known for known in (kept, stripped) if known is not None]
        mentioned = sorted({key for known in (routes, *sets) for key in known.keys})
        super().__init__(tuple({variant: None for known in sets for variant in known.variants}), tuple(mentioned), None)
        self._routes, self._kept, self._stripped = routes, kept, stripped

    def select(self, params: Mapping[str, str]) -> Variant | None:
        """Return the variant for the host with or without its port, as the client's variant of the routes demands."""
        route = self._routes.select(params)
        known = self._stripped if route is not None and _ignores_port(route) else self._kept
        return known.select(params) if known is not None else None

    def proven(self, params: Mapping[str, str]) -> Variant | None:
        """Return the same variant, for clients that agree with these params on every key that may matter."""
        found = self.select(params)
        return _narrowed(found, [self.negative(params)]) if found is not None else None


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
        del lengths[length][_rest(domain)]
        if not lengths[length]:
            del lengths[length]

    def _owners(self, domain: str) -> dict[str, None]:
        """Return the virtual hosts with this wildcard domain, as a mapping to change."""
        if domain == "*":
            return self._all
        return self._side(domain).setdefault(len(domain) - 1, {}).setdefault(_rest(domain), {})

    def _side(self, domain: str) -> dict[int, dict[str, dict[str, None]]]:
        """Return the index for wildcards at the front, or for those at the end."""
        return self._ends if domain.startswith("*") else self._starts

    def owners(self, domain: str) -> tuple[str, ...]:
        """Return the names of the virtual hosts that have exactly this wildcard domain."""
        names = self._all if domain == "*" else self._side(domain).get(len(domain) - 1, {}).get(_rest(domain), {})
        return tuple(names)

    def matching(self, host: str) -> Iterator[tuple[str, str]]:
        """Yield the virtual hosts that serve this host, and by which domain, in Envoy's order.

        A wildcard stands for at least one character.
        """
        for length in sorted(self._ends, reverse=True):
            if length < len(host):
                yield from ((name, f"*{host[-length:]}") for name in self._ends[length].get(host[-length:], ()))
        for length in sorted(self._starts, reverse=True):
            if length < len(host):
                yield from ((name, f"{host[:length]}*") for name in self._starts[length].get(host[:length], ()))
        yield from ((name, "*") for name in self._all)


class HostTable(Table):
    """The virtual hosts, found by `<route configuration>/<host>` as well as by name."""

    def __init__(self, spec: TypeSpec, routes: Callable[[str], VariantSet | None]) -> None:
        super().__init__(spec)
        self._routes = routes  # route configurations by name
        # The names of the virtual hosts that have an exact domain, by route configuration and domain. The domain is
        # the variant's own string object and a sole owner is no tuple, because there can be a million of them.
        self._exact: dict[str, dict[str, str | tuple[str, ...]]] = {}
        self._patterns: dict[str, Patterns] = {}  # by route configuration
        self._base: dict[str, VariantSet] = {}  # the virtual hosts that wildcards can see: the base set
        self._counts: Counter[str] = Counter()  # number of virtual hosts per route configuration

    def get(self, name: str) -> VariantSet | None:
        """Return what serves this host; if the table is not authoritative, also what is stored for the host itself."""
        known = self.given(name)
        return known if known is not None or self.authoritative else self._sets.get(self.question(name))

    def question(self, name: str) -> str:
        """Return the string with the host in lower case, as domains are."""
        config, slash, host = name.rpartition("/")
        return config + slash + host.lower()

    def given(self, name: str) -> VariantSet | None:
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
        return PortedSet(routes, kept, bare) if kept is not None or bare is not None else None

    def _serving(self, name: str, config: str, host: str) -> VariantSet | None:
        """Return what serves this host as it is spelled: one virtual host, a view of several, or None."""
        found: list[Candidate] = []
        for known, domain in self._candidates(name, config, host.lower()):
            found.append((known, domain))
            if len(known.variants) == 1 and not known.keys:
                break  # it serves all params, so no client gets to the candidates after it
        if not found:
            return None
        return found[0][0] if len(found) == 1 and _serves_always(*found[0]) else HostSet(tuple(found))

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
            yield from ((self._sets[owner], domain) for owner, domain in patterns.matching(host))

    def configs(self) -> Iterable[str]:
        """Return the route configurations that have virtual hosts here."""
        return self._counts

    def owners(self, config: str, domain: str) -> tuple[str, ...]:
        """Return the names of the virtual hosts that have this domain, exact or wildcard."""
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
        """Take a large transaction. Leave the indexes alone for virtual hosts whose domains stay the same."""
        super().commit_all(tally)
        # First remove what goes, then add what comes: a virtual host that changes its domains may keep some of them.
        for step in (-1, 1):
            for change in tally.changes:
                known, other = (change.before, change.after) if step < 0 else (change.after, change.before)
                if known is not None and (other is None or not _is_indexed_alike(known, other)):
                    self._index(change.name, known, step)
        for change in tally.listed:
            if change.after is not None and change.after.is_listed and not change.after.made:
                self._base[change.name] = change.after

    def _index(self, name: str, known: VariantSet, step: int) -> None:
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
        elif step < 0:
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
    claimed: dict[tuple[str, str], list[Variant]] = {}
    for variant in chain.from_iterable(change.after.variants for change in hosts if change.after is not None):
        config, _ = split(variant.name)
        for domain in variant.domains:
            rivals = claimed.setdefault((config, domain), [])  # in this transaction
            if isinstance(table, HostTable):  # and in the table, as far as this transaction leaves it alone
                names = (name for name in table.owners(config, domain) if name not in touched)
                sets = filter(None, map(table.named, names))
                rivals = [*rivals, *(each for known in sets for each in known.variants if domain in each.domains)]
            for rival in rivals:
                why = shared(variant, rival) if rival.name != variant.name else None
                if why is not None:
                    yield f"domain {domain!r} of {variant.name!r} is also one of {rival.name!r}: {why}", variant
            claimed[config, domain].append(variant)


class AskedHosts:
    """Every `<route configuration>/<host>` that some stream subscribed to, found by the domains that may serve it."""

    def __init__(self) -> None:
        self._configs: dict[str, _Hosts] = {}

    def add(self, string: str) -> None:
        """Add a subscribed string."""
        config, host = split(string)
        self._configs.setdefault(config, _Hosts()).add(host, string)

    def remove(self, string: str) -> None:
        """Remove a subscribed string."""
        config, host = split(string)
        hosts = self._configs[config]
        hosts.remove(host, string)
        if not hosts:
            del self._configs[config]

    def under(self, config: str) -> Iterable[str]:
        """Return all strings of one route configuration.

        The caller may add strings while it iterates; the iteration does not include them.
        """
        return self._configs[config].matching("*") if config in self._configs else ()

    def weight(self, change: Change) -> int:
        """Return how many hosts this change of a virtual host, or of a route configuration, may concern at most."""
        is_host = change.type_url == VIRTUAL_HOST
        hosts = self._configs.get(split(change.name)[0] if is_host else change.name)
        return len(hosts) if hosts is not None and not (is_host and _serves_alike(change)) else 0

    def sorting(self, change: Change) -> Steps[None]:
        """Sort the hosts that `concerned` will search, in steps, so that `concerned` itself is quick."""
        hosts = self._configs.get(split(change.name)[0])
        if hosts is not None and not _serves_alike(change):
            yield from hosts.sorting()

    def concerned(self, change: Change) -> Iterator[str]:
        """Yield the strings that another virtual host may serve after this change.

        A client that keeps its virtual host is not included: it hears of new contents by the virtual host's name. The
        caller may add strings while it iterates; these need not be found, because they see the new virtual host anyway.
        """
        config, host = split(change.name)
        hosts = self._configs.get(config)
        # A virtual host that a provider made serves exactly the host in its name.
        if hosts is not None and any(known is not None and known.made for known in (change.before, change.after)):
            yield from hosts.matching(host)
        if hosts is not None and not _serves_alike(change):
            sets = (known for known in (change.before, change.after) if known is not None)
            variants = chain.from_iterable(known.variants for known in sets)
            for domain in dict.fromkeys(domain for variant in variants for domain in variant.domains):
                yield from hosts.matching(domain)


class _Hosts:
    """The subscribed hosts of one route configuration, by form.

    The forms of a host are the host in lower case and, if it has a port, the same without the port. Domains are matched
    against forms, and each form leads to the strings that clients subscribed to.
    """

    def __init__(self) -> None:
        self._strings: dict[str, dict[str, None]] = {}  # subscribed strings, by form
        self._new: dict[str, None] = {}  # forms that are not sorted in yet
        self._forwards = _Sorted(self._strings)
        self._backwards = _Sorted(self._strings, step=-1)

    def __len__(self) -> int:
        return len(self._strings)

    def add(self, host: str, string: str) -> None:
        """Add a string under each form of its host."""
        for form in forms(host):
            if form not in self._strings:
                self._strings[form] = {}
                self._new[form] = None
            self._strings[form][string] = None

    def remove(self, host: str, string: str) -> None:
        """Remove a string. VHD-25: hosts may come and go for ever, so new ones must not pile up.

        The sorted runs still contain the form for a while; searches skip it, and `_Sorted.take` drops it later.
        """
        for form in forms(host):
            self._strings[form].pop(string, None)
            if not self._strings[form]:
                del self._strings[form]
                self._new.pop(form, None)

    def sorting(self) -> Steps[None]:
        """Sort in the new forms, in steps, if there are too many to search one by one."""
        while len(self._new) > UNSORTED:
            new = [*islice(self._new, RUN)]
            for form in new:
                del self._new[form]
            self._forwards.take(new)
            self._backwards.take(new)
            yield

    def matching(self, domain: str) -> Iterator[str]:
        """Yield the strings that this domain serves; a string with several matching forms may come several times."""
        if next(explicit([domain]), None) is not None:
            yield from [*self._strings.get(domain, ())]
            return
        forms: Iterable[str] = [*self._strings] if domain == "*" else self._matching(domain)
        for form in forms:
            yield from [*self._strings.get(form, ())]

    def _matching(self, domain: str) -> Iterator[str]:
        """Yield the forms that a wildcard domain matches. The wildcard stands for at least one character."""
        finish(self.sorting())
        rest = _rest(domain)
        at_end = domain.startswith("*")
        fits = str.endswith if at_end else str.startswith
        yield from [form for form in self._new if fits(form, rest) and len(form) > len(rest)]
        yield from (self._backwards if at_end else self._forwards).beginning_with(rest)


class _Sorted:
    """Hosts in alphabetical order, read from the front or, with step -1, from the back.

    They are kept in several sorted runs, so that adding some hosts never sorts all of them.
    """

    def __init__(self, living: Container[str], step: int = 1) -> None:
        self._living = living
        self._step = step
        self._runs: list[list[str]] = []  # each sorted, and never changed in place: iterations may be under way

    def take(self, forms: Iterable[str]) -> None:
        """Sort in more forms, together with the oldest run and a short last one, without the forms that are gone.

        Each call cleans one run, so the runs never hold much more than the forms that still exist.
        """
        found = [form[:: self._step] for form in forms]
        if len(self._runs) > 1:
            found += self._alive(self._runs.pop(0))
        if self._runs and len(self._runs[-1]) < RUN:
            found += self._alive(self._runs.pop())
        self._runs += pieces(sorted({*found}), 2 * RUN)

    def _alive(self, run: Iterable[str]) -> list[str]:
        """Return the forms of a run that still exist."""
        return [each for each in run if each[:: self._step] in self._living]

    def beginning_with(self, start: str) -> Iterator[str]:
        """Yield the forms that begin with this text (end with it, for step -1) and are longer."""
        start = start[:: self._step]
        for run in [*self._runs]:
            for each in islice(run, bisect_left(run, start), None):
                if not each.startswith(start):
                    break
                form = each[:: self._step]
                if len(each) > len(start) and form in self._living:
                    yield form


def forms(host: str) -> tuple[str, ...]:
    """Return the spellings by which domains may match the host: in lower case, and without its port too."""
    lower = host.lower()
    bare = without_port(lower)
    return (lower,) if bare == lower else (lower, bare)


def _rest(domain: str) -> str:
    """Return a wildcard domain without its `*`."""
    return domain[1:] if domain.startswith("*") else domain[:-1]


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


def _serves_alike(change: Change) -> bool:
    """Whether the virtual host serves the same hosts as before, for the same clients."""
    return _serving(change.before) == _serving(change.after)


def _serving(known: VariantSet | None) -> frozenset[tuple[Constraint, tuple[str, ...]]]:
    """Return the constraints and domains of all variants."""
    variants = known.variants if known is not None else ()
    return frozenset((variant.constraint, variant.domains) for variant in variants)
