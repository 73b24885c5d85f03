"""Checks routes, access logs and TLS contexts for what Envoy refuses beyond the annotations in their protos."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError

from .document import Path
from .envoy_texts import (
    certificates_fault,
    format_fault,
    private_key_fault,
    regex_fault,
    rewrite_fault,
    template_fault,
    variables,
)
from .faults import Check, Faults
from .field_checks import FieldChecks
from .protos import find_message, type_name

_ROUTE = "envoy.config.route.v3"
_MATCH_TEMPLATE = "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig"
_REWRITE_TEMPLATE = "envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig"
_TLS = "envoy.extensions.transport_sockets.tls.v3"
_MAX_TOTAL_WEIGHT = (1 << 32) - 1

REGEXES = frozenset(("envoy.type.matcher.v3.RegexMatcher", "xds.type.matcher.v3.RegexMatcher"))


# -- virtual hosts and their domains


def _hosts(hosts: Any, faults: Faults) -> None:
    """Check that no two virtual hosts of a route configuration have the same domain."""
    if len(hosts) < 2:
        return
    owners: dict[str, int] = {}
    for index, host in enumerate(hosts):
        for at, domain in enumerate(host.domains):
            owner = owners.setdefault(_folded(domain), index)
            if owner != index:
                text = f"virtual host {hosts[owner].name!r} has the domain {domain!r} already"
                faults.append(((index, "domains", at), text))


def _domains(domains: Any, faults: Faults) -> None:
    """Check that a virtual host does not list a domain twice."""
    if len(set(map(_folded, domains))) == len(domains):
        return
    seen: set[str] = set()
    for at, domain in enumerate(domains):
        if _folded(domain) in seen:
            faults.append(((at,), f"{domain!r} is listed twice; Envoy ignores case"))
        seen.add(_folded(domain))


def _folded(domain: str) -> str:
    """Return a domain as Envoy compares it: ASCII letters in lower case, others as they are."""
    return domain.lower() if domain.isascii() else "".join(each.lower() if each.isascii() else each for each in domain)


def _matcher(host: Any, faults: Faults) -> None:
    if host.routes:
        faults.append((("matcher",), "can't be set together with routes: one or the other finds the route"))


# -- headers


def _added(options: Any, faults: Faults) -> None:
    """Check the headers that a route adds: it can't set pseudo-headers and host, and values are format strings."""
    for index, option in enumerate(options):
        key = option.header.key
        if _is_fixed(key):
            text = f"{key} can't be set here: Envoy sets host and all headers that begin with a colon itself"
            faults.append(((index, "header", "key"), text))
    _values(options, faults)


def _values(options: Any, faults: Faults) -> None:
    for index, option in enumerate(options):
        _text(format_fault, option.header.value, (index, "header", "value"), faults)


def _removed(keys: Any, faults: Faults) -> None:
    """Check the headers that a route removes: pseudo-headers and host can't be removed."""
    for index, key in enumerate(keys):
        if _is_fixed(key):
            faults.append(((index,), f"{key} can't be removed: Envoy needs host and what begins with a colon"))


def _is_fixed(key: str) -> bool:
    return key.startswith(":") or key.lower() == "host"


_HEADERS: dict[str, Check] = {
    "request_headers_to_add": _added,
    "response_headers_to_add": _added,
    "request_headers_to_remove": _removed,
    "response_headers_to_remove": _removed,
}


# -- routes


def _rewritten(route: Any, faults: Faults) -> None:
    """Check that a rewrite by a path template uses only variables of the template that the route matches by."""
    if not route.route.HasField("path_rewrite_policy"):
        return
    rewrite = _template(route.route.path_rewrite_policy.typed_config, _REWRITE_TEMPLATE)
    if rewrite is None:
        return
    where = ("route", "path_rewrite_policy")
    template = _template(route.match.path_match_policy.typed_config, _MATCH_TEMPLATE)
    if template is None:
        faults.append((where, "rewrites by a path template, so the route must match by one: match.path_match_policy"))
    elif unknown := [name for name in variables(rewrite) if _is_name(name) and name not in variables(template)]:
        place = (*where, "typed_config", "path_template_rewrite")
        faults.append((place, f"has the variable {unknown[0]}, which the template {template} does not have"))


def _is_name(name: str) -> bool:
    return name.isidentifier()


def _template(packed: Any, full_name: str) -> str | None:
    """Return the path template in an Any of this type, which is its field 1; None if the Any is of another type."""
    kind = find_message(full_name) if type_name(packed.type_url) == full_name else None
    if kind is None:
        return None
    try:
        return next(
            (str(value) for field, value in kind.FromString(packed.value).ListFields() if field.number == 1), ""
        )
    except DecodeError:  # rules.check reports it
        return None


_REWRITES = ("prefix_rewrite", "regex_rewrite", "path_rewrite_policy", "path_rewrite")


