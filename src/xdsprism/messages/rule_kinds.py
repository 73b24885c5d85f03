"""Turns each kind of `validate.rules` into a test of a value.

The tests accept what Envoy's own build of protoc-gen-validate accepts; the texts of their faults are our own. A rule,
such as `min_len: 1`, has a name and a limit. `_FAMILIES` maps the names of each kind of rules to makers, which take
the limit and return the test.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, AnyStr
from urllib.parse import urlsplit

from google.protobuf.descriptor import FieldDescriptor

# Returns the fault of a value, or None.
Test = Callable[[Any], str | None]
_Make = Callable[[Any], Test | None]

# Rules that rules.py applies to the field as a whole, or that modify another rule.
_APPLIED_ELSEWHERE = frozenset(("ignore_empty", "strict", "required", "skip", "items", "keys", "values"))
_BOUNDS = ("gt", "gte", "lt", "lte")


def tests_of(kind: str, rules: Any, field: FieldDescriptor) -> tuple[list[Test], list[str]]:
    """Turn the rules of one kind, such as `string`, into tests. Also return the names of unknown rules."""
    limits = {rule.name: limit for rule, limit in rules.ListFields() if rule.name not in _APPLIED_ELSEWHERE}
    bounds = {name: limits.pop(name) for name in _BOUNDS if name in limits}
    makers = {**_FAMILIES.get(kind, _NUMBER), **_bound_to(rules, field)}
    tests = [_range(bounds, _moment if kind in _MOMENTS else None)] if bounds else []
    made = [makers[name](limit) for name, limit in limits.items() if name in makers]
    tests += [test for test in made if test is not None]
    if "ignore_empty" in rules.DESCRIPTOR.fields_by_name and rules.ignore_empty:
        tests = [_unless_empty(test) for test in tests]
    return tests, [name for name in limits if name not in makers]


def _bound_to(rules: Any, field: FieldDescriptor) -> dict[str, _Make]:
    """Return the makers of the rules that need more than their own limit."""
    return {
        "defined_only": lambda limit: _defined_only(field) if limit else None,
        "well_known_regex": lambda limit: _well_known(limit, strict=rules.strict),
    }


def _unless_empty(test: Test) -> Test:
    """PGV: with `ignore_empty` an empty value passes."""
    return lambda value: test(value) if value else None


def _must(holds: Callable[[Any], object], text: str) -> Test:
    """Make a test of a condition and of the text for values that do not meet it."""
    return lambda value: None if holds(value) else text


def _shown(limit: Any) -> str:
    """Format the limit of a rule for a text."""
    match limit:
        case bool():
            return str(limit).lower()
        case str() | bytes():
            return repr(limit)
        case float():
            return f"{limit:g}"
        case int():
            return str(limit)
        case _:
            return str(limit.ToJsonString())


def _listed(limits: list[Any]) -> str:
    return ", ".join(_shown(limit) for limit in limits)


# -- comparisons


def _const(limit: Any) -> Test:
    return _must(lambda value: value == limit, f"must be {_shown(limit)}")


def _in(limits: Any) -> Test:
    allowed = list(limits)
    return _must(lambda value: value in allowed, f"must be one of {_listed(allowed)}")


def _not_in(limits: Any) -> Test:
    barred = list(limits)
    return _must(lambda value: value not in barred, f"must not be one of {_listed(barred)}")


def _moment(value: Any) -> tuple[int, int]:
    """Return a comparable form of a Duration or Timestamp; both parts of a negative duration are negative."""
    return value.seconds, value.nanos


def _range(bounds: Mapping[str, Any], order: Callable[[Any], Any] | None) -> Test:
    """Make a test of the rules gt, gte, lt and lte together."""
    limits = {name: order(limit) if order else limit for name, limit in bounds.items()}
    tests = [_bound(name, limit, _shown(bounds[name]), order) for name, limit in limits.items()]
    low, high = limits.get("gt", limits.get("gte")), limits.get("lt", limits.get("lte"))
    if low is not None and high is not None and low > high:  # PGV: one of the two suffices; values between are refused
        return lambda value: " or ".join(filter(None, found)) if all(found := [test(value) for test in tests]) else None
    if len(tests) == 1:
        return tests[0]
    return lambda value: next(filter(None, (test(value) for test in tests)), None)


def _bound(name: str, limit: Any, shown: str, order: Callable[[Any], Any] | None) -> Test:
    holds, words = _COMPARISONS[name]
    text = f"must be {words} {shown}"
    if order is None:
        return lambda value: None if holds(value, limit) else text
    return lambda value: None if holds(order(value), limit) else text


_COMPARISONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "gt": (lambda value, limit: value > limit, "greater than"),
    "gte": (lambda value, limit: value >= limit, "at least"),
    "lt": (lambda value, limit: value < limit, "less than"),
    "lte": (lambda value, limit: value <= limit, "at most"),
}


_LONGEST = 315_576_000_000  # seconds; google/protobuf/duration.proto
_SECOND = 1_000_000_000


def duration_fault(seconds: int, nanos: int) -> str | None:
    """Return why a Duration is out of range, or None. Envoy refuses it, and no language's type could hold it."""
    if abs(nanos) >= _SECOND:
        return (
            f"has {nanos} nanos, which is a second or more: a Duration has at most 999999999, and the rest in seconds"
        )
    if abs(seconds) > _LONGEST:
        return f"has {seconds} seconds, which is more than the {_LONGEST} that a Duration can have"
    if seconds * nanos < 0:
        return f"has {seconds} seconds and {nanos} nanos: both must have the same sign"
    return None


