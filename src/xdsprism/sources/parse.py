"""Parses the text of a file into variants, and reports every problem with file, line and path. No I/O.

A document has one of three forms, all of which users already have (DESIGN 3):

1. an xDS resource with its `@type`;
2. an `envoy.service.discovery.v3.Resource`: TP2's own form, with constraints;
3. a DiscoveryResponse with `resources:`, as Envoy reads from files.

Each resource is a template, compiled into one variant for each constraint. For each variant the reader builds the
message, checks its name, and checks what Envoy would refuse in it (messages/validation.py). Faults are found at paths
in the variant's contents; trace.py finds the place in the template that each path came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import Message

from ..core.codec.constraints import constraint_from_proto
from ..core.codec.resources import check_ttl, name_of, variant_of
from ..core.model.constraints import FALSE, TRUE, Constraint
from ..core.model.expr import parse as parse_expression
from ..core.model.template import WHEN, Compiled, TemplateError, compile_template
from ..core.model.truncation import TEXT_BYTES, bounded
from ..core.model.types import ENDPOINT, LISTENER, VIRTUAL_HOST, Origin, TypeUrl, Variant
from ..core.model.xdstp import own_name, spelled
from ..errors import Problem, UsageError, show_path
from ..messages.api_versions import v3_name
from ..messages.convert import UnknownField, from_any, to_message, unknown_type
from ..messages.document import Document, MalformedError, Path
from ..messages.faults import Fault, Faults, kind_of
from ..messages.protos import find_message, type_name, type_url
from ..messages.validation import MessageFaults, Validate, check_message
from . import strict_json, strict_yaml
from .importing.recognize import kind_of_import
from .strict_yaml import Chunk
from .trace import trace

_RESOURCE = "envoy.service.discovery.v3.Resource"
BASE = "$base"
_RESPONSE = "envoy.service.discovery.v3.DiscoveryResponse"


class EnvoyProblem(NamedTuple):
    """A problem that counts only if Envoys use the resource, which depends on the resources that refer to it."""

    key: tuple[TypeUrl, str]
    for_grpc: bool  # the resource itself is for gRPC: a listener with an `api_listener`
    problem: Problem


@dataclass(frozen=True, slots=True)
class Parsed:
    """The variants in a text, and the problems with it."""

    variants: tuple[Variant, ...]
    errors: tuple[Problem, ...]  # for every client
    envoy_problems: tuple[EnvoyProblem, ...] = ()  # for Envoy
    warnings: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All errors, taking every resource that is not a gRPC listener as one that Envoys use."""
        return (*self.errors, *(each.problem for each in self.envoy_problems if not each.for_grpc))


def chunks(text: str, file: str) -> list[Chunk]:
    """Split a file's text into documents, which can be parsed one by one. A JSON file is one document.

    Raises MalformedError if there are too many.
    """
    return [Chunk(text, 1)] if _is_json(file) else strict_yaml.split(text)


def parse(text: str, file: str, validate: Validate = "envoy") -> Parsed:
    """Parse a whole file. Raises MalformedError if it has too many documents."""
    documents = [parse_chunk(chunk, file, validate) for chunk in chunks(text, file)]
    return Parsed(
        tuple(variant for each in documents for variant in each.variants),
        tuple(problem for each in documents for problem in each.errors),
        tuple(problem for each in documents for problem in each.envoy_problems),
        tuple(problem for each in documents for problem in each.warnings),
    )


def parse_chunk(chunk: Chunk, file: str, validate: Validate = "envoy") -> Parsed:
    """Parse one document of a file."""
    try:
        documents = strict_json.load(chunk.text) if _is_json(file) else strict_yaml.load(chunk)
    except MalformedError as error:
        return Parsed((), (_problem(error.message, file, error.line),))
    variants: list[Variant] = []
    # Dicts, to report each problem once: the variants of a template share most of their problems.
    errors: dict[Problem, None] = {}
    envoy_problems: dict[EnvoyProblem, None] = {}
    warnings: dict[Problem, None] = {}
    for document in documents:
        reader = _Reader(document, file, validate, chunk.text)
        variants += reader.read()
        errors |= dict.fromkeys(reader.errors)
        envoy_problems |= dict.fromkeys(reader.envoy_problems)
        warnings |= dict.fromkeys(reader.warnings)
    return Parsed(tuple(variants), tuple(errors), tuple(envoy_problems), tuple(warnings))


def _is_json(file: str) -> bool:
    return file.endswith(".json")


class _Wrapper(NamedTuple):
    """The fields of a discovery.Resource beside the resource itself."""

    name: str | None = None
    name_path: Path = ()
    constraint: Constraint | None = None
    aliases: tuple[str, ...] = ()
    extras: bytes = b""
    ttl: float | None = None
    base: Constraint | None = None
    path: Path = ()


