"""Which fields of v3 there were not in v2, for each message that there was: the table in docs/v2.md.

    v2_fields.py    write the table anew, from the protos that come with the package

What clients of v2 get is the same on the wire, field by field; they skip these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from google.protobuf.descriptor import Descriptor

from xdsprism.messages.api_versions import v2_name
from xdsprism.messages.descriptors import shipped
from xdsprism.messages.protos import find_message

PAGE = Path(__file__).parents[1] / "docs" / "v2.md"
MODULES = Path(__file__).parent / "descriptors" / "go.mod"
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
    lines = [f"By the protos of Envoy {release()}:", "", "| message | fields that v2 has not |", "|---|---|"]
    lines += [f"| `{name}` | {', '.join(fields)} |" for name, fields in lacking().items()]
    return "\n".join(lines) + "\n"


def release() -> str:
    """Of the Envoy whose protos come with the package."""
    (found,) = re.findall(r"go-control-plane/envoy v(\S+)", MODULES.read_text())
    return str(found)


def told(page: str) -> dict[str, tuple[str, ...]]:
    """What a page says, in the form of `lacking`."""
    rows = [line.split("|") for line in page.partition(MARK)[2].splitlines() if line.startswith("| `")]
    return {cells[1].strip(" `"): tuple(cells[2].strip().split(", ")) for cells in rows}


def _messages() -> Iterator[Descriptor]:
    library = shipped()
    for package in sorted(library.packages()):
        for name in library.messages_of(package) if package.startswith("envoy.") else ():
            found = find_message(f"{package}.{name}")
            if found is not None:
                yield from _with_nested(found.DESCRIPTOR)


def _with_nested(descriptor: Descriptor) -> Iterator[Descriptor]:
    yield descriptor
    for nested in descriptor.nested_types:
        yield from _with_nested(nested)


if __name__ == "__main__":
    before = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(before + MARK + "\n" + table())
