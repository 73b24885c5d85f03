"""deploy/: the dashboard and the alert rules use metrics, labels and values of labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/xdsprism.json").read_text())
(GROUP,) = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
# tests/docs/test_metrics_page.py compares this page with what the daemons export.
PAGE = (ROOT / "docs/metrics.md").read_text()
ROWS = {row[1]: row for row in re.finditer(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\| \w+ \| ([^|]+) \|$", PAGE, re.MULTILINE)}

OF_PROMETHEUS = {"job", "instance"}  # labels that the scraper adds
WORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset"}
FUNCTIONS = {"sum", "min", "max", "rate", "increase", "time", "histogram_quantile"}
TOKEN = re.compile(
    r'\s+|(?P<string>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<number>\d+(?:\.\d+)?)'
    r"|(?P<name>[a-zA-Z_:][\w:]*)|(?P<sign>[!=<>~]=?~?|[-+*/%^(),{}])"
)


@dataclass
class Used:
    """What an expression refers to."""

    metrics: set[str] = field(default_factory=set)
    matchers: list[tuple[str, str, str, str]] = field(default_factory=list)  # metric, label, sign, value
    grouped: set[str] = field(default_factory=set)  # labels in `by (...)` and the like
    functions: set[str] = field(default_factory=set)


def tokens(expression: str) -> list[str]:
    found, at = [], 0
    while at < len(expression):
        match = TOKEN.match(expression, at)
        assert match is not None, f"not PromQL at {expression[at:]!r}"
        if match.lastgroup is not None:
            found.append(match[0])
        at = match.end()
    return found


def parsed(expression: str) -> Used:
    """Read as much of PromQL as the files use; anything else fails."""
    used, words = Used(), [*tokens(expression), "", ""]
    assert words.count("(") == words.count(")")
    assert words.count("{") == words.count("}")
    at = 0
    while words[at]:
        word, following = words[at], words[at + 1]
        if word in {"by", "without"}:
            end = words.index(")", at)
            used.grouped |= set(words[at + 2 : end]) - {","}
            at = end
        elif word in WORDS or not re.match(r"[a-zA-Z_]", word):
            pass
        elif following == "(" or following in {"by", "without"}:
            used.functions.add(word)
        else:
            used.metrics.add(word)
            if following == "{":
                end = words.index("}", at)
                parts = [part for part in words[at + 2 : end] if part != ","]
                used.matchers += [(word, *parts[start : start + 3]) for start in range(0, len(parts), 3)]
                at = end
        at += 1
    return used


def queries() -> Iterator[tuple[str, str]]:
    for rule in GROUP["rules"]:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def labels_of(metric: str) -> set[str]:
    """The labels of a series by the page; a histogram has three metrics by one name."""
    family = metric if metric in ROWS else re.sub(r"_(bucket|sum|count)$", "", metric)
    row = ROWS[family]
    assert family == metric or row[2] == "histogram", metric
    return set(re.findall(r"`(\w+)`", row[3])) | OF_PROMETHEUS | ({"le"} if metric.endswith("_bucket") else set())


def faults(expression: str) -> list[str]:
    """What an expression uses that does not exist."""
    used = parsed(expression)
    if unknown := {metric for metric in used.metrics if re.sub(r"_(bucket|sum|count)$", "", metric) not in ROWS} - set(
        ROWS
    ):
        return [f"no metric {metric}" for metric in sorted(unknown)]
    found = [f"no function {name}" for name in sorted(used.functions - FUNCTIONS)]
    known = set().union(*(labels_of(metric) for metric in used.metrics))
    found += [f"no label {label}" for label in sorted(used.grouped - known)]
    for metric, label, sign, value in used.matchers:
        if label not in labels_of(metric):
            found.append(f"{metric} has no label {label}")
        elif sign == "=" and f"`{value.strip(chr(34))}`" not in ROWS[metric][4]:
            found.append(f"{metric} has no {label} {value}")
    return found


@pytest.mark.parametrize(("where", "expression"), [*queries()])
def test_an_expression_uses_what_exists(where: str, expression: str):
    assert faults(expression) == [], where


def test_what_does_not_exist_is_noticed():
    assert faults("sum(xdsprism_nonsense)") == ["no metric xdsprism_nonsense"]
    assert faults('xdsprism_clients_by_state{colour="x"}') == ["xdsprism_clients_by_state has no label colour"]
    assert faults('xdsprism_clients_by_state{state="FINE"}') == ['xdsprism_clients_by_state has no state "FINE"']
    assert faults("sum by (port) (rate(xdsprism_nacks_total[5m]))") == ["no label port"]
    assert faults("summ(xdsprism_clients)") == ["no function summ"]
    assert faults("rate(xdsprism_push_ack_seconds_bucket[5m])") == []
    with pytest.raises(AssertionError, match="not PromQL"):
        faults("xdsprism_clients ; 1")


def test_there_are_six_alerts_and_each_says_what_to_do():
    assert re.findall(r"^\| `(Xds\w+)` \|", PAGE, re.MULTILINE) == [rule["alert"] for rule in GROUP["rules"]]
    assert len(GROUP["rules"]) == len({rule["alert"] for rule in GROUP["rules"]}) == 6
    for rule in GROUP["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert set(rule["annotations"]) == {"summary", "description"}
        used = parsed(rule["expr"])
        allowed = set().union(*(labels_of(metric) for metric in used.metrics))
        for text in rule["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= allowed


def test_each_panel_has_a_place_of_its_own_and_a_legend_of_labels_that_exist():
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            used = parsed(target["expr"])
            left = used.grouped or set().union(*(labels_of(metric) for metric in used.metrics))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= left, panel["title"]


def test_the_dashboard_asks_for_its_servers_by_a_metric_that_all_have():
    (servers,) = [each for each in DASHBOARD["templating"]["list"] if each["name"] == "instance"]
    found = re.fullmatch(r"label_values\((\w+), instance\)", servers["query"])
    assert found is not None
    assert f"| `{found[1]}` | gauge | `version`, `build`, `python` | both |" in PAGE