_NO_WRAPPER = _Wrapper()


class _Reader:
    """Reads the variants of one document, and collects the problems with it."""

    def __init__(self, document: Document, file: str, validate: Validate, text: str) -> None:
        self.errors: list[Problem] = []
        self.envoy_problems: list[EnvoyProblem] = []
        self.warnings: list[Problem] = []
        self._document = document
        self._file = file
        self._validate = validate
        # Two searches of the text, each of which saves a walk through nearly every document.
        self._may_have_v2_types = _V2_PACKAGE in text
        self._may_be_template = "$" in text or "\\" in text  # a `$` can be written as an escape sequence

    def read(self) -> Iterator[Variant]:
        root = self._document.root
        foreign = kind_of_import(root)
        if foreign is not None:
            self._fault((), f"is an Envoy {foreign} and no resource: run `xdsprism import {self._file} --out DIR`")
        elif isinstance(root, list) and root and all(isinstance(each, dict) for each in root):
            self._fault((), "a list of resources: put it under `resources:`")
        elif not isinstance(root, dict):
            # The value is not shown: the path may lead to a file with a password or a key.
            what = "a string" if isinstance(root, str) else kind_of(root)
            self._fault((), f"a document must be a mapping with an @type, this is {what}")
        elif _kind(root) == _RESPONSE or ("@type" not in root and "resources" in root):
            yield from self._response(root)
        else:
            yield from self._wrapped_or_not(root, ())

    # -- form 3

    def _response(self, root: dict[str, Any]) -> Iterator[Variant]:
        """Read a DiscoveryResponse: each of its resources has form 1 or 2."""
        rest = {key: value for key, value in root.items() if key not in ("@type", "resources")}
        faults: Faults = []
        response: Any = to_message(rest, discovery_pb2.DiscoveryResponse, faults)
        self._faults((), faults)
        resources = root.get("resources")
        if not isinstance(resources, (list, dict)):
            self._fault(("resources",), f"expected a list, got {kind_of(resources)}")
            return
        wanted = type_name(response.type_url) if response is not None else ""
        for index, item in enumerate(resources if isinstance(resources, list) else [resources]):
            path: Path = ("resources", index) if isinstance(resources, list) else ("resources",)
            if not isinstance(item, dict):
                self._fault(path, f"expected a mapping with an @type, got {kind_of(item)}")
                continue
            for variant in self._wrapped_or_not(item, path):
                if wanted and type_name(variant.type_url) != wanted:
                    self._fault(path, f"is a {type_name(variant.type_url)}, but type_url says {wanted}")
                else:
                    yield variant

    # -- forms 1 and 2

    def _wrapped_or_not(self, item: dict[str, Any], path: Path) -> Iterator[Variant]:
        """Read a resource of form 1 or 2."""
        wrapped = _kind(item) == _RESOURCE or ("@type" not in item and "resource" in item)
        base, item = self._base(item, path, wrapped=wrapped)
        if wrapped:
            yield from self._wrapped(item, path, base)
        else:
            yield from self._variants(item, path, _NO_WRAPPER._replace(base=base))

    def _base(self, item: dict[str, Any], path: Path, *, wrapped: bool) -> tuple[Constraint | None, dict[str, Any]]:
        """VHD-13: take `$base` out of the root of a virtual host. Elsewhere it stays, and is an unknown field."""
        inner = item.get("resource") if wrapped else item
        if BASE not in item or not isinstance(inner, dict) or _kind(inner) != type_name(VIRTUAL_HOST):
            return None, item
        rest = {key: value for key, value in item.items() if key != BASE}
        base = item[BASE]
        if isinstance(base, bool):
            return (TRUE if base else FALSE), rest
        if not isinstance(base, str):
            self._fault((*path, BASE), f"expected true, false or an expression, got {kind_of(base)}")
            return None, rest
        try:
            return parse_expression(base), rest
        except UsageError as error:
            self._fault((*path, BASE), str(error))
            return None, rest

    # -- form 2

    def _wrapped(self, item: dict[str, Any], path: Path, base: Constraint | None) -> Iterator[Variant]:
        """Read a discovery.Resource. A `$when` beside `resource` applies to all of it."""
        wrapper = self._wrapper(item, path, base)
        if not isinstance(item.get("resource"), dict):
            self._fault((*path, "resource"), f"expected a mapping with an @type, got {kind_of(item.get('resource'))}")
        elif wrapper is not None and WHEN in item:
            whole = {WHEN: item[WHEN], "resource": item["resource"]}
            yield from self._variants(whole, path, wrapper, inner=("resource",))
        elif wrapper is not None:
            yield from self._variants(item["resource"], (*path, "resource"), wrapper)

    def _wrapper(self, item: dict[str, Any], path: Path, base: Constraint | None) -> _Wrapper | None:
        """Read the fields beside the resource; None if they have errors."""
        before = len(self.errors)
        rest = {key: value for key, value in item.items() if key not in ("@type", "resource", WHEN)}
        faults: Faults = []
        resource: Any = to_message(rest, discovery_pb2.Resource, faults)
        self._faults(path, faults)
        if resource is None:
            return None
        name, name_path = self._outer_name(resource, path)
        constraint = self._constraint(resource, path)
        ttl = self._ttl(resource, path)
        extras = discovery_pb2.Resource()
        for field in ("cache_control", "metadata"):
            if resource.HasField(field):
                getattr(extras, field).CopyFrom(getattr(resource, field))
        if len(self.errors) > before:
            return None
        encoded = extras.SerializeToString(deterministic=True)
        return _Wrapper(name, name_path, constraint, tuple(resource.aliases), encoded, ttl, base, path)

    def _ttl(self, resource: Any, path: Path) -> float | None:
        if not resource.HasField("ttl"):
            return None
        try:
            return check_ttl(resource.ttl.ToMicroseconds() / 1e6)
        except UsageError as error:
            self._fault((*path, "ttl"), str(error))
            return None

    def _outer_name(self, resource: Any, path: Path) -> tuple[str | None, Path]:
        """Return the name that the wrapper gives, and its path."""
        located = resource.resource_name.name
        if located and resource.name and located != resource.name:
            self._fault((*path, "resource_name", "name"), f"is {located!r}, but name is {resource.name!r}")
        return (located, (*path, "resource_name", "name")) if located else (resource.name or None, (*path, "name"))

    def _constraint(self, resource: Any, path: Path) -> Constraint | None:
        if not resource.resource_name.HasField("dynamic_parameter_constraints"):
            return None
        try:
            return constraint_from_proto(resource.resource_name.dynamic_parameter_constraints)
        except UsageError as error:
            self._fault((*path, "resource_name", "dynamic_parameter_constraints"), str(error))
            return None

    # -- the resource itself

    def _variants(self, template: Any, path: Path, wrapper: _Wrapper, inner: Path = ()) -> Iterator[Variant]:
        """Compile a template into variants; the resource is each variant's whole contents, or the part at `inner`."""
        try:
            compiled = compile_template(template) if self._may_be_template else [Compiled(TRUE, template)]
        except TemplateError as error:
            self._fault((*path, *error.path), error.message)
            return
        if wrapper.constraint is not None and [each.constraint for each in compiled] != [TRUE]:
            self._fault(path, "has dynamic_parameter_constraints, so it can't also have `$when` or `$match` too")
            return
        for each in compiled:
            content = each.content
            for step in inner:
                content = content.get(step)
            before = len(self.errors)
            faults: Faults = []
            message = self._message(content, wrapper, faults)
            checked = check_message(message) if message is not None and self._validate != "off" else _NO_FAULTS
            with_faults = {where for where, _ in faults}
            errors = [fault for fault in checked.errors if fault[0] not in with_faults]  # one per field is enough
            for_grpc = message is not None and _is_for_grpc(message)
            as_problems = partial(self._as_problems, template, each.content, path, inner)
            if self._validate == "warn":  # a field of a newer Envoy is dropped, with a warning
                newer = [(where, f"{text}; it is left out") for where, text in faults if isinstance(text, UnknownField)]
                self.warnings += as_problems(newer)
                faults = [fault for fault in faults if not isinstance(fault[1], UnknownField)]
            if message is not None and not faults and len(self.errors) == before:
                variant = self._variant(message, each, path, wrapper)
                yield variant
                key = variant.type_url, variant.name
                self.envoy_problems += [EnvoyProblem(key, for_grpc, problem) for problem in as_problems(errors)]
            elif self._validate == "envoy" and not for_grpc:
                faults += errors
            self.warnings += as_problems(checked.notes)
            self.errors += as_problems(faults)

    def _as_problems(self, template: Any, content: Any, path: Path, inner: Path, faults: Faults) -> list[Problem]:
        """Turn faults at paths in a variant's contents into problems at lines of the file."""
        return [self._problem((*path, *trace(template, content, (*inner, *where))), text) for where, text in faults]

    def _variant(self, message: Message, compiled: Compiled, path: Path, wrapper: _Wrapper) -> Variant:
        return variant_of(
            message,
            name=wrapper.name,
            constraint=compiled.constraint if wrapper.constraint is None else wrapper.constraint,
            written=compiled.written if wrapper.constraint is None else wrapper.constraint,
            aliases=wrapper.aliases,
            extras=wrapper.extras,
            ttl=wrapper.ttl,
            base=wrapper.base,
            origin=Origin(self._file, self._document.line_of(path[:-1] if path[-1:] == ("resource",) else path)),
        )

    def _message(self, content: Any, wrapper: _Wrapper, faults: Faults) -> Message | None:
        """Build the message and check its name and types; None if it can't be built."""
        kind = self._kind(content, faults)
        message = from_any(content, kind, faults) if kind is not None else None
        if message is None or (faults and self._validate != "warn"):
            return None
        faults += self._name_faults(message, wrapper)
        faults += _v2_types(content) if self._may_have_v2_types else ()
        return message

    def _kind(self, content: Any, faults: Faults) -> type[Message] | None:
        name = content.get("@type") if isinstance(content, dict) else None
        if not isinstance(content, dict):
            faults.append(((), f"expected a mapping with an @type, got {kind_of(content)}"))
        elif not isinstance(name, str):
            faults.append(((), "needs an @type, such as type.googleapis.com/envoy.config.cluster.v3.Cluster"))
        elif (kind := find_message(type_name(name))) is None:
            faults.append((("@type",), unknown_type(name, "--descriptors FILE makes types of your own known")))
        elif current := v3_name(type_name(name)):
            faults.append((("@type",), _V2_TYPE.format(name, current)))
        else:
            return kind
        return None

    def _name_faults(self, message: Message, wrapper: _Wrapper) -> Faults:
        """Check the names of a resource: in its message, in its wrapper, and its aliases."""
        inner = name_of(message)
        field = "cluster_name" if type_url(message.DESCRIPTOR.full_name) == ENDPOINT else "name"
        name = wrapper.name or inner
        if not name:
            return [((field,), "a resource needs a name" if inner is not None else _NO_NAME_FIELD)]
        if inner is not None and spelled(name) != spelled(inner):
            self._fault(wrapper.name_path, f"is {name!r}, but the resource in it is named {inner!r}")
        kind = type_url(message.DESCRIPTOR.full_name)
        if kind == VIRTUAL_HOST:
            wrong = f"the name of a virtual host is <route configuration>/<virtual host>, not {name!r}"
            return [] if all(name.rpartition("/")) else [((field,), wrong)]
        for index, alias in enumerate(wrapper.aliases):
            for wrong in _xdstp_faults(alias, kind):
                self._fault((*wrapper.path, "aliases", index), wrong)
        for wrong in _xdstp_faults(name, kind) if inner is None else ():
            self._fault(wrapper.name_path, wrong)
        return [((field,), wrong) for wrong in _xdstp_faults(inner or "", kind)]

    # -- problems

    def _faults(self, path: Path, faults: Faults) -> None:
        for rest, message in faults:
            self._fault((*path, *rest), message)

    def _fault(self, path: Path, message: str) -> None:
        self.errors.append(self._problem(path, message))

    def _problem(self, path: Path, message: str) -> Problem:
        return _problem(message, self._file, self._document.line_of(path), show_path(path))


