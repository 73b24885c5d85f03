"""Finds a message type by name: among those that the user gave, that come with the package, and that are installed.

They live in a pool of their own beside protobuf's default one, which belongs to xds-protos and lags behind Envoy: two
versions of one message can't be in one pool. So a message that a program made and one that was read from a file are of
different classes, and go from one to the other as bytes. The pool reads a proto file when something in it is first
asked for.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from threading import RLock

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ..core.model.types import PREFIX
from ..errors import ConfigError, Problem
from .descriptors import Library, shipped
from .given import check_together, defines_more, read_set
from .installed import installed


def type_name(type_url: str) -> str:
    """Cut `type.googleapis.com/` off; the full name alone is accepted too (DESIGN 3)."""
    return type_url.rpartition("/")[2]


def type_url(full_name: str) -> str:
    return PREFIX + full_name


def find_message(full_name: str) -> type[Message] | None:
    """Find the class for a message's full name, or None where nothing that is known defines it."""
    return _types.known.get(full_name) or _types.find(full_name)


def newest(message: Message) -> Message:
    """The same message as its newest type has it; one of no known type stays what it is. Raises DecodeError."""
    kind = find_message(message.DESCRIPTOR.full_name)
    if kind is None or isinstance(message, kind):
        return message
    return kind.FromString(message.SerializeToString())


def close_matches(full_name: str) -> list[str]:
    """Suggest existing types for a name that does not exist: first the package, then the message in it."""
    package, _, name = full_name.rpartition(".")
    library = _types.library
    near = [package] if package in library.packages() else get_close_matches(package, library.packages(), 2, 0.8)
    found = [(each, get_close_matches(name, library.messages_of(each), n=1)) for each in near]
    return [f"{each}.{close}" for each, matches in found for close in matches]


def add_descriptors(source: str | os.PathLike[str] | bytes) -> None:
    """Know the message types of a FileDescriptorSet too: a file as protoc and buf make it, or its contents.

    Of a proto file that is known already the one that defines more is used, so that those of a newer Envoy may be given
    too. Raises ConfigError for what is no such set, or lacks what its files import.
    """
    name = "" if isinstance(source, bytes) else os.fspath(source)
    try:
        _types.add(source if isinstance(source, bytes) else Path(source).read_bytes())
    except OSError as error:
        raise ConfigError([Problem(f"can't be read: {error.strerror}", name)]) from error
    except ValueError as error:
        raise ConfigError([Problem(str(error), name)]) from error


def pool() -> DescriptorPool:
    """Where all that is found here is from."""
    return _types.pool


class _Types:
    """What is known now. Files are read in a thread, so that two may look for something at a time."""

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
        with self._lock:
            try:
                found = GetMessageClass(self.pool.FindMessageTypeByName(full_name))
            except KeyError:
                return None
            except TypeError:  # what is installed does not go together with what is here: Envoy has it no more
                installed_one = installed(full_name)
                if installed_one is None:
                    return None
                found = GetMessageClass(installed_one)
            self.known[full_name] = found
            return found

    def add(self, content: bytes) -> None:
        """Take a FileDescriptorSet. From now on all are of a new pool; messages that are there keep their class."""
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
    """What the pool asks for files that it does not have yet; protobuf gave these methods their names."""

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
