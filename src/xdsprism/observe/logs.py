"""Turns facts into log lines, and formats lines as text or as JSON. The core itself never logs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from ..core.model.dialect import RequestForm
from ..core.model.events import Node
from ..core.model.facts import (
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
    ShareExceeded,
    SubscriptionQuarantined,
    SubscriptionsRefused,
)
from ..core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from .quota import MEMORY, Kind, Peer, Quota
from .traffic import EVERYDAY

Format = Literal["text", "json"]

SHOWN = 200  # characters of a type URL that a client sent
INTERVAL = 600.0  # seconds between two equal lines about a stream
TOLD = 50  # different lines about one stream that are remembered
PAUSE = 60.0  # seconds between two reports of omitted lines
AMBIGUOUS = "variants for one subscription"  # stands for the peer in the quota, as the fact names no server

log = logging.getLogger("xdsprism")


class FactLog:
    """A reader of facts that logs what operators need to know: `hub.readers.append(FactLog())`.

    A peer that repeats itself causes few lines: equal lines about a stream are written once per INTERVAL, all lines
    about a peer have a quota, and a later line says how many were omitted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quota = Quota()
        self._settled = clock()  # when omitted lines were last reported
        self._opened: dict[int, Opened] = {}
        self._clients: dict[int, str] = {}
        self._told: dict[int, dict[int, float]] = {}  # stream: hashes of the lines about it, and when they were written
        self._told_peers: dict[Peer, dict[int, float]] = {}  # client: the same of lines about all of its streams

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if type(fact) not in EVERYDAY:  # requests, responses and ACKs are too many to log; metrics count them
                self._write(fact)
        if self._quota.has_omitted and self._clock() - self._settled >= PAUSE:
            self._settled = self._clock()
            for peer, omitted in self._quota.take_all_omitted(self._settled):
                _say_omitted(peer, omitted)

    def _write(self, fact: Fact) -> None:
        """Log one fact. A new stream is logged once its first request has named the node (Joined)."""
        match fact:
            case Opened():
                self._opened[fact.stream] = fact
            case Joined(stream, node):
                self._joined(stream, node)
            case Closed():
                self._closed(fact)
            case Nacked() | Oversize() | Forgotten() | SubscriptionsRefused() | OtherNode():
                self._write_trouble(fact)
            case Published(revision, changes):
                _say(logging.INFO, "revision %(revision)d published, %(n)d changed", revision=revision, n=changes)
            case Refused() | ChangeHeldBack() | ChangeLetThrough():
                _refused(fact)
            case ShareExceeded():
                self._write_share(fact)
            case _:
                self._write_of_servers(fact)

    def _write_of_servers(self, fact: Fact) -> None:
        """Log facts about upstream servers and load reports. They name no stream, so the quota is by name alone."""
        now = self._clock()
        match fact:
            case LoadsRefused(node, cluster, message, news):
                text = "%(client)s reports loads of cluster %(cluster)r that make no sense: %(error)s"
                if news and self._quota.allows(("", node), Kind.TROUBLE, now):
                    _say(logging.WARNING, text, client=node, cluster=cluster, error=message)
            case Reached() | Lost():
                if self._quota.allows(("", fact.server), Kind.PRESENCE, now):
                    _upstream(fact)
            case SubscriptionQuarantined() | NackReported() | Rejected():
                if self._quota.allows(("", fact.server), Kind.TROUBLE, now):
                    _upstream(fact)
            case Ambiguous():
                if fact.first and self._quota.allows(("", AMBIGUOUS), Kind.TROUBLE, now):  # DESIGN 6.10
                    _upstream(fact)
            case _:
                _found_out(fact)

    def _write_trouble(self, fact: Nacked | Oversize | Forgotten | SubscriptionsRefused | OtherNode) -> None:
        """Log what went wrong on a stream, unless an equal line was written lately."""
        match fact:
            case Nacked(stream, type_url, nonce, version, error):
                if self._is_news(stream, "NACK", type_url, error.message):
                    text = "%(client)s refused %(type)s, nonce %(nonce)s: %(error)s"
                    self._about(
                        stream,
                        logging.WARNING,
                        text,
                        type=_label(type_url),
                        nonce=nonce,
                        error=error.message,
                        code=error.code,
                        version=version,
                    )
            case Oversize(stream, type_url, name, size):
                text = "%(client)s can't be sent %(type)s %(name)r: its %(size)d bytes are too many for a response"
                if self._is_news(stream, "oversize", type_url, name):
                    self._about(stream, logging.WARNING, text, type=_label(type_url), name=name, size=size)
            case Forgotten(stream, type_url):  # one line, as a client that scans hosts requests thousands
                text = "%(client)s asks for more unknown %(type)s than are remembered: a scan of hosts?"
                if self._is_news(stream, "forgotten"):
                    self._about(stream, logging.WARNING, text, type=_label(type_url))
            case SubscriptionsRefused(stream, type_url, limit, _, reason):
                opened = self._opened.get(stream)
                if opened is not None and opened.brief:
                    return  # there may be any number of one-request streams; a metric counts them
                if self._is_news(stream, "refused", limit):
                    text = (
                        "%(client)s asks for %(type)s past the limit `%(limit)s`: %(reason)s; "
                        "that is answered as not existing, all else is served (docs/limits.md)"
                    )
                    label = _label(type_url)[:SHOWN]
                    self._about(stream, logging.WARNING, text, type=label, limit=limit, reason=reason)
            case OtherNode(stream):
                text = "%(client)s named another node later in its stream, which is ignored"
                if self._is_news(stream, "other node"):
                    self._about(stream, logging.WARNING, text)

    def _write_share(self, fact: ShareExceeded) -> None:
        """PRX-35: there may be thousands, of any of the client's streams."""
        peer, kind, now = fact.client, fact.kind.value, self._clock()
        told = self._told_peers.pop(peer, {})
        if len(self._told_peers) >= MEMORY:
            del self._told_peers[next(iter(self._told_peers))]
        self._told_peers[peer] = told  # the one that was told of last is at the end
        if self._is_new(told, peer, kind) and self._quota.allows(peer, Kind.TROUBLE, now):
            text = (
                "%(client)s at %(peer)s has more than its share of the %(kind)s that servers can be asked for: "
                "it keeps what it has, but no server is asked for the newest (docs/limits.md)"
            )
            _say(logging.WARNING, text, client=peer[1] or "a client", peer=peer[0], kind=kind)

    def _is_news(self, stream: int, *what: str) -> bool:
        """Whether the last equal line about the stream is more than INTERVAL ago; if not, count it as omitted."""
        return self._is_new(self._told.setdefault(stream, {}), self._peer(stream), *what)

    def _is_new(self, told: dict[int, float], peer: Peer, *what: str) -> bool:
        now, key = self._clock(), hash(what)
        at = told.get(key)
        if at is not None and now - at < INTERVAL:
            self._quota.omit(peer, now)
            return False
        told.pop(key, None)
        if len(told) >= TOLD:
            del told[next(iter(told))]
        told[key] = now
        return True

    def _about(self, stream: int, level: int, message: str, kind: Kind = Kind.TROUBLE, **fields: object) -> None:
        """Write a line about a stream, if the quota of its peer allows."""
        if self._quota.allows(self._peer(stream), kind, self._clock()):
            _say(level, message, client=self._name(stream), stream=stream, **fields)

    def _name(self, stream: int) -> str:
        return self._clients.get(stream) or f"stream {stream}"

    def _peer(self, stream: int) -> Peer:
        """Return the address and the node id of a stream, by which the quota counts."""
        opened = self._opened.get(stream)
        address = opened.peer.rpartition(":")[0] if opened is not None else ""
        return address, self._clients.get(stream, "")

    def _joined(self, stream: int, node: Node) -> None:
        """Log that a client connected, once its first request has named its node."""
        self._clients[stream] = node.id
        opened = self._opened[stream]
        if opened.brief:  # a client that polls would fill the log
            return
        self._about(
            stream,
            logging.INFO,
            f"%(client)s connected from %(peer)s{' as %(identity)s' if opened.identity else ''} (%(method)s)",
            Kind.PRESENCE,
            peer=opened.peer,
            identity=opened.identity,
            method=opened.method.rpartition("/")[2],
            cluster=node.cluster,
            user_agent=node.user_agent,
        )

    def _closed(self, fact: Closed) -> None:
        """Log that a client disconnected, and how many lines about it were omitted."""
        stream, peer = fact.stream, self._peer(fact.stream)
        if fact.reason:
            text = "%(client)s disconnected: %(reason)s"
            self._about(stream, logging.WARNING, text, Kind.PRESENCE, reason=fact.reason)
        elif not self._opened[stream].brief:
            self._about(stream, logging.INFO, "%(client)s disconnected", Kind.PRESENCE)
        if omitted := self._quota.take_omitted(peer, self._clock()):
            _say_omitted((peer[0], self._name(stream)), omitted)
        del self._opened[stream]
        self._clients.pop(stream, None)
        self._told.pop(stream, None)


