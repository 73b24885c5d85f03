"""docs/v2.md: the table is what the protos say."""

from __future__ import annotations

import re
from importlib.metadata import version

from scripts import v2_fields


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d+", release))


def _pairs(fields: dict[str, tuple[str, ...]]) -> set[tuple[str, str]]:
    return {(name, field) for name, listed in fields.items() for field in listed}


# VER-4
def test_the_fields_that_v2_has_not_are_listed():
    """Newer protos may have more of them, which is no fault of a page that says which it was made of."""
    page = v2_fields.PAGE.read_text()
    (made_of,) = re.findall(r"^By xds-protos (\S+):$", page, re.MULTILINE)
    told, lacking = _pairs(v2_fields.told(page)), _pairs(v2_fields.lacking())
    assert not told - lacking
    assert told == lacking or _numbers(version("xds-protos")) > _numbers(made_of), "run scripts/v2_fields.py"


# VER-4
def test_what_is_said_of_two_other_fields_is_so():
    page = v2_fields.PAGE.read_text()
    assert [field for fields in v2_fields.CHANGED.values() for field in fields] == ["receive", "quic_protocol_options"]
    assert all(f"`{field}`" in page for fields in v2_fields.CHANGED.values() for field in fields)
