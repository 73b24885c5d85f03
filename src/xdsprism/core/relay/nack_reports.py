"""What a relay's clients reject, reported to the server that sent it (PRX-18; off unless it is asked for).

A server takes one answer to each response (NAK-28), so the relay holds its answer back until its clients have judged
what was in it:

    response from the server                          answer of the relay
    ------------------------------------------------  ------------------------------------------------------------------
    with something that a client is known to reject   NACK at once; the second time on a stream, ACK
    with something that clients are sent              NACK when one of them rejects it, with the resource, the client's
                                                      node id and its text; ACK when all have answered, or after WAIT
    with nothing for any client                       ACK at once

A NACK for several resources does not say which one is bad. A delta client is sent each of them alone (NAK-29), so the
relay waits for that; of a SotW client all are reported.

Some servers send what was NACKed again, at once and for ever: so the same version is reported once on a stream. One
that sends it alone, to find out which resource is bad, is told once more.

None of this changes what clients are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..model.events import Rejection
from ..model.facts import Closed, Fact, Joined, Nacked, NackReported
from ..model.responses import Response
from ..model.types import TypeUrl
from ..watch.upstream import Upstream

WAIT = 5.0  # seconds for which a server waits for its answer, at most
REMEMBERED = 10_000  # versions that a client rejected; the oldest are forgotten
SHOWN = 10  # resources that one report names
INVALID_ARGUMENT = 3

Version = tuple[TypeUrl, str, str]  # of a resource: its type, name and version

# Whether clients have yet to be sent one of these, or to answer.
AreJudging = Callable[[TypeUrl, Sequence[str]], bool]


@dataclass(slots=True, eq=False)
class _Report:
    """A response whose answer is held back."""

    upstream: Upstream
    stream: int
    response: Response
    versions: tuple[Version, ...]
    due: float
    suspicion: str = ""  # a client rejected this together with others, and is sent each alone

    @property
    def is_open(self) -> bool:
        return self.upstream.connected and self.upstream.streams == self.stream


class NackReports:
    """Decides when a response is answered, and how. A reader of facts, as the hub of the relay has them."""

    def __init__(self, are_judging: AreJudging) -> None:
        self.facts: list[Fact] = []
        self._are_judging = are_judging
        self._nodes: dict[int, str] = {}  # by stream
        self._held: list[_Report] = []
        self._rejected: dict[Version, str] = {}
        self._reported: dict[tuple[Upstream, Version, bool], int] = {}  # on which stream, and whether it came alone

    @property
    def due(self) -> float | None:
        return min((report.due for report in self._held), default=None)

    def came(self, upstream: Upstream, response: Response, now: float) -> tuple[Rejection | None, float]:
        """How to answer a response that has nothing wrong with it, and for how long to hold the answer back."""
        versions = tuple((response.type_url, each.variant.name, each.variant.version) for each in response.arrivals)
        known = [version for version in versions if version in self._rejected]
        report = _Report(upstream, upstream.streams, response, versions, now + WAIT)
        texts = [self._rejected[version] for version in known if self._is_news(report, version)]
        if texts:
            return self._rejection(report, texts), 0.0
        if len(known) == len(versions):
            return None, 0.0  # there is nothing that a client has yet to judge
        self._held.append(report)
        return None, WAIT + 1.0  # should nothing else answer it

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case Nacked():
                    self._reject(fact)
                case Joined(stream, node):
                    self._nodes[stream] = node.id
                case Closed(stream):
                    self._nodes.pop(stream, None)
                case _:
                    pass

    def check(self, now: float) -> None:
        """Answer what all clients have judged, and what was held back for long enough."""
        for report in [*self._held]:
            names = [name for _, name, _ in report.versions]
            if not report.is_open:
                self._held.remove(report)
            elif now >= report.due or not self._are_judging(report.response.type_url, names):
                self._decide(report, [report.suspicion] if report.suspicion else [])

    # -- what clients reject

    def _reject(self, nack: Nacked) -> None:
        versions = [(nack.type_url, *part) for part in nack.parts]
        text = f"refused by {self._nodes.get(nack.stream) or 'a client without a node id'}: {nack.error.message}"
        concerned = [report for report in self._held if _concerns(report, nack.type_url, versions)]
        if nack.isolates:
            for report in concerned:
                report.suspicion = _named(versions or report.versions, text)
            return
        if len(versions) == 1:
            self._remember(versions[0], _named(versions, text))
        for report in concerned:
            for version in versions:
                self._is_news(report, version)
            self._decide(report, [_named(versions or report.versions, text)])

    def _remember(self, version: Version, text: str) -> None:
        self._rejected.pop(version, None)
        self._rejected[version] = text
        if len(self._rejected) > REMEMBERED:
            del self._rejected[next(iter(self._rejected))]

    def _is_news(self, report: _Report, version: Version) -> bool:
        """Whether the server was not told so on this stream; from now on it was."""
        key = report.upstream, version, len(report.versions) == 1
        news = self._reported.get(key) != report.stream
        self._reported[key] = report.stream
        if len(self._reported) > 2 * REMEMBERED:
            del self._reported[next(iter(self._reported))]
        return news

    # -- what the server is told

    def _decide(self, report: _Report, texts: list[str]) -> None:
        self._held.remove(report)
        error = self._rejection(report, texts) if texts else None
        report.upstream.decide_answer(report.response.type_url, report.response.nonce, error)

    def _rejection(self, report: _Report, texts: list[str]) -> Rejection:
        message = "; ".join(texts)
        report.upstream.reported_nacks += 1
        response = report.response
        self.facts.append(NackReported(report.upstream.label, response.type_url, response.version, message))
        return Rejection(INVALID_ARGUMENT, message)


def _concerns(report: _Report, type_url: TypeUrl, versions: Iterable[Version]) -> bool:
    """A full state in SotW does not say what is new in it: then it is whatever came of the type."""
    if report.response.type_url != type_url:
        return False
    rejected = {*versions}
    return not rejected or not rejected.isdisjoint(report.versions)


def _named(versions: Sequence[Version], text: str) -> str:
    names = [name for _, name, _ in versions[:SHOWN]]
    more = f" and {len(versions) - SHOWN} more" if len(versions) > SHOWN else ""
    return f"{'one of ' if len(versions) > 1 else ''}{', '.join(names)}{more}: {text}"
