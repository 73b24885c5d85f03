"""Reads the text of a bootstrap or a config dump into messages, and reports every problem with its line."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from google.protobuf.message import Message

from ...core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ...errors import ConfigError, Problem, UsageError, show_path
from ...messages.as_json import as_json
from ...messages.convert import UnknownField, UnknownType, to_message
from ...messages.document import Document, MalformedError, Path
from ...messages.faults import Faults
from ...messages.protos import find_message
from .. import strict_json, strict_yaml
from .dump import read_dump
from .recognize import BOOTSTRAP, CONFIG_DUMP, kind_of_import
from .resources import Note, Source

MAX_PROBLEMS = 20  # that are reported
_TYPED_STRUCT = "type.googleapis.com/xds.type.v3.TypedStruct"
_NEITHER = (
    "neither an Envoy bootstrap, which has `static_resources` or `dynamic_resources`, nor a config dump, which has "
    "`configs`"
)


def read_document(text: str, file: str) -> Document:
    """Read the only document of a file, YAML or JSON. Raises ConfigError."""
    looks_like_json = text.lstrip("\ufeff \t\r\n").startswith(("{", "["))
    try:
        if file.endswith(".json") or looks_like_json:
            try:
                documents = strict_json.load(text)
            except MalformedError as error:
                documents = _as_yaml(text, error) if looks_like_json and not file.endswith(".json") else _refuse(error)
        else:
            documents = _yaml(text)
    except MalformedError as error:
        raise ConfigError([Problem(error.message, file, error.line)]) from None
    if len(documents) != 1:
        line = documents[1].line if documents else 0
        count = f"has {len(documents)} documents" if documents else "is empty"
        raise ConfigError([Problem(f"{count}: a bootstrap, or a config dump, is one document", file, line)])
    return documents[0]


def _refuse(error: MalformedError) -> list[Document]:
    raise error


def _yaml(text: str) -> list[Document]:
    return [document for chunk in strict_yaml.split(text) for document in strict_yaml.load(chunk)]


def _as_yaml(text: str, error: MalformedError) -> list[Document]:
    """Read YAML that begins like JSON; if it is not YAML either, what is wrong with it as JSON says more."""
    try:
        return _yaml(text)
    except MalformedError:
        raise error from None


class Places:
    """Where the parts of a document are, by their paths in a bootstrap or dump that is complete."""

    def __init__(self, document: Document, file: str) -> None:
        self.file = file
        self._document = document
        root: Any = document.root
        is_dump = kind_of_import(root) == "config dump"
        # A list of parts, or one part, is read as if `configs` were around it.
        self.is_wrapped = is_dump and (isinstance(root, list) or "configs" not in root)

    def problem(self, path: Path, text: str) -> Problem:
        """Return a problem at a path."""
        return Problem(bounded(text, TEXT_BYTES), self.file, self.line(path), bounded(show_path(path), TEXT_BYTES))

    def line(self, path: Path) -> int:
        """Return the line of the value at a path, or of the nearest one around it."""
        return self._document.line_of(path[1:] if self.is_wrapped else path)


def read_source(document: Document, places: Places) -> Source:
    """Read a document into a bootstrap and resources. Raises ConfigError with every problem."""
    root: Any = document.root
    kind = kind_of_import(root)
    if kind is None:
        raise ConfigError([places.problem((), f"this is {_NEITHER}")])
    fields = {"configs": root} if places.is_wrapped else {key: root[key] for key in root if key != "@type"}
    faults: Faults = []
    notes: list[Note] = []
    message = _message(fields, BOOTSTRAP if kind == "bootstrap" else CONFIG_DUMP, faults, notes)
    problems = [places.problem(path, text) for path, text in faults]
    if message is None or problems:
        more = len(problems) - MAX_PROBLEMS
        rest = [Problem(f"and {more} more problems", places.file)] if more > 0 else []
        raise ConfigError([*problems[:MAX_PROBLEMS], *rest])
    try:
        body = as_json(message)
    except UsageError as error:
        raise ConfigError([places.problem((), str(error))]) from error
    source = Source(body) if kind == "bootstrap" else read_dump(body)
    source.notes[:0] = notes
    return source


def _message(fields: dict[str, Any], name: str, faults: Faults, notes: list[Note]) -> Message | None:
    """Build the message. Extensions of unknown types are wrapped in a TypedStruct, which Envoy unwraps by itself."""
    kind = find_message(name)
    if kind is None:
        raise UsageError(f"{name} is not defined by any known proto file")
    found: Faults = []
    message = to_message(fields, kind, found)
    unknown = [path[:-1] for path, text in found if isinstance(text, UnknownType)]
    if unknown:
        fields, found = deepcopy(fields), []
        for path in unknown:
            told = _wrap(_at(fields, path))
            if name == BOOTSTRAP or len(path) > _PART:  # dump.py tells of parts that it does not know
                notes.append(Note(path, told))
        message = to_message(fields, kind, found)
    faults += [(path, _with_hint(text)) for path, text in found]
    return message


def _with_hint(text: str) -> str:
    return f"{text}{_NEWER}" if isinstance(text, UnknownField) and not text.endswith("?") else text


_PART = 2  # steps to a part of a dump
_NEWER = "; if a newer Envoy has it, --descriptors FILE makes it known"
_WRAPPED = "it is wrapped in a TypedStruct, which Envoy reads the same; --descriptors FILE makes the type known"


def _at(value: Any, path: Path) -> dict[str, Any]:
    """Return the mapping at a path, which faults gave: its steps are spelled as the author did."""
    for step in path:
        value = value[step]
    found: dict[str, Any] = value
    return found


def _wrap(value: dict[str, Any]) -> str:
    """Wrap a mapping in a TypedStruct, in place, and return what to say about it."""
    name = value["@type"]
    if name != _TYPED_STRUCT:  # not wrapped yet, by another alias of the same mapping
        fields = {key: each for key, each in value.items() if key != "@type"}
        value.clear()
        value |= {"@type": _TYPED_STRUCT, "type_url": name, "value": fields}
    return f"unknown type {bounded(value['type_url'], NAME_BYTES)}: {_WRAPPED}"