def _say_omitted(peer: Peer, omitted: int) -> None:
    address, client = peer
    text = "%(n)d more lines about %(client)s were left out"
    _say(logging.WARNING, text, n=omitted, client=client or f"clients at {address}", peer=address)


def _refused(fact: Refused | ChangeHeldBack | ChangeLetThrough) -> None:
    """Log why a configuration was refused or held back. Its texts are not cut, as they are the operator's own."""
    match fact:
        case Refused((), known):
            text = "configuration refused again for problems logged before (/api/config lists them): %(known)d"
            _say_in_full(logging.WARNING, text, known=known)
        case Refused(problems, known):
            more = "; and %(known)d that were logged before" if known else ""
            text = f"configuration refused, the last good one stays: %(problems)s{more}"
            _say_in_full(logging.ERROR, text, problems="; ".join(problems), known=known)
        case ChangeHeldBack(change, remedy):
            text = "configuration held back (%(id)s), the last good one stays: %(why)s; to let it through: %(remedy)s"
            _say_in_full(logging.WARNING, text, id=change.id, why="; ".join(change.reasons), remedy=remedy)
        case ChangeLetThrough(change):
            text = "configuration that was held back (%(id)s) is confirmed, %(removed)s removed: %(why)s"
            _say_in_full(logging.WARNING, text, id=change.id, removed=change.summary, why="; ".join(change.reasons))


