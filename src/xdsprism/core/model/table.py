"""Hold the resources of one type by name, with their listings: of all names, and of each glob collection.

The table of a type is put together from parts that other files decide:

| part        | file                      | decides                                                          |
|-------------|---------------------------|------------------------------------------------------------------|
| `everything`| listing.py                | what each class of clients sees by `*`, and what changed since   |
| globs       | listing.py                | the same for the xdstp names under one path (TP1)                |
| `lookup`    | lookup.py, host_lookup.py | which resource a string means: a name, an alias, or a host       |
| `knowledge` | knowledge.py, cached.py   | whether the answer is known, and may be given                    |

The listing of a glob collection exists while some stream follows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from .events import WILDCARD, Send
from .knowledge import AllKnown, Knowledge, MadeOnDemand
from .listing import Listing
from .lookup import Lookup, NameLookup
from .staged_changes import SpecialCounts, StagedChanges, add_counts
from .types import Change, Params, Reference, TypeSpec, Variant
from .variants import Answer, VariantSet
from .xdstp import collection_of

# Make the parts of a table: the lookup from its sets by name, and the names of its resources by alias.
Lookups = Callable[[dict[str, VariantSet], dict[str, str]], Lookup]
Knowledges = Callable[[Lookup, SpecialCounts], Knowledge]


class Table:
    """The resources of one type."""

    def __init__(self, spec: TypeSpec, lookup: Lookups = NameLookup, knowledge: Knowledges = AllKnown) -> None:
        self.spec = spec
        self.revision = 0  # of the last change in this table
        # The same, as nonces and versions say it. In an allowed part that counts less (allowed_part.py).
        self.shown_revision = 0
        self.sessions = 0  # number of sessions that read it
        self.variants = 0  # number of variants of all names
        self.referring: Counter[Reference] = Counter()  # how many variants here refer to each resource
        # Whether a resource here refers, or once referred, to another of the same type, as aggregate clusters do.
        self.is_nested = False
        self._sets: dict[str, VariantSet] = {}
        self._aliases: dict[str, str] = {}  # the name of the resource that has each alias
        self._special = SpecialCounts()
        self.lookup = lookup(self._sets, self._aliases)
        self.knowledge = knowledge(self.lookup, self._special)
        self.authoritative = self.knowledge.is_complete  # a name that is not here does not exist
        self.everything = Listing(self.lookup.listed, self._special)
        self._paths: dict[str, dict[str, None]] = {}  # xdstp names by their glob collections
        self._globs: dict[str, Glob] = {}  # the glob collections that streams follow
        self._changed: dict[Listing, None] = {}  # those that the current transaction changes
        self.shared: dict[object, Send] = {}  # responses of this revision that many sessions send
        self._whole: Table | None = None  # of an allowed part: the table of which it is a part

    def be_part_of(self, whole: Table) -> None:
        """Have a part of what another table has (allowed_part.py)."""
        self._whole = whole
        self.knowledge.join(whole.knowledge)

    @property
    def is_part(self) -> bool:
        """Whether this is the allowed part of another table."""
        return self._whole is not None

    @property
    def moment(self) -> int:
        """Return the revision of the store at the last change here; for a part, at the last change of the whole."""
        return self._whole.revision if self._whole is not None else self.revision

    def rely_on_provider(self) -> None:
        """From now on a provider may make what is not here."""
        self.knowledge = MadeOnDemand(self.lookup)
        self.authoritative = self.knowledge.is_complete

    # -- reading

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[tuple[str, VariantSet]]:
        return iter(self._sets.items())

    def names(self) -> list[str]:
        """Return the names of all resources, as they are now."""
        return [*self._sets]

    def named(self, name: str) -> VariantSet | None:
        """Return the variants of a name, without aliases."""
        return self._sets.get(name)

    def get(self, name: str) -> Answer | None:
        """Return what is known of a name, an alias (DLT-20) or a host."""
        return self.lookup.get(name)

    def select(self, name: str, params: Params) -> Variant | None:
        """Return the variant of this name, or alias, for these params."""
        known = self.lookup.get(name)
        return known.select(params) if known is not None else None

    def select_for_cache(self, name: str, params: Params) -> Variant | None:
        """Return the same variant as `select`, with a constraint by which a cache may hand it on (TP2, Caching).

        Every client that the constraint matches gets this variant.
        """
        known = self.lookup.get(name)
        return known.select_for_cache(params) if known is not None else None

    def owner(self, alias: str) -> str | None:
        """Return the name of the resource that has this alias."""
        return self._aliases.get(alias)

    def listing(self, name: str) -> Listing:
        """Return the listing of a wildcard: `*`, or a glob collection. The caller must follow it at once."""
        if name == WILDCARD:
            return self.everything
        if name not in self._globs:
            self._globs[name] = Glob({each: self._sets[each] for each in self._paths.get(name, ())}, self._special)
        return self._globs[name].listing

    def retire(self, name: str) -> None:
        """Drop a glob collection if the wildcard that just ended was its last follower."""
        if name in self._globs and not self._globs[name].listing.is_followed:
            del self._globs[name]

    # -- writing: only the store calls these, `commit` per change or `commit_all`, and then `drop_shared_views`

    def commit(self, change: Change) -> None:
        """Take one change of a small transaction."""
        self.revision = self.shown_revision = change.revision
        self._recount(change)
        if change.after is None:
            del self._sets[change.name]
        else:
            self._sets[change.name] = change.after
        self.everything.note(change)
        path = collection_of(change.name) if self.spec.has_xdstp_names else None
        if path is not None:
            self._note_path(path, change)

    def commit_all(self, tally: StagedChanges) -> None:
        """Take all changes of a large transaction, whose sums were computed beforehand (staged_changes.py)."""
        self.revision = self.shown_revision = tally.changes[0].revision
        for name in tally.gone:
            del self._sets[name]
        self._sets.update(tally.sets)
        self.variants += tally.variants
        self.is_nested = self.is_nested or any(url == self.spec.url for url, *_ in tally.references)
        add_counts(self.referring, tally.references)
        # First all aliases that go, then all that come: an alias may move from one resource to another.
        for step in (-1, 1):
            for change in tally.aliased:
                known = change.before if step < 0 else change.after
                if known is not None:
                    self._count_aliases(change.name, known, step)
        self.lookup.note_all(tally)
        self._special.add(tally.special)
        self.everything.note_all(tally)
        for path, change in tally.placed:
            self._note_path(path, change)

    def _note_path(self, path: str, change: Change) -> None:
        """Add or remove an xdstp name in its glob collection, and log the change there if a stream follows it."""
        if change.after is not None:
            self._paths.setdefault(path, {})[change.name] = None
        else:
            self._paths[path].pop(change.name)
            if not self._paths[path]:
                del self._paths[path]
        glob = self._globs.get(path)
        if glob is not None:
            glob.note(change)
            self._changed[glob.listing] = None

    def _recount(self, change: Change) -> None:
        """Update the counters and indexes for one change.

        Count only the variants that came and went, if they are known; else count both whole sets.
        """
        moved = change.after.difference(change.before) if change.after is not None else None
        if moved is not None:
            self.variants += len(moved.came) - len(moved.went)
            for variants, step in ((moved.went, -1), (moved.came, 1)):
                for variant in variants:
                    self._count_references(variant, step)
            return
        for known, step in ((change.before, -1), (change.after, 1)):
            if known is not None:
                self._count(change.name, known, step)

    def _count(self, name: str, known: VariantSet, step: int) -> None:
        """Count one set of variants as new (step 1) or gone (step -1)."""
        self.variants += step * len(known.variants)
        for variant in known.variants:
            if variant.references:
                self._count_references(variant, step)
        self._count_aliases(name, known, step)
        self._special.note(known, step)
        self.lookup.note(name, known, step)

    def _count_aliases(self, name: str, known: VariantSet, step: int) -> None:
        """Note or drop the aliases of a name; an alias that another resource has taken over stays with that one."""
        for alias in known.aliases:
            if step > 0:
                self._aliases[alias] = name
            elif self._aliases.get(alias) == name:
                del self._aliases[alias]

    def _count_references(self, variant: Variant, step: int) -> None:
        """Count the resources that a variant refers to."""
        for reference in variant.references:
            self.referring[reference] += step
            if not self.referring[reference]:
                del self.referring[reference]
            self.is_nested = self.is_nested or reference[0] == self.spec.url

    def drop_shared_views(self) -> None:
        """After the last commit of a transaction: drop shared responses and cached views, here and in changed globs."""
        self.shared.clear()
        self.everything.tidy(self.revision)
        changed, self._changed = self._changed, {}
        for listing in changed:
            listing.tidy(self.revision)


class Glob:
    """A glob collection that some stream follows: the names one step below a path, with one context (XTP-3, XTP-4)."""

    __slots__ = ("_members", "listing")

    def __init__(self, members: dict[str, VariantSet], special: SpecialCounts) -> None:
        self._members = members
        self.listing = Listing(members, special)

    def note(self, change: Change) -> None:
        """Log the change, and update the members."""
        self.listing.note(change)
        if change.after is not None:
            self._members[change.name] = change.after
        else:
            self._members.pop(change.name, None)
