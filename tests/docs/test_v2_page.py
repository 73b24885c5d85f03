"""docs/v2.md: the table is what the protos say."""

from __future__ import annotations

from scripts import v2_fields


def _pairs(fields: dict[str, tuple[str, ...]]) -> set[tuple[str, str]]:
    return {(name, field) for name, listed in fields.items() for field in listed}


# VER-4
def test_the_fields_that_v2_has_not_are_listed():
    page = v2_fields.PAGE.read_text()
    assert f"By the protos of Envoy {v2_fields.release()}:" in page
    assert _pairs(v2_fields.told(page)) == _pairs(v2_fields.lacking()), "run scripts/v2_fields.py"


# VER-4
def test_the_text_about_two_other_fields_is_true():
    page = v2_fields.PAGE.read_text()
    assert [field for fields in v2_fields.CHANGED.values() for field in fields] == ["receive", "quic_protocol_options"]
    assert all(f"`{field}`" in page for fields in v2_fields.CHANGED.values() for field in fields)