def _upstream(fact: Reached | Lost | SubscriptionQuarantined | NackReported | Rejected | Ambiguous) -> None:
    """Log a fact about an upstream server."""
    match fact:
        case Reached(server):
            _say(logging.INFO, "connected to %(server)s", server=server)
        case Lost(server, error, failed, reached):
            level = logging.WARNING if failed else logging.INFO
            text = "lost %(server)s: %(error)s" if reached else "can't reach %(server)s: %(error)s"
            _say(level, text, server=server, error=error)
        case SubscriptionQuarantined(server, type_url, name, error, seconds):
            text = "%(server)s ends the stream after a request for %(type)s %(name)r: withheld for %(s)d s: %(error)s"
            _say(logging.WARNING, text, server=server, type=_label(type_url), name=_short(name), s=seconds, error=error)
        case NackReported(server, type_url, version, message):
            text = "told %(server)s that clients refuse %(type)s %(version)s: %(error)s"
            _say(logging.INFO, text, server=server, type=_label(type_url), version=_short(version), error=message)
        case Rejected(server, type_url, version, message):
            text = "refused %(type)s %(version)s of %(server)s: %(error)s"
            _say(logging.WARNING, text, type=_label(type_url), version=_short(version), server=server, error=message)
        case Ambiguous(type_url, name, kept, other):
            text = "%(type)s %(name)r has two variants for one subscription: used is `%(kept)s`, not `%(other)s`"
            _say(logging.WARNING, text, type=_label(type_url), name=_short(name), kept=kept, other=other)


def _found_out(fact: Fact) -> None:
    """Log what an upstream server was found to support; each such fact comes once for each server."""
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
    return bounded(name, NAME_BYTES)


def _say(level: int, message: str, **fields: object) -> None:
    """Write a line, and cut its texts, as peers may have sent them. In JSON each field has its name."""
    cut = {key: bounded(value, TEXT_BYTES) if isinstance(value, str) else value for key, value in fields.items()}
    _say_in_full(level, message, **cut)


def _say_in_full(level: int, message: str, **fields: object) -> None:
    """Write a line without cutting its texts."""
    log.log(level, message, fields)


# Log lines contain texts that peers sent. Escape the characters that could begin a new line, control a terminal, or
# change the direction of the text. _DIRECTIONS are line separators, direction marks and surrogates, which are no
# control characters.
_C1 = (127, *range(128, 160))
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))
_ESCAPED = {code: f"\\u{code:04x}" for code in _DIRECTIONS}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *_C1)} | {10: "\\n", 13: "\\r", 9: "\\t"} | _ESCAPED
_IN_JSON = {code: f"\\u{code:04x}" for code in _C1} | _ESCAPED  # the json module escapes all others


class TextFormatter(logging.Formatter):
    """Formats a line as text, for people and for `grep`."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class says so
        record.message = record.message.translate(_CONTROL)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Indent the traceback, so that a text quoted in it can't look like a log line."""
        return "\n".join(f"    {line.translate(_CONTROL)}" for line in super().formatException(ei).splitlines())


class JsonFormatter(logging.Formatter):
    """Formats a line as a JSON object, for machines."""

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
        return json.dumps(line, ensure_ascii=False, default=str).translate(_IN_JSON)


def configure(form: Format, level: str, stream: TextIO | None = None) -> None:
    """Set up logging for the xdsprism command; it is not called when xdsprism is used as a library.

    `level` is for xdsprism's own lines. Libraries always log from warnings on: hpack writes every header field at
    debug, tokens too (OPS-14).
    """
    sink = logging.StreamHandler(stream or sys.stderr)
    sink.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    ours: int = getattr(logging, level.upper())
    logging.basicConfig(level=max(logging.WARNING, ours), handlers=[sink], force=True)
    log.setLevel(ours)
