"""Reads the FileDescriptorSets that a user gives, and checks that they fit the proto files of the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from .descriptors import Library

_HOW = "make it with `protoc --include_imports --descriptor_set_out=FILE` or `buf build -o FILE`"


def read_set(content: bytes) -> list[FileDescriptorProto]:
    """Return the files of a serialized set. Raises ValueError with the reason."""
    try:
        files = list(FileDescriptorSet.FromString(content).file)
    except DecodeError as error:
        raise ValueError(f"is not a FileDescriptorSet: {_HOW}") from error
    # Protobuf decodes many other files as a set, so check that it has plausible contents.
    if not files or not all(file.name.endswith(".proto") for file in files):
        raise ValueError(f"is not a FileDescriptorSet: {_HOW}")
    for file in files:
        file.ClearField("source_code_info")
    return files


def defines_more(one: FileDescriptorProto, other: FileDescriptorProto) -> bool:
    """Whether `one` defines everything that `other`, a file of the same name, defines, and more."""
    return set(_in_file(one)) > set(_in_file(other))


def check_together(files: Iterable[FileDescriptorProto], library: Library) -> None:
    """Raise ValueError with the reason if files lack an import or conflict with the files of the library."""
    pool = DescriptorPool()
    done: set[str] = set()

    def build(file: FileDescriptorProto) -> None:
        done.add(file.name)
        for name in file.dependency:
            if name not in done:
                found = library.file(name)
                if found is None:
                    raise ValueError(f"lacks {name}, which {file.name} imports: {_HOW}")
                build(found)
        try:
            pool.Add(file)
        except TypeError as error:
            raise ValueError(f"{file.name} can't be used: {error}") from error

    for each in files:
        if each.name not in done:
            build(library.file(each.name) or each)


def _in_file(file: FileDescriptorProto) -> Iterator[str]:
    """Yield the names of all messages, fields, enums and enum values that a file defines."""
    for message in file.message_type:
        yield from _in_message(message, message.name)
    for enum in file.enum_type:
        yield from _in_enum(enum, enum.name)


def _in_message(message: DescriptorProto, name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}.{field.name}" for field in message.field)
    for inner in message.nested_type:
        yield from _in_message(inner, f"{name}.{inner.name}")
    for enum in message.enum_type:
        yield from _in_enum(enum, f"{name}.{enum.name}")


def _in_enum(enum: EnumDescriptorProto, name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}={value.name}" for value in enum.value)
