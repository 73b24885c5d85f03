"""docs/transport.md: the limits are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xdsprism.http2.grpc import ALWAYS, INFLATED, RATIO
from xdsprism.http2.limits import MAX_REFUSALS, Limit, Limits, Times
from xdsprism.http2.outbound import LARGEST_WINDOW, TINY
from xdsprism.server.connection_limits import ADMIN_SHARE, MOST_ADMIN, RESERVE
from xdsprism.server.http_deadlines import HttpTimes
from xdsprism.serving import RECEIVE_BYTES
from xdsprism.token_bucket import Rate

PAGE = (Path(__file__).parents[2] / "docs/transport.md").read_text()
ROWS = {row[1]: row[3] for row in re.finditer(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)}
LIMITS, TIMES = Limits(), Times()

EXPECTED: dict[Limit, tuple[float | Rate, ...]] = {
    Limit.STREAMS: (LIMITS.streams,),
    Limit.HEADER_LIST: (LIMITS.header_bytes,),
    Limit.CONTINUATIONS: (LIMITS.continuations,),
    Limit.EMPTY_FRAMES: (LIMITS.empty_frames,),
    Limit.RESETS: (LIMITS.resets,),
    Limit.SETTINGS: (LIMITS.settings,),
    Limit.PINGS: (LIMITS.pings,),
    Limit.NOISE: (LIMITS.noise,),
    Limit.WINDOW_UPDATES: (LIMITS.window_updates,),
    Limit.TINY_WINDOWS: (LIMITS.tiny_frames,),
    Limit.WINDOW_OVERFLOW: (LARGEST_WINDOW,),
    Limit.UNREAD: (LIMITS.unread_bytes,),
    Limit.STALLED: (TIMES.stall,),
    Limit.PREFACE: (TIMES.preface,),
    Limit.KEEPALIVE: (TIMES.keepalive_timeout,),
    Limit.MESSAGE_SIZE: (RECEIVE_BYTES, INFLATED, RATIO, ALWAYS),
    Limit.UNFINISHED: (LIMITS.unfinished_bytes, LIMITS.all_unfinished_bytes),
    Limit.CONNECTIONS: (RESERVE,),
    Limit.ADDRESS: (),
    Limit.HANDSHAKES: (LIMITS.handshakes,),
    Limit.ADDRESS_HANDSHAKES: (),
    Limit.IDLE_CONNECTION: (TIMES.keepalive, TIMES.idle_connection),
    Limit.FIRST_REQUEST: (TIMES.first_request,),
}


def shown(value: float | Rate) -> str:
    return f"{value.burst:,} + {value.per_second:g}/s" if isinstance(value, Rate) else f"{value:,.0f}"


def test_every_limit_is_on_the_page_in_the_order_of_the_code() -> None:
    assert list(ROWS) == [limit.value for limit in Limit]


@pytest.mark.parametrize("limit", Limit)
def test_its_default_is_what_the_page_says(limit: Limit) -> None:
    told = re.findall(r"[\d,]+ \+ \d+/s|\d[\d,]*", ROWS[limit])
    assert told == [shown(value) for value in EXPECTED[limit]]


def test_the_times_of_a_connection_are_those_of_the_code() -> None:
    told = [float(each) for each in re.findall(r"^\| [^|`]+ \| (\d+) s \|$", PAGE, re.MULTILINE)]
    assert told == [TIMES.keepalive, TIMES.notice, TIMES.age_grace, TIMES.linger]
    assert TIMES.age == float("inf")
    assert f"less than {TINY} bytes" in PAGE


def test_the_times_and_numbers_of_the_http_ports_are_those_of_the_code() -> None:
    told = [float(each) for each in re.findall(r"^\| [^|`]+ \| (\d+) \|$", PAGE, re.MULTILINE)]
    times = HttpTimes()
    assert told == [times.header, times.idle, times.unread, times.answer]
    assert f"at most {MAX_REFUSALS} of them at once hear why, {MAX_REFUSALS // 2} of one address" in PAGE
    assert ADMIN_SHARE == 4
    assert f"a quarter of the reserve and at most {MOST_ADMIN} connections" in PAGE
