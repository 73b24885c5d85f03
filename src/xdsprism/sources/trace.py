"""From a place in a variant's contents back to the place in the template that it was written in.

Compiling drops `$when` and the elements that are not there, and puts values in place of `$match`, so that a path inside
the contents is not a path inside the document. Only errors need the way back, so it is searched when there is one,
by comparing the two, instead of being recorded for every node.
"""

from __future__ import annotations

from typing import Any

from ..core.model.template import MATCH, WHEN
from ..messages.document import Path, spelling


def trace(template: Any, contents: Any, path: Path) -> Path:
    """Find the place in `template` that gave what `path` leads to in `contents`."""
    found: list[str | int] = []
    for index, step in enumerate(path):
        if step == 0 and not isinstance(contents, list):  # the only element, written without a list
            continue
        template = _chosen(template, contents, found)
        place = _place(template, contents, step)
        if place is None:
            return (*found, *path[index:])
        there, here = place
        found.append(there)
        template, contents = template[there], contents[here]
    _chosen(template, contents, found)
    return tuple(found)


def _place(template: Any, contents: Any, step: str | int) -> tuple[Any, Any] | None:
    """Give the step to take in the template, and the one in the contents."""
    if isinstance(template, dict) and isinstance(contents, dict) and isinstance(step, str):
        key = spelling(contents, step)
        return (key, key) if key in template and key in contents else None
    if isinstance(template, list) and isinstance(contents, list) and isinstance(step, int) and step < len(contents):
        return _element(template, contents, step), step
    return None


def _chosen(template: Any, contents: Any, found: list[str | int]) -> Any:
    """Step into the branch of a `$match` that gave the contents."""
    while isinstance(template, dict) and MATCH in template:
        values = [entry["value"] for entry in template[MATCH]]
        index = next((index for index, value in enumerate(values) if _gives(value, contents)), None)
        if index is None:
            break
        found += [MATCH, index, "value"]
        template = values[index]
    return template


def _gives(template: Any, contents: Any) -> bool:
    """Tell whether a template can turn out as these contents, for some client."""
    if template is contents:
        return True
    if isinstance(template, dict) and MATCH in template:
        return any(_gives(entry["value"], contents) for entry in template[MATCH])
    if isinstance(template, dict):
        return isinstance(contents, dict) and _gives_mapping(template, contents)
    if isinstance(template, list):
        return isinstance(contents, list) and _aligned(template, contents) is not None
    return type(template) is type(contents) and bool(template == contents)


def _gives_mapping(template: dict[Any, Any], contents: dict[Any, Any]) -> bool:
    for key, value in template.items():
        if key not in contents and key != WHEN and not (isinstance(value, dict) and MATCH in value):
            return False
    return all(key in template and _gives(template[key], value) for key, value in contents.items())


def _aligned(template: list[Any], contents: list[Any]) -> list[int] | None:
    """Find for each element of the contents the first possible one of the template, in order."""
    indices: list[int] = []
    start = 0
    for value in contents:
        index = next((at for at in range(start, len(template)) if _gives(template[at], value)), None)
        if index is None:
            return None
        indices.append(index)
        start = index + 1
    return indices


def _element(template: list[Any], contents: list[Any], step: int) -> int:
    aligned = _aligned(template, contents)
    return aligned[step] if aligned is not None else min(step, len(template) - 1)
