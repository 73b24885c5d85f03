"""Renders the templates of a Helm chart, as far as the chart in deploy/helm uses them; anything else is an error.

`make interop` renders it with Helm itself, and compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"(\s*){{-\s*(.*?)\s*(?:-}}(\s*)|}})|{{\s*(.*?)\s*(?:-}}(\s*)|}})", re.DOTALL)


def render(chart: Path, name: str, values: Mapping[str, Any]) -> list[Any]:
    """Return the objects that `helm template NAME CHART` prints, with these values in place of the chart's."""
    scope = {"Values": yaml.safe_load((chart / "values.yaml").read_text()) | values, "Release": {"Name": name}}
    objects: list[Any] = []
    for path in sorted((chart / "templates").iterdir()):
        objects += [each for each in yaml.safe_load_all(_rendered(path.read_text(), scope)) if each is not None]
    return objects


def _rendered(template: str, scope: Mapping[str, Any]) -> str:
    out: list[str] = []
    shown = [True]  # for each open `if`: whether its part is printed
    at = 0
    for match in _ACTION.finditer(template):
        trims = match[2] is not None
        text = template[at : match.start()]
        at = match.end()
        action = match[2] if trims else match[4]
        if all(shown):
            out.append(text)
        if action.startswith("if "):
            shown.append(_condition(action.removeprefix("if "), scope))
        elif action == "else":
            shown[-1] = not shown[-1]
        elif action == "end":
            shown.pop()
        elif all(shown):
            out.append(_value(action, scope))
    assert shown == [True], "an `if` without `end`"
    return "".join(out) + template[at:]


def _condition(text: str, scope: Mapping[str, Any]) -> bool:
    return not _find(text.removeprefix("not "), scope) if text.startswith("not ") else bool(_find(text, scope))


def _value(pipeline: str, scope: Mapping[str, Any]) -> str:
    first, *filters = [part.strip() for part in pipeline.split("|")]
    if first.startswith("toYaml "):
        found = yaml.safe_dump(_find(first.removeprefix("toYaml "), scope), sort_keys=False).rstrip()
    else:
        found = str(_find(first, scope))
    for each in filters:
        word, _, argument = each.partition(" ")
        if word == "quote":
            found = json.dumps(found)
        elif word == "nindent":
            found = "\n" + "\n".join(" " * int(argument) + line for line in found.splitlines())
        else:
            raise AssertionError(f"{each}: not a function that this knows")
    return found


def _find(path: str, scope: Mapping[str, Any]) -> Any:
    assert re.fullmatch(r"(\.\w+)+", path), f"{path}: not a value that this can find"
    found: Any = scope
    for word in path.split(".")[1:]:
        found = found[word]
    return found
