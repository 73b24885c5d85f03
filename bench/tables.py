"""From outcomes to text: the tables, the figures to reach, and their place in PERFORMANCE.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.measuring import Outcome
from bench.rounds import cheapest, cost, cost_ratio, fastest, rate, rate_ratio
from bench.scenarios import (
    BEFORE,
    COMPILED,
    EVERYBODY,
    FLOOR,
    GCP,
    GRPCIO,
    H2,
    OURS,
    PEERS,
    VARIANTS,
    Scenario,
    alone,
    among,
    fewer,
)

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
SCALES = {"µs": 1e6, "ms": 1e3}

Outcomes = Mapping[str, Outcome]  # by scenario


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown that reads well as plain text too; nothing, if there are no rows."""
    lines = [list(head), *[list(row) for row in rows]]
    if len(lines) == 1:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    rule = ["-" * width for width in widths]
    return "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])


def number(value: float) -> str:
    """Three digits say all that is known."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def costs(scenarios: Sequence[Scenario], outcomes: Outcomes) -> str:
    rows = []
    for scenario in _common(scenarios, outcomes):
        of = outcomes[scenario.key].rounds
        scale = SCALES[scenario.unit[:2]]
        cells = [number(cost(of[who]) * scale) if who in of else "" for who in _there(outcomes)]
        rows.append([f"{scenario.key}: {scenario.title}", scenario.unit, *cells])
    return table(["processor time of the server", "unit", *_there(outcomes)], rows)


def beside_before(scenarios: Sequence[Scenario], outcomes: Outcomes) -> str:
    """Each entry of ours beside the same on other sources: processor time and memory, and their ratios."""
    rows = []
    for scenario in scenarios:
        rounds, megabytes = outcomes[scenario.key].rounds, outcomes[scenario.key].megabytes
        scale = SCALES[scenario.unit[:2]]
        for label in [label for label in rounds if label.startswith(H2)]:
            other = label.replace(H2, BEFORE)
            now, before = cost(rounds[label]) * scale, cost(rounds[other]) * scale
            sizes = megabytes[label], megabytes[other]
            cells = [number(before), number(now), number(now / before)]
            rows.append(
                [
                    f"{scenario.key} {label}",
                    scenario.unit,
                    *cells,
                    *map(number, sizes[::-1]),
                    number(sizes[0] / sizes[1]),
                ]
            )
    return table(["processor time and memory", "unit", "before", "now", "ratio", "MB before", "MB now", "ratio"], rows)


def rates(scenarios: Sequence[Scenario], outcomes: Outcomes) -> str:
    rows = []
    for scenario in _common(scenarios, outcomes):
        of = outcomes[scenario.key].rounds
        rows.append([scenario.key, *[number(rate(of[who])) if who in of else "" for who in _there(outcomes)]])
    return table(["messages (S1-burst, S4: streams) a second", *_there(outcomes)], rows)


def memory(scenarios: Sequence[Scenario], outcomes: Outcomes) -> str:
    rows = []
    for scenario in _common(scenarios, outcomes):
        of = outcomes[scenario.key].megabytes
        rows.append([scenario.key, *[number(of[who]) if who in of else "" for who in _there(outcomes)]])
    return table(["resident memory at the end, MB", *_there(outcomes)], rows)


def own(scenarios: Sequence[Scenario], outcomes: Outcomes) -> str:
    """Of scenarios that only xdsprism has: every entry is a line."""
    rows = [
        [scenario.key, label, number(cost(rounds) * SCALES[scenario.unit[:2]]), scenario.unit]
        for scenario in scenarios
        for label, rounds in outcomes[scenario.key].rounds.items()
        if scenario not in _common(scenarios, outcomes) or label not in EVERYBODY
    ]
    return table(["scenario", "server", "processor time", "unit"], rows)


def _there(outcomes: Outcomes) -> list[str]:
    """Who took part at all."""
    return [who for who in EVERYBODY if any(who in outcome.rounds for outcome in outcomes.values())]


def _common(scenarios: Sequence[Scenario], outcomes: Outcomes) -> list[Scenario]:
    return [each for each in scenarios if set(outcomes[each.key].rounds) & set(EVERYBODY) and not each.classes]


@dataclass(frozen=True, slots=True)
class Figure:
    """What is to be reached, and what was."""

    what: str
    bound: float
    at_least: bool
    value: float
    against: str = ""

    @property
    def reached(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def row(self) -> list[str]:
        bound = f"at {'least' if self.at_least else 'most'} {self.bound:g}"
        return [self.what, self.against, bound, number(self.value), "yes" if self.reached else "no"]


def figures(outcomes: Outcomes, engine: str = H2) -> list[Figure]:
    """Those that this run has what they take."""
    makers: list[Callable[[Outcomes, str], Iterable[Figure]]] = [
        _cheap,
        _near_the_floor,
        _fast,
        _flat,
        _classes,
        _small,
    ]
    return [figure for make in makers for figure in make(outcomes, engine)]


def _has(outcomes: Outcomes, key: str, *labels: str) -> bool:
    return key in outcomes and all(label in outcomes[key].rounds for label in labels)


def _cheap(outcomes: Outcomes, engine: str) -> Iterable[Figure]:
    """Processor time against the cheapest server."""
    for key, compiled, interpreted in (
        ("S1", 0.28, 0.47),
        ("S1-1000x1", 0.5, 0.8),
        ("S1-tls-1000x1", 0.65, None),
        ("S4", 0.4, 0.6),
    ):
        bound = compiled if engine == COMPILED else interpreted
        if bound is not None and _has(outcomes, key, engine, *GCP):
            of = outcomes[key].rounds
            peer = cheapest(of, PEERS)
            what = f"{key}, processor time a {'stream' if key == 'S4' else 'message'}"
            yield Figure(what, bound, at_least=False, value=cost_ratio(of[engine], of[peer]), against=peer)


def _near_the_floor(outcomes: Outcomes, engine: str) -> Iterable[Figure]:
    """Processor time against grpc-go that does nothing."""
    for key, bound in (("S1", 0.6), ("S1-1000x1", 0.7), ("S1-tls-1000x1", 0.9), ("S3", 0.9)):
        if engine == COMPILED and _has(outcomes, key, engine, FLOOR):
            of = outcomes[key].rounds
            what = f"{key}, processor time a message"
            yield Figure(what, bound, at_least=False, value=cost_ratio(of[engine], of[FLOOR]), against=FLOOR)


def _fast(outcomes: Outcomes, engine: str) -> Iterable[Figure]:
    for key in ("S1", "S1-sotw", "S1-1000x1", "S1-tls", "S1-tls-1000x1", "S1-burst", "S2", "S3"):
        if _has(outcomes, key, engine, *GCP):
            of = outcomes[key].rounds
            peer = fastest(of, PEERS)
            bound = 1.2 if engine != COMPILED else 1.3 if key == "S1-tls-1000x1" else 1.5
            what = f"{key}, messages a second"
            yield Figure(what, bound, at_least=True, value=rate_ratio(of[engine], of[peer]), against=peer)


def _flat(outcomes: Outcomes, engine: str) -> Iterable[Figure]:
    if _has(outcomes, "S3", engine, fewer(engine)):
        of = outcomes["S3"].rounds
        value = cost_ratio(of[engine], of[fewer(engine)])
        yield Figure(
            "S3, processor time a message, 10,000 resources", 1.25, at_least=False, value=value, against="itself, 1,000"
        )
    least, most = among(engine, VARIANTS[0]), among(engine, VARIANTS[-1])
    if _has(outcomes, "S6", least, most):
        of = outcomes["S6"].rounds
        value = cost_ratio(of[most], of[least])
        yield Figure(
            "S6, processor time a subscription, 2,000 variants", 1.25, at_least=False, value=value, against="itself, 2"
        )


def _classes(outcomes: Outcomes, engine: str) -> Iterable[Figure]:
    """That the others get nothing is no figure: a run in which they do is none."""
    if _has(outcomes, "S5", engine, alone(engine)):
        of = outcomes["S5"].rounds
        value = cost_ratio(of[engine], of[alone(engine)])
        yield Figure(
            "S5, processor time a message, 12 classes",
            1.1,
            at_least=False,
            value=value,
            against="itself, only that class",
        )


def _small(outcomes: Outcomes, engine: str) -> Iterable[Figure]:
    if _has(outcomes, "S2", engine, *GCP):
        of = outcomes["S2"].megabytes
        peer = min(GCP, key=lambda name: of[name])
        yield Figure("S2, resident memory", 0.5, at_least=False, value=of[engine] / of[peer], against=peer)


def goals(outcomes: Outcomes) -> str:
    rows = [
        [engine.removeprefix("xdsprism "), *figure.row()] for engine in OURS for figure in figures(outcomes, engine)
    ]
    return table(["engine", "paired ratio", "against", "to reach", "is", "reached"], rows)


def everything(scenarios: Sequence[Scenario], outcomes: Outcomes, machine: str) -> str:
    parts = [machine, goals(outcomes), costs(scenarios, outcomes), rates(scenarios, outcomes)]
    parts += [memory(scenarios, outcomes), own(scenarios, outcomes)]
    return "\n\n".join(part for part in parts if part)


def placed(document: str, text: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The document with this between the marks."""
    first, last = marks
    before, begin, rest = document.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end or first in after or last in before:
        raise ValueError(f"there is no one {first} with an {last} after it")
    return f"{before}{first}\n\n{text}\n\n{last}{after}"


__all__ = ["BEGIN", "END", "GRPCIO", "Figure", "everything", "figures", "placed", "table"]
