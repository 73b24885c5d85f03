"""Read questions about clients, and write the answers to them (CSDS): envoy.service.status.v3.

An answer has at most `ANSWER_BYTES`, since gRPC's clients take no message above 4 MiB unless they are told to, and a
question has one answer. First all clients and resources are written without contents, then contents are added as long
as there is room. The `client_scope` of a client says what was left out of it; if whole clients were left out, the last
ClientConfig has no node, and its `client_scope` says how many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from envoy.admin.v3.config_dump_shared_pb2 import ClientResourceStatus
from envoy.config.core.v3.base_pb2 import Node as NodeProto
from envoy.service.status.v3 import csds_pb2 as pb
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from ...errors import PeerError
from ..model.events import Node
from ..model.limits import is_utf8
from ..model.node_params import node_of
from ..model.regexes import compile_regex
from ..model.steps import EVERY, Steps, pieces
from ..model.truncation import NAME_BYTES, bounded
from ..model.types import SECRET, TypeUrl, Variant
from ..policy.oversight import Viewer
from ..serve.client_status import Candidate, ChosenClient, StatusQuestion, StatusRow, choosing, listing_rows
from ..serve.node_matchers import Hidden, MetadataMatch, NodeMatch, TextMatch, ValueMatch
from ..session.sync_state import SyncState
from .wire import join_field

ANSWER_BYTES: Final = 4_000_000
CONTENTS_BYTES: Final = 1_000_000  # of one resource: protobuf parses all of it in one go
QUESTION_BYTES: Final = 256 * 1024  # of a request: the node of an Envoy has 60 kB
CONDITIONS = 32  # texts, numbers and booleans that all matchers of a request may have
PATTERN = 1_024  # characters of a regular expression
PROGRAM = 100  # instructions of RE2 that it may take, as many as Envoy allows
METADATA = 100  # strings that are shown of one node
MANY = 8 * EVERY  # resources that are put together in one step

REDACTED = "[redacted]"

# Fields of csds.proto, and of config_dump_shared.proto.
_CONFIG, _NODE, _GENERIC, _SCOPE, _CONTENTS, _ERROR, _FAILED = 1, 1, 3, 4, 4, 8, 1
_AROUND: Final = 5  # bytes of the tag and the length of a field, at most
_NOTE: Final = 300  # bytes of a client_scope

_STATES: Final = {
    SyncState.SYNCED: pb.SYNCED,
    SyncState.STALE: pb.STALE,
    SyncState.NOT_SENT: pb.NOT_SENT,
    SyncState.NACKED: pb.ERROR,
}

Redact = Callable[[TypeUrl, bytes], Steps[bytes]]  # contents without their secrets, in steps


# -- questions


def decode_question(message: bytes, node_params: Iterable[str] | None) -> StatusQuestion:
    """Read a ClientStatusRequest. Raises PeerError if it is none, or asks for what can't be answered."""
    if len(message) > QUESTION_BYTES:
        raise PeerError("INVALID_ARGUMENT", f"a request about clients has at most {QUESTION_BYTES:,} bytes")
    try:
        proto = pb.ClientStatusRequest.FromString(message)
    except DecodeError as error:
        raise PeerError("INVALID_ARGUMENT", f"not a ClientStatusRequest: {error}") from error
    reader = _MatcherReader()
    matchers = tuple([reader.node(each, f"node_matchers[{number}]") for number, each in enumerate(proto.node_matchers)])
    names = [*node_params] if node_params is not None else None
    node = node_of(proto.node, names) if proto.HasField("node") else None
    return StatusQuestion(matchers, node, not proto.exclude_resource_contents)


class _MatcherReader:
    """Reads the matchers of one request, and counts what they compare."""

    def __init__(self) -> None:
        self._left = CONDITIONS

    def node(self, proto: Any, where: str) -> NodeMatch:
        self._count()
        metadata = [self._metadata(each, f"{where}.node_metadatas[{n}]") for n, each in enumerate(proto.node_metadatas)]
        node_id = self._text(proto.node_id, f"{where}.node_id") if proto.HasField("node_id") else None
        return NodeMatch(node_id, tuple(metadata))

    def _metadata(self, proto: Any, where: str) -> MetadataMatch:
        path = tuple([segment.key for segment in proto.path])
        if not path or not all(path):
            raise _refusal(where, "path needs keys that lead to a value")
        return MetadataMatch(path, self._value(proto.value, f"{where}.value"))

    def _value(self, proto: Any, where: str) -> ValueMatch:
        self._count()
        kind = proto.WhichOneof("match_pattern")
        if kind == "string_match":
            return ValueMatch(texts=(self._text(proto.string_match, f"{where}.string_match"),))
        if kind == "bool_match":
            return ValueMatch(booleans=frozenset((proto.bool_match,)))
        if kind == "double_match" and proto.double_match.WhichOneof("match_pattern") == "exact":
            return ValueMatch(numbers=frozenset((proto.double_match.exact,)))
        if kind == "present_match":
            return ValueMatch(is_present=proto.present_match)
        if kind == "or_match":
            inner = [self._value(each, f"{where}.or_match") for each in proto.or_match.value_matchers]
            return ValueMatch(
                tuple([text for each in inner for text in each.texts]),
                frozenset([number for each in inner for number in each.numbers]),
                frozenset([boolean for each in inner for boolean in each.booleans]),
                any(each.is_present for each in inner),
            )
        text = "use string_match, bool_match, double_match with `exact`, present_match or or_match"
        raise _refusal(where, f"{kind or 'nothing'} can't be compared with what the server keeps of metadata: {text}")

    def _text(self, proto: Any, where: str) -> TextMatch:
        self._count()
        kind = proto.WhichOneof("match_pattern")
        if kind == "safe_regex":
            return TextMatch("regex", regex=_regex(proto.safe_regex.regex, f"{where}.safe_regex"))
        if kind in ("exact", "prefix", "suffix", "contains"):
            return TextMatch(kind, getattr(proto, kind), proto.ignore_case)
        raise _refusal(where, "it needs exact, prefix, suffix, contains or safe_regex")

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _refusal("node_matchers", f"at most {CONDITIONS} matchers are accepted, and each inner one counts")


