"""Requests with text that is not UTF-8: what else is in them is used all the same (VHD-26, DYN-46).

protobuf refuses a whole message for one such string. But names may come from third parties: Envoy subscribes to
whatever bytes the header of a request says (`cluster_header`). So a request that protobuf refuses is read once more,
as a message whose strings are bytes. Names that are not UTF-8 are cut out of it and returned by themselves, for the
session to refuse.

Such a name is returned as Python's `surrogateescape` decodes it: a byte that is not UTF-8 becomes a lone surrogate,
which no other name has (`limits.is_utf8`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ..model.events import Key
from ..model.types import Params

_Fields = Iterable[tuple[str, int, bool]]  # name, number, and whether it is repeated

# As in discovery.proto, but for the types: all are bytes. What protobuf still has to read is left to it.
_DELTA: _Fields = (
    ("names", 3, True),
    ("gone", 4, True),
    ("versions", 5, True),
    ("error", 7, False),
    ("locators", 8, True),
    ("gone_locators", 9, True),
)
_SOTW: _Fields = (("names", 3, True), ("error", 6, False), ("locators", 7, True))
_LOCATOR: _Fields = (("name", 1, False), ("params", 2, True))
_ENTRY: _Fields = (("key", 1, False), ("value", 2, False))
_STATUS: _Fields = (("message", 2, False),)


def _classes(**messages: _Fields) -> dict[str, Any]:
    file = FileDescriptorProto(name="salvage.proto", package="salvage", syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, repeated in fields:
            label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
            message.field.add(name=field, number=number, label=label, type=FieldDescriptorProto.TYPE_BYTES)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"salvage.{name}")) for name in messages}


_FORMS = _classes(delta=_DELTA, sotw=_SOTW, locator=_LOCATOR, entry=_ENTRY, status=_STATUS)


class Salvaged(NamedTuple):
    """What is left of a message, and the subscriptions that were cut out of it.

    Of names that are unsubscribed nothing is returned: what is not UTF-8 never was subscribed.
    """

    message: bytes
    subscribe: tuple[Key, ...]


def parsed(form: Any, message: bytes, *, delta: bool) -> tuple[Any, Salvaged | None]:
    """The request, and what had to be cut out of it, if anything. Raises DecodeError for what is no request at all."""
    try:
        return form.FromString(message), None
    except DecodeError as error:
        try:
            odd = salvaged(message, delta=delta)
            return form.FromString(odd.message), odd
        except DecodeError:
            raise error from None


def salvaged(message: bytes, *, delta: bool) -> Salvaged:
    """Cut out of a request the names that are not UTF-8. Raises DecodeError for what is no message at all."""
    raw = _FORMS["delta" if delta else "sotw"].FromString(message)
    odd: list[Key] = [(_text(name), None) for name in raw.names if not _is_utf8(name)]
    odd += [_locator(each) for each in raw.locators if not _is_locator(each)]
    _keep(raw.names, _is_utf8)
    _keep(raw.locators, _is_locator)
    if delta:
        _keep(raw.gone, _is_utf8)
        _keep(raw.gone_locators, _is_locator)
        _keep(raw.versions, _is_entry)  # by such a name nobody can have sent anything
    if not _is_utf8(raw.error):
        raw.error = _status(raw.error)
    return Salvaged(raw.SerializeToString(), tuple(odd))


def _keep(payloads: Any, is_good: Any) -> None:
    good = [payload for payload in payloads if is_good(payload)]
    if len(good) < len(payloads):
        payloads[:] = good


def _is_utf8(payload: bytes) -> bool:
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_entry(payload: bytes) -> bool:
    entry = _FORMS["entry"].FromString(payload)
    return _is_utf8(entry.key) and _is_utf8(entry.value)


def _is_locator(payload: bytes) -> bool:
    locator = _FORMS["locator"].FromString(payload)
    return _is_utf8(locator.name) and all(map(_is_entry, locator.params))


def _locator(payload: bytes) -> Key:
    locator = _FORMS["locator"].FromString(payload)
    entries = map(_FORMS["entry"].FromString, locator.params)
    return _text(locator.name), Params({_text(entry.key): _text(entry.value) for entry in entries})


def _status(payload: bytes) -> bytes:
    """The text of a NACK may quote anything, and Envoy cuts it at a byte. It is for people: it need not be exact."""
    status = _FORMS["status"].FromString(payload)
    status.message = status.message.decode(errors="replace").encode()
    return bytes(status.SerializeToString())


def _text(payload: bytes) -> str:
    return payload.decode(errors="surrogateescape")
