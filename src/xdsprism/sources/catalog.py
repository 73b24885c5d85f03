"""Tracks which document of which file defines which variants, and which names still have to be published. No I/O.

From a changed file to a changeset:

1. `read` splits the file into documents and hashes the text of each. It parses only the documents whose hash is new.
2. The catalog compares the variants of each name before and after, and marks the names that differ as pending.
3. `pending` gives each pending name with all its variants, from every file that defines some.
4. Once the store has applied the changeset, the caller calls `mark_published`.

The caller publishes nothing while `problems` lists any (DESIGN 3: a configuration is atomic). Names that are pending
then stay pending, and are published together with the edit that corrects the problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

from ..core.model.removal_guard import Loss
from ..core.model.types import Changeset, Origin, TypeUrl, Variant
from ..errors import Problem
from ..messages.document import MalformedError
from ..messages.validation import Validate
from .parse import EnvoyProblem, chunks, parse_chunk
from .strict_yaml import Chunk
from .usage import Usage

MAX_PROBLEMS = 20  # reported per file

TypedName = tuple[TypeUrl, str]
Definition = tuple[str, tuple[Variant, ...]]  # a file, and the variants of one name that it defines


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """One document of a file, parsed. The hash of its text is enough to recognize it; the text itself is not kept."""

    digest: bytes
    line: int
    variants: tuple[Variant, ...]
    errors: tuple[Problem, ...] = ()
    envoy_problems: tuple[EnvoyProblem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not (self.errors or self.envoy_problems or self.warnings)

    def at(self, line: int) -> ParsedDocument:
        """Return the same document with all its line numbers moved, for a document that starts at `line` now."""
        if line == self.line:
            return self
        offset = line - self.line
        variants = tuple(_shifted_variant(variant, offset) for variant in self.variants)
        errors = tuple(_shifted(problem, offset) for problem in self.errors)
        envoy_problems = tuple(each._replace(problem=_shifted(each.problem, offset)) for each in self.envoy_problems)
        warnings = tuple(_shifted(problem, offset) for problem in self.warnings)
        return ParsedDocument(self.digest, line, variants, errors, envoy_problems, warnings)


class Catalog:
    """All documents of all files, and the difference between them and what was published last.

    `validate` says how to report what Envoy would refuse. With "envoy" it is an error, except in a resource that only
    gRPC clients can reach. Only the whole configuration tells which resources those are (usage.py).
    """

    def __init__(self, validate: Validate = "envoy") -> None:
        self.parsed = 0  # documents parsed since the start
        self._validate: Validate = validate
        self._usage: Usage | None = None  # built when the first Envoy problem has to be classified
        self._reports: dict[str, tuple[tuple[Problem, ...], tuple[Problem, ...]]] = {}  # file: its errors and warnings
        self._files: dict[str, tuple[ParsedDocument, ...]] = {}
        self._unreadable: dict[str, Problem] = {}
        self._files_with_problems: set[str] = set()  # files whose documents have errors or warnings
        self._definitions: dict[
            TypedName, tuple[Definition, ...]
        ] = {}  # usually one; a tuple, as there can be a million
        self._pending: dict[TypedName, bool] = {}  # name: whether it exists in what was published last
        self._published: dict[str, tuple[ParsedDocument, ...]] = {}  # files that changed since, as published
        self._served: Counter[TypeUrl] = Counter()  # published names by type

    # -- the files as they are now

    def read(self, file: str, raw: bytes) -> None:
        """Replace the documents of a file with those in its new contents."""
        if not raw and self._files.get(file):
            self.fail(file, "is empty now, like an unfinished write; to remove its resources, delete the file")
            return
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            self.fail(file, f"is not UTF-8: byte 0x{raw[error.start]:02x}", line)
            return
        try:
            parts = chunks(text, file)
        except MalformedError as error:
            self.fail(file, error.message, error.line)
            return
        self._unreadable.pop(file, None)
        known = {each.digest: each for each in (*self._published.get(file, ()), *self._files.get(file, ()))}
        self._replace(file, tuple(self._parse(chunk, file, known) for chunk in parts))

    def fail(self, file: str, message: str, line: int = 0) -> None:
        """Note that a file can't be read. The catalog keeps its last documents until the file can be read again."""
        self._unreadable[file] = Problem(message, file, line)

    def forget(self, file: str) -> None:
        """Note that a file was deleted, and remove its documents."""
        self._unreadable.pop(file, None)
        if file in self._files:
            self._replace(file, ())
            del self._files[file]

    @property
    def resources(self) -> int:
        """How many names the files define, each with one or more variants."""
        return len(self._definitions)

    def problems(self) -> tuple[Problem, ...]:
        """List every error, file by file."""
        found: list[Problem] = []
        for file in sorted(self._files_with_problems.union(self._unreadable)):
            unreadable = (self._unreadable[file],) if file in self._unreadable else ()
            found += _truncated((*unreadable, *self._report(file)[0]), "problems")
        return tuple(found)

    def warnings(self) -> tuple[Problem, ...]:
        """List what is accepted although Envoy would refuse it, or although the author may not have meant it."""
        return tuple(
            problem
            for file in sorted(self._files_with_problems)
            for problem in _truncated(self._report(file)[1], "warnings")
        )

    def _report(self, file: str) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
        """Return the errors and the warnings of a file."""
        self._drop_stale_reports()
        report = self._reports.get(file)
        if report is None:
            errors: list[Problem] = []
            warnings: list[Problem] = []
            for document in self._files.get(file, ()):
                errors += document.errors
                warnings += document.warnings
                for each in document.envoy_problems:
                    (warnings if self._is_waived(each) else errors).append(each.problem)
            report = self._reports[file] = tuple(errors), tuple(warnings)
        return report

    def _is_waived(self, found: EnvoyProblem) -> bool:
        """Whether what Envoy would refuse is only a warning: by the mode, or because only gRPC uses the resource."""
        if self._validate == "warn" or found.for_grpc:
            return True
        if self._usage is None:
            self._usage = Usage()
            for key in self._definitions:
                self._usage.set(key, self._variants(key))
        return self._usage.is_for_grpc(found.key)

    def _drop_stale_reports(self) -> None:
        """Drop the reports of files with resources that other resources began or ceased to refer to."""
        if self._usage is not None:
            for key in self._usage.stale:
                for file, _ in self._definitions.get(key, ()):
                    self._reports.pop(file, None)
            self._usage.stale.clear()

    # -- the difference from what was published

    def pending(self) -> Changeset:
        """Return the names that differ from what was published, each with all its variants from all files."""
        return {key: self._variants(key) for key in sorted(self._pending)}

    @property
    def has_pending(self) -> bool:
        """Whether any name differs from what was published."""
        return bool(self._pending)

    def losses(self) -> tuple[Loss, ...]:
        """List by type the names that were published and that no file defines now."""
        gone: dict[TypeUrl, list[str]] = {}
        for type_url, name in sorted(key for key, was in self._pending.items() if was and key not in self._definitions):
            gone.setdefault(type_url, []).append(name)
        return tuple(Loss(type_url, tuple(names), self._served[type_url]) for type_url, names in gone.items())

    def mark_published(self) -> None:
        """Note that the pending names were published."""
        for key, was in self._pending.items():
            self._served[key[0]] += (key in self._definitions) - was
        self._pending.clear()
        self._published.clear()

    def _variants(self, key: TypedName) -> tuple[Variant, ...]:
        """Return the variants of a name from all files, in the order of the files' names."""
        definitions = sorted(self._definitions.get(key, ()))
        if len(definitions) == 1:
            return definitions[0][1]
        return tuple(variant for _, variants in definitions for variant in variants)

    def _parse(self, chunk: Chunk, file: str, known: dict[bytes, ParsedDocument]) -> ParsedDocument:
        """Parse a document, or reuse it if its text was parsed before."""
        digest = blake2b(chunk.text.encode(), digest_size=16).digest()
        if digest in known:
            # `at` copies: if a file has the same text twice, its variants are two, and the store reports the clash.
            return known[digest].at(chunk.line)
        self.parsed += 1
        parsed = parse_chunk(chunk, file, self._validate)
        return ParsedDocument(
            digest, chunk.line, parsed.variants, parsed.errors, parsed.envoy_problems, parsed.warnings
        )

    def _replace(self, file: str, documents: tuple[ParsedDocument, ...]) -> None:
        """Replace the documents of a file, and mark the names whose variants differ as pending."""
        before = self._files.get(file, ())
        self._published.setdefault(file, before)
        self._files[file] = documents
        self._reports.pop(file, None)
        if all(document.is_clean for document in documents):
            self._files_with_problems.discard(file)
        else:
            self._files_with_problems.add(file)
        old, new = _by_key(before), _by_key(documents)
        for key in {**old, **new}:
            if old.get(key) != new.get(key):  # compares variants by identity: a document that is reused is unchanged
                self._pending.setdefault(key, key in self._definitions)
                self._define(key, file, new.get(key, ()))

    def _define(self, key: TypedName, file: str, variants: tuple[Variant, ...]) -> None:
        """Replace the variants of a name that one file defines."""
        others = tuple(each for each in self._definitions.get(key, ()) if each[0] != file)
        if variants:
            self._definitions[key] = (*others, (file, variants))
        elif others:
            self._definitions[key] = others
        else:
            del self._definitions[key]
        if self._usage is not None:
            self._usage.set(key, self._variants(key))


def _truncated(problems: tuple[Problem, ...], noun: str) -> tuple[Problem, ...]:
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], Problem(f"and {more} more {noun}", problems[0].file)) if more > 0 else problems


def _by_key(documents: Iterable[ParsedDocument]) -> dict[TypedName, tuple[Variant, ...]]:
    found: dict[TypedName, list[Variant]] = {}
    for document in documents:
        for variant in document.variants:
            found.setdefault((variant.type_url, variant.name), []).append(variant)
    return {key: tuple(variants) for key, variants in found.items()}


def _shifted(problem: Problem, offset: int) -> Problem:
    return replace(problem, line=problem.line + offset)


def _shifted_variant(variant: Variant, offset: int) -> Variant:
    origin = variant.origin
    return replace(variant, origin=Origin(origin.file, origin.line + offset) if origin else None)
