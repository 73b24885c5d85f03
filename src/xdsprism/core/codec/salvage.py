"""Read a request that has names which are not UTF-8, and keep all other names and fields (VHD-26, DYN-46).

protobuf refuses a whole message for one such string. But names may come from third parties: with `cluster_header`,
Envoy subscribes to any bytes that the header of a request has. If the server ended the stream for them, anybody could
cut that Envoy off. So a request that protobuf refuses is read once more, as a message whose strings are declared as
bytes. Names that are not UTF-8 are cut out and returned separately, so that the session can refuse just these.

Such a name is decoded with Python's `surrogateescape`: a byte that is not UTF-8 becomes a lone surrogate, which no
valid name has (`limits.is_utf8`).
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

# Bytes of a name that is not UTF-8. Of a longer one the beginning is refused: no client recognises the answer anyway.
ODD = 1024 * 1024

Fields = Iterable[tuple[str, int, bool]]  # name, number, whether it is repeated

# The field numbers of discovery.proto, with all strings and messages as bytes. Other fields are kept as unknown ones.
_DELTA: Fields = (
    ("names", 3, True),
    ("gone", 4, True),
    ("versions", 5, True),
    ("error", 7, False),
    ("locators", 8, True),
    ("gone_locators", 9, True),
)
_SOTW: Fields = (("names", 3, True), ("error", 6, False), ("locators", 7, True))
_LOCATOR: Fields = (("name", 1, False), ("params", 2, True))
_ENTRY: Fields = (("key", 1, False), ("value", 2, False))
_STATUS: Fields = (("message", 2, False),)


def forms(**messages: Fields) -> dict[str, Any]:
    """Return message classes with these fields, all of type bytes.

    In proto2 a field that is there and empty stays, as an empty `error_detail` must: it makes a request a NACK.
    """
    file = FileDescriptorProto(name="salvage.proto", package="salvage", syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, repeated in fields:
            label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
            message.field.add(name=field, number=number, label=label, type=FieldDescriptorProto.TYPE_BYTES)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"salvage.{name}")) for name in messages}


_FORMS = forms(delta=_DELTA, sotw=_SOTW, locator=_LOCATOR, entry=_ENTRY, status=_STATUS)


class SalvagedRequest(NamedTuple):
    """The message without invalid names, and the subscriptions whose names are not UTF-8.

    Unsubscriptions of these names are dropped, since such a name was never subscribed.
    """

    message: bytes
    subscribe: tuple[Key, ...]


def parsed(form: Any, message: bytes, *, delta: bool) -> tuple[Any, SalvagedRequest | None]:
    """Return the request, and the names cut out of it, if any. Raise DecodeError if it is not a request."""
    try:
        return form.FromString(message), None
    except DecodeError as error:
        try:
            # Either some string is not UTF-8, or it is no request at all: the second attempt tells which.
            odd = salvaged(message, delta=delta)
            return form.FromString(odd.message), odd
        except DecodeError:
            raise error from None


def salvaged(message: bytes, *, delta: bool) -> SalvagedRequest:
    """Cut the names that are not UTF-8 out of a request. Raise DecodeError if it is no protobuf message at all."""
    raw = _FORMS["delta" if delta else "sotw"].FromString(message)
    odd: list[Key] = [Key(_text(name)) for name in raw.names if not is_utf8(name)]
    odd += [_locator(each) for each in raw.locators if not _is_locator(each)]
    _keep(raw.names, is_utf8)
    _keep(raw.locators, _is_locator)
    if delta:
        _keep(raw.gone, is_utf8)
        _keep(raw.gone_locators, _is_locator)
        _keep(raw.versions, _is_entry)  # no server sent a resource of such a name
    if not is_utf8(raw.error):
        raw.error = _status(raw.error)
    return SalvagedRequest(raw.SerializeToString(), tuple(odd))


def _keep(payloads: Any, is_good: Any) -> None:
    """Remove the items that are not good from a repeated field."""
    good = [payload for payload in payloads if is_good(payload)]
    # Most lists are fine: do not write them again.
    if len(good) < len(payloads):
        payloads[:] = good


def is_utf8(payload: bytes) -> bool:
    """Whether the bytes are UTF-8."""
    # Fast path, without a copy.
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_entry(payload: bytes) -> bool:
    """Whether key and value of a map item are UTF-8."""
    entry = _FORMS["entry"].FromString(payload)
    return is_utf8(entry.key) and is_utf8(entry.value)


def _is_locator(payload: bytes) -> bool:
    """Whether name and params of an encoded locator are UTF-8."""
    locator = _FORMS["locator"].FromString(payload)
    return is_utf8(locator.name) and all(map(_is_entry, locator.params))


def _locator(payload: bytes) -> Key:
    """Decode a locator that is not UTF-8 throughout."""
    locator = _FORMS["locator"].FromString(payload)
    entries = map(_FORMS["entry"].FromString, locator.params)
    return Key(_text(locator.name), Params({_text(entry.key): _text(entry.value) for entry in entries}))


def _status(payload: bytes) -> bytes:
    """Replace the invalid bytes in the text of a NACK.

    The text may quote anything, and Envoy cuts it at a byte, perhaps within a character. People read it, so it need not
    be exact.
    """
    status = _FORMS["status"].FromString(payload)
    status.message = status.message.decode(errors="replace").encode()
    return bytes(status.SerializeToString())


def _text(payload: bytes) -> str:
    """Decode a name that may not be UTF-8, without loss up to ODD bytes."""
    return payload[:ODD].decode(errors="surrogateescape")
