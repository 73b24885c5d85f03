"""What the files say: which document gave which variants, and what of that the server has not been told yet. No I/O.

A document is known by the hash of its text. Of a file that changed, only the documents that are new are parsed; of what
was parsed, only the names whose variants differ are published. Nothing is published while anything is wrong
(DESIGN 3: a config is atomic), and what had to wait is published with the edit that puts it right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

from ..core.model.removal_guard import Loss
from ..core.model.types import Changeset, Origin, TypeUrl, Variant
from ..errors import Problem
from ..messages.verdicts import Validate
from .parse import Doubt, chunks, parse_chunk
from .strict_yaml import Chunk
from .usage import Usage

MAX_PROBLEMS = 20  # shown per file

Key = tuple[TypeUrl, str]
Place = tuple[str, tuple[Variant, ...]]  # a file, and what it says of a name


@dataclass(frozen=True, slots=True)
class Part:
    """One document of a file. Its text and tree are gone; the hash is enough to know it again."""

    digest: bytes
    line: int
    variants: tuple[Variant, ...]
    faults: tuple[Problem, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def is_flawless(self) -> bool:
        return not (self.faults or self.doubts or self.warnings)

    def at(self, line: int) -> Part:
        """The same document, further up or down in the file."""
        if line == self.line:
            return self
        offset = line - self.line
        variants = tuple(_moved(variant, offset) for variant in self.variants)
        faults = tuple(_further(problem, offset) for problem in self.faults)
        doubts = tuple(doubt._replace(problem=_further(doubt.problem, offset)) for doubt in self.doubts)
        warnings = tuple(_further(problem, offset) for problem in self.warnings)
        return Part(self.digest, line, variants, faults, doubts, warnings)


class Catalog:
    """All documents of all files.

    `validate`: what becomes of that which Envoy would refuse. Where it is an error, it is none in a resource that only
    gRPC can use (usage.py), which takes the whole configuration to know.
    """

    def __init__(self, validate: Validate = "envoy") -> None:
        self.parsed = 0  # documents, ever
        self._validate: Validate = validate
        self._usage: Usage | None = None  # made when first asked
        self._told: dict[str, tuple[tuple[Problem, ...], tuple[Problem, ...]]] = {}  # errors and warnings, by file
        self._files: dict[str, tuple[Part, ...]] = {}
        self._unread: dict[str, Problem] = {}
        self._flawed: set[str] = set()  # files with errors or warnings
        self._places: dict[Key, tuple[Place, ...]] = {}  # mostly one; tuples, since there can be a million
        self._pending: dict[Key, bool] = {}  # with whether it was published
        self._published: dict[str, tuple[Part, ...]] = {}  # of files that differ from what was published last
        self._served: Counter[TypeUrl] = Counter()  # names that were published, by type

    # -- what the files say now

    def read(self, file: str, raw: bytes) -> None:
        """Take a file's contents."""
        if not raw and self._files.get(file):
            self.fail(file, "is empty now, as if a write were not finished; to remove what it held, delete the file")
            return
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            self.fail(file, f"is not UTF-8: byte 0x{raw[error.start]:02x}", line)
            return
        self._unread.pop(file, None)
        known = {part.digest: part for part in (*self._published.get(file, ()), *self._files.get(file, ()))}
        self._replace(file, tuple(self._part(chunk, file, known) for chunk in chunks(text, file)))

    def fail(self, file: str, message: str, line: int = 0) -> None:
        """Note that a file could not be read; until it can, it counts as what it was."""
        self._unread[file] = Problem(message, file, line)

    def forget(self, file: str) -> None:
        """Note that a file is gone, and with it what it held."""
        self._unread.pop(file, None)
        if file in self._files:
            self._replace(file, ())
            del self._files[file]

    @property
    def resources(self) -> int:
        """How many names there are, each with one or more variants."""
        return len(self._places)

    def problems(self) -> tuple[Problem, ...]:
        """List all that is wrong, file by file."""
        found: list[Problem] = []
        for file in sorted(self._flawed.union(self._unread)):
            unread = (self._unread[file],) if file in self._unread else ()
            found += _shortened((*unread, *self._judged(file)[0]), "problems")
        return tuple(found)

    def warnings(self) -> tuple[Problem, ...]:
        """List what is taken, but would be refused by Envoy, or may not be what was meant."""
        return tuple(
            problem for file in sorted(self._flawed) for problem in _shortened(self._judged(file)[1], "warnings")
        )

    def _judged(self, file: str) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
        self._reconsider()
        told = self._told.get(file)
        if told is None:
            errors: list[Problem] = []
            warnings: list[Problem] = []
            for part in self._files.get(file, ()):
                waived = [doubt.problem for doubt in part.doubts if self._is_waived(doubt)]
                counted = [doubt.problem for doubt in part.doubts if not self._is_waived(doubt)]
                errors += [*part.faults, *counted]
                warnings += [*part.warnings, *waived]
            told = self._told[file] = tuple(errors), tuple(warnings)
        return told

    def _is_waived(self, doubt: Doubt) -> bool:
        if self._validate == "warn" or doubt.for_grpc:
            return True
        if self._usage is None:
            self._usage = Usage()
            for key in self._places:
                self._usage.set(key, self._variants(key))
        return self._usage.is_for_grpc(doubt.key)

    def _reconsider(self) -> None:
        """Forget what was said of files whose resources are others' now."""
        if self._usage is not None:
            for key in self._usage.stale:
                for file, _ in self._places.get(key, ()):
                    self._told.pop(file, None)
            self._usage.stale.clear()

    # -- what the server was told

    def pending(self) -> Changeset:
        """Give the names that differ from what was published, each with all its variants, wherever they stand."""
        return {key: self._variants(key) for key in sorted(self._pending)}

    @property
    def has_pending(self) -> bool:
        """Whether anything differs from what was published."""
        return bool(self._pending)

    def losses(self) -> tuple[Loss, ...]:
        """Say which names were published and would be gone, by type."""
        gone: dict[TypeUrl, list[str]] = {}
        for type_url, name in sorted(key for key, was in self._pending.items() if was and key not in self._places):
            gone.setdefault(type_url, []).append(name)
        return tuple(Loss(type_url, tuple(names), self._served[type_url]) for type_url, names in gone.items())

    def settle(self) -> None:
        """Note that what was pending is published."""
        for key, was in self._pending.items():
            self._served[key[0]] += (key in self._places) - was
        self._pending.clear()
        self._published.clear()

    def _variants(self, key: Key) -> tuple[Variant, ...]:
        places = sorted(self._places.get(key, ()))
        return places[0][1] if len(places) == 1 else tuple(variant for _, found in places for variant in found)

    def _part(self, chunk: Chunk, file: str, known: dict[bytes, Part]) -> Part:
        digest = blake2b(chunk.text.encode(), digest_size=16).digest()
        if digest in known:
            return known[digest].at(chunk.line)  # the same text twice is two documents, as `at` copies, and a clash
        self.parsed += 1
        parsed = parse_chunk(chunk, file, self._validate)
        return Part(digest, chunk.line, parsed.variants, parsed.faults, parsed.doubts, parsed.warnings)

    def _replace(self, file: str, parts: tuple[Part, ...]) -> None:
        before = self._files.get(file, ())
        self._published.setdefault(file, before)
        self._files[file] = parts
        self._told.pop(file, None)
        (self._flawed.discard if all(part.is_flawless for part in parts) else self._flawed.add)(file)
        old, new = _by_key(before), _by_key(parts)
        for key in {**old, **new}:
            if old.get(key) != new.get(key):  # variants are compared by identity
                self._pending.setdefault(key, key in self._places)
                self._place(key, file, new.get(key, ()))

    def _place(self, key: Key, file: str, variants: tuple[Variant, ...]) -> None:
        places = tuple(place for place in self._places.get(key, ()) if place[0] != file)
        if variants:
            self._places[key] = (*places, (file, variants))
        elif places:
            self._places[key] = places
        else:
            del self._places[key]
        if self._usage is not None:
            self._usage.set(key, self._variants(key))


def _shortened(problems: tuple[Problem, ...], what: str) -> tuple[Problem, ...]:
    more = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], Problem(f"and {more} more {what}", problems[0].file)) if more > 0 else problems


def _by_key(parts: Iterable[Part]) -> dict[Key, tuple[Variant, ...]]:
    found: dict[Key, list[Variant]] = {}
    for part in parts:
        for variant in part.variants:
            found.setdefault((variant.type_url, variant.name), []).append(variant)
    return {key: tuple(variants) for key, variants in found.items()}


def _further(problem: Problem, offset: int) -> Problem:
    return replace(problem, line=problem.line + offset)


def _moved(variant: Variant, offset: int) -> Variant:
    origin = variant.origin
    return replace(variant, origin=Origin(origin.file, origin.line + offset) if origin else None)
