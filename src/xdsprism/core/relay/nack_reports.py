"""Report the NACKs of a relay's clients to the server that sent the resource (PRX-18; off by default).

A server takes one ACK or NACK for each response (NAK-28), so the relay holds its own back until its clients have judged
the resources of the response:

    response from the server                        answer of the relay
    ----------------------------------------------  --------------------------------------------------------------------
    contains a version that a client rejected       NACK at once; the second time on a stream, ACK
    contains resources that clients are sent        NACK when a client rejects one, with the resource, the node id and
                                                    the text of the client; ACK when all have answered, or after WAIT
    contains nothing that any client wants          ACK at once

A client's NACK of several resources does not say which one is bad. The relay sends each of them alone to a delta client
(NAK-29) and waits for the result; for a SotW client it reports all of them.

Some servers send a rejected version again, at once and forever. So the relay reports a version once on a stream. If the
server then sends the resource alone, to find out which one is bad, the relay reports it once more.

Reports do not change what clients are served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..model.events import Rejection
from ..model.facts import Closed, Fact, Joined, Nacked, NackReported
from ..model.responses import Response
from ..model.types import TypeUrl
from ..watch.upstream import Upstream

WAIT = 5.0  # seconds for which the relay holds an answer back, at most
REMEMBERED = 10_000  # rejected versions; the oldest are forgotten
SHOWN = 10  # resources that one report names
INVALID_ARGUMENT = 3

Version = tuple[TypeUrl, str, str]  # type, name and version of a resource

# Whether a client has yet to be sent, or to answer, a resource with one of these names.
AreJudging = Callable[[TypeUrl, Sequence[str]], bool]


@dataclass(slots=True, eq=False)
class _Report:
    """A response whose ACK or NACK the relay holds back."""

    upstream: Upstream
    stream: int
    response: Response
    versions: tuple[Version, ...]
    due: float
    suspicion: str = ""  # text to report if a client rejected several resources and is now sent each alone

    @property
    def is_open(self) -> bool:
        """Whether the stream that the response came on is still there."""
        return self.upstream.connected and self.upstream.streams == self.stream


class NackReports:
    """Decides when and how the relay answers a response. Reads facts about its clients' ACKs and NACKs from the hub."""

    def __init__(self, are_judging: AreJudging) -> None:
        self.facts: list[Fact] = []
        self._are_judging = are_judging
        self._nodes: dict[int, str] = {}  # by stream
        self._held: list[_Report] = []
        self._rejected: dict[Version, str] = {}
        self._reported: dict[tuple[Upstream, Version, bool], int] = {}  # by whether it came alone: the stream

    @property
    def due(self) -> float | None:
        """When the next answer must go out at the latest."""
        return min((report.due for report in self._held), default=None)

    def came(self, upstream: Upstream, response: Response, now: float) -> tuple[Rejection | None, float]:
        """Return how to answer a valid response, and for how many seconds to hold the answer back.

        None means ACK. `check` or a client's NACK decides a held answer before the time is over.
        """
        versions = tuple((response.type_url, each.variant.name, each.variant.version) for each in response.arrivals)
        known = [version for version in versions if version in self._rejected]
        report = _Report(upstream, upstream.streams, response, versions, now + WAIT)
        texts = [self._rejected[version] for version in known if self._is_news(report, version)]
        if texts:
            return self._rejection(report, texts), 0.0
        if len(known) == len(versions):
            return None, 0.0  # clients have judged all of it already, and the server knows
        self._held.append(report)
        return None, WAIT + 1.0  # `check` answers it earlier; this is a backstop

    def __call__(self, facts: Sequence[Fact]) -> None:
        """Take the facts of one turn: NACKs, and the node ids of streams."""
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
        """Answer each response that all clients have judged, and each that was held back for long enough."""
        for report in [*self._held]:
            names = [name for _, name, _ in report.versions]
            if not report.is_open:
                self._held.remove(report)
            elif now >= report.due or not self._are_judging(report.response.type_url, names):
                self._decide(report, [report.suspicion] if report.suspicion else [])

    # -- what clients reject

    def _reject(self, nack: Nacked) -> None:
        """Take the NACK of a client, and answer the responses that it concerns.

        If the session now sends each resource alone, the relay waits for that, and notes a suspicion to report if no
        result comes in time.
        """
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
        """Keep a rejected version, so that the relay can NACK it at once when it comes again."""
        self._rejected.pop(version, None)
        self._rejected[version] = text
        if len(self._rejected) > REMEMBERED:
            del self._rejected[next(iter(self._rejected))]

    def _is_news(self, report: _Report, version: Version) -> bool:
        """Whether the server has not been told of a version on this stream yet. Records that it is told now."""
        key = report.upstream, version, len(report.versions) == 1
        news = self._reported.get(key) != report.stream
        self._reported[key] = report.stream
        if len(self._reported) > 2 * REMEMBERED:
            del self._reported[next(iter(self._reported))]
        return news

    # -- what the server is told

    def _decide(self, report: _Report, texts: list[str]) -> None:
        """Send the answer that was held back: NACK with these texts, or ACK if there are none."""
        self._held.remove(report)
        error = self._rejection(report, texts) if texts else None
        report.upstream.requests.decide_answer(report.response.type_url, report.response.nonce, error)

    def _rejection(self, report: _Report, texts: list[str]) -> Rejection:
        """Make the NACK for a response, and record it as a fact."""
        message = "; ".join(texts)
        report.upstream.reported_nacks += 1
        response = report.response
        self.facts.append(NackReported(report.upstream.label, response.type_url, response.version, message))
        return Rejection(INVALID_ARGUMENT, message)


def _concerns(report: _Report, type_url: TypeUrl, versions: Iterable[Version]) -> bool:
    """Whether a client's NACK may be about a response.

    A full-state SotW response does not say which of its resources are new. A NACK without versions then concerns every
    held response of the type.
    """
    if report.response.type_url != type_url:
        return False
    rejected = {*versions}
    return not rejected or not rejected.isdisjoint(report.versions)


def _named(versions: Sequence[Version], text: str) -> str:
    """Return a client's text behind the names of the resources that it concerns."""
    names = [name for _, name, _ in versions[:SHOWN]]
    more = f" and {len(versions) - SHOWN} more" if len(versions) > SHOWN else ""
    return f"{'one of ' if len(versions) > 1 else ''}{', '.join(names)}{more}: {text}"
