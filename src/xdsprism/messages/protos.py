"""Finds a message type by name: among the user's descriptor sets, the package's proto files, and installed modules.

The types found here live in a descriptor pool of their own. protobuf's default pool belongs to xds-protos, which lags
behind Envoy, and a pool can't hold two versions of one message. So a message that a program made and one that was read
from a file have different classes, and are converted into each other as bytes. The pool loads a proto file when a type
in it is first asked for.
"""

from __future__ import annotations

import os
from threading import RLock

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ..core.model.types import PREFIX
from ..errors import ConfigError, Problem
from ..file_reading import read_file
from ..similar import similar
from .descriptors import Library, shipped
from .installed import installed
from .user_descriptors import check_together, defines_more, read_set

MAX_DESCRIPTORS = 256 * 1024 * 1024  # bytes of a file with descriptors


def type_name(type_url: str) -> str:
    """Return the full name in a type URL. A full name without `type.googleapis.com/` is accepted too (DESIGN 3)."""
    return type_url.rpartition("/")[2]


def type_url(full_name: str) -> str:
    return PREFIX + full_name


def find_message(full_name: str) -> type[Message] | None:
    """Return the class for a message's full name, or None if no known proto file defines it."""
    return _types.known.get(full_name) or _types.find(full_name)


def newest(message: Message) -> Message:
    """Convert a message to the newest known version of its type. Raises DecodeError.

    A message of an unknown type is returned as it is.
    """
    kind = find_message(message.DESCRIPTOR.full_name)
    if kind is None or isinstance(message, kind):
        return message
    return kind.FromString(message.SerializeToString())


def close_matches(full_name: str) -> list[str]:
    """Suggest existing types for a name that does not exist: first the package, then the message in it."""
    package, _, name = full_name.rpartition(".")
    library = _types.library
    near = [package] if package in library.packages() else similar(package, library.packages(), 2, 0.8)
    found = [(each, similar(name, library.messages_of(each))) for each in near]
    return [f"{each}.{close}" for each, matches in found for close in matches]


def add_descriptors(source: str | os.PathLike[str] | bytes) -> None:
    """Add the message types of a FileDescriptorSet: the path of a file that protoc or buf made, or its contents.

    If a proto file is known already, the version that defines more is used, so a user can add the protos of a newer
    Envoy. Raises ConfigError if the set can't be decoded, or lacks files that its files import.
    """
    name = "" if isinstance(source, bytes) else os.fspath(source)
    try:
        _types.add(source if isinstance(source, bytes) else read_file(source, MAX_DESCRIPTORS))
    except OSError as error:
        raise ConfigError([Problem(f"can't be read: {error.strerror}", name)]) from error
    except ValueError as error:
        raise ConfigError([Problem(str(error), name)]) from error


def pool() -> DescriptorPool:
    """Return the descriptor pool of all types that `find_message` finds."""
    return _types.pool


class _Types:
    """The known message types. The lock is needed as configuration files are parsed in a thread."""

    def __init__(self) -> None:
        self.known: dict[str, type[Message]] = {}
        self._given: list[FileDescriptorProto] = []
        self._library: Library | None = None
        self._pool: DescriptorPool | None = None
        self._lock = RLock()

    @property
    def library(self) -> Library:
        with self._lock:
            if self._library is None:
                self._library = shipped()
            return self._library

    @property
    def pool(self) -> DescriptorPool:
        with self._lock:
            if self._pool is None:
                self._pool = DescriptorPool(_Database(self.library))
            return self._pool

    def find(self, full_name: str) -> type[Message] | None:
        """Find a class in the pool, and remember it."""
        with self._lock:
            try:
                found = GetMessageClass(self.pool.FindMessageTypeByName(full_name))
            except KeyError:
                return None
            except TypeError:  # an installed proto that newer Envoys lack, and that conflicts with those of this pool
                installed_one = installed(full_name)
                if installed_one is None:
                    return None
                found = GetMessageClass(installed_one)
            self.known[full_name] = found
            return found

    def add(self, content: bytes) -> None:
        """Add a FileDescriptorSet. All types come from a new pool from now on; existing messages keep their class."""
        given = read_set(content)
        library = shipped()
        for file in (*self._given, *given):
            before = library.file(file.name)
            if before is None or defines_more(file, before):
                library.add(file)
        check_together(given, library)
        with self._lock:
            self._given += given
            self._library, self._pool = library, None
            self.known = {}


class _Database:
    """Supplies proto files to the pool when it needs them. protobuf prescribes the names of the methods."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def FindFileByName(self, name: str) -> FileDescriptorProto:  # noqa: N802
        return self._library.file(name) or _proto_of(Default().FindFileByName(name).serialized_pb)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptorProto:  # noqa: N802
        file = self._library.file_with(symbol)
        if file is not None:
            return file
        descriptor = installed(symbol)
        if descriptor is None:
            raise KeyError(symbol)
        return _proto_of(descriptor.file.serialized_pb)


def _proto_of(content: bytes) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(content)


_types = _Types()
