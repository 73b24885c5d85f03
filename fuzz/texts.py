"""What people write: expressions, names, files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from xdsprism.client.bootstrap import Bootstrap
from xdsprism.core.codec.constraints import constraint_from_proto, constraint_to_proto
from xdsprism.core.model import expr, xdstp
from xdsprism.core.model import hosts as spelling
from xdsprism.core.model.constraints import Constraint, canonical, matches
from xdsprism.core.model.decisions import mean_the_same
from xdsprism.core.model.host_lookup import Patterns
from xdsprism.core.model.template import TemplateError, compile_template
from xdsprism.core.model.types import CLUSTER, ENDPOINT, ROUTE, SECRET, Params
from xdsprism.core.policy.identity import parse_identity
from xdsprism.errors import ConfigError, Problem, UsageError
from xdsprism.messages.document import MalformedError
from xdsprism.messages.redaction import REDACTED as HIDDEN
from xdsprism.sources import parse as files
from xdsprism.sources import strict_json as json_files
from xdsprism.sources.importing.bootstrap import ServerAddress
from xdsprism.sources.importing.importer import SERVED, import_text
from xdsprism.sources.policy_file import parse_policy

from .script import Script
from .sound import must

SOME_PARAMS = [
    Params(each)
    for each in ({}, {"env": "prod"}, {"env": "a", "b": ""}, {"a": "b"}, {"b": "a", "a": ""}, {"ü": "*", "env": "true"})
]


def text_of(data: bytes) -> str | None:
    """Files are read as UTF-8, before any of this."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


# -- expressions

TOKENS = (
    "and",
    "or",
    "not",
    "in",
    "exists",
    "true",
    "(",
    ")",
    ",",
    "=",
    "!=",
    "a",
    "env",
    '"a b"',
    '"\\u00e9"',
    "x-y/*",
    "&",
    "'",
)


def expressions(data: bytes) -> None:
    """Any text, or a list of tokens."""
    script = Script(data)
    if script.byte() & 1:
        text: str | None = " ".join(script.choice(TOKENS) for _ in range(len(data) - 1))
    else:
        text = text_of(script.rest())
    if text is None:
        return
    try:
        found = expr.parse(text)
    except UsageError as error:
        str(error).encode()
        return
    printable(found)


def printable(found: Constraint, *, at_once: bool = True) -> None:
    """What is printed means the same when it is read again, and so does its message.

    `at_once`: what was read is printed as it will be printed ever after. A message may have forms that no text has.
    """
    shown = expr.show(found)
    again = expr.parse(shown)
    must(not at_once or expr.show(again) == shown, "a printed expression is printed in another way")
    must(canonical(again) == canonical(found), "a printed expression means something else")
    must(mean_the_same(again, found), "a printed expression does not mean the same")
    must(
        all(matches(found, each) == matches(again, each) == matches(canonical(found), each) for each in SOME_PARAMS),
        "matches",
    )
    carried = constraint_from_proto(constraint_to_proto(found))
    must(canonical(carried) == canonical(found), "a message of an expression means something else")


# -- names

PARTS = (
    "xdstp:",
    "//",
    "/",
    "?",
    "&",
    "=",
    "#",
    "%2F",
    "%zz",
    "%",
    "%C3%BC",
    "%ff",
    "*",
    "a",
    "envoy.config.cluster.v3.Cluster",
    "ü",
    " ",
    "xds.a",
    "~",
    "+",
)
TYPES = (CLUSTER, ENDPOINT, ROUTE, SECRET, "envoy.config.cluster.v3.Cluster", "")


