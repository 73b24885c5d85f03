"""Imports a text: from a bootstrap or a config dump to the files that take its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...core.model.types import (
    CLUSTER,
    ENDPOINT,
    EXTENSION_CONFIG,
    LISTENER,
    ROUTE,
    SCOPED_ROUTE,
    SECRET,
    TypeUrl,
)
from ...errors import ConfigError, Problem, show_path
from ...messages.as_json import as_json
from ...messages.convert import to_message
from ...messages.document import Path
from ...messages.protos import find_message
from ...messages.redaction import REDACTED as HIDDEN
from ...messages.redaction import redact
from .bootstrap import ServerAddress
from .reading import Places, read_document, read_source
from .recognize import BOOTSTRAP
from .resources import Note, Resource, marks_in, redacted_paths
from .split import Mistakes, Plan, split

# The files that are made, by type. Folder `resources` is what `serve` reads.
FILES: dict[TypeUrl, str] = {
    LISTENER: "listeners",
    SCOPED_ROUTE: "scoped-routes",
    ROUTE: "routes",
    CLUSTER: "clusters",
    ENDPOINT: "endpoints",
    SECRET: "secrets",
    EXTENSION_CONFIG: "extension-configs",
}
BOOTSTRAP_FILE = "bootstrap.yaml"
SERVED, REDACTED = "resources", "redacted"


@dataclass(frozen=True, slots=True)
class ImportedDocument:
    """A document of a file that is made."""

    comments: tuple[str, ...]  # the lines above it
    content: dict[str, Any]
    type_name: str  # of the message

    def without_secrets(self) -> tuple[dict[str, Any], bool]:
        """Return the contents without secrets, and whether they had any."""
        kind = find_message(self.type_name)
        fields = {key: value for key, value in self.content.items() if key != "@type"}
        message = to_message(fields, kind, []) if kind is not None else None
        head = {"@type": self.content["@type"]} if "@type" in self.content else {}
        if message is None:
            return head | {"value": HIDDEN}, True
        return (head | as_json(message), True) if redact(message) else (self.content, False)


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file that is made: its path below the folder that a user names, and its documents."""

    path: str
    documents: tuple[ImportedDocument, ...]

    @property
    def has_secrets(self) -> bool:
        return any(each.without_secrets()[1] for each in self.documents)


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    files: tuple[ImportedFile, ...]
    warnings: tuple[Problem, ...]
    staying: tuple[str, ...]  # what stays in the bootstrap, each with its reason
    counts: dict[TypeUrl, int]  # of the resources to serve


def import_text(text: str, file: str, server: ServerAddress) -> Imported:
    """Make files of a bootstrap or a config dump. Raises ConfigError with every problem."""
    document = read_document(text, file)
    places = Places(document, file)
    try:
        plan = split(read_source(document, places), server)
    except Mistakes as mistakes:
        raise ConfigError([_mistake(places, *each) for each in mistakes.found]) from None
    redacted = {each.key for each in plan.resources if any(redacted_paths(each.body))}
    whole = [each for each in plan.resources if each.key not in redacted]
    files = [_bootstrap(plan, file)]
    files += _files(SERVED, whole, places)
    files += _files(REDACTED, (each for each in plan.resources if each.key in redacted), places)
    warnings = [places.problem(each.path, each.text) for each in (*plan.notes, *_marks(plan), *_redactions(plan))]
    counts = {type_url: sum(each.type_url == type_url for each in whole) for type_url in FILES}
    return Imported(tuple(files), tuple(warnings), plan.staying, {key: count for key, count in counts.items() if count})


def _bootstrap(plan: Plan, file: str) -> ImportedFile:
    comments = (f"The bootstrap with which Envoy fetches what was in {file}.", *plan.staying)
    return ImportedFile(BOOTSTRAP_FILE, (ImportedDocument(comments, plan.bootstrap, BOOTSTRAP),))


def _files(folder: str, resources: Iterable[Resource], places: Places) -> Iterator[ImportedFile]:
    """Yield a file for each type that has resources."""
    by_type: dict[TypeUrl, list[ImportedDocument]] = {}
    for each in resources:
        by_type.setdefault(each.type_url, []).append(_document(each, places))
    for type_url, name in FILES.items():
        if type_url in by_type:
            yield ImportedFile(f"{folder}/{name}.yaml", tuple(by_type[type_url]))


def _document(resource: Resource, places: Places) -> ImportedDocument:
    where = f"from {places.file}:{places.line(resource.path)}: {show_path(resource.path)}"
    missing = [f"put the real value in place of {show_path(path)}" for path in redacted_paths(resource.body)]
    content = {"@type": resource.type_url, **resource.body}
    return ImportedDocument((where, *resource.remarks, *missing), content, resource.type_name)


def _marks(plan: Plan) -> Iterator[Note]:
    """Yield a note for each key that `serve` would take for `$when` or the like, or refuse."""
    for each in plan.resources:
        for path in marks_in(each.body):
            text = f"a key that begins with $ is for `$when` and `$match` in files: rename {path[-1]}"
            yield Note((*each.path, *path), text)


def _redactions(plan: Plan) -> Iterator[Note]:
    """Yield a note for each resource from which Envoy left out a secret, and for the bootstrap."""
    for each in plan.resources:
        paths = [show_path(path) for path in redacted_paths(each.body)]
        if paths:
            name = FILES[each.type_url]
            text = (
                f"{each.name}: a dump has no secrets, so it lacks {', '.join(paths)}: put the real values into "
                f"{REDACTED}/{name}.yaml, and move it to {SERVED}/"
            )
            yield Note(each.path, text)
    paths = [show_path(path) for path in redacted_paths(plan.bootstrap)]
    if paths:
        text = f"a dump has no secrets: put the real values into {BOOTSTRAP_FILE}, in place of {', '.join(paths)}"
        yield Note((), text)


def _mistake(places: Places, path: Path, text: str, other: Path | None) -> Problem:
    beside = f": the other is on line {places.line(other)}" if other is not None else ""
    return places.problem(path, text + beside)
