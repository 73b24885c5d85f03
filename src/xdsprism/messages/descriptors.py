"""Reads the proto files that come with the package: those of the newest Envoy, its contrib extensions, and v2.

scripts/descriptors.py writes `descriptors.bin`. It compresses each proto file separately, so that a program which uses
thirty of a thousand files decompresses thirty:

    the length of the index (4 bytes, big endian)
    the index (zlib): a line for each file, with its length, name, package and messages
    the files (zlib each), as FileDescriptorProtos, in the order of the index
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto

HOME = Path(__file__).parent / "descriptors.bin"

_NO_PACKAGE = "-"


class Library:
    """A set of proto files, which can be found by name and by the messages that they define."""

    def __init__(self) -> None:
        self._content = b""
        self._files: dict[str, slice | FileDescriptorProto] = {}
        self._packages: dict[str, dict[str, str]] = {}  # package: file: its top-level messages, separated by spaces

    @classmethod
    def read(cls, content: bytes) -> Library:
        """Read what `written` returns."""
        library = cls()
        library._content = content
        start = 4 + int.from_bytes(content[:4], "big")
        for line in zlib.decompress(content[4:start]).decode().splitlines():
            length, name, package, messages = line.split(" ", 3)
            library._files[name] = slice(start, start := start + int(length))
            library._packages.setdefault(package if package != _NO_PACKAGE else "", {})[name] = messages
        return library

    def add(self, file: FileDescriptorProto) -> None:
        """Add a file, or replace the one of the same name."""
        for files in self._packages.values() if file.name in self._files else ():
            files.pop(file.name, None)
        self._files[file.name] = file
        self._packages.setdefault(file.package, {})[file.name] = " ".join(messages_in(file))

    def file(self, name: str) -> FileDescriptorProto | None:
        """Return a file by name, decompressed if it comes with the package."""
        found = self._files.get(name)
        if isinstance(found, slice):
            return FileDescriptorProto.FromString(zlib.decompress(self._content[found]))
        return found

    def file_with(self, full_name: str) -> FileDescriptorProto | None:
        """Return the file that defines a message, which may be nested in another message."""
        words = full_name.split(".")
        for size in range(len(words) - 1, -1, -1):
            for name, messages in self._packages.get(".".join(words[:size]), {}).items():
                if f" {words[size]} " in f" {messages} ":
                    return self.file(name)
        return None

    def packages(self) -> Iterable[str]:
        return self._packages.keys()

    def messages_of(self, package: str) -> list[str]:
        return sorted(name for messages in self._packages.get(package, {}).values() for name in messages.split())


def shipped() -> Library:
    """Return the proto files that come with the package."""
    return Library.read(HOME.read_bytes())


def written(files: Iterable[FileDescriptorProto]) -> bytes:
    """Serialize files for `Library.read`. The same files always give the same bytes."""
    lines, contents = [], []
    for file in sorted(files, key=lambda file: file.name):
        contents.append(zlib.compress(file.SerializeToString(deterministic=True), 9))
        lines.append(f"{len(contents[-1])} {file.name} {file.package or _NO_PACKAGE} {' '.join(messages_in(file))}")
    index = zlib.compress("\n".join(lines).encode(), 9)
    return len(index).to_bytes(4, "big") + index + b"".join(contents)


def messages_in(file: FileDescriptorProto) -> list[str]:
    """Return the names of the top-level messages of a file."""
    return [message.name for message in file.message_type]
