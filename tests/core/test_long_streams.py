"""The memory of a stream that lives for days."""

from __future__ import annotations

from tests.core.support import Bench
from xdsprism.core.model.types import Params


def test_a_stream_that_goes_on_for_long_keeps_no_more_than_it_wants():
    # OPS-7
    bench = Bench()
    delta, sotw = bench.delta(), bench.sotw()
    for number in range(300):
        bench.put(f"eds n{number}=1; cds n{number}=1")
        delta.ask(f"eds +n{number} +m{number}{{}} +*{{k=v{number}}}")
        sotw.ask(f"eds n{number} *{{k=v{number}}}")
        delta.poll()
        sotw.poll()
        delta.ask("eds nack" if number % 2 else "eds ack")
        sotw.ask("eds nack" if number % 2 else "eds ack")
        delta.poll()
        delta.ask("ack")
        bench.put(f"eds -n{number}; cds -n{number}")
        delta.ask(f"eds -n{number} -m{number}{{}} -*{{k=v{number}}}")
        delta.poll()
        sotw.poll()
    session = delta.session("eds")
    assert [*session.subscriptions] == []
    assert not session.is_pending
    assert not any([session.leaving, session.rejections, session.isolation])
    session = sotw.session("eds")
    assert [*session.subscriptions] == [("*", Params({"k": "v299"})), ("n299", None)]
    assert [*session.view.everything()] == []
    assert len(session.isolation) <= 2