_NO_FAULTS = MessageFaults([], [])
_V2_PACKAGE = ".v2"
_V2_TYPE = "{} is of xDS v2: write {}, and clients of v2 get it in v2"
_NO_NAME_FIELD = f"this type has no name field; wrap it in a {_RESOURCE} that gives the name"


def _problem(message: str, file: str, line: int, path: str = "") -> Problem:
    """Return a problem for logs and pages: what an author wrote, and the message quotes, may be of any length."""
    return Problem(bounded(message, TEXT_BYTES), file, line, bounded(path, TEXT_BYTES))


def _is_for_grpc(message: Any) -> bool:
    return message.DESCRIPTOR.full_name == type_name(LISTENER) and bool(message.HasField("api_listener"))


def _xdstp_faults(name: str, type_url: str) -> Iterator[str]:
    """XTP-9, XTP-10: say what is wrong with an xdstp name."""
    try:
        own_name(name, type_url)
    except UsageError as error:
        yield str(error)


def _v2_types(part: Any, path: Path = ()) -> Iterator[Fault]:
    """Find typed configs whose `@type` is a v2 name, which clients of v3 do not know."""
    name = part.get("@type") if isinstance(part, dict) else None
    if isinstance(name, str) and (current := v3_name(type_name(name))):
        yield (*path, "@type"), _V2_TYPE.format(name, current)
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for step, each in inside:
        yield from _v2_types(each, (*path, step))


def _kind(item: dict[str, Any]) -> str | None:
    name = item.get("@type")
    return type_name(name) if isinstance(name, str) else None
