"""Checks strings that Envoy parses: regular expressions, format strings, path templates, PEM.

Each function returns why Envoy refuses a text, or None. A doubtful text passes, as the Envoy may be newer than this
check: refusing a file that Envoy accepts is worse than leaving the refusal to Envoy.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import lru_cache

from ..core.model.regexes import compile_regex

# -- regular expressions


def regex_fault(pattern: str) -> str | None:
    """Check that RE2 compiles a regular expression."""
    return _compiled(pattern)[0]


def program_size(pattern: str) -> int:
    """Return the size of RE2's program for a regular expression, or 0 if RE2 does not compile it."""
    return _compiled(pattern)[1]


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> tuple[str | None, int]:
    """Return the fault of a regular expression, or None, and the size of RE2's program."""
    try:
        return None, int(compile_regex(pattern).programsize)
    except ValueError as error:
        return str(error), 0


# -- format strings: `%REQ(x-id?:path):12%`

_COMMAND = re.compile(r"%([A-Z0-9_]+)(?:\((.*?)\))?(?::([0-9]+))?%")
_OF_HEADERS = frozenset(("REQ", "RESP", "TRAILER"))
_NEED_PARAMETERS = _OF_HEADERS | {"DYNAMIC_METADATA", "QUERY_PARAM"}
_LARGEST = 1 << 64


def format_fault(text: str) -> str | None:
    """Check that each `%` begins a command operator or is doubled. The operators' names depend on Envoy's version."""
    at = text.find("%")
    while at >= 0:
        if text.startswith("%%", at):
            at = text.find("%", at + 2)
            continue
        match = _COMMAND.match(text, at)
        if match is None or int(match[3] or 0) >= _LARGEST:
            rest = text[at : at + 40]
            what = "a command operator such as %REQ(x-id)% or %PROTOCOL%"
            return f"{rest!r} does not begin {what}; write %% for a percent sign"
        fault = _command_fault(match[1], match[2] or "")
        if fault is not None:
            return fault
        at = text.find("%", match.end())
    return None


def _command_fault(command: str, parameters: str) -> str | None:
    """Check the parameters of a command operator."""
    if command in _NEED_PARAMETERS and not parameters:
        return f"%{command}% needs parameters in parentheses, such as %{command}(x-id)%"
    if command in _OF_HEADERS and parameters.count("?") > 1:
        return f"%{command}({parameters})% has more than one alternative: Envoy accepts one, as in %{command}(a?b)%"
    return None


# -- path templates: `/{lang}/**`

_PRINTABLE = re.compile(r"/[!-~]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9\-._~%!$&'()+,;:@=*/{}]")
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MAX_VARIABLES = 5
_MAX_NAME = 16  # characters


def template_fault(template: str) -> str | None:
    """Check the path template that a route matches by."""
    return _path_fault(template) or _variables_fault(template) or _globs_fault(template)


def rewrite_fault(template: str) -> str | None:
    """Check the path template that a path is rewritten by."""
    if fault := _path_fault(template):
        return fault
    return next((fault for name in _VARIABLE.findall(template) if (fault := _name_fault(name))), None)


def variables(template: str) -> list[str]:
    """Return the names of the variables of a template, in their order."""
    return [name.partition("=")[0] for name in _VARIABLE.findall(template)]


def _path_fault(template: str) -> str | None:
    """Check the characters, slashes and braces of a path template."""
    if not _PRINTABLE.fullmatch(template):
        return f"{template!r} is not a path template: it must begin with / and contain only ASCII without spaces"
    if foreign := _FOREIGN.search(template):
        return f"a path template can't have {foreign[0]!r} in it"
    if "//" in template:
        return "a path template can't have an empty segment, //"
    rest = _VARIABLE.sub("", template)
    return "the braces of its variables do not match" if "{" in rest or "}" in rest else None


def _name_fault(name: str) -> str | None:
    if not _NAME.fullmatch(name):
        return f"{name!r} is not a variable name: use letters, digits and _, and begin with a letter"
    if len(name) > _MAX_NAME:
        return f"the variable {name} has a name of more than {_MAX_NAME} characters"
    return None