def _regex(pattern: str, where: str) -> Any:
    """Compile a regular expression, if it is small enough to be tried on very many nodes."""
    if len(pattern) > PATTERN:
        raise _refusal(where, f"it has {len(pattern):,} characters; at most {PATTERN:,} are accepted")
    try:
        found = compile_regex(pattern)
    except ValueError as error:
        raise _refusal(where, str(error)) from None
    if found.programsize > PROGRAM:
        text = f"RE2 needs {found.programsize} instructions for it; at most {PROGRAM} are accepted"
        raise _refusal(where, text)
    return found


def _refusal(where: str, why: str) -> PeerError:
    return PeerError("INVALID_ARGUMENT", f"{where}: {why}")


# -- answers


class Tools(NamedTuple):
    """What an answer needs beside the clients."""

    redact: Redact
    hidden: Hidden  # whether a value of a node's metadata looks like a secret
    offset: float  # from the clock of the streams to the wall clock


def answering(candidates: list[Candidate], question: StatusQuestion, viewer: Viewer, tools: Tools) -> Steps[bytes]:
    """Answer a question with an encoded ClientStatusResponse, in steps."""
    answer = _Answer(tools)
    chosen = yield from choosing(candidates, question, viewer, tools.hidden)
    for number, client in enumerate(chosen):
        yield
        if not answer.begin(client):
            answer.left_out = len(chosen) - number
            break
        for stream in client.streams:
            rows, is_partial = yield from listing_rows(stream, viewer)
            answer.clients[-1].is_partial |= is_partial
            rows.reverse()
            while rows:  # taken from the end, and freed a few at a time: to free 50,000 at once takes long
                piece = rows[-EVERY:]
                del rows[-EVERY:]
                answer.add(reversed(piece))
                yield
    if question.contents:
        yield from answer.adding_contents()
    return (yield from answer.encoding())


class _Entry:
    """One GenericXdsConfig: its bytes so far, and the contents that are to be added."""

    __slots__ = ("body", "is_rejected", "variant")

    def __init__(self, body: bytes, variant: Variant | None, *, is_rejected: bool) -> None:
        self.body = body
        self.variant = variant
        self.is_rejected = is_rejected


class _Client:
    """One ClientConfig."""

    __slots__ = ("bare", "entries", "is_partial", "left_out", "node")

    def __init__(self, node: bytes) -> None:
        self.node = node
        self.entries: list[_Entry] = []
        self.left_out = 0  # resources for which there was no room
        self.bare = 0  # resources for whose contents there was no room
        self.is_partial = False  # not all of its resources were looked at

    @property
    def note(self) -> str:
        """Say what was left out of the client."""
        parts = []
        if self.left_out or self.is_partial:
            parts.append(f"{self.left_out:,} resources" if not self.is_partial else "some resources")
        if self.bare:
            parts.append(f"the contents of {self.bare:,} resources")
        return _note(" and ".join(parts)) if parts else ""


def _note(what: str) -> str:
    return (
        f"left out: {what}, as an answer has at most {ANSWER_BYTES:,} bytes, and contents {CONTENTS_BYTES:,}; "
        "ask with node_matchers for fewer clients, or with exclude_resource_contents"
    )


