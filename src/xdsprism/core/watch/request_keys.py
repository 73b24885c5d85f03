"""From what is wanted of one type to what a stream is asked for, in the form that its server understands (PRX-32)."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.dialect import RequestForm
from ..model.events import WILDCARD, Key


class RequestKeys:
    """The keys that one stream is asked by. Several that are wanted may go by one name: it is given up with the last.

    probes: where a server is asked by names, the first key with params goes out as a locator too, and so does the
    first wildcard: an answer to these shows that the server understands locators by now.
    """

    def __init__(self, form: RequestForm, *, probes: bool = False) -> None:
        self.form = form
        self._probes = probes
        self._wanted: set[Key] = set()
        self._names: dict[str, int] = {}  # by how many keys each is wanted
        self._own: dict[str, None] = {}  # of these, wanted by a key without params too: no probes
        self._located: set[Key] = set()
        self._probed: set[str] = set()  # asked plainly to find out the form, and dropped since

    def want(self, key: Key) -> list[Key]:
        """Which keys to ask for in addition, now that this one is wanted."""
        if key in self._wanted:
            return []
        self._wanted.add(key)
        name, params = key
        asked: list[Key] = []
        if params is None:
            self._own[name] = None
        if params is None or self.form is not RequestForm.LOCATORS:
            self._names[name] = self._names.get(name, 0) + 1
            if self._names[name] == 1:
                asked.append((name, None))
        if params is not None and (self.form is not RequestForm.NAMES or self._is_probe(name)):
            self._located.add(key)
            asked.append(key)
        return asked

    def want_all(self, keys: dict[Key, None]) -> dict[Key, None]:
        """What `want` does for each, where nothing is wanted yet and every key is asked for as it is."""
        plain = dict.fromkeys(name for name, params in keys if params is None)
        self._wanted.update(keys)
        self._own.update(plain)
        self._names.update(dict.fromkeys(plain, 1))
        self._located.update(keys if not plain else (key for key in keys if key[1] is not None))
        return keys

    def unwant(self, key: Key) -> list[Key]:
        """Which keys to give up, now that this one is not wanted."""
        if key not in self._wanted:
            return []
        self._wanted.discard(key)
        name, params = key
        dropped: list[Key] = []
        if key in self._located:
            self._located.discard(key)
            dropped.append(key)
        if params is None:
            self._own.pop(name, None)
        if name in self._names and (params is None or self.form is not RequestForm.LOCATORS):
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
                dropped.append((name, None))
        return dropped

    def decide(self, form: RequestForm) -> list[Key]:
        """The form is known: which keys to give up for that.

        A server that is asked by names from now on has the locators already, and ignores them. If it was only slow, it
        answers them after all.
        """
        self.form = form
        if form is not RequestForm.LOCATORS:
            return []
        probed = [name for name in self._names if name not in self._own]
        self._probed.update(probed)
        self._names = dict.fromkeys(self._own, 1)
        return [(name, None) for name in probed]

    def never_asked_for_all(self) -> None:
        """The plain wildcard among the probes was no question to a server that understands locators."""
        self._probed.discard(WILDCARD)

    @property
    def has_probed(self) -> bool:
        return bool(self._probed)

    @property
    def has_locators(self) -> bool:
        return bool(self._located)

    def is_probed(self, name: str) -> bool:
        """Whether a plain answer of this name is one to a question that was asked only to find out the form.

        In SotW a plain answer of an unknown type has no name.
        """
        if not name:
            return bool(self._probed) and not self._own
        return name not in self._own and (name in self._probed or WILDCARD in self._probed)

    def _is_probe(self, name: str) -> bool:
        return self._probes and not any((other == WILDCARD) == (name == WILDCARD) for other, _ in self._located)


def worded(wording: RequestKeys, keys: Iterable[Key]) -> dict[Key, None]:
    """What to begin a stream with."""
    if wording.form is RequestForm.LOCATORS:
        return wording.want_all(dict.fromkeys(keys))
    return dict.fromkeys(asked for key in keys for asked in wording.want(key))
