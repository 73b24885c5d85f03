"""Which wildcards a relay can answer: those to which a server has said what there is."""

from __future__ import annotations

from collections.abc import Callable

from ..model.cached import NOTHING, CacheTable
from ..model.constraints import Constraint
from ..model.events import WILDCARD
from ..model.store import Store
from ..model.types import Params, TypeUrl
from ..watch.entry import Entry
from .findings import UpstreamAnswer, is_answered, troubles

SETTLED = 2.0  # seconds after its first answer for which what a wildcard lacks may still be on its way

Key = tuple[tuple[TypeUrl, str], Params]


class Listings:
    """Notes in the tables what is listed, for whom, and whether that is sure to be all."""

    def __init__(
        self,
        store: Store,
        pin: Callable[[Entry], Constraint | None],
        told: Callable[[TypeUrl, str], None],
    ) -> None:
        self._store = store
        self._pin = pin
        self._told = told  # there is something new to say to those who want one
        self.due: dict[Key, float] = {}  # wildcards of which not all may be there: until when

    def look(self, key: Key, entry: Entry, now: float, *, aged: bool) -> None:
        """What its subscription says now."""
        (type_url, name), params = key
        table = self._store.table(type_url)
        if not isinstance(table, CacheTable):
            return
        self._complain(table, name, params, entry)
        if entry.kept_at is not None or not is_answered(entry):
            self.due.pop(key, None)  # it was asked again: that begins anew
        if aged:
            table.unlist(params, name)
        elif is_answered(entry) and not table.lists(params, name, sure=True):
            self._list(table, (name, params), entry, now)

    def leave(self, key: Key) -> None:
        """There is no subscription any more."""
        (type_url, name), params = key
        table = self._store.table(type_url)
        if isinstance(table, CacheTable):
            table.unlist(params, name)
        self.due.pop(key, None)

    def _complain(self, table: CacheTable, name: str, params: Params, entry: Entry) -> None:
        """ERR-6: what is wrong with a glob as a whole can be told; of a wildcard there is no word for it."""
        wrong = troubles([UpstreamAnswer(params, entry, wild=True, wanted=True)], NOTHING, self._pin)
        if name != WILDCARD and table.note_wrong((name, params), next(iter(wrong), None)):
            self._told(table.spec.url, name)

    def _list(self, table: CacheTable, wild: tuple[str, Params], entry: Entry, now: float) -> None:
        """It can be answered: to those who have nothing yet at once, to the others when nothing is lacking any more.

        A response does not say what it answers. The first one may have been on its way before the server heard of the
        wildcard, or be one part of several. Whoever comes back with more than that must not take it for a deletion.
        """
        key = (table.spec.url, wild[0]), wild[1]
        if wild not in table.listed:
            table.listed.add(wild)
            table.unsure.add(wild)
            self._told(*key[0])
        if entry.kept_at is None and self.due.setdefault(key, now + SETTLED) <= now:
            del self.due[key]
            table.unsure.discard(wild)
            self._told(*key[0])