def _rewrites(action: Any, faults: Faults) -> None:
    """Check that a route action has at most one kind of path rewrite."""
    fields = {field.name for field, _ in action.ListFields()}
    first, *others = [name for name in _REWRITES if name in fields]
    faults += [((name,), f"can't be set together with {first}") for name in others[:1]]


def _weights(clusters: Any, faults: Faults) -> None:
    """Check that weighted clusters have a weight and a name, and that the sum of the weights is valid."""
    for index, each in enumerate(clusters):
        if not each.HasField("weight"):
            faults.append(((index, "weight"), "is required"))
        if each.name and each.cluster_header:
            faults.append(((index, "cluster_header"), "can't be set together with name"))
        elif not each.name and not each.cluster_header:
            faults.append(((index,), "one of these is required: name, cluster_header"))
    if all(each.HasField("weight") for each in clusters):
        total = sum(each.weight.value for each in clusters)
        if not total:
            faults.append(((), "the weights add up to 0: at least one must be greater"))
        elif total > _MAX_TOTAL_WEIGHT:
            faults.append(((), f"the weights add up to {total}, and at most {_MAX_TOTAL_WEIGHT} is allowed"))


# -- texts


def _text(fault_of: Callable[[str], str | None], text: str, path: Path, faults: Faults) -> None:
    """Append the fault of a text, if it has one."""
    fault = fault_of(text) if text else None
    if fault is not None:
        faults.append((path, fault))


def _of_text(fault_of: Callable[[str], str | None]) -> Check:
    return lambda text, faults: _text(fault_of, text, (), faults)


def _of_source(fault_of: Callable[[str], str | None]) -> Check:
    """Check a text that is inline in a DataSource. Files and environment variables are on the client's machine."""

    def check_source(source: Any, faults: Faults) -> None:
        form = source.WhichOneof("specifier")
        if form == "inline_string":
            _text(fault_of, source.inline_string, (form,), faults)
        elif form == "inline_bytes":
            _text(fault_of, source.inline_bytes.decode(errors="replace"), (form,), faults)

    return check_source


def _formats(struct: Any, faults: Faults) -> None:
    for where, text in _strings(struct):
        _text(format_fault, text, where, faults)


def _strings(struct: Any) -> Iterator[tuple[Path, str]]:
    """Yield all strings in a Struct, with their paths."""
    waiting: list[tuple[Path, Any]] = [((key,), value) for key, value in struct.fields.items()]
    while waiting:
        where, value = waiting.pop()
        form = value.WhichOneof("kind")
        if form == "string_value":
            yield where, value.string_value
        elif form == "struct_value":
            waiting += [((*where, key), inner) for key, inner in value.struct_value.fields.items()]
        elif form == "list_value":
            waiting += [((*where, index), inner) for index, inner in enumerate(value.list_value.values)]


_format, _certificates = _of_text(format_fault), _of_source(certificates_fault)
_FORMATS = "envoy.config.core.v3.SubstitutionFormatString"

CHECKS: dict[str, FieldChecks] = {
    f"{_ROUTE}.RouteConfiguration": FieldChecks({"virtual_hosts": _hosts, **_HEADERS}),
    f"{_ROUTE}.VirtualHost": FieldChecks({"domains": _domains, **_HEADERS}, _matcher, ("matcher",)),
    f"{_ROUTE}.Route": FieldChecks(_HEADERS, _rewritten, ("route",)),
    f"{_ROUTE}.RouteAction": FieldChecks({"host_rewrite": _format, "path_rewrite": _format}, _rewrites, _REWRITES),
    f"{_ROUTE}.WeightedCluster": FieldChecks({"clusters": _weights}),
    f"{_ROUTE}.WeightedCluster.ClusterWeight": FieldChecks(_HEADERS),
    _MATCH_TEMPLATE: FieldChecks({"path_template": _of_text(template_fault)}),
    _REWRITE_TEMPLATE: FieldChecks({"path_template_rewrite": _of_text(rewrite_fault)}),
    _FORMATS: FieldChecks(
        {"text_format": _format, "text_format_source": _of_source(format_fault), "json_format": _formats}
    ),
    "envoy.extensions.access_loggers.file.v3.FileAccessLog": FieldChecks(
        {"format": _format, "json_format": _formats, "typed_json_format": _formats}
    ),
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.TunnelingConfig": FieldChecks(
        {"hostname": _format, "headers_to_add": _values}
    ),
    f"{_TLS}.TlsCertificate": FieldChecks(
        {"certificate_chain": _certificates, "private_key": _of_source(private_key_fault)}
    ),
    f"{_TLS}.CertificateValidationContext": FieldChecks({"trusted_ca": _certificates}),
    **dict.fromkeys(REGEXES, FieldChecks({"regex": _of_text(regex_fault)})),
}
