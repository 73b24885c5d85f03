"""Proto files as a library, and those that come with the package: of the newest Envoy, its contrib extensions, and v2.

`descriptors.bin` is written by scripts/descriptors.py and has each file by itself, so that a program which uses thirty
of a thousand reads thirty:

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
    """Proto files, found by their names and by the messages in them."""

    def __init__(self) -> None:
        self._content = b""
        self._files: dict[str, slice | FileDescriptorProto] = {}
        self._packages: dict[str, dict[str, str]] = {}  # of each file: its messages, parted by spaces

    @classmethod
    def read(cls, content: bytes) -> Library:
        """From what `written` gives."""
        library = cls()
        library._content = content
        start = 4 + int.from_bytes(content[:4], "big")
        for line in zlib.decompress(content[4:start]).decode().splitlines():
            length, name, package, messages = line.split(" ", 3)
            library._files[name] = slice(start, start := start + int(length))
            library._packages.setdefault(package if package != _NO_PACKAGE else "", {})[name] = messages
        return library

    def add(self, file: FileDescriptorProto) -> None:
        """Have a file, in place of one of the same name."""
        for files in self._packages.values() if file.name in self._files else ():
            files.pop(file.name, None)
        self._files[file.name] = file
        self._packages.setdefault(file.package, {})[file.name] = " ".join(messages_in(file))

    def file(self, name: str) -> FileDescriptorProto | None:
        found = self._files.get(name)
        if isinstance(found, slice):
            return FileDescriptorProto.FromString(zlib.decompress(self._content[found]))
        return found

    def file_with(self, full_name: str) -> FileDescriptorProto | None:
        """The file that defines a message, which may be nested in another."""
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
    """The files that come with the package."""
    return Library.read(HOME.read_bytes())


def written(files: Iterable[FileDescriptorProto]) -> bytes:
    """What `Library.read` reads; the same bytes for the same files."""
    lines, contents = [], []
    for file in sorted(files, key=lambda file: file.name):
        contents.append(zlib.compress(file.SerializeToString(deterministic=True), 9))
        lines.append(f"{len(contents[-1])} {file.name} {file.package or _NO_PACKAGE} {' '.join(messages_in(file))}")
    index = zlib.compress("\n".join(lines).encode(), 9)
    return len(index).to_bytes(4, "big") + index + b"".join(contents)


def messages_in(file: FileDescriptorProto) -> list[str]:
    """Those at the top; the others are nested in them."""
    return [message.name for message in file.message_type]
