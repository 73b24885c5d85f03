"""Log lines made of facts, and the two forms that they are printed in. The core itself never logs."""

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

SHOWN = 200  # characters of a type URL that a client made up
INTERVAL = 600.0  # seconds between two lines that say the same of a stream
TOLD = 50  # different things about one stream that are remembered to have been said
PAUSE = 60.0  # seconds between two looks at which lines were left out
AMBIGUOUS = "variants for one subscription"  # which are told of without their server

log = logging.getLogger("xdsprism")


class FactLog:
    """A reader of facts that writes what operators want to know: `hub.readers.append(FactLog())`.

    A peer that does the same over and over leaves few lines: what it did on a stream is told once in INTERVAL, all
    lines about it have a quota, and a later line says how many were left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quota = Quota()
        self._settled = clock()  # when it was last said what was left out
        self._opened: dict[int, Opened] = {}
        self._clients: dict[int, str] = {}
        self._told: dict[int, dict[int, float]] = {}  # by stream: the hashes of what was said of it, and when
        self._told_peers: dict[Peer, dict[int, float]] = {}  # the same of what is about all streams of a client

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if type(fact) not in EVERYDAY:  # requests, responses, ACKs: too many, and in the metrics
                self._write(fact)
        if self._quota.owes and self._clock() - self._settled >= PAUSE:
            self._settled = self._clock()
            for peer, omitted in self._quota.settle_all(self._settled):
                _say_omitted(peer, omitted)

    def _write(self, fact: Fact) -> None:
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
        """What happens to a client, and what load reports say: there is no stream here, so the name alone counts."""
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
            case Forgotten(stream, type_url):  # whoever scans hosts asks for thousands
                text = "%(client)s asks for more unknown %(type)s than are remembered: a scan of hosts?"
                if self._is_news(stream, "forgotten"):
                    self._about(stream, logging.WARNING, text, type=_label(type_url))
            case SubscriptionsRefused(stream, type_url, limit, _, reason):
                opened = self._opened.get(stream)
                if opened is not None and opened.brief:
                    return  # of streams for one question there may be any number, and the metric tells
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
        """Whether this was not said of the stream a while ago; if it was, it is only counted."""
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
        if self._quota.allows(self._peer(stream), kind, self._clock()):
            _say(level, message, client=self._name(stream), stream=stream, **fields)

    def _name(self, stream: int) -> str:
        return self._clients.get(stream) or f"stream {stream}"

    def _peer(self, stream: int) -> Peer:
        opened = self._opened.get(stream)
        address = opened.peer.rpartition(":")[0] if opened is not None else ""
        return address, self._clients.get(stream, "")

    def _joined(self, stream: int, node: Node) -> None:
        self._clients[stream] = node.id
        opened = self._opened[stream]
        if opened.brief:  # whoever polls would fill the log
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
        stream, peer = fact.stream, self._peer(fact.stream)
        if fact.reason:
            text = "%(client)s disconnected: %(reason)s"
            self._about(stream, logging.WARNING, text, Kind.PRESENCE, reason=fact.reason)
        elif not self._opened[stream].brief:
            self._about(stream, logging.INFO, "%(client)s disconnected", Kind.PRESENCE)
        if omitted := self._quota.settle(peer, self._clock()):
            _say_omitted((peer[0], self._name(stream)), omitted)
        del self._opened[stream]
        self._clients.pop(stream, None)
        self._told.pop(stream, None)


def _say_omitted(peer: Peer, omitted: int) -> None:
    address, client = peer
    text = "%(n)d more lines about %(client)s were left out"
    _say(logging.WARNING, text, n=omitted, client=client or f"clients at {address}", peer=address)


def _refused(fact: Refused | ChangeHeldBack | ChangeLetThrough) -> None:
    """What is wrong with the configuration, in full: it is the operator's own."""
    match fact:
        case Refused((), known):
            text = "configuration refused again, for what was told before (/api/config lists it); problems: %(known)d"
            _say_in_full(logging.WARNING, text, known=known)
        case Refused(problems, known):
            more = "; and %(known)d that were told before" if known else ""
            text = f"configuration refused, the last good one stays: %(problems)s{more}"
            _say_in_full(logging.ERROR, text, problems="; ".join(problems), known=known)
        case ChangeHeldBack(change, remedy):
            text = "configuration held back (%(id)s), the last good one stays: %(why)s; to let it through: %(remedy)s"
            _say_in_full(logging.WARNING, text, id=change.id, why="; ".join(change.reasons), remedy=remedy)
        case ChangeLetThrough(change):
            text = "configuration that was held back (%(id)s) is confirmed, %(removed)s removed: %(why)s"
            _say_in_full(logging.WARNING, text, id=change.id, removed=change.summary, why="; ".join(change.reasons))


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
            _say(logging.INFO, text, server=server, type=_label(type_url), version=_short(version), error=message)
        case Rejected(server, type_url, version, message):
            text = "refused %(type)s %(version)s of %(server)s: %(error)s"
            _say(logging.WARNING, text, type=_label(type_url), version=_short(version), server=server, error=message)
        case Ambiguous(type_url, name, kept, other):
            text = "%(type)s %(name)r has two variants for one subscription: used is `%(kept)s`, not `%(other)s`"
            _say(logging.WARNING, text, type=_label(type_url), name=_short(name), kept=kept, other=other)


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
    return bounded(name, NAME_BYTES)


def _say(level: int, message: str, **fields: object) -> None:
    """One line of text, or one JSON object with every field by its name; whatever a peer made up is cut."""
    cut = {key: bounded(value, TEXT_BYTES) if isinstance(value, str) else value for key, value in fields.items()}
    _say_in_full(level, message, **cut)


def _say_in_full(level: int, message: str, **fields: object) -> None:
    log.log(level, message, fields)


# What peers send ends up in log lines: it must not be able to start a new one, or speak to a terminal, or turn the
# direction of what follows. The second are separators of lines and directions, which are no control characters.
_C1 = (127, *range(128, 160))
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))
_ESCAPED = {code: f"\\u{code:04x}" for code in _DIRECTIONS}
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *_C1)} | {10: "\\n", 13: "\\r", 9: "\\t"} | _ESCAPED
_IN_JSON = {code: f"\\u{code:04x}" for code in _C1} | _ESCAPED  # all else json escapes by itself


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

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Indented: what an exception quotes can't look like a line of the log."""
        return "\n".join(f"    {line.translate(_CONTROL)}" for line in super().formatException(ei).splitlines())


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
        return json.dumps(line, ensure_ascii=False, default=str).translate(_IN_JSON)


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
