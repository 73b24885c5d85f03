"""What the files say: which document gave which variants, and what of that the server has not been told yet. No I/O.

A document is known by the hash of its text. Of a file that changed, only the documents that are new are parsed; of what
was parsed, only the names whose variants differ are published. Nothing is published while anything is wrong
(DESIGN 3: a config is atomic), and what had to wait is published with the edit that puts it right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

from ..core.types import Changeset, Origin, TypeUrl, Variant
from ..errors import Problem
from .parse import chunks, parse_chunk
from .strict_yaml import Chunk

MAX_PROBLEMS = 20  # shown per file

Key = tuple[TypeUrl, str]
Place = tuple[str, tuple[Variant, ...]]  # a file, and what it says of a name


@dataclass(frozen=True, slots=True)
class Part:
    """One document of a file. Its text and tree are gone; the hash is enough to know it again."""

    digest: bytes
    line: int
    variants: tuple[Variant, ...]
    problems: tuple[Problem, ...]

    def at(self, line: int) -> Part:
        """The same document, further up or down in the file."""
        if line == self.line:
            return self
        offset = line - self.line
        variants = tuple(_moved(variant, offset) for variant in self.variants)
        problems = tuple(replace(problem, line=problem.line + offset) for problem in self.problems)
        return Part(self.digest, line, variants, problems)


class Catalog:
    """All documents of all files."""

    def __init__(self) -> None:
        self.parsed = 0  # documents, ever
        self._files: dict[str, tuple[Part, ...]] = {}
        self._unread: dict[str, Problem] = {}
        self._faulty: set[str] = set()
        self._places: dict[Key, tuple[Place, ...]] = {}  # mostly one; tuples, since there can be a million
        self._pending: set[Key] = set()
        self._published: dict[str, tuple[Part, ...]] = {}  # of files that differ from what was published last

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
        for file in sorted(self._faulty.union(self._unread)):
            own = [self._unread[file]] if file in self._unread else []
            own += [problem for part in self._files.get(file, ()) for problem in part.problems]
            found += own[:MAX_PROBLEMS]
            if len(own) > MAX_PROBLEMS:
                found.append(Problem(f"and {len(own) - MAX_PROBLEMS} more problems", file))
        return tuple(found)

    # -- what the server was told

    def pending(self) -> Changeset:
        """Give the names that differ from what was published, each with all its variants, wherever they stand."""
        return {key: self._variants(key) for key in sorted(self._pending)}

    def settle(self) -> None:
        """Note that what was pending is published."""
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
        parsed = parse_chunk(chunk, file)
        return Part(digest, chunk.line, parsed.variants, parsed.problems)

    def _replace(self, file: str, parts: tuple[Part, ...]) -> None:
        before = self._files.get(file, ())
        self._published.setdefault(file, before)
        self._files[file] = parts
        (self._faulty.add if any(part.problems for part in parts) else self._faulty.discard)(file)
        old, new = _by_key(before), _by_key(parts)
        for key in {**old, **new}:
            if old.get(key) != new.get(key):  # variants are compared by identity
                self._pending.add(key)
                self._place(key, file, new.get(key, ()))

    def _place(self, key: Key, file: str, variants: tuple[Variant, ...]) -> None:
        places = tuple(place for place in self._places.get(key, ()) if place[0] != file)
        if variants:
            self._places[key] = (*places, (file, variants))
        elif places:
            self._places[key] = places
        else:
            del self._places[key]


def _by_key(parts: Iterable[Part]) -> dict[Key, tuple[Variant, ...]]:
    found: dict[Key, list[Variant]] = {}
    for part in parts:
        for variant in part.variants:
            found.setdefault((variant.type_url, variant.name), []).append(variant)
    return {key: tuple(variants) for key, variants in found.items()}


def _moved(variant: Variant, offset: int) -> Variant:
    origin = variant.origin
    return replace(variant, origin=Origin(origin.file, origin.line + offset) if origin else None)
