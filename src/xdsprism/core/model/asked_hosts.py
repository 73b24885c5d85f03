"""Find the subscribed hosts that a changed virtual host concerns (VHDS).

`AskedHosts` answers the opposite question to host_lookup.py: a virtual host appears or changes its domains, and the
sessions need every subscribed host that it may serve. Exact domains are dictionary lookups. For wildcards the hosts are
kept sorted, once as they are and once reversed, because the hosts that match `www.*` or `*.example.com` are neighbours
there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from itertools import chain, islice

from .constraints import Constraint
from .hosts import explicit, forms, rest_of, split
from .steps import Steps, finish, pieces
from .types import VIRTUAL_HOST, Change
from .variants import VariantSet

UNSORTED = 256  # up to this many new hosts are searched one by one instead of being sorted in
RUN = 2_048  # hosts that are sorted in at once


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
        """Remove a string. VHD-25: clients may request new hosts without end, and the index must not grow with them.

        The sorted runs still contain the form for a while; searches skip it, and `_Sorted.merge` drops it later.
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
            self._forwards.merge(new)
            self._backwards.merge(new)
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
        rest = rest_of(domain)
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

    def merge(self, forms: Iterable[str]) -> None:
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


def _serves_alike(change: Change) -> bool:
    """Whether the virtual host serves the same hosts as before, for the same clients."""
    return _serving(change.before) == _serving(change.after)


def _serving(known: VariantSet | None) -> frozenset[tuple[Constraint, tuple[str, ...]]]:
    """Return the constraints and domains of all variants."""
    variants = known.variants if known is not None else ()
    return frozenset((variant.constraint, variant.domains) for variant in variants)
