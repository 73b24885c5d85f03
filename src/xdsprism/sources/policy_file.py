"""Reads a policy file (docs/policy.md), and the JWKS that it names.

Every key and value is checked, and all problems are reported at once, with file and line. Nothing is guessed: a number
where a text belongs is refused, as a param is a text, and so is what YAML 1.1 and 1.2 read differently.

watched_file.py watches both: changed files that have problems change nothing, and the policy in force stays with its
keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.model.type_names import resolve_type
from ..core.model.types import Origin, TypeUrl
from ..core.policy.globs import STAR, Glob, NameGlobs
from ..core.policy.grant import ParamRule
from ..core.policy.identity import IdentityGlob
from ..core.policy.policy import Default, Policy, Rule
from ..core.policy.tokens import SigningKey, Tokens
from ..errors import ConfigError, Problem, UsageError, show_path
from ..file_reading import read_file
from ..messages.document import AmbiguousScalar, Document, MalformedError
from ..messages.document import Path as DocumentPath
from ..similar import did_you_mean
from . import strict_json, strict_yaml
from .jwks import load_keys
from .watched_file import WatchedFile

MAX_BYTES = 16 * 1024 * 1024

_KEYS = ("default", "jwks", "audience", "issuer", "rules")
_RULE_KEYS = ("identity", "node", "types", "names", "params")


def parse_policy(text: str, file: str) -> Policy:
    """Read a policy, and the JWKS that it names. Raises ConfigError with every problem found."""
    try:
        documents = _documents(text, file)
    except MalformedError as error:
        raise ConfigError([Problem(error.message, file, error.line)]) from None
    if len(documents) != 1:
        raise ConfigError([Problem(f"a policy is one document, and here are {len(documents)}", file, 1)])
    reader = _Reader(documents[0], file)
    policy = reader.read()
    if reader.problems:
        raise ConfigError(reader.problems)
    return policy


def _documents(text: str, file: str) -> list[Document]:
    """Read YAML, or JSON by the name of the file. Raises MalformedError."""
    if file.endswith(".json"):
        return list(strict_json.load(text))
    return [document for chunk in strict_yaml.split(text) for document in strict_yaml.load(chunk)]


def load_policy(path: str | Path) -> Policy:
    """Read a policy file, and the JWKS that it names. Raises ConfigError."""
    file = str(path)
    try:
        return parse_policy(read_file(path, MAX_BYTES).decode(), file)
    except UnicodeDecodeError:
        raise ConfigError([Problem("the policy is not UTF-8", file)]) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        why = getattr(error, "strerror", None) or error
        raise ConfigError([Problem(f"the policy can't be read: {why}", file)]) from None


def watch_policy(path: str | Path) -> WatchedFile[Policy]:
    """Return a policy file that can be watched, together with the JWKS that it names."""
    return WatchedFile(path, load_policy, files=_files_of)


def _files_of(path: str) -> list[str]:
    """Return the files that a policy consists of: its own, and the JWKS that it names, if it can be read so far."""
    try:
        root = _documents(read_file(path, MAX_BYTES).decode(), path)[0].root
    except (OSError, UnicodeDecodeError, MalformedError, IndexError):
        return [path]
    named = root.get("jwks") if isinstance(root, dict) else None
    return [path, _beside(path, named)] if isinstance(named, str) and named and "\0" not in named else [path]


def _beside(file: str, named: str) -> str:
    """Return the path of a file that another one names: from the folder of that, unless it is absolute."""
    return str(Path(file).parent / named)


class _Reader:
    """Reads one document, and notes every problem in it."""

    def __init__(self, document: Document, file: str) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._file = file

    def read(self) -> Policy:
        root = self._mapping(self._document.root, (), _KEYS, "a policy")
        default: Default = "deny"
        match root.get("default", "deny"):
            case "deny" | "allow" as given:
                default = given
            case _:
                self._wrong(("default",), "write deny or allow")
        rules = self._list(root.get("rules", []), ("rules",), "rules")
        read = [self._rule(rule, ("rules", number)) for number, rule in enumerate(rules)]
        tokens = self._tokens(root)
        if "jwks" not in root:
            for number, rule in enumerate(read):
                if rule is not None and rule.identity.kind == "jwt":
                    self._wrong(("rules", number, "identity"), "jwt: needs a `jwks` at the top, which verifies tokens")
        return Policy([rule for rule in read if rule is not None], default, tokens)

    def _tokens(self, root: Mapping[str, Any]) -> Tokens | None:
        """Read which bearer tokens are accepted; None: there is no `jwks`, so tokens are ignored."""
        audiences, issuers = self._one_or_more(root, "audience"), self._one_or_more(root, "issuer")
        if "jwks" not in root:
            for key in ("audience", "issuer"):
                if key in root:
                    self._wrong((key,), f"without a `jwks`, which verifies tokens, {key} means nothing")
            return None
        keys = self._keys(root["jwks"])
        if "audience" not in root:
            text = "audience is missing: which `aud` do tokens for this server have? Those for others are refused"
            self._wrong(("jwks",), text)
        return Tokens(keys, audiences, issuers)

    def _keys(self, given: object) -> list[SigningKey]:
        """Read the keys of a JWKS file. A relative path is one from the folder of the policy."""
        text = self._text(given, ("jwks",))
        if text is None:
            return []
        file = _beside(self._file, text)
        try:
            return load_keys(file)
        except ConfigError as error:
            self.problems += error.problems
        except OSError as error:
            self._wrong(("jwks",), f"{file} can't be read: {error.strerror}")
        except ValueError:  # a NUL
            self._wrong(("jwks",), "this is no path of a file")
        return []

    def _one_or_more(self, root: Mapping[str, Any], key: str) -> list[str]:
        """Read a text, or a list of texts."""
        given = root.get(key, [])
        if not isinstance(given, list):
            text = self._text(given, (key,))
            return [text] if text is not None else []
        if key in root and not given:
            self._wrong((key,), f"list at least one {key}")
        texts = [self._text(each, (key, number)) for number, each in enumerate(given)]
        return [text for text in texts if text is not None]

    def _rule(self, given: object, path: DocumentPath) -> Rule | None:
        rule = self._mapping(given, path, _RULE_KEYS, "a rule")
        identity: IdentityGlob | None = None
        if "identity" not in rule:
            if isinstance(given, dict):
                self._wrong(path, "identity is missing: which clients is the rule for? `any` is for all of them")
        else:
            text = self._text(rule["identity"], (*path, "identity"))
            try:
                identity = IdentityGlob(text) if text is not None else None
            except UsageError as error:
                self._wrong((*path, "identity"), str(error))
        node = self._text(rule["node"], (*path, "node")) if "node" in rule else None
        types = self._types(rule["types"], (*path, "types")) if "types" in rule else None
        names = self._names(rule["names"], (*path, "names")) if "names" in rule else None
        params = self._params(rule["params"], (*path, "params")) if "params" in rule else {}
        if identity is None:
            return None
        origin = Origin(self._file, self._document.line_of(path))
        return Rule(identity, Glob(node) if node is not None else None, types, names, params, origin)

    def _types(self, given: object, path: DocumentPath) -> frozenset[TypeUrl]:
        found: dict[TypeUrl, None] = {}
        for number, word in enumerate(self._list(given, path, "types")):
            type_url = self._type(word, (*path, number))
            if type_url in found:
                self._wrong((*path, number), f"{word!r} is there twice")
            if type_url is not None:
                found[type_url] = None
        return frozenset(found)

    def _names(self, given: object, path: DocumentPath) -> dict[str, NameGlobs]:
        found: dict[str, NameGlobs] = {}
        for word, patterns in self._mapping(given, path, None, "names").items():
            inner = (*path, word)
            type_url = STAR if word == STAR else self._type(word, inner)
            if type_url in found:
                self._wrong(inner, f"{word!r} is there twice, under another name")
            each = self._list(patterns, inner, "patterns of names")
            texts = [self._text(one, (*inner, number)) for number, one in enumerate(each)]
            if type_url is not None:
                found[type_url] = NameGlobs(text for text in texts if text is not None)
        return found

    def _params(self, given: object, path: DocumentPath) -> dict[str, ParamRule] | None:
        if given == "any":
            return None
        found: dict[str, ParamRule] = {}
        for key, rule in self._mapping(given, path, None, "params, or `any`").items():
            inner = (*path, key)
            if rule == "any":
                found[key] = ParamRule()
                continue
            kind = self._mapping(rule, inner, ("pin", "allow"), "what is said of a param: any, pin or allow, which")
            if isinstance(rule, dict) and len(rule) != 1:
                self._wrong(inner, "write one of `any`, `{pin: VALUE}` and `{allow: [VALUE, ...]}`")
            elif "pin" in kind:
                found[key] = ParamRule(pin=self._text(kind["pin"], (*inner, "pin")))
            elif "allow" in kind:
                listed = self._list(kind["allow"], (*inner, "allow"), "values")
                values = [self._text(each, (*inner, "allow", number)) for number, each in enumerate(listed)]
                if not listed and isinstance(kind["allow"], list):
                    self._wrong((*inner, "allow"), "list a value, or leave the key out: then it may not be claimed")
                found[key] = ParamRule(allow=frozenset(value for value in values if value is not None))
        return found

    # -- parts

    def _type(self, word: object, path: DocumentPath) -> TypeUrl | None:
        text = self._text(word, path)
        try:
            return resolve_type(text) if text is not None else None
        except UsageError as error:
            self._wrong(path, str(error))
            return None

    def _mapping(self, given: object, path: DocumentPath, keys: tuple[str, ...] | None, what: str) -> Mapping[str, Any]:
        """Return a mapping with texts as keys; only `keys`, if these are given."""
        if not isinstance(given, dict):
            self._wrong(path, f"{what} is a mapping, and not {_named(given)}")
            return {}
        found: dict[str, Any] = {}
        for key, value in given.items():
            text = self._text(key, path) if keys is None else key
            if keys is not None and key not in keys:
                inner = (*path, key) if isinstance(key, str) else path
                hint = did_you_mean(key, keys) if isinstance(key, str) else ""
                self._wrong(inner, f"unknown key {key!r}: {what} has {', '.join(keys)}{hint}")
            elif isinstance(text, str):
                found[text] = value
        return found

    def _list(self, given: object, path: DocumentPath, what: str) -> list[Any]:
        if isinstance(given, list):
            return given
        self._wrong(path, f"{what} are a list, and not {_named(given)}")
        return []

    def _text(self, given: object, path: DocumentPath) -> str | None:
        if isinstance(given, str) and not isinstance(given, AmbiguousScalar) and given:
            return str(given)
        reason = "which YAML 1.1 does not read as a text" if isinstance(given, AmbiguousScalar) else _named(given)
        self._wrong(path, f"this is a text, and not {reason}: quote it" if given != "" else "this text is empty")
        return None

    def _wrong(self, path: DocumentPath, message: str) -> None:
        self.problems.append(Problem(message, self._file, self._document.line_of(path), show_path(path)))


def _named(given: object) -> str:
    """Say what kind of value this is."""
    match given:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case bool():
            return f"the boolean {str(given).lower()}"
        case int() | float():
            return f"the number {given}"
        case _:
            return f"the text {given!r}" if len(str(given)) < 100 else "a text"
