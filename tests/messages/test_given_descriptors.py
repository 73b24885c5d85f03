"""Message types that a user gives as a FileDescriptorSet."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

import xdsprism as xp
from xdsprism.messages import protos
from xdsprism.messages.descriptors import shipped
from xdsprism.messages.protos import add_descriptors, close_matches, find_message
from xdsprism.sources.parse import parse

TEXT, MESSAGE = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_MESSAGE
ONE = FieldDescriptorProto.LABEL_OPTIONAL


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protos, "_types", protos._Types())  # noqa: SLF001 # types that a user gives stay for as long as the program runs


def own_file(name: str = "acme/thing.proto", *, imports: tuple[str, ...] = ()) -> FileDescriptorProto:
    file = FileDescriptorProto(name=name, package="acme.v1", syntax="proto3", dependency=imports)
    message = file.message_type.add(name="Thing")
    message.field.add(name="colour", json_name="colour", number=1, type=TEXT, label=ONE)
    return file


def packed(*files: FileDescriptorProto) -> bytes:
    return FileDescriptorSet(file=files).SerializeToString()


FILTER = """
"@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
name: x
typed_config: {"@type": acme.v1.Thing, colour: blue}
"""


def test_a_given_type_is_read_from_files() -> None:
    assert [problem.message for problem in parse(FILTER, "a.yaml").problems] == [
        "unknown type acme.v1.Thing; wrap it in a TypedStruct, or make it known with --descriptors FILE"
    ]
    add_descriptors(packed(own_file()))
    (variant,) = parse(FILTER, "a.yaml").variants
    assert b"acme.v1.Thing" in variant.body
    assert b"blue" in variant.body


def test_a_set_is_read_from_a_file_that_a_path_names(tmp_path: Path) -> None:
    path = tmp_path / "own.bin"
    path.write_bytes(packed(own_file()))
    add_descriptors(path)
    assert find_message("acme.v1.Thing") is not None


def test_given_types_are_among_those_that_are_suggested() -> None:
    add_descriptors(packed(own_file()))
    assert close_matches("acme.v1.Thingy") == ["acme.v1.Thing"]


def test_two_sets_are_both_known() -> None:
    other = FileDescriptorProto(name="b.proto", package="b", syntax="proto3")
    other.message_type.add(name="B")
    add_descriptors(packed(own_file()))
    add_descriptors(packed(other))
    assert find_message("acme.v1.Thing") is not None
    assert find_message("b.B") is not None


def test_a_file_in_both_sets_is_taken_from_the_one_that_defines_more() -> None:
    base = shipped().file("envoy/config/core/v3/extension.proto")
    assert base is not None
    newer, older = FileDescriptorProto(), FileDescriptorProto()
    newer.CopyFrom(base)
    newer.message_type[0].field.add(name="brand_new", json_name="brandNew", number=99, type=TEXT, label=ONE)
    older.CopyFrom(base)
    del older.message_type[0].field[1:]
    name = f"{base.package}.{base.message_type[0].name}"
    add_descriptors(packed(older, own_file()))
    kind = find_message(name)
    assert kind is not None
    assert len(kind.DESCRIPTOR.fields) == len(base.message_type[0].field)
    add_descriptors(packed(newer))
    kind = find_message(name)
    assert kind is not None
    assert "brand_new" in kind.DESCRIPTOR.fields_by_name


def test_rules_in_given_types_are_kept() -> None:
    file = own_file(imports=("validate/validate.proto",))
    file.message_type[0].field[0].options.MergeFromString(bytes.fromhex("fa4204") + bytes.fromhex("72021001"))
    add_descriptors(packed(file))
    problems = parse(FILTER.replace("colour: blue", "colour: ''"), "a.yaml").problems
    assert [str(problem) for problem in problems] == ["a.yaml:4: typed_config.colour: must not be empty"]


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"just a text\n", packed(FileDescriptorProto())])
def test_a_file_that_is_no_descriptor_set_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "own.bin"
    path.write_bytes(content)
    with pytest.raises(xp.ConfigError, match=r"own\.bin: is not a FileDescriptorSet: make it with `protoc"):
        add_descriptors(path)


def test_a_set_that_lacks_what_it_imports_is_refused() -> None:
    with pytest.raises(xp.ConfigError, match=r"lacks acme/other\.proto, which acme/thing\.proto imports"):
        add_descriptors(packed(own_file(imports=("acme/other.proto",))))
    assert find_message("acme.v1.Thing") is None


def test_a_set_may_leave_out_the_files_that_come_with_the_package() -> None:
    file = own_file(imports=("envoy/config/core/v3/base.proto",))
    field = file.message_type[0].field.add(name="node", json_name="node", number=2, type=MESSAGE, label=ONE)
    field.type_name = ".envoy.config.core.v3.Node"
    add_descriptors(packed(file))
    assert find_message("acme.v1.Thing") is not None


def test_a_set_whose_files_contradict_what_is_known_is_refused() -> None:
    file = own_file("mine.proto", imports=("envoy/config/core/v3/base.proto",))
    file.package = "envoy.config.core.v3"
    file.message_type[0].name = "Node"
    with pytest.raises(xp.ConfigError, match=r"mine\.proto can't be used: "):
        add_descriptors(packed(file))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(xp.ConfigError, match=r"none\.bin: can't be read: No such file"):
        add_descriptors(tmp_path / "none.bin")