# -- sizes


def _sizes(noun: str, measure: Callable[[Any], int]) -> dict[str, Callable[[int], Test]]:
    """Return the makers of the rules on a size, as `measure` computes it."""

    def least(limit: int) -> Test:
        text = "must not be empty" if limit == 1 else f"must have at least {limit} {noun}"
        return _must(lambda value: measure(value) >= limit, text)

    def most(limit: int) -> Test:
        return _must(lambda value: measure(value) <= limit, f"must have at most {limit} {noun}")

    def exactly(limit: int) -> Test:
        return _must(lambda value: measure(value) == limit, f"must have exactly {limit} {noun}")

    return {"min": least, "max": most, "exactly": exactly}


def _octets(value: str) -> int:
    return len(value) if value.isascii() else len(value.encode())


_CHARACTERS = _sizes("characters", len)
_BYTES_OF_TEXT = _sizes("bytes", _octets)
_BYTES_OF_BYTES = _sizes("bytes", len)
_ELEMENTS = _sizes("elements", len)


# -- texts


def _pattern(limit: str) -> Test:
    """Match as Envoy does, with RE2::FullMatch. With `$`, Python would accept a newline at the end."""
    return _must(_compiled(limit), f"must match {limit}")


def _bytes_pattern(limit: str) -> Test:
    return _must(_compiled(limit.encode()), f"must match {limit}")


def _compiled(pattern: AnyStr) -> Callable[[AnyStr], object]:
    try:
        return re.compile(pattern).fullmatch
    except re.error:  # a feature of RE2 that Python lacks: accept no value, rather than every value
        return lambda _: None


# validate.proto, KnownRegex. The third is for names and values of headers if `strict` is off.
_HEADER_NAME = re.compile(r":?[0-9a-zA-Z!#$%&'*+-.^_|~\x60]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0A-\x1F\x7F]*")
_HEADER_TEXT = re.compile(r"[^\x00\x0A\x0D]*")


def _well_known(limit: int, *, strict: bool) -> Test | None:
    """Make a test of the rule well_known_regex, for the name or the value of a header."""
    if limit == 0:
        return None
    name = "name" if limit == 1 else "value"
    if not strict:
        return _must(_HEADER_TEXT.fullmatch, f"must be a header {name}, without line breaks and NUL")
    return _must((_HEADER_NAME if limit == 1 else _HEADER_VALUE).fullmatch, f"must be a valid HTTP header {name}")


_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LONGEST_HOSTNAME = 253


def _is_hostname(value: str) -> bool:
    labels = value.removesuffix(".").split(".")
    return len(value) <= _LONGEST_HOSTNAME and all(_LABEL.fullmatch(label) for label in labels)


def _is_email(value: str) -> bool:
    local, at, domain = value.rpartition("@")
    return bool(at and _LOCAL.fullmatch(local)) and _is_hostname(domain)


