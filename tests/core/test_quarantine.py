"""Quarantine: the subscription that makes a server end the stream is found, and not repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from xdsprism import CLUSTER
from xdsprism.core.watch.quarantine import OFTEN, PAUSE, RETRY, SETTLED, Quarantine, Question


def question(name: str) -> Question:
    return ("type", (name, None))


def name_of(asked: Question) -> str:
    return asked[1][0]


class Server:
    """Ends the stream when it is asked for something bad; answers what is good unless it is silent."""

    def __init__(
        self,
        bad: Collection[str],
        *,
        silent: Collection[str] = (),
        status: str = "INVALID_ARGUMENT",
        refuses_all: bool = False,
    ) -> None:
        self.quarantine = Quarantine()
        self.now = 0.0
        self.wanted: dict[str, None] = {}
        self.ends = 0
        self.found: list[str] = []
        self.answered: set[str] = set()
        self.asked_last: list[list[str]] = []  # on the newest stream
        self.refuses_all = refuses_all
        self.bad = bad
        self._silent = silent
        self._status = status

    def open(self) -> None:
        self.quarantine.opened()
        self.answered.clear()
        self.asked_last.clear()
        self._ask([name for name in self.wanted if not self.quarantine.keeps(question(name))])

    def want(self, *names: str) -> None:
        admitted = [name for name in names if self.quarantine.admits(question(name))]
        self.wanted.update(dict.fromkeys(names))
        self._ask(admitted)

    def unwant(self, name: str) -> None:
        del self.wanted[name]
        self.quarantine.drop(question(name))

    def run(self, seconds: float) -> None:
        """Whatever is due, until the time is over. A stream that ended is followed by another after a second."""
        until = self.now + seconds
        while (due := self.quarantine.due) is not None and max(due, self.now) <= until:
            self.now = max(due, self.now)
            self._ask([name for name in self._released() if name in self.wanted])
        self.now = until

    def _released(self) -> list[str]:
        return [name_of(each) for each in self.quarantine.release(self.now, self._is_open)]

    def _is_open(self, asked: Question) -> bool:
        return name_of(asked) in self.wanted and name_of(asked) not in self.answered

    def _ask(self, names: list[str]) -> None:
        if not names:
            return
        self.quarantine.asked("type", [(name, None) for name in names], self.now)
        self.asked_last.append(names)
        good = [name for name in names if name not in self.bad and name not in self._silent and not self.refuses_all]
        if self.refuses_all or not set(self.bad).isdisjoint(names):
            self.end(self._status)
        elif good:
            self.answered.update(good)
            self.quarantine.note_response()

    def end(self, status: str) -> None:
        self.ends += 1
        found = self.quarantine.ended(status, f"{status}: no", self.now, self._is_open)
        self.found += [name_of(found.question)] if found is not None else []
        self.now += 1
        self.open()


def names(count: int, prefix: str = "good") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def flat(asked: Iterable[list[str]]) -> list[str]:
    return [name for group in asked for name in group]


def test_one_that_ends_a_stream_again_when_it_is_alone_is_quarantined_and_not_asked_again() -> None:
    # PRX-35
    server = Server({"bad"})
    server.open()
    server.want(*names(3))
    server.want("bad")
    server.run(60)
    assert (server.found, server.ends) == (["bad"], 2)
    server.run(RETRY / 2)
    assert server.ends == 2
    assert flat(server.asked_last) == names(3)


def test_a_suspect_is_asked_after_all_others_were_asked_and_answered() -> None:
    # PRX-35
    server = Server({"bad"}, silent={"slow"})
    server.open()
    server.want("a", "slow")
    server.run(SETTLED)
    server.want("bad")
    assert server.asked_last == [["a", "slow"]]
    server.run(SETTLED - 0.1)
    assert server.ends == 1
    server.run(0.2)
    assert server.ends == 2


@pytest.mark.parametrize("bad", [{"good0"}, {"good511"}, {"good300"}, {"good3", "good400"}])
@pytest.mark.parametrize("silent", [False, True])
def test_bad_names_among_a_thousand_are_found_by_halves(bad: set[str], silent: bool) -> None:
    # PRX-35
    many = names(1000)
    server = Server(bad, silent=[name for name in many if name not in bad] if silent else ())
    server.wanted.update(dict.fromkeys(many))
    server.open()
    server.run(RETRY / 2)
    assert {*server.found} == bad
    assert server.ends <= 20 * len(bad)
    assert {*flat(server.asked_last)} == {*many} - bad


def test_a_quarantined_name_is_asked_once_more_after_ten_minutes() -> None:
    # PRX-35
    server = Server({"bad"})
    server.open()
    server.want("a")
    server.want("bad")
    server.run(RETRY + 60)
    assert (server.found, server.ends) == (["bad", "bad"], 3)
    server.bad = ()  # somebody has put the server right
    server.run(RETRY + 60)
    assert server.ends == 3
    assert "bad" in server.answered


def test_a_quarantined_name_that_is_wanted_again_does_not_end_the_stream_again() -> None:
    # PRX-35
    server = Server({"bad"})
    server.open()
    server.want("a")
    server.want("bad")
    server.run(60)
    for _ in range(5):
        server.unwant("bad")
        server.run(1)
        server.want("bad")
        server.run(20)
    assert server.ends == 2


def test_a_server_that_ends_every_stream_is_not_the_fault_of_a_subscription() -> None:
    # PRX-35: nothing is quarantined, and all are asked soon after it is well again
    server = Server((), refuses_all=True)
    server.quarantine.opened()
    server.wanted.update(dict.fromkeys(names(64)))
    opened = server.open

    def open_later() -> None:
        if server.ends < 20:
            opened()

    server.open = open_later  # type: ignore[method-assign]
    open_later()
    server.run(600)
    assert server.found == []
    server.refuses_all = False
    opened()
    server.run(60)
    assert {*flat(server.asked_last)} == {*names(64)}


@pytest.mark.parametrize("status", ["UNAVAILABLE", "OK", "CANCELLED", "UNAUTHENTICATED", "PERMISSION_DENIED"])
def test_an_end_that_blames_nothing_that_was_asked_changes_nothing(status: str) -> None:
    # PRX-35
    server = Server((), silent={"a"})
    server.open()
    server.want("a")
    for _ in range(4):
        server.end(status)
    assert (server.found, server.asked_last, server.quarantine.due) == ([], [["a"]], None)


@pytest.mark.parametrize("status", ["INTERNAL", "UNKNOWN"])
def test_an_end_that_may_be_a_fault_of_the_server_blames_what_comes_before_it_twice(status: str) -> None:
    # PRX-35
    server = Server((), silent={"b"})
    server.open()
    server.want("a")
    server.run(60)
    server.want("b")
    server.end(status)
    assert not server.quarantine.keeps(question("b"))
    server.end(status)
    assert server.quarantine.keeps(question("b"))
    assert not server.quarantine.keeps(question("a"))
    server.run(60)
    assert server.found == []  # it was not the reason
    assert flat(server.asked_last) == ["a", "b"]


def test_a_name_that_was_asked_long_before_the_end_is_no_suspect() -> None:
    # PRX-35
    server = Server((), silent={"a"})
    server.open()
    server.want("a")
    server.run(SETTLED)
    server.quarantine.asked(CLUSTER, (), server.now)  # the next request, with nothing new in it
    server.end("INVALID_ARGUMENT")
    assert not server.quarantine.keeps(question("a"))


def test_a_new_name_waits_while_another_is_suspected() -> None:
    # PRX-35: so it is known what ended the stream
    server = Server({"bad"})
    server.open()
    server.want("a")
    server.want("bad")
    server.want("late")
    assert "late" not in flat(server.asked_last)
    server.run(60)
    assert server.found == ["bad"]
    assert "late" in server.answered


def test_a_flood_of_bad_ones_ends_streams_less_and_less_often() -> None:
    # PRX-35
    bad = names(500, "bad")
    server = Server({*bad})
    server.open()
    server.want("a")
    for name in bad:
        server.want(name)
        server.run(0.01)
    server.run(RETRY)
    assert server.ends <= OFTEN + RETRY / PAUSE + 1
    assert "a" in server.answered


def test_no_more_is_remembered_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    # PRX-35
    monkeypatch.setattr("xdsprism.core.watch.quarantine.REMEMBERED", 3)
    server = Server({*names(5, "bad")})
    server.open()
    server.want("a")
    for name in names(5, "bad"):
        server.want(name)
        server.run(20)
        server.unwant(name)
    assert [name_of(each.question) for each in server.quarantine.held] == ["bad2", "bad3", "bad4"]


def test_names_that_are_not_wanted_any_more_are_not_kept_back() -> None:
    server = Server({"bad"})
    server.open()
    server.want("a")
    server.want("bad")
    server.want(*names(10))
    for name in names(10):
        server.unwant(name)
    assert not any(server.quarantine.keeps(question(name)) for name in names(10))
