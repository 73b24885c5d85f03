"""A SotW full state that takes many steps, while the store changes between them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsprism.core.model.events import Key, Node, Request, Send, SotwRequest
from xdsprism.core.model.facts import Facts
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.steps import EVERY
from xdsprism.core.model.store import Applied, Store
from xdsprism.core.model.types import CLUSTER, make_variant
from xdsprism.core.serve.stream import Stream
from xdsprism.core.session.collecting import ROUNDS
from xdsprism.core.session.interest import Interest

PIECES = ROUNDS + 3
NAMES = [f"c{number}" for number in range(PIECES * EVERY)]


class Scene:
    """A client that wants names of which none exists yet."""

    def __init__(self) -> None:
        self._store, interest = Store(), Interest()
        self.stream = Stream(1, self._store, interest, Settings(resource_errors="all"), Facts(), delta=False)

        def tell(applied: Applied) -> None:
            for _ in interest.notify(applied.changes):
                self.stream.stir(None)

        self._store.listeners.append(tell)
        wanted = tuple(Key(name) for name in NAMES)
        self.stream.receive(Request(CLUSTER, SotwRequest(wanted=wanted), Node("n")), 0.0)

    def create(self, names: Sequence[str]) -> None:
        self._store.apply({(CLUSTER, name): (make_variant(CLUSTER, name, b""),) for name in names})

    def touch(self, names: Sequence[str]) -> None:
        """Have them come and go, so that the session looks at them once more."""
        self.create(names)
        self._store.apply({(CLUSTER, name): () for name in names})


def test_a_name_that_comes_in_the_last_pause_is_a_resource_and_no_error_any_more() -> None:
    # ERR-2, SOT-4: each look takes in one piece, as all others change meanwhile; the last look has no pause
    scene = Scene()
    work = scene.stream.polling(0.0)
    for look in range(ROUNDS + 1):
        for pause in range(PIECES - look):
            next(work)
            if pause == 0:
                scene.touch(NAMES[(look + 1) * EVERY :])
            if pause == 0 and look == ROUNDS:
                came = NAMES[look * EVERY : (look + 1) * EVERY]
                scene.create(came)
    sends: list[Send] = []
    while not sends:
        try:
            next(work)
        except StopIteration as done:
            sends = done.value
    (send,) = sends
    assert sorted(send.names) == sorted(came)
    assert {error.about.name for error in send.errors}.isdisjoint(came)
