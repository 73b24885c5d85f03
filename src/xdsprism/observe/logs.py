"""Turns facts into log lines, and formats lines as text or as JSON. The core itself never logs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from ..core.model.dialect import RequestForm
from ..core.model.events import Node
from ..core.model.facts import (
    Ambiguous,
    ChangeHeldBack,
    ChangeLetThrough,
    Closed,
    ConfigLoaded,
    Denied,
    Drained,
    Fact,
    Forgotten,
    FormFound,
    Joined,
    LacksDelta,
    LimitReached,
    LoadsRefused,
    Lost,
    Nacked,
    NackReported,
    Opened,
    OtherNode,
    Oversize,
    PolicyRefused,
    PolicyTaken,
    Published,
    Reached,
    Recovered,
    Refused,
    Rejected,
    ShareExceeded,
    SubscriptionQuarantined,
    SubscriptionsRefused,
    TokenRefused,
)
from ..core.model.limits import ClientLimit
from ..peer_address import host_of
from ..printable import printable, printable_json
from .change_log import write_change
from .lines import NAMED, described, label, listed, log, named, say, short, word_of
from .quota import MEMORY, Kind, Peer, Quota
from .traffic import EVERYDAY

Format = Literal["text", "json"]

SHOWN = 200  # characters of a type URL that a client sent
INTERVAL = 600.0  # seconds between two equal lines about a stream
REMEMBERED = 50  # different lines about one stream that are remembered
PAUSE = 60.0  # seconds between two reports of omitted lines
AMBIGUOUS = "variants for one subscription"  # stands for the peer in the quota, as the fact names no server

# What happens to a client that exceeds a limit.
LIMITED: Mapping[ClientLimit, str] = {
    "client_streams": "and another stream of it was refused",
    "all_streams": "and a stream of it was refused",
    "requests": "and its further requests wait",
    "reports": "and its further load reports wait",
    "fetches": "and a fetch of it was refused",
    "idle_stream": "and the stream was ended",
}


class FactLog:
    """A reader of facts that logs what operators need to know: `hub.readers.append(FactLog())`.

    A peer that repeats itself causes few lines: equal lines about a stream are written once per INTERVAL, all lines
    about a peer have a quota, and a later line says how many were omitted.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quota = Quota()
        self._reported_at = clock()  # when omitted lines were last reported
        self._opened: dict[int, Opened] = {}
        self._clients: dict[int, str] = {}
        self._last_written: dict[
            int, dict[int, float]
        ] = {}  # stream: hashes of the lines about it, and when they were written
        self._last_written_of_peers: dict[Peer, dict[int, float]] = {}  # the same for clients

    def __call__(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if type(fact) not in EVERYDAY:  # requests, responses and ACKs are too many to log; metrics count them
                self._write(fact)
        if self._quota.has_omitted and self._clock() - self._reported_at >= PAUSE:
            self._reported_at = self._clock()
            for peer, omitted in self._quota.take_all_omitted(self._reported_at):
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
            case Oversize() | Forgotten() | SubscriptionsRefused() | OtherNode():
                self._write_problem(fact)
            case Nacked() | Recovered():
                self._write_verdict(fact)
            case Denied():
                self._write_denied(fact)
            case LimitReached():
                self._write_limit(fact)
            case TokenRefused():
                self._write_refused_token(fact)
            case (
                Published()
                | ConfigLoaded()
                | Drained()
                | Refused()
                | ChangeHeldBack()
                | ChangeLetThrough()
                | PolicyTaken()
                | PolicyRefused()
            ):
                write_change(fact)
            case ShareExceeded():
                self._write_share(fact)
            case _:
                self._write_of_servers(fact)

    def _write_of_servers(self, fact: Fact) -> None:
        """Log facts about upstream servers and load reports. They name no stream, so the quota is by name alone."""
        now = self._clock()
        match fact:
            case LoadsRefused(node, cluster, message, news):
                text = "%(client)s sent an invalid load report for cluster %(cluster)r: %(error)s"
                if news and self._quota.allows(("", node), Kind.PROBLEM, now):
                    say(logging.WARNING, text, client=node, cluster=cluster, error=message)
            case Reached() | Lost():
                if self._quota.allows(("", fact.server), Kind.PRESENCE, now):
                    _upstream(fact)
            case SubscriptionQuarantined() | NackReported() | Rejected():
                if self._quota.allows(("", fact.server), Kind.PROBLEM, now):
                    _upstream(fact)
            case Ambiguous():
                if fact.first and self._quota.allows(("", AMBIGUOUS), Kind.PROBLEM, now):  # DESIGN 6.10
                    _upstream(fact)
            case _:
                _dialect(fact)

    def _write_problem(self, fact: Oversize | Forgotten | SubscriptionsRefused | OtherNode) -> None:
        """Log what went wrong on a stream, unless an equal line was written lately."""
        match fact:
            case Oversize(stream, type_url, name, size):
                text = "%(client)s is not sent %(type)s %(name)r: %(size)d bytes are too many for a response"
                if self._is_news(stream, "oversize", type_url, name):
                    self._about(stream, logging.WARNING, text, type=label(type_url), name=name, size=size)
            case Forgotten(stream, type_url):  # one line, as a client that scans hosts requests thousands
                text = "%(client)s requests more unknown %(type)s than the server remembers: does it scan hosts?"
                if self._is_news(stream, "forgotten"):
                    self._about(stream, logging.WARNING, text, type=label(type_url))
            case SubscriptionsRefused(stream, type_url, limit, _, reason):
                opened = self._opened.get(stream)
                if opened is not None and opened.brief:
                    return  # there may be any number of one-request streams; a metric counts them
                if self._is_news(stream, "refused", limit):
                    text = (
                        "%(client)s exceeds the limit `%(limit)s` with %(type)s: %(reason)s; "
                        "such names are answered as not existing, all others are served (docs/limits.md)"
                    )
                    word = label(type_url)[:SHOWN]
                    self._about(stream, logging.WARNING, text, type=word, limit=limit, reason=reason)
            case OtherNode(stream):
                text = "%(client)s sent another node later on its stream, which is ignored"
                if self._is_news(stream, "other node"):
                    self._about(stream, logging.WARNING, text)

    def _write_verdict(self, fact: Nacked | Recovered) -> None:
        """Log what a client rejected, or that it accepts it again."""
        match fact:
            case Nacked():
                self._write_nack(fact)
            case Recovered(stream, type_url, names, seconds):
                if self._is_news(stream, "recovered", type_url, *names[:NAMED]):
                    text = "%(client)s accepts %(what)s again, after %(seconds).1f s"
                    word = word_of(type_url)
                    what = listed([f"{word}/{short(name)}" for name in names], NAMED) or word
                    self._about(stream, logging.INFO, text, type=label(type_url), what=what, seconds=round(seconds, 3))

    def _write_nack(self, fact: Nacked) -> None:
        """NAK-12: log which resource was rejected, in which variant, and where that is written, as far as it is known.

        A delta NACK of several resources tells only that one of them is bad.
        """
        names = [each.name for each in fact.variants[:NAMED]]
        if not self._is_news(fact.stream, "NACK", fact.type_url, fact.error.message, *names):
            return
        rows = [described(each) for each in fact.variants[:NAMED]]
        more = len(fact.variants) - len(rows)
        what = listed([named(fact.type_url, row) for row in rows], NAMED, more) or label(fact.type_url)
        self._about(
            fact.stream,
            logging.WARNING,
            f"%(client)s NACKed {'one of ' if fact.isolates else ''}%(what)s, nonce %(nonce)s: %(error)s",
            type=label(fact.type_url),
            what=what,
            nonce=fact.nonce,
            error=fact.error.message,
            code=fact.error.code,
            version=fact.version,
            resources=rows,
            more=more,
        )

    def _write_denied(self, fact: Denied) -> None:
        """Log the first denial of each kind and type on a stream. A metric counts all of them."""
        opened = self._opened.get(fact.stream)
        if opened is not None and opened.brief and fact.kind != "client":
            return  # there may be any number of one-request streams
        if self._is_news(fact.stream, "denied", fact.kind, fact.type_url):
            identity = opened.identity if opened is not None else ""
            self._about(
                fact.stream,
                logging.WARNING,
                "%(client)s (%(identity)s) is denied %(type)s %(name)r: %(reason)s [%(rule)s]",
                identity=identity or "anonymous",
                type=label(fact.type_url)[:SHOWN],
                name=short(fact.name),
                denial=fact.kind,
                reason=fact.reason,
                rule=fact.rule,
            )

    def _write_limit(self, fact: LimitReached) -> None:
        """Log the first time in a while that a client exceeds a limit. A metric counts all of them."""
        what = LIMITED[fact.limit]
        if fact.stream is not None:
            if self._is_news(fact.stream, "limited", fact.limit):
                text = f"%(client)s exceeds the limit `%(limit)s`, {what}: %(reason)s (docs/limits.md)"
                self._about(fact.stream, logging.WARNING, text, limit=fact.limit, reason=fact.reason)
        elif self._is_news_of((fact.client, ""), fact.limit):
            text = f"%(peer)s exceeds the limit `%(limit)s`, {what}: %(reason)s (docs/limits.md)"
            say(logging.WARNING, text, peer=fact.client, limit=fact.limit, reason=fact.reason)

    def _write_refused_token(self, fact: TokenRefused) -> None:
        """OPS-15: the call has no stream. Its client comes back with the same token until somebody mends it."""
        if self._is_news_of((host_of(fact.peer), ""), f"token {fact.cause}"):
            text = "a call from %(peer)s is refused: %(reason)s"
            say(logging.WARNING, text, peer=fact.peer, cause=fact.cause, reason=fact.reason)

    def _write_share(self, fact: ShareExceeded) -> None:
        """PRX-35: there may be thousands, of any of the client's streams."""
        peer, kind = fact.client, fact.kind.value
        if self._is_news_of(peer, kind):
            text = (
                "%(client)s at %(peer)s has more than its share of the %(kind)s that the relay can subscribe to: "
                "it keeps what it has, and its newest subscriptions are refused (docs/limits.md)"
            )
            say(logging.WARNING, text, client=peer[1] or "a client", peer=peer[0], kind=kind)

    def _is_news_of(self, peer: Peer, what: str) -> bool:
        """Whether to write a line about this client, of any of its streams: not the same in INTERVAL, or too many."""
        now = self._clock()
        last_written = self._last_written_of_peers.pop(peer, {})
        if len(self._last_written_of_peers) >= MEMORY:
            del self._last_written_of_peers[next(iter(self._last_written_of_peers))]
        self._last_written_of_peers[peer] = last_written  # the one that was told of last is at the end
        return self._is_new(last_written, peer, what) and self._quota.allows(peer, Kind.PROBLEM, now)

    def _is_news(self, stream: int, *what: str) -> bool:
        """Whether the last equal line about the stream is more than INTERVAL ago; if not, count it as omitted."""
        return self._is_new(self._last_written.setdefault(stream, {}), self._peer(stream), *what)

    def _is_new(self, last_written: dict[int, float], peer: Peer, *what: str) -> bool:
        now, key = self._clock(), hash(what)
        at = last_written.get(key)
        if at is not None and now - at < INTERVAL:
            self._quota.omit(peer, now)
            return False
        last_written.pop(key, None)
        if len(last_written) >= REMEMBERED:
            del last_written[next(iter(last_written))]
        last_written[key] = now
        return True

    def _about(self, stream: int, level: int, message: str, kind: Kind = Kind.PROBLEM, **fields: object) -> None:
        """Write a line about a stream, if the quota of its peer allows."""
        if self._quota.allows(self._peer(stream), kind, self._clock()):
            say(level, message, client=self._name(stream), stream=stream, **fields)

    def _name(self, stream: int) -> str:
        return self._clients.get(stream) or f"stream {stream}"

    def _peer(self, stream: int) -> Peer:
        """Return the address and the node id of a stream, by which the quota counts."""
        opened = self._opened.get(stream)
        address = host_of(opened.peer) if opened is not None else ""
        return address, self._clients.get(stream, "")

    def _joined(self, stream: int, node: Node) -> None:
        """Log that a client connected, once its first request has named its node."""
        self._clients[stream] = node.id
        opened = self._opened[stream]
        # A client that polls would fill the log.
        if opened.brief or not self._quota.allows(self._peer(stream), Kind.PRESENCE, self._clock()):
            return
        say(
            logging.INFO,
            f"%(client)s connected from %(peer)s{' as %(identity)s' if opened.identity else ''} (%(method)s)",
            client=self._name(stream),
            stream=stream,
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
            level = logging.INFO if fact.is_usual else logging.WARNING
            self._about(stream, level, text, Kind.PRESENCE, reason=fact.reason)
        elif not self._opened[stream].brief:
            self._about(stream, logging.INFO, "%(client)s disconnected", Kind.PRESENCE)
        if omitted := self._quota.take_omitted(peer, self._clock()):
            _say_omitted((peer[0], self._name(stream)), omitted)
        del self._opened[stream]
        self._clients.pop(stream, None)
        self._last_written.pop(stream, None)


def _say_omitted(peer: Peer, omitted: int) -> None:
    address, client = peer
    text = "%(n)d more lines about %(client)s were omitted"
    say(logging.WARNING, text, n=omitted, client=client or f"clients at {address}", peer=address)


def _upstream(fact: Reached | Lost | SubscriptionQuarantined | NackReported | Rejected | Ambiguous) -> None:
    """Log a fact about an upstream server."""
    match fact:
        case Reached(server):
            say(logging.INFO, "connected to %(server)s", server=server)
        case Lost(server, error, failed, reached):
            level = logging.WARNING if failed else logging.INFO
            text = "lost %(server)s: %(error)s" if reached else "can't reach %(server)s: %(error)s"
            say(level, text, server=server, error=error)
        case SubscriptionQuarantined(server, type_url, name, error, seconds):
            text = "%(server)s ends the stream after a request for %(type)s %(name)r: withheld for %(s)d s: %(error)s"
            say(logging.WARNING, text, server=server, type=label(type_url), name=short(name), s=seconds, error=error)
        case NackReported(server, type_url, version, message):
            text = "reported to %(server)s that clients NACKed %(type)s %(version)s: %(error)s"
            say(logging.INFO, text, server=server, type=label(type_url), version=short(version), error=message)
        case Rejected(server, type_url, version, message):
            text = "NACKed %(type)s %(version)s of %(server)s: %(error)s"
            say(logging.WARNING, text, type=label(type_url), version=short(version), server=server, error=message)
        case Ambiguous(type_url, name, kept, other):
            text = "%(type)s %(name)r has two variants for one subscription: `%(kept)s` is used, `%(other)s` is not"
            say(logging.WARNING, text, type=label(type_url), name=short(name), kept=kept, other=other)


def _dialect(fact: Fact) -> None:
    """Log what an upstream server was found to support; each such fact comes once for each server."""
    match fact:
        case LacksDelta(server):
            say(logging.INFO, "%(server)s has no delta method: the relay uses SotW", server=server)
        case FormFound(server, RequestForm.NAMES):
            text = (
                "%(server)s does not support dynamic parameters: the relay subscribes by plain names, and all clients "
                "share the answers; use --group-by to give groups of nodes their own"
            )
            say(logging.WARNING, text, server=server)
        case FormFound(server):
            say(logging.DEBUG, "%(server)s supports dynamic parameters", server=server)
        case _:
            pass


class TextFormatter(logging.Formatter):
    """Formats a line as text, for people and for `grep`."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class says so
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Indent the traceback, so that a text quoted in it can't look like a log line."""
        return "\n".join(f"    {printable(line)}" for line in super().formatException(ei).splitlines())


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
        return printable_json(json.dumps(line, ensure_ascii=False, default=str))


def log_now(message: str, fields: Mapping[str, object]) -> str:
    """Return a line in the form of the log for machines, of what is said whatever the level of the log is."""
    record = logging.LogRecord(log.name, logging.INFO, "", 0, message, (fields,), None)
    return JsonFormatter().format(record)


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
