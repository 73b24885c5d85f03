"""For rules that hold in SotW and in delta: one test, run for both, and requests written out by hand."""

from __future__ import annotations

import pytest

from tests.core.support import Bench, Peer
from xdsprism.core.model.events import DeltaRequest, Key, Rejection, Send, SotwRequest
from xdsprism.core.model.facts import Acked, Nacked
from xdsprism.core.model.types import TypeUrl

both = pytest.mark.parametrize("mode", ["sotw", "delta"])

BAD = Rejection(3, "bad")


def connect(bench: Bench, mode: str, only_type: TypeUrl | None = None, **metadata: str) -> Peer:
    return (bench.delta if mode == "delta" else bench.sotw)(only_type, **metadata)


def wanting(mode: str, *keys: Key, nonce: str = "", error: Rejection | None = None) -> SotwRequest | DeltaRequest:
    """A request with these names, and whatever nonce and error."""
    return DeltaRequest(keys, nonce=nonce, error=error) if mode == "delta" else SotwRequest(keys, "", nonce, error)


def answer(peer: Peer, send: Send, error: Rejection | None = None, *, version: str = "") -> None:
    """Answer one response; what is wanted stays as it was."""
    wanted = peer.wanted.get(send.type_url, ())
    body = (
        DeltaRequest(nonce=send.nonce, error=error) if send.delta else SotwRequest(wanted, version, send.nonce, error)
    )
    peer.receive(send.type_url, body)


def judged(bench: Bench) -> list[tuple[str, str]]:
    """ACKs and NACKs, in the order in which they were counted."""
    return [(type(fact).__name__, fact.nonce) for fact in bench.facts if isinstance(fact, Acked | Nacked)]
