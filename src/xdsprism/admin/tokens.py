"""Reads the tokens that requests to the admin port need, and compares them. `sources/watched_file.py` watches the file.

# openssl rand -hex 32
3f6c…    one token in a line; several, so that one can be replaced while the other is still in use
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from ..errors import ConfigError, Problem
from ..file_reading import open_file, read_file

MAX_BYTES = 64 * 1024
SHORTEST = 16  # characters of a token: a shorter one can be guessed
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP


class Tokens:
    """The tokens that are valid now. It keeps no token, only hashes, so that no log or core file can show one."""

    __slots__ = ("_hashes",)

    def __init__(self, tokens: Iterable[bytes]) -> None:
        self._hashes = tuple(sha256(token).digest() for token in tokens)

    def has(self, token: str) -> bool:
        """Whether a token is valid. How long that takes tells nothing about the tokens."""
        given = sha256(token.encode(errors="surrogateescape")).digest()
        found = False
        for each in self._hashes:
            found |= compare_digest(each, given)
        return found


def read_tokens(path: str) -> Tokens:
    """Read a token file. Raises ConfigError, which repeats nothing of its contents."""
    return Tokens(_read(path))


def first_token(path: str) -> str:
    """Return the token of a file that a client sends. Raises ConfigError."""
    return _read(path)[0].decode("ascii")


def _read(path: str) -> list[bytes]:
    try:
        with open_file(path) as file:  # one descriptor, so that what is checked is what is read
            mode = os.fstat(file.fileno()).st_mode
            contents = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _problem(path, "there is no such file") from None
    except PermissionError:
        raise _problem(path, "can't be read: give read permission to the user that runs xdsprism") from None
    except (OSError, ValueError) as error:
        raise _problem(path, f"can't be read: {getattr(error, 'strerror', None) or error}") from None
    if mode & _OTHERS:
        text = f"other users may read or change it (mode {stat.S_IMODE(mode):04o}): `chmod 600` it"
        raise _problem(path, f"{text}, or set `defaultMode: 0440` where Kubernetes mounts it from a Secret")
    if len(contents) > MAX_BYTES:
        raise _problem(path, f"has more than {MAX_BYTES:,} bytes")
    tokens: list[bytes] = []
    for number, line in enumerate(contents.splitlines(), 1):
        token = line.strip()
        if not token or token.startswith(b"#"):
            continue
        if not _TOKEN.fullmatch(token):
            allowed = "a token has letters, digits and -._~+/ only, with = at the end"
            raise _problem(path, f"this line is no token: {allowed}", number)
        if len(token) < SHORTEST:
            text = f"a token of fewer than {SHORTEST} characters can be guessed: `openssl rand -hex 32` makes one"
            raise _problem(path, text, number)
        tokens.append(token)
    if not tokens:
        raise _problem(path, "there is no token in it: `openssl rand -hex 32` makes one")
    return tokens


def state_of(path: str) -> tuple[bytes, int] | None:
    """Return what may change in a token file, a hash of its contents and its mode; None if it can't be read."""
    try:
        return sha256(read_file(path)).digest(), Path(path).stat().st_mode
    except OSError:
        return None


def _problem(path: str, message: str, line: int = 0) -> ConfigError:
    return ConfigError([Problem(message, path, line)])