def names(data: bytes) -> None:
    """Names of resources, xdstp or not: one spelling, which is read as what was written."""
    script = Script(data)
    how = script.byte()
    if how & 1:
        name = ("xdstp://" if how & 2 else "") + "".join(script.choice(PARTS) for _ in range(len(data) - 1))
    else:
        name = script.rest().decode("utf-8", "replace")
    type_url = TYPES[(how >> 2) % len(TYPES)]
    must(xdstp.spelled(xdstp.spelled(name)) == xdstp.spelled(name), "a spelling has another spelling")
    complaint = xdstp.complaint(name, type_url, globs=bool(how & 128))
    with suppress(UsageError):
        own = xdstp.own_name(name, type_url)
        must(xdstp.own_name(own, type_url) == own, "a resource's own name has another spelling")
        must(complaint is None, "a name that a resource can have can't be subscribed to")
        must(not xdstp.is_xdstp(own) or not xdstp.is_wild(own), "a resource is named by a glob")
    try:
        spelled = xdstp.canonical(name)
    except UsageError as error:
        must(complaint is not None, "a malformed name has no complaint")
        str(error).encode("utf-8", "surrogatepass")
        return
    must(xdstp.canonical(spelled) == spelled, "a canonical name has another spelling")
    wild = xdstp.wildcards(spelled)
    must(wild[0] == "*" and all(xdstp.is_wild(each) for each in wild), "a wildcard is none")
    if xdstp.is_xdstp(name):
        parsed = xdstp.parse(name)
        must(xdstp.parse(spelled) == parsed, "a canonical name is another name")
        must(parsed.is_glob == xdstp.is_wild(spelled), "a glob is none")
        must(xdstp.authority_of(spelled) == parsed.authority, "a name has another authority")


LABELS = ("a", "b", ".", "*", ":", "80", "[", "]", "::1", "example", "/", "-", "A", "ü", "İ", "ß")


def hosts(data: bytes) -> None:
    """Domains of virtual hosts, and the hosts that they serve: as a comparison of texts would have it."""
    script = Script(data)
    domains = ["".join(script.choice(LABELS) for _ in range(script.byte() % 6)) for _ in range(1 + script.byte() % 7)]
    host = "".join(script.choice(LABELS) for _ in range(8))
    config, rest = spelling.split(f"routes/{host}")
    must("/" not in rest and f"{config}/{rest}" == f"routes/{host}", "a subscription is split elsewhere")
    forms = spelling.forms(host)
    must(len(set(forms)) == len(forms) <= 2 and forms[0] == host.lower(), "spellings of a host")
    must(
        spelling.without_port(forms[-1]) in (forms[-1], spelling.without_port(spelling.without_port(forms[0]))),
        "a port",
    )
    wild = sorted({each for each in domains if each not in spelling.explicit(domains)})
    must(all("*" in (each[:1], each[-1:]) for each in wild), "a wildcard without a star")
    patterns = Patterns()
    for number, domain in enumerate(wild):
        patterns.add(domain, str(number))
    for form in forms:
        found = [domain for _, domain in patterns.matching(form)]
        must(sorted(found) == sorted(each for each in wild if _serves(each, form)), "another virtual host")
        must([*found] == sorted(found, key=_order), "virtual hosts are in another order")
    for number, domain in enumerate(wild):
        must(patterns.owners(domain) == (str(number),), "a domain has another owner")
        patterns.remove(domain, str(number))
    must(not patterns, "something is left of domains that were removed")


def _serves(domain: str, host: str) -> bool:
    if domain == "*":
        return True
    rest = spelling.rest_of(domain)
    return len(host) > len(rest) and (host.endswith(rest) if domain.startswith("*") else host.startswith(rest))


def _order(domain: str) -> tuple[int, int]:
    """Suffixes first, then prefixes, the longest first, and `*` last."""
    return (2, 0) if domain == "*" else (not domain.startswith("*"), -len(domain))


# -- templates

CONDITIONS = (
    "env=prod",
    "env!=prod",
    "a=b or b=a",
    "not a exists",
    "env in (a, prod)",
    "true",
    True,
    False,
    "b exists",
    "not (a=b)",
    "(",
    7,
)
KEYS = ("x", "y", "$when", "$match", "$odd", "when", "value")


