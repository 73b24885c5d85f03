"""Log lines made of facts, and the two forms that they are printed in. The core itself never logs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TextIO

from ..core.events import Node
from ..core.facts import (
    Ambiguous,
    Closed,
    Fact,
    Forgotten,
    Joined,
    LoadsRefused,
    Lost,
    Nacked,
    Opened,
    OtherNode,
    Oversize,
    Published,
    Reached,
    Refused,
    Rejected,
)
from ..core.types import TypeUrl
from .traffic import EVERYDAY

Format = Literal["text", "json"]

log = logging.getLogger("xdsprism")


class FactLog:
    """A reader of facts that writes what operators want to know: `hub.readers.append(FactLog())`."""

    def __init__(self) -> None:
        self._opened: dict[int, Opened] = {}
        self._clients: dict[int, str] = {}
        self._scanning: set[int] = set()

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
            case OtherNode(stream):
                text = "%(client)s named another node later in its stream, which is ignored"
                self._about(stream, logging.WARNING, text)
            case Published(revision, changes):
                _say(logging.INFO, "revision %(revision)d published, %(n)d changed", revision=revision, n=changes)
            case Refused() | LoadsRefused():
                _refused(fact)
            case Reached() | Lost() | Rejected() | Ambiguous():
                _upstream(fact)
            case _:
                pass

    def _forgot(self, stream: int, type_url: TypeUrl) -> None:
        """Once for each stream: whoever scans hosts asks for thousands."""
        if stream not in self._scanning:
            self._scanning.add(stream)
            text = "%(client)s asks for more unknown %(type)s than are remembered: a scan of hosts?"
            self._about(stream, logging.WARNING, text, type=_label(type_url))

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


def _refused(fact: Refused | LoadsRefused) -> None:
    match fact:
        case Refused(problems):
            text = "configuration refused, the last good one stays: %(problems)s"
            _say(logging.ERROR, text, problems="; ".join(problems))
        case LoadsRefused(node, cluster, message, news):
            text = "%(client)s reports loads of cluster %(cluster)r that make no sense: %(error)s"
            if news:
                _say(logging.WARNING, text, client=node, cluster=cluster, error=message)


def _upstream(fact: Reached | Lost | Rejected | Ambiguous) -> None:
    """What happens to a client."""
    match fact:
        case Reached(server):
            _say(logging.INFO, "connected to %(server)s", server=server)
        case Lost(server, error, failed):
            level = logging.WARNING if failed else logging.INFO
            _say(level, "lost %(server)s: %(error)s", server=server, error=error)
        case Rejected(server, type_url, version, message):
            text = "refused %(type)s %(version)s of %(server)s: %(error)s"
            _say(logging.WARNING, text, type=_label(type_url), version=version, server=server, error=message)
        case Ambiguous(type_url, name, kept, other, first):
            text = "%(type)s %(name)r has two variants for one subscription: used is `%(kept)s`, not `%(other)s`"
            if first:  # DESIGN 6.10
                _say(logging.WARNING, text, type=_label(type_url), name=name, kept=kept, other=other)


def _label(type_url: str) -> str:
    return type_url.rpartition("/")[2]


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
    """Set logging up for a process of our own; never called where xdsprism is a library."""
    sink = logging.StreamHandler(stream or sys.stderr)
    sink.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[sink], force=True)
    for chatty in ("uvicorn", "watchfiles"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
