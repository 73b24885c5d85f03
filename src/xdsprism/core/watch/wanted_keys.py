"""Keep which keys of one type are wanted on one stream, and which of them the server was told of.

Both kinds of requests (requests.py) are made from this: the wanted keys, and what changed since the last request.

A wildcard has two spellings: `*`, which newer servers know, and an empty list of names in the first request of the
type, which every server knows (WLD-1). `is_nameless` says that the stream uses the second one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model.dialect import RequestForm
from ..model.events import WILDCARD, Key
from ..model.types import TypeSpec

ALL = Key(WILDCARD)


class WantedKeys:
    """The wanted keys of one type, and how they differ from those that the last request said."""

    __slots__ = ("_spec", "dropped", "form", "has_begun", "is_nameless", "unsent", "wanted")

    def __init__(self, spec: TypeSpec, wanted: Mapping[Key, None], form: RequestForm) -> None:
        self.form = form  # with UNKNOWN, a name and its locators are one subscription in two forms
        self.wanted = dict(wanted)
        self.unsent = dict(wanted)  # wanted, and in no request yet
        self.dropped: dict[Key, None] = {}  # unwanted, and no request has unsubscribed them yet
        self.has_begun = False  # the first request was sent
        self.is_nameless = False  # the server still reads an empty list of names as a wildcard
        self._spec = spec

    def add(self, key: Key) -> bool:
        """Want a key; return whether that is a change."""
        if key in self.wanted:
            return False
        self.wanted[key] = None
        self.unsent[key] = None
        return True

    def remove(self, key: Key) -> bool:
        """Want a key no more, and just forget it if it was never sent; return whether that is a change."""
        if key not in self.wanted:
            return False
        del self.wanted[key]
        if key in self.unsent:
            del self.unsent[key]
        else:
            self.dropped[key] = None
        return True

    def note_sent(self) -> None:
        """Note that the requests made now say everything that changed."""
        self.unsent.clear()
        self.dropped.clear()

    def decide(self, form: RequestForm, retracted: Iterable[Key]) -> bool:
        """Set the form, and unsubscribe from the keys that only served to find it out.

        Return whether a plain wildcard among them never reached the server: one that understands locators does not read
        an empty list of names beside locators as a wildcard.
        """
        self.form = form
        unsaid = False
        wanted, unsent, dropped = self.wanted, self.unsent, self.dropped
        for key in retracted:  # there may be as many as there are names: this is `remove` without its calls
            if key == ALL:
                if not (self.is_nameless and key in wanted):
                    self.remove(key)
                    continue
                unsaid = True
                del wanted[key]
                unsent.pop(key, None)
            elif key in wanted:
                del wanted[key]
                if key in unsent:
                    del unsent[key]
                else:
                    dropped[key] = None
        self.is_nameless = self.is_nameless and not unsaid
        return unsaid

    @property
    def says_names(self) -> bool:
        """Whether the stream subscribes to anything by a plain name."""
        return any(params is None and (name != WILDCARD or not self.is_nameless) for name, params in self.wanted)

    @property
    def has_wildcard(self) -> bool:
        """Whether the plain wildcard is wanted, of a type that has one."""
        return self._spec.wildcard and ALL in self.wanted

    @property
    def is_all(self) -> bool:
        """Whether a request without names says everything that is wanted.

        Unless the form is LOCATORS, a locator of the wildcard beside the plain one is the same subscription in another
        form.
        """
        if not self.has_wildcard:
            return False
        if self.form is RequestForm.LOCATORS:
            return len(self.wanted) == 1
        return all(name == WILDCARD for name, _ in self.wanted)

    @property
    def needs_stream(self) -> bool:
        """Whether a wildcard is wanted that can't be subscribed to on this stream any more.

        A server that knows only names may read `*` as the name of a resource, and an empty list after names as no
        subscription at all (WLD-5). So the wildcard has to come first, on a new stream.
        """
        return self.has_wildcard and self.form is RequestForm.NAMES and self.has_begun and not self.is_nameless

    @property
    def has_returned(self) -> bool:
        """Whether a key was dropped and is wanted again since the last request.

        If one request said both, the server would see no change and send nothing.
        """
        return not self.unsent.keys().isdisjoint(self.dropped)