def templates(data: bytes) -> None:
    """A document with `$when` and `$match`: each client gets what somebody who reads it would say."""
    document = _document(Script(data), 4)
    try:
        found = compile_template(document, limit=64)
    except TemplateError as error:
        str(error).encode()
        return
    for params in SOME_PARAMS:
        fitting = [each for each in found if matches(each.constraint, params)]
        must(len(fitting) <= 1, "two variants of a document overlap")
        wanted = _read(document, params)
        must(
            [_told(each.content) for each in fitting] == [_told(each) for each in wanted],
            "a client gets something else",
        )
        must(all(matches(each.written, params) for each in fitting), "a variant's shorter constraint does not match")


def _told(content: object) -> str:
    return repr(content)


def _document(script: Script, depth: int) -> Any:
    kind = script.byte()
    if not depth or kind % 5 == 0:
        return script.choice((1, "a", None, True, 0.5, "", "$when"))
    size = kind >> 5 & 3
    if kind % 5 == 1:
        return [_document(script, depth - 1) for _ in range(size)]
    if kind % 5 == 2:
        entries = [{"when": script.choice(CONDITIONS), "value": _document(script, depth - 1)} for _ in range(size)]
        return {"$match": [*entries, {"value": _document(script, depth - 1)}] if kind & 128 else entries}
    found = {script.choice(KEYS): _document(script, depth - 1) for _ in range(size)}
    if kind % 5 == 3:
        found = {"$when": script.choice(CONDITIONS), **found}
    return found


def _holds(condition: Any, params: Mapping[str, str]) -> bool:
    return condition if isinstance(condition, bool) else matches(expr.parse(condition), params)


def _read(item: Any, params: Mapping[str, str]) -> list[Any]:
    """No value, or one."""
    if isinstance(item, list):
        return [[value for each in item for value in _read(each, params)]]
    if not isinstance(item, dict):
        return [item]
    if "$match" in item:
        for entry in item["$match"]:
            if _holds(entry.get("when", True), params):
                return _read(entry["value"], params)
        return []
    if not _holds(item.get("$when", True), params):
        return []
    return [{key: value for key, each in item.items() if key != "$when" for value in _read(each, params)}]


# -- files


def configuration(data: bytes) -> None:
    """A file of a configuration directory; the first byte says which kind."""
    text = text_of(data[1:])
    if not data or text is None:
        return
    file = "a.json" if data[0] & 1 else "a.yaml"
    validate = ("envoy", "warn", "off")[(data[0] >> 1) % 3]
    found = files.parse(text, file, validate)  # type: ignore[arg-type]
    problems(text, file, [*found.errors, *found.warnings, *(each.problem for each in found.envoy_problems)])
    again = files.parse(text, file, validate)  # type: ignore[arg-type]
    must(_seen(found) == _seen(again), "a file has another meaning the second time")
    for variant in found.variants:
        must(variant.name or variant.type_url, "a variant without a name")
        expr.parse(expr.show(variant.constraint))


def _seen(found: files.Parsed) -> object:
    variants = [
        (each.type_url, each.name, each.constraint, each.version, each.ttl, each.domains) for each in found.variants
    ]
    return variants, found.errors, found.envoy_problems, found.warnings


def problems(text: str, file: str, found: list[Problem]) -> None:
    lines = text.count("\n") + text.count("\r") + text.count("\x85") + text.count("\u2028") + text.count("\u2029") + 1
    for problem in found:
        must(problem.file == file, "a problem of another file")
        must(not problem.line or 1 <= problem.line <= lines, "a problem beyond the end of the file")
        must(str(problem).strip(), "a problem without words")
        str(problem).encode()


def strict_json(data: bytes) -> None:
    """What is accepted is JSON, and means what it means everywhere."""
    text = text_of(data)
    if text is None:
        return
    try:
        documents = json_files.load(text)
    except MalformedError as error:
        must(1 <= error.line <= text.count("\n") + 1, "an error beyond the end of the file")
        error.message.encode()
        return
    must(len(documents) <= 1, "a JSON file of several documents")
    for document in documents:
        plain = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= 40 else float(digits))
        must(_told(document.root) == _told(plain), "JSON is read in another way")


