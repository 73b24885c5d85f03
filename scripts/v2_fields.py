"""Which fields of v3 there were not in v2, for each message that there was: the table in docs/v2.md.

    v2_fields.py    write the table anew, from the protos that are installed

What clients of v2 get is the same on the wire, field by field; they skip these.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import envoy
from google.protobuf.descriptor import Descriptor

from xdsprism.messages.protos import find_message
from xdsprism.messages.twins import v2_name

PAGE = Path(__file__).parents[1] / "docs" / "v2.md"
MARK = "<!-- scripts/v2_fields.py writes what follows -->\n"

# The same number is another thing in v2: v3 has a list in place of one, or a message that was moved into another.
CHANGED = {
    "envoy.config.core.v3.HealthCheck.HttpHealthCheck": ("receive",),
    "envoy.config.listener.v3.QuicProtocolOptions": ("quic_protocol_options",),
}


@cache
def lacking() -> dict[str, tuple[str, ...]]:
    """By message of v3 that has a twin, its fields that the twin has not."""
    found = {}
    for new in _messages():
        old = find_message(v2_name(new.full_name) or "")
        known = old.DESCRIPTOR.fields_by_number if old is not None else new.fields_by_number
        found[new.full_name] = tuple(field.name for field in new.fields if field.number not in known)
    return {name: fields for name, fields in sorted(found.items()) if fields}


def table() -> str:
    lines = [f"By xds-protos {version('xds-protos')}:", "", "| message | fields that v2 has not |", "|---|---|"]
    lines += [f"| `{name}` | {', '.join(fields)} |" for name, fields in lacking().items()]
    return "\n".join(lines) + "\n"


def told(page: str) -> dict[str, tuple[str, ...]]:
    """What a page says, in the form of `lacking`."""
    rows = [line.split("|") for line in page.partition(MARK)[2].splitlines() if line.startswith("| `")]
    return {cells[1].strip(" `"): tuple(cells[2].strip().split(", ")) for cells in rows}


def _messages() -> Iterator[Descriptor]:
    for place in envoy.__path__:
        for file in sorted(Path(place).rglob("*_pb2.py")):
            module = importlib.import_module(".".join(("envoy", *file.relative_to(place).with_suffix("").parts)))
            for top in module.DESCRIPTOR.message_types_by_name.values():
                yield from _with_nested(top)


def _with_nested(descriptor: Descriptor) -> Iterator[Descriptor]:
    yield descriptor
    for nested in descriptor.nested_types:
        yield from _with_nested(nested)


if __name__ == "__main__":
    before = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(before + MARK + "\n" + table())
