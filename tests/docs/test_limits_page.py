"""docs/limits.md: the limits are those of the code."""

from __future__ import annotations

import re
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import get_args

from xdsprism.admin.client_model import BODIES, LARGEST
from xdsprism.core.model.limits import Limits, RefusalKind
from xdsprism.core.session.refusals import PENDING_BYTES
from xdsprism.core.session.resource_status import LOOKED_AT
from xdsprism.serving import RECEIVE_BYTES

PAGE = (Path(__file__).parents[2] / "docs/limits.md").read_text()
ROWS = {row[1]: row[2] for row in re.finditer(r"^\| `(\w+)` \| [^|]+ \| ([\d,]+) \|$", PAGE, re.MULTILINE)}


def test_every_limit_that_refuses_a_subscription_is_on_the_page_in_the_order_of_the_code() -> None:
    # DYN-46
    assert list(ROWS) == [kind for kind in get_args(RefusalKind) if kind != "utf8"]
    assert "\n| `utf8` |" in PAGE  # which has no number


def test_each_default_is_what_the_page_says() -> None:
    # DYN-46
    defaults = {field.name: field.default for field in fields(Limits)}
    defaults["type_url_bytes"] = defaults["name_bytes"]
    assert {name: int(told.replace(",", "")) for name, told in ROWS.items()} == {name: defaults[name] for name in ROWS}
    assert f"`unresolved` ({defaults['unresolved']:,})" in PAGE
    assert f"{PENDING_BYTES >> 20} MiB of names" in PAGE
    assert f"a message above {RECEIVE_BYTES >> 20} MiB" in PAGE


def test_the_limits_on_streams_and_connections_are_on_the_page_with_their_defaults() -> None:
    # OPS-3, OPS-4
    told = {row[1]: row[2] for row in re.finditer(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)}
    defaults = {field.name: field.default for field in fields(Limits)}
    assert set(told) <= set(defaults)
    for name, text in told.items():
        value = defaults[name]
        assert text == "off" if value == inf else "three quarters" in text if value is None else text == f"{value:,.0f}"


def test_every_limit_has_a_place_on_the_page() -> None:
    for field in fields(Limits):
        assert f"`{field.name}`" in PAGE, field.name


def test_the_bounds_of_the_page_of_one_client_are_those_of_the_code() -> None:
    # OPS-10
    assert f"`/api/client` looks at {LOOKED_AT:,} resources" in PAGE
    assert f"shows the contents of {BODIES}, up to {LARGEST:,} bytes each." in " ".join(PAGE.split())
