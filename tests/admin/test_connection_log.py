"""Lines about clients that can never succeed, and how many of them."""

from __future__ import annotations

import logging

import pytest

from xdsprism.http2.facts import CallRefused, Cause, Connected, HandshakeFailed, RefusalCause
from xdsprism.observe.connection_log import INTERVAL, MEMORY, SHOWN, TOTAL, ConnectionLog


class Rig:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "xdsprism")
        self.now = 100.0
        self.reader = ConnectionLog(lambda: self.now)
        self._caplog = caplog

    def fail(self, address: str, cause: Cause = Cause.PLAIN, port: int = 1) -> None:
        self.reader([HandshakeFailed(f"ipv4:{address}:{port}", cause, "why")])

    def lines(self) -> list[str]:
        taken = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return taken


@pytest.fixture
def rig(caplog: pytest.LogCaptureFixture) -> Rig:
    return Rig(caplog)


def test_one_line_for_each_mistake_of_each_address(rig: Rig) -> None:  # OPS-15
    for port in range(100):
        rig.fail("1.1.1.1", port=port)
    rig.fail("1.1.1.1", Cause.TLS)
    rig.fail("2.2.2.2")
    lines = rig.lines()
    assert [line.split(" ")[0] for line in lines] == ["ipv4:1.1.1.1:0", "ipv4:1.1.1.1:1", "ipv4:2.2.2.2:1"]
    assert all(" can't be served: it speaks " in line for line in lines)


def test_after_the_interval_a_mistake_is_logged_again_with_its_count(rig: Rig) -> None:  # OPS-15
    for _ in range(5):
        rig.fail("1.1.1.1")
    rig.now += INTERVAL - 1
    rig.fail("1.1.1.1")
    assert len(rig.lines()) == 1
    rig.now += 1
    rig.fail("1.1.1.1")
    (line,) = rig.lines()
    assert line.endswith("(and 5 times since the last such line)")


def test_all_addresses_together_have_a_rate(rig: Rig) -> None:  # OPS-15
    for number in range(1_000):
        rig.fail(f"10.0.{number // 250}.{number % 250}")
    assert len(rig.lines()) == TOTAL.burst
    rig.now += 1 / TOTAL.per_second
    rig.fail("9.9.9.9")
    rig.fail("9.9.9.8")
    (line,) = rig.lines()
    assert line.endswith(f"({1_000 - TOTAL.burst} similar lines were omitted)")


def test_the_number_of_remembered_mistakes_is_bounded(rig: Rig) -> None:  # OPS-15
    for number in range(MEMORY + 5):
        rig.now += 1 / TOTAL.per_second
        rig.reader([CallRefused("ipv4:1.1.1.1:1", RefusalCause.METHOD, f"/{number}")])
    assert len(rig.reader._last_lines) == MEMORY  # noqa: SLF001 # the bound on what it remembers shows in memory only


def test_long_texts_of_a_client_are_cut(rig: Rig) -> None:  # OPS-15
    rig.reader([CallRefused("ipv4:1.1.1.1:1", RefusalCause.METHOD, "/" + "x" * 5_000)])
    (line,) = rig.lines()
    assert len(line) < SHOWN + 100


@pytest.mark.parametrize("mistake", [*Cause, *RefusalCause])
def test_every_mistake_has_words(rig: Rig, mistake: Cause | RefusalCause) -> None:  # OPS-15
    rig.reader(
        [
            CallRefused("p:1", mistake, "w")
            if isinstance(mistake, RefusalCause)
            else HandshakeFailed("p:1", mistake, "w")
        ]
    )
    (line,) = rig.lines()
    assert line.startswith("p:1 can't be served: ")


def test_a_client_that_connects_logs_no_warning(rig: Rig) -> None:  # OPS-15
    rig.reader([Connected("ipv4:1.1.1.1:1")])
    assert rig.lines() == []