def _is_ip(version: int | None) -> Callable[[str | bytes], bool]:
    def holds(value: str | bytes) -> bool:
        try:
            return version in (None, ipaddress.ip_address(value).version)
        except ValueError:
            return False

    return holds


def _is_uri(value: str) -> bool:
    return _is_uri_reference(value) and bool(urlsplit(value).scheme)


def _is_uri_reference(value: str) -> bool:
    try:
        urlsplit(value)
    except ValueError:
        return False
    return not re.search(r"[\x00-\x20\x7f<>\"{}|\\^`]|%(?![0-9a-fA-F]{2})", value)


def _is_address(value: str) -> bool:
    return _is_ip(None)(value) or _is_hostname(value)


def _flag(holds: Callable[[Any], object], text: str) -> _Make:
    """Return the maker of a rule that is only true or false."""
    return lambda limit: _must(holds, text) if limit else None


def _all_different(value: Any) -> bool:
    seen: list[Any] = []
    for item in value:
        if item in seen:
            return False
        seen.append(item)
    return True


def _defined_only(field: FieldDescriptor) -> Test:
    enum: Any = field.enum_type
    return _must(enum.values_by_number.__contains__, f"must be a value that {enum.full_name} defines")


def _type_in(limits: Any) -> Test:
    test = _in(limits)
    return lambda value: test(value.type_url)


def _type_not_in(limits: Any) -> Test:
    test = _not_in(limits)
    return lambda value: test(value.type_url)


# -- the makers of each kind of rules, by the names of the rules

_MOMENTS = ("duration", "timestamp")
_NUMBER: dict[str, _Make] = {"const": _const, "in": _in, "not_in": _not_in}
_IP: dict[str, _Make] = {
    "ip": _flag(_is_ip(None), "must be an IP address"),
    "ipv4": _flag(_is_ip(4), "must be an IPv4 address"),
    "ipv6": _flag(_is_ip(6), "must be an IPv6 address"),
}
_PARTS: dict[str, _Make] = {  # of a string or bytes
    "prefix": lambda limit: _must(lambda value: value.startswith(limit), f"must start with {limit!r}"),
    "suffix": lambda limit: _must(lambda value: value.endswith(limit), f"must end with {limit!r}"),
    "contains": lambda limit: _must(lambda value: limit in value, f"must contain {limit!r}"),
}
_FAMILIES: dict[str, dict[str, _Make]] = {
    "bool": {"const": _const},
    "enum": _NUMBER,
    "string": _NUMBER
    | _IP
    | _PARTS
    | {
        "len": _CHARACTERS["exactly"],
        "min_len": _CHARACTERS["min"],
        "max_len": _CHARACTERS["max"],
        "len_bytes": _BYTES_OF_TEXT["exactly"],
        "min_bytes": _BYTES_OF_TEXT["min"],
        "max_bytes": _BYTES_OF_TEXT["max"],
        "pattern": _pattern,
        "not_contains": lambda limit: _must(lambda value: limit not in value, f"must not contain {limit!r}"),
        "email": _flag(_is_email, "must be an e-mail address"),
        "hostname": _flag(_is_hostname, "must be a host name"),
        "uri": _flag(_is_uri, "must be an absolute URI"),
        "uri_ref": _flag(_is_uri_reference, "must be a URI or a relative reference"),
        "address": _flag(_is_address, "must be a host name or an IP address"),
        "uuid": _flag(_UUID.fullmatch, "must be a UUID"),
    },
    "bytes": _NUMBER
    | _IP
    | _PARTS
    | {
        "len": _BYTES_OF_BYTES["exactly"],
        "min_len": _BYTES_OF_BYTES["min"],
        "max_len": _BYTES_OF_BYTES["max"],
        "pattern": _bytes_pattern,
    },
    "repeated": {
        "min_items": _ELEMENTS["min"],
        "max_items": _ELEMENTS["max"],
        "unique": _flag(_all_different, "must not hold the same element twice"),
    },
    # `no_sparse` forbids unset messages in a map, which proto3 can't express: there is nothing to test
    "map": {"min_pairs": _ELEMENTS["min"], "max_pairs": _ELEMENTS["max"], "no_sparse": lambda _: None},
    "any": {"in": _type_in, "not_in": _type_not_in},
    "duration": _NUMBER,
    "timestamp": {"const": _const},
}
