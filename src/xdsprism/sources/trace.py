"""Maps a path in a variant's contents back to the path in the template that produced it.

Compiling a template drops `$when` and the elements that it excludes, and replaces `$match` by one of its values. So a
path in the contents of a variant is not a path in the document. Only errors need the way back, so `trace` searches
for it when there is an error, by comparing contents and template, instead of recording it for every node.
"""

from __future__ import annotations

from typing import Any

from ..core.model.template import MATCH, WHEN
from ..messages.document import Path, spelling


def trace(template: Any, contents: Any, path: Path) -> Path:
    """Return the path in `template` of what stands at `path` in `contents`."""
    found: list[str | int] = []
    for index, step in enumerate(path):
        if step == 0 and not isinstance(contents, list):  # the only element, written without a list
            continue
        template = _enter_match(template, contents, found)
        place = _steps(template, contents, step)
        if place is None:
            return (*found, *path[index:])
        there, here = place
        found.append(there)
        template, contents = template[there], contents[here]
    _enter_match(template, contents, found)
    return tuple(found)


def _steps(template: Any, contents: Any, step: str | int) -> tuple[Any, Any] | None:
    """Return the step to take in the template, and the one in the contents; None if they differ too much."""
    if isinstance(template, dict) and isinstance(contents, dict) and isinstance(step, str):
        key = spelling(contents, step)
        return (key, key) if key in template and key in contents else None
    if isinstance(template, list) and isinstance(contents, list) and isinstance(step, int) and step < len(contents):
        return _element(template, contents, step), step
    return None


def _enter_match(template: Any, contents: Any, found: list[str | int]) -> Any:
    """Step into the branch of a `$match` that produced the contents, and add the steps to `found`."""
    while isinstance(template, dict) and MATCH in template:
        values = [entry["value"] for entry in template[MATCH]]
        index = next((index for index, value in enumerate(values) if _can_produce(value, contents)), None)
        if index is None:
            break
        found += [MATCH, index, "value"]
        template = values[index]
    return template


def _can_produce(template: Any, contents: Any) -> bool:
    """Whether a template compiles to these contents for some constraint."""
    if template is contents:
        return True
    if isinstance(template, dict) and MATCH in template:
        return any(_can_produce(entry["value"], contents) for entry in template[MATCH])
    if isinstance(template, dict):
        return isinstance(contents, dict) and _can_produce_mapping(template, contents)
    if isinstance(template, list):
        return isinstance(contents, list) and _aligned(template, contents) is not None
    return type(template) is type(contents) and bool(template == contents)


def _can_produce_mapping(template: dict[Any, Any], contents: dict[Any, Any]) -> bool:
    for key, value in template.items():
        if key not in contents and key != WHEN and not (isinstance(value, dict) and MATCH in value):
            return False
    return all(key in template and _can_produce(template[key], value) for key, value in contents.items())


def _aligned(template: list[Any], contents: list[Any]) -> list[int] | None:
    """Find for each element of the contents the first element of the template that can produce it, in order."""
    indices: list[int] = []
    start = 0
    for value in contents:
        index = next((at for at in range(start, len(template)) if _can_produce(template[at], value)), None)
        if index is None:
            return None
        indices.append(index)
        start = index + 1
    return indices


def _element(template: list[Any], contents: list[Any], step: int) -> int:
    """Return the index in the template of an element of the contents; a guess if they don't align."""
    aligned = _aligned(template, contents)
    return aligned[step] if aligned is not None else min(step, len(template) - 1)
