"""Finds and parses the bootstrap document: at a path, in a mapping, in JSON text, or by the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError, Problem
from ..file_reading import read_file

PATH_VARIABLE = "GRPC_XDS_BOOTSTRAP"
TEXT_VARIABLE = "GRPC_XDS_BOOTSTRAP_CONFIG"


def find_document(source: str | Path | Mapping[str, Any] | None, environ: Mapping[str, str]) -> tuple[str, Any]:
    """Return the name of the document for error messages, and its contents."""
    if source is None:
        path, text = environ.get(PATH_VARIABLE), environ.get(TEXT_VARIABLE)
        if path:  # BST-1: the path wins, as in every gRPC
            return path, _parse(path, _read(path, f" (named by {PATH_VARIABLE})"))
        if text:
            return TEXT_VARIABLE, _parse(TEXT_VARIABLE, text)
        raise ConfigError(f"no bootstrap: set {PATH_VARIABLE} to the path of one, or {TEXT_VARIABLE} to its JSON")
    if not isinstance(source, str | os.PathLike | Mapping):
        found = type(source).__qualname__
        raise TypeError(f"bootstrap: str or os.PathLike or a mapping or None expected; got {found}")
    if isinstance(source, Mapping):
        return "bootstrap", _copy(source)
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return "bootstrap", _parse("bootstrap", source)
    return str(source), _parse(str(source), _read(source))


def _read(path: str | Path, hint: str = "") -> str:
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError([Problem("not UTF-8", str(path))]) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        why = getattr(error, "strerror", None) or error
        raise ConfigError([Problem(f"can't read the bootstrap{hint}: {why}", str(path))]) from None


def _parse(file: str, text: str) -> Any:
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ConfigError([Problem(f"not JSON: {error.msg} (column {error.colno})", file, error.lineno)]) from None
    except UnicodeEncodeError as error:  # JSON allows half of a surrogate pair, protobuf does not
        raise ConfigError([Problem(f"{error.object[error.start]!a} is not a valid character", file)]) from None
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError([Problem(why, file)]) from None
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys, of which the json module would keep the last."""
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r} in an object")
    return result


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _copy(source: Mapping[str, Any]) -> Any:
    """DYN-53: copy the mapping, so that later changes of it have no effect."""
    try:
        text = json.dumps(dict(source), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError([Problem(f"can't be written as JSON: {error}", "bootstrap")]) from None
    return _parse("bootstrap", text)
