"""FileDescriptorSets that a user gives: what is in them, and whether it can be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from .descriptors import Library

_HOW = "make it with `protoc --include_imports --descriptor_set_out=FILE` or `buf build -o FILE`"


def read_set(content: bytes) -> list[FileDescriptorProto]:
    """The files of a set. Raises ValueError, with the reason."""
    try:
        files = list(FileDescriptorSet.FromString(content).file)
    except DecodeError as error:
        raise ValueError(f"is no FileDescriptorSet: {_HOW}") from error
    if not files or not all(file.name.endswith(".proto") for file in files):  # nearly anything can be read as one
        raise ValueError(f"is no FileDescriptorSet: {_HOW}")
    for file in files:
        file.ClearField("source_code_info")
    return files


def defines_more(one: FileDescriptorProto, other: FileDescriptorProto) -> bool:
    """Whether a file has all that another of its name has, and then some."""
    return set(_in_file(one)) > set(_in_file(other))


def check_together(files: Iterable[FileDescriptorProto], library: Library) -> None:
    """Raises ValueError, with the reason, where files do not go together with those of the library."""
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