IDENTITIES = tuple(
    parse_identity(each)
    for each in (
        "anonymous",
        "spiffe://a/b",
        "spiffe://a/ns/x",
        "dns:a.example",
        "dns:b",
        "subject:CN=a,O=b",
        "subject:CN=a",
    )
)


def policy(data: bytes) -> None:
    """A policy file; the first byte says which kind."""
    text = text_of(data[1:])
    if not data or text is None:
        return
    file = "p.json" if data[0] & 1 else "p.yaml"
    try:
        found = parse_policy(text, file)
    except ConfigError as error:
        must(error.problems, "a file that is refused without a problem")
        problems(text, file, list(error.problems))
        return
    problems(text, file, found.warnings())
    for identities in IDENTITIES:
        for node in ("", "a", "n-1"):
            grant = found.grant(identities, node)
            must(grant == found.grant(identities, node), "a client has another grant the second time")
            for type_url in (CLUSTER, SECRET):
                for name in ("a", "shop/x", "xdstp://a/b/c"):
                    denied = grant.denies(type_url, name)
                    visible = grant.visible(type_url)
                    must(
                        (denied is None) <= (visible is None or visible.allows(name)),
                        "a name that is not visible is allowed",
                    )
                    must(
                        grant.allows_type(type_url) or denied is not None,
                        "a type that is not allowed has a name that is",
                    )
            for params in SOME_PARAMS:
                for claim in (grant.claim_node(params), grant.claim_locator(params)):
                    must(claim.denial is None or not claim.params, "params of a claim that is denied")


def importing(data: bytes) -> None:
    """A bootstrap or a config dump: what is made of it can be served, and is the same each time."""
    text = text_of(data[1:])
    if not data or text is None:
        return
    file = ("a.json", "a.yaml", "<stdin>")[data[0] % 3]
    try:
        made = import_text(text, file, ServerAddress("127.0.0.1", 18000))
    except ConfigError as error:
        must(error.problems, "a file that is refused without a problem")
        problems(text, file, list(error.problems))
        return
    must(made == import_text(text, file, ServerAddress("127.0.0.1", 18000)), "a file is imported in another way")
    problems(text, file, list(made.warnings))
    for each in made.files:
        for document in each.documents:
            shown, _ = document.without_secrets()
            inline = document.content.get("generic_secret", {}).get("secret", {}).get("inline_string")
            must(not inline or shown["generic_secret"]["secret"]["inline_string"] == HIDDEN, "a secret is shown")
            if each.path.startswith(f"{SERVED}/") and "$" not in text and "\\" not in text:  # no mark of a template
                _readable(document.content)


def _readable(content: dict[str, Any]) -> None:
    """What is made is read again, unless Envoy would refuse the name, too."""
    found = files.parse(json.dumps(content), "a.json", "off")
    must(all(_is_about_names(each) for each in found.errors), f"what was made is refused: {found.errors}")


def _is_about_names(problem: Problem) -> bool:
    return problem.path in ("name", "cluster_name", "@type") or problem.path.endswith(".@type")


def bootstrap(data: bytes) -> None:
    """A client's bootstrap."""
    text = text_of(data)
    if not text:
        return
    try:
        found = Bootstrap.load(None, {"GRPC_XDS_BOOTSTRAP_CONFIG": text})
    except ConfigError as error:
        must(str(error).strip(), "an error without words")
        str(error).encode()
        return
    for name in ("a", "xdstp://a/b/c", "xdstp:///b/c", "xdstp://nobody/b/c"):
        with suppress(UsageError, ConfigError):
            found.authority_of(name)
    for target in ("a", "ü/%s", ""):
        for make in (found.listener_name, found.server_listener_name):
            with suppress(UsageError, ConfigError):
                must(isinstance(make(target), str), "a listener's name")
