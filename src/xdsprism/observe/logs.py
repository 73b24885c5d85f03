"""Log lines made of facts, and the two forms that they are printed in. The core itself never logs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TextIO

from ..core.dialect import RequestForm
from ..core.events import Node
from ..core.facts import (
    Ambiguous,
    ChangeHeldBack,
    ChangeLetThrough,
    Closed,
    Fact,
    Forgotten,
    FormFound,
    Joined,
    LacksDelta,
    LoadsRefused,
    Lost,
    Nacked,
    NackReported,
    Opened,
    OtherNode,
    Oversize,
    Published,
    Reached,
    Refused,
    Rejected,
    SubscriptionQuarantined,
    SubscriptionsRefused,
)
from ..core.types import TypeUrl
from .traffic import EVERYDAY

Format = Literal["text", "json"]

SHOWN = 200  # characters of a name, or of a type URL, that a client made up

log = logging.getLogger("xdsprism")


class FactLog:
    """A reader of facts that writes what operators want to know: `hub.readers.append(FactLog())`."""

    def __init__(self) -> None:
        self._opened: dict[int, Opened] = {}
        self._clients: dict[int, str] = {}
        self._scanning: set[int] = set()
        self._refusing: dict[int, set[str]] = {}  # by stream: the limits that were said to be passed

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if type(fact) not in EVERYDAY:  # requests, responses, ACKs: too many, and in the metrics
                self._write(fact)

    def _write(self, fact: Fact) -> None:
        match fact:
            case Opened():
                self._opened[fact.stream] = fact
            case Joined(stream, node):
                self._joined(stream, node)
            case Closed():
                self._closed(fact)
            case Nacked():
                self._nacked(fact)
            case Oversize(stream, type_url, name, size):
                text = "%(client)s can't be sent %(type)s %(name)r: its %(size)d bytes are too many for a response"
                self._about(stream, logging.WARNING, text, type=_label(type_url), name=name, size=size)
            case Forgotten(stream, type_url):
                self._forgot(stream, type_url)
            case SubscriptionsRefused():
                self._refused_subscriptions(fact)
            case OtherNode(stream):
                text = "%(client)s named another node later in its stream, which is ignored"
                self._about(stream, logging.WARNING, text)
            case Published(revision, changes):
                _say(logging.INFO, "revision %(revision)d published, %(n)d changed", revision=revision, n=changes)
            case Refused() | LoadsRefused() | ChangeHeldBack() | ChangeLetThrough():
                _refused(fact)
            case Reached() | Lost() | SubscriptionQuarantined() | NackReported() | Rejected() | Ambiguous():
                _upstream(fact)
            case _:
                _found_out(fact)

    def _forgot(self, stream: int, type_url: TypeUrl) -> None:
        """Once for each stream: whoever scans hosts asks for thousands."""
        if stream not in self._scanning:
            self._scanning.add(stream)
            text = "%(client)s asks for more unknown %(type)s than are remembered: a scan of hosts?"
            self._about(stream, logging.WARNING, text, type=_label(type_url))

    def _refused_subscriptions(self, fact: SubscriptionsRefused) -> None:
        """Once for each stream and limit; of streams for one question there may be any number, and the metric tells."""
        said = self._refusing.setdefault(fact.stream, set())
        opened = self._opened.get(fact.stream)
        if fact.limit not in said and (opened is None or not opened.brief):
            said.add(fact.limit)
            text = (
                "%(client)s asks for %(type)s past the limit `%(limit)s`: %(reason)s; "
                "that is answered as not existing, all else is served (docs/limits.md)"
            )
            label = _label(fact.type_url)[:SHOWN]
            self._about(fact.stream, logging.WARNING, text, type=label, limit=fact.limit, reason=fact.reason)

    def _about(self, stream: int, level: int, message: str, **fields: object) -> None:
        client = self._clients.get(stream) or f"stream {stream}"
        _say(level, message, client=client, stream=stream, **fields)

    def _joined(self, stream: int, node: Node) -> None:
        self._clients[stream] = node.id
        opened = self._opened[stream]
        if opened.brief:  # whoever polls would fill the log
            return
        self._about(
            stream,
            logging.INFO,
            f"%(client)s connected from %(peer)s{' as %(identity)s' if opened.identity else ''} (%(method)s)",
            peer=opened.peer,
            identity=opened.identity,
            method=opened.method.rpartition("/")[2],
            cluster=node.cluster,
            user_agent=node.user_agent,
        )

    def _closed(self, fact: Closed) -> None:
        if fact.reason:
            self._about(fact.stream, logging.WARNING, "%(client)s disconnected: %(reason)s", reason=fact.reason)
        elif not self._opened[fact.stream].brief:
            self._about(fact.stream, logging.INFO, "%(client)s disconnected")
        del self._opened[fact.stream]
        self._clients.pop(fact.stream, None)
        self._scanning.discard(fact.stream)
        self._refusing.pop(fact.stream, None)

    def _nacked(self, fact: Nacked) -> None:
        self._about(
            fact.stream,
            logging.WARNING,
            "%(client)s refused %(type)s, nonce %(nonce)s: %(error)s",
            type=_label(fact.type_url),
            nonce=fact.nonce,
            error=fact.error.message,
            code=fact.error.code,
            version=fact.version,
        )


def _refused(fact: Refused | LoadsRefused | ChangeHeldBack | ChangeLetThrough) -> None:
    match fact:
        case Refused((), known):
            text = "configuration refused again, for what was told before (/api/config lists it); problems: %(known)d"
            _say(logging.WARNING, text, known=known)
        case Refused(problems, known):
            more = "; and %(known)d that were told before" if known else ""
            text = f"configuration refused, the last good one stays: %(problems)s{more}"
            _say(logging.ERROR, text, problems="; ".join(problems), known=known)
        case ChangeHeldBack(change, remedy):
            text = "configuration held back (%(id)s), the last good one stays: %(why)s; to let it through: %(remedy)s"
            _say(logging.WARNING, text, id=change.id, why="; ".join(change.reasons), remedy=remedy)
        case ChangeLetThrough(change):
            text = "configuration that was held back (%(id)s) is confirmed, %(removed)s removed: %(why)s"
            _say(logging.WARNING, text, id=change.id, removed=change.summary, why="; ".join(change.reasons))
        case LoadsRefused(node, cluster, message, news):
            text = "%(client)s reports loads of cluster %(cluster)r that make no sense: %(error)s"
            if news:
                _say(logging.WARNING, text, client=node, cluster=cluster, error=message)


def _upstream(fact: Reached | Lost | SubscriptionQuarantined | NackReported | Rejected | Ambiguous) -> None:
    """What happens to a client."""
    match fact:
        case Reached(server):
            _say(logging.INFO, "connected to %(server)s", server=server)
        case Lost(server, error, failed, reached):
            level = logging.WARNING if failed else logging.INFO
            text = "lost %(server)s: %(error)s" if reached else "can't reach %(server)s: %(error)s"
            _say(level, text, server=server, error=error)
        case SubscriptionQuarantined(server, type_url, name, error, seconds):
            text = (
                "%(server)s ends the stream when it is asked for %(type)s %(name)r, so it is not for %(s)d s: %(error)s"
            )
            _say(logging.WARNING, text, server=server, type=_label(type_url), name=_short(name), s=seconds, error=error)
        case NackReported(server, type_url, version, message):
            text = "told %(server)s that clients refuse %(type)s %(version)s: %(error)s"
            _say(logging.INFO, text, server=server, type=_label(type_url), version=version, error=message)
        case Rejected(server, type_url, version, message):
            text = "refused %(type)s %(version)s of %(server)s: %(error)s"
            _say(logging.WARNING, text, type=_label(type_url), version=version, server=server, error=message)
        case Ambiguous(type_url, name, kept, other, first):
            text = "%(type)s %(name)r has two variants for one subscription: used is `%(kept)s`, not `%(other)s`"
            if first:  # DESIGN 6.10
                _say(logging.WARNING, text, type=_label(type_url), name=name, kept=kept, other=other)


def _found_out(fact: Fact) -> None:
    """What a server turned out to understand, if it is about that: each is a fact once for each server."""
    match fact:
        case LacksDelta(server):
            _say(logging.INFO, "%(server)s has no delta method: asking it in state of the world", server=server)
        case FormFound(server, RequestForm.NAMES):
            text = (
                "%(server)s does not know dynamic parameters: asking it by plain names, all clients share what it "
                "answers; use --group-by to give groups of nodes their own"
            )
            _say(logging.WARNING, text, server=server)
        case FormFound(server):
            _say(logging.DEBUG, "%(server)s knows dynamic parameters", server=server)
        case _:
            pass


def _label(type_url: str) -> str:
    return type_url.rpartition("/")[2]


def _short(name: str) -> str:
    return name if len(name) <= SHOWN else f"{name[:SHOWN]}..."


def _say(level: int, message: str, **fields: object) -> None:
    """One line of text, or one JSON object with every field by its name."""
    log.log(level, message, fields)


# What clients send ends up in log lines: it must not be able to start a new one, or speak to a terminal.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160))} | {10: "\\n", 13: "\\r", 9: "\\t"}


class TextFormatter(logging.Formatter):
    """For people and for `grep`."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class says so
        record.message = record.message.translate(_CONTROL)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One object per line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if isinstance(record.args, dict):
            line |= {key: value for key, value in record.args.items() if key not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(form: Format, level: str, stream: TextIO | None = None) -> None:
    """Set logging up for a process of our own; never called where xdsprism is a library.

    `level` is ours alone. Libraries log from warnings on, whatever it is: hpack writes every header field at debug,
    tokens too (OPS-14).
    """
    sink = logging.StreamHandler(stream or sys.stderr)
    sink.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    ours: int = getattr(logging, level.upper())
    logging.basicConfig(level=max(logging.WARNING, ours), handlers=[sink], force=True)
    log.setLevel(ours)