def _variables_fault(template: str) -> str | None:
    """Check the names, the number and the patterns of a template's variables."""
    names = variables(template)
    for index, name in enumerate(names):
        if fault := _name_fault(name):
            return fault
        if name in names[:index]:
            return f"has the variable {name} twice"
    if len(names) > _MAX_VARIABLES:
        return f"has {len(names)} variables, and at most {_MAX_VARIABLES} are allowed"
    patterns = [
        pattern for _, equals, pattern in (name.partition("=") for name in _VARIABLE.findall(template)) if equals
    ]
    if any(not all(pattern.split("/")) for pattern in patterns):
        return "a variable's pattern can't be empty, nor begin or end with /"
    if any(segment.count("{}") > 1 for segment in _VARIABLE.sub("{}", template).split("/")):
        return "a segment can't have two variables"
    return None


def _globs_fault(template: str) -> str | None:
    """Check that no segment after `**` is a glob. A variable without a pattern is one."""
    spread = re.sub(r"\{[^{}=]*\}", "*", template)
    segments = re.sub(r"\{[^{}=]*=([^{}]*)\}", r"\1", spread).split("/")
    if "**" not in segments:
        return None
    after = segments[segments.index("**") + 1 :]
    return "can't have *, ** or a variable without a pattern after **" if {"*", "**"} & set(after) else None


# -- PEM

_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----[ \t]*")
_CERTIFICATES = frozenset(("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"))
_SEQUENCE = 0x30


def certificates_fault(text: str) -> str | None:
    """Check that a text contains certificates in PEM. Their contents are for the client to verify."""
    found = [body for label, body in _blocks(text) if label in _CERTIFICATES]
    if not found:
        return "holds no certificate: expected PEM, with -----BEGIN CERTIFICATE----- on a line of its own"
    for index, body in enumerate(found):
        if body is None or not _is_certificate(body):
            return f"certificate {index + 1} is broken: the text between BEGIN and END is not a certificate in base64"
    return None


def private_key_fault(text: str) -> str | None:
    """Check that a text contains a private key in PEM."""
    found = [body for label, body in _blocks(text) if label.endswith("PRIVATE KEY")]
    if not found:
        return "holds no private key: expected PEM, with -----BEGIN PRIVATE KEY----- on a line of its own"
    first = found[0]
    broken = first is None or (first != _ENCRYPTED and _inside(first) is None)
    return "the private key is broken: the text between BEGIN and END is not a key in base64" if broken else None


_ENCRYPTED = b"encrypted"  # stands for the body of an encrypted key, which can't be checked without the passphrase


def _blocks(text: str) -> Iterator[tuple[str, bytes | None]]:
    """Yield the label and the body of each PEM block; None for a body that is not base64, or has no END line."""
    lines = iter(text.replace("\r\n", "\n").split("\n"))
    for line in lines:
        if begin := _BEGIN.fullmatch(line):
            body: list[str] = []
            ended = False
            for inner in lines:
                if inner.startswith("-----END "):
                    ended = inner.rstrip() == f"-----END {begin[1]}-----"
                    break
                body.append(inner.strip())
            yield begin[1], _decoded(body) if ended else None


def _decoded(lines: list[str]) -> bytes | None:
    """Decode the body of a PEM block; None if it is not base64."""
    if any(":" in line for line in lines):
        return _ENCRYPTED
    try:
        return base64.b64decode("".join(lines), validate=True)
    except (binascii.Error, ValueError):
        return None


def _inside(data: bytes) -> bytes | None:
    """Return the contents of the DER sequence at the start of the data, or None if there is none or it is cut off."""
    if len(data) < 2 or data[0] != _SEQUENCE:
        return None
    size, start = data[1], 2
    if size >= 0x80:  # the long form: the low bits say how many bytes the size takes
        start += size - 0x80
        size = int.from_bytes(data[2:start])
    return data[start : start + size] if 0 < size <= len(data) - start else None


def _is_certificate(data: bytes) -> bool:
    """Whether DER data looks like a certificate: a sequence that begins with a sequence."""
    signed = _inside(data)
    return signed is not None and _inside(signed) is not None
