"""Writes documents as YAML, and shows line by line how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from .printable import printable, printable_json

CONTEXT = 3  # unchanged lines around a change


def yaml_text(document: Any) -> str:
    """Return a document as YAML, with its first line `---`, and with control characters escaped."""
    import yaml  # noqa: PLC0415 # only some commands and pages need it

    text = yaml.dump(document, Dumper=_dumper(), sort_keys=False, allow_unicode=True, explicit_start=True, width=120)
    return printable_json(text)


def difference(before: Any, after: Any, before_label: str, after_label: str, most: int) -> Iterator[str]:
    """Yield the lines of a unified difference, as `diff -u` has them; None stands for no document.

    most: lines of a document that are compared, as the time may grow with the square of what differs
    """
    from difflib import unified_diff  # noqa: PLC0415

    labels = printable(before_label), printable(after_label)
    yield from unified_diff(_lines(before, most), _lines(after, most), *labels, n=CONTEXT, lineterm="")


def _lines(document: Any, most: int) -> list[str]:
    """Return a document as lines of YAML, the first ones of a very long one."""
    if document is None:
        return []
    lines = yaml_text(document).removeprefix("---\n").splitlines()
    more = len(lines) - most
    return [*lines[:most], f"# and {more:,} more lines"] if more > 0 else lines


@cache
def _dumper() -> Any:
    """A dumper that writes text of several lines as a block, as people do."""
    import yaml  # noqa: PLC0415

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # which of them depends on libyaml
        pass

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        if printable_json(value) != value:
            style = '"'  # where the escapes of JSON mean the same
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_multi_representer(dict, Dumper.represent_dict)  # json_format makes other mappings too
    return Dumper