class _Answer:
    """An answer that is being written, and the room that is left in it."""

    def __init__(self, tools: Tools) -> None:
        self.clients: list[_Client] = []
        self.left_out = 0  # clients
        self._tools = tools
        self._left = ANSWER_BYTES - _NOTE - 2 * _AROUND  # room to say how many clients are left out
        self._redacted: dict[Variant, bytes] = {}

    def begin(self, client: ChosenClient) -> bool:
        """Begin a client. False: there is no room for it."""
        node = _node_proto(client.node, self._tools.hidden).SerializeToString(deterministic=True)
        size = len(node) + _NOTE + 3 * _AROUND
        if size > self._left:
            return False
        self._left -= size
        self.clients.append(_Client(node))
        return True

    def add(self, rows: Iterable[StatusRow]) -> None:
        """Add resources to the last client, as long as there is room."""
        client = self.clients[-1]
        for row in rows:
            entry = self._entry(row)
            size = len(entry.body) + _AROUND
            if size > self._left:
                client.left_out += 1
                continue
            self._left -= size
            client.entries.append(entry)

    def adding_contents(self) -> Steps[None]:
        """Add contents to the resources, as long as there is room, in steps. Those of secrets are left out (OPS-14)."""
        for client in self.clients:
            for number, entry in enumerate(client.entries):
                if number % EVERY == 0:
                    yield
                variant = entry.variant
                if variant is None or variant.type_url == SECRET:
                    continue
                contents = yield from self._contents(variant)
                size = len(contents) + 2 * _AROUND
                if not contents or size > self._left:
                    client.bare += 1
                    continue
                self._left -= size
                where = (_ERROR, join_field(_FAILED, contents)) if entry.is_rejected else (_CONTENTS, contents)
                entry.body += join_field(*where)

    def _contents(self, variant: Variant) -> Steps[bytes]:
        """Return a resource as an encoded Any without secrets, in steps; nothing if it would not fit."""
        found = self._redacted.get(variant)
        if found is None:
            if len(variant.body) > min(self._left, CONTENTS_BYTES):
                return b""
            body = yield from self._tools.redact(variant.type_url, variant.body)
            found = join_field(1, variant.type_url.encode()) + join_field(2, body)
            self._redacted[variant] = found
        return found

    def _entry(self, row: StatusRow) -> _Entry:
        status = row.status
        sent, is_rejected = status.sent, status.state is SyncState.NACKED
        name = sent.name if sent is not None else status.key.name
        proto = pb.ClientConfig.GenericXdsConfig(type_url=_text(row.type_url), name=_text(name))
        is_absent = status.state is SyncState.SYNCED and sent is None
        proto.config_status = pb.NOT_SENT if is_absent else _STATES[status.state]
        proto.client_status = _client_status(row)
        if is_rejected:
            self._describe_error(proto.error_state, row)
        elif sent is not None:
            proto.version_info = _text(sent.version)
            if row.at is not None:
                proto.last_updated.CopyFrom(self._timestamp(row.at))
        return _Entry(proto.SerializeToString(), sent, is_rejected=is_rejected)

    def _describe_error(self, into: Any, row: StatusRow) -> None:
        """CSD-1: say which version was rejected, when and why."""
        error, sent = row.status.error, row.status.sent
        into.details = _text(error.message) if error is not None else ""
        into.version_info = _text(sent.version) if sent is not None else ""
        if row.at is not None:
            into.last_update_attempt.CopyFrom(self._timestamp(row.at))

    def _timestamp(self, seconds: float) -> Timestamp:
        found = Timestamp()
        found.FromMicroseconds(int((seconds + self._tools.offset) * 1_000_000))
        return found

    def encoding(self) -> Steps[bytes]:
        """Return the encoded ClientStatusResponse, in steps."""
        configs: list[bytes] = []
        for client in self.clients:
            parts = [join_field(_NODE, client.node)]
            for piece in pieces(client.entries, MANY):
                yield
                parts += [join_field(_GENERIC, entry.body) for entry in piece]
            if client.note:
                parts.append(_scope(client.note))
            configs.append(join_field(_CONFIG, b"".join(parts)))
        if self.left_out:
            configs.append(join_field(_CONFIG, _scope(_note(f"{self.left_out:,} clients"))))
        return b"".join(configs)


def _scope(text: str) -> bytes:
    return join_field(_SCOPE, text.encode())


def _client_status(row: StatusRow) -> int:
    """Return how the client sees the resource, as far as its requests tell."""
    status, kinds = row.status, ClientResourceStatus
    if status.state is SyncState.NACKED:
        return int(kinds.Value("NACKED"))
    if status.state is SyncState.NOT_SENT:
        return int(kinds.Value("REQUESTED"))
    if status.sent is None:
        return int(kinds.Value("DOES_NOT_EXIST"))
    if status.confirmed:
        return int(kinds.Value("ACKED"))
    # In flight: what the client has of it is unknown, unless it can't have anything.
    return int(kinds.Value("REQUESTED" if status.is_first else "UNKNOWN"))


def _node_proto(node: Node, hidden: Hidden) -> NodeProto:
    """Return a node to show: of its metadata the strings, without those that look like secrets."""
    proto = NodeProto(id=_text(node.id), cluster=_text(node.cluster), user_agent_name=_text(node.user_agent))
    for key in sorted(node.metadata)[:METADATA]:
        value = node.metadata[key]
        shown = REDACTED if hidden(key, value) else bounded(value, NAME_BYTES)
        proto.metadata.fields[_text(bounded(key, NAME_BYTES))].string_value = _text(shown)
    proto.client_features.extend([_text(each) for each in sorted(node.features)])
    return proto


def _text(text: str) -> str:
    """Return a text that protobuf takes. A client may have sent one that is not UTF-8."""
    return text if is_utf8(text) else text.encode(errors="replace").decode()
