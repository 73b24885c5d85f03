"""Translate wanted subscriptions into the keys on the wire, in the form that the server understands (PRX-32).

A key is a name with params (a locator), or a name with None (a plain name). For a subscription to `foo` with params P:

    form      on the wire
    --------  ------------------------------------------------------------------------------
    LOCATORS  the locator (foo, P)
    NAMES     the plain name foo, once for all params; with probes, the first locator as well
    UNKNOWN   both, until the answer shows which of them the server understands
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.dialect import RequestForm
from ..model.events import WILDCARD, Key


class RequestKeys:
    """The keys of one type on one stream, derived from the wanted subscriptions.

    Several subscriptions may share one plain name, which is unsubscribed with the last of them.

    probes: when the server is asked by names, the first key with params and the first wildcard with params go out as
    locators too. An answer to one of them shows that the server understands locators now.
    """

    def __init__(self, form: RequestForm, *, probes: bool = False) -> None:
        self.form = form
        self._probes = probes
        self._wanted: set[Key] = set()
        self._names: dict[str, int] = {}  # plain names on the wire: how many subscriptions share each
        self._own: dict[str, None] = {}  # those of them that a subscription without params wants: they are no probes
        # Locators on the wire.
        self._located: set[Key] = set()
        self._probed: set[str] = set()  # plain names that only served to find out the form, unsubscribed since

    def want(self, key: Key) -> list[Key]:
        """Return the keys to subscribe to in addition, for one more subscription."""
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
                asked.append(Key(name))
        if params is not None and (self.form is not RequestForm.NAMES or self._is_probe(name)):
            self._located.add(key)
            asked.append(key)
        return asked

    def want_all(self, keys: dict[Key, None]) -> dict[Key, None]:
        """Do what `want` does for many keys: only when nothing is wanted yet and the form is LOCATORS."""
        plain = dict.fromkeys(name for name, params in keys if params is None)
        self._wanted.update(keys)
        self._own.update(plain)
        self._names.update(dict.fromkeys(plain, 1))
        self._located.update(keys if not plain else (key for key in keys if key.is_locator))
        return keys

    def unwant(self, key: Key) -> list[Key]:
        """Return the keys to unsubscribe from, for one subscription less."""
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
                dropped.append(Key(name))
        return dropped

    def decide(self, form: RequestForm) -> list[Key]:
        """Set the form; return the keys to unsubscribe from for that.

        With LOCATORS these are the plain names that only probed. With NAMES there are none: the server ignores the
        locators that it has. If it was only slow, it answers them after all.
        """
        self.form = form
        if form is not RequestForm.LOCATORS:
            return []
        probed = [name for name in self._names if name not in self._own]
        self._probed.update(probed)
        self._names = dict.fromkeys(self._own, 1)
        return [Key(name) for name in probed]

    def never_asked_for_all(self) -> None:
        """Forget the plain wildcard among the probes, which was an empty list of names beside locators.

        A server that understands locators did not read that as a wildcard.
        """
        self._probed.discard(WILDCARD)

    @property
    def has_probed(self) -> bool:
        """Whether plain names were sent only to find out the form."""
        return bool(self._probed)

    @property
    def has_locators(self) -> bool:
        """Whether the stream has any locator, which a server might refuse."""
        return bool(self._located)

    def is_probed(self, name: str) -> bool:
        """Whether a plain answer with this name answers a probe, so that it is for no entry.

        In SotW a plain answer of a type that is not known here has no name.
        """
        if not name:
            return bool(self._probed) and not self._own
        return name not in self._own and (name in self._probed or WILDCARD in self._probed)

    def _is_probe(self, name: str) -> bool:
        """Whether a key with params goes out as a locator too: the first name does, and the first wildcard."""
        return self._probes and not any((other == WILDCARD) == (name == WILDCARD) for other, _ in self._located)


def worded(wording: RequestKeys, keys: Iterable[Key]) -> dict[Key, None]:
    """Return the keys to begin a stream with."""
    if wording.form is RequestForm.LOCATORS:
        return wording.want_all(dict.fromkeys(keys))
    return dict.fromkeys(asked for key in keys for asked in wording.want(key))
