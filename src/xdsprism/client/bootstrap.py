"""Parses and checks the gRPC bootstrap JSON (A27, A30, A47, A65, A81, A95, A97, and the gRFC on dynamic parameters).

The file, mapping or environment is read once (DYN-53). Unknown fields are ignored, as A27 says, since bootstrap
generators are often newer than clients. A known field with a wrong value is an error that names the field, and all
errors are reported together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest
from google.protobuf.message import DecodeError

from ..core.model import xdstp
from ..core.model.types import NO_PARAMS, Params
from ..errors import ConfigError, Problem, UsageError, show_path
from ..messages.convert import has_own_form, to_message
from ..messages.faults import Faults, kind_of
from .bootstrap_source import find_document
from .environment import dynamic_parameters_enabled, v3_enabled

V3 = "xds_v3"
FAIL_ON_DATA_ERRORS = "fail_on_data_errors"
IGNORE_RESOURCE_DELETION = "ignore_resource_deletion"
RESOURCE_TIMER_IS_TRANSIENT_ERROR = "resource_timer_is_transient_error"
TRUSTED_XDS_SERVER = "trusted_xds_server"
FEATURES = frozenset(
    {
        V3,
        FAIL_ON_DATA_ERRORS,
        IGNORE_RESOURCE_DELETION,
        RESOURCE_TIMER_IS_TRANSIENT_ERROR,
        TRUSTED_XDS_SERVER,
    }
)

INSECURE, TLS, GOOGLE_DEFAULT = "insecure", "tls", "google_default"
JWT_TOKEN_FILE = "jwt_token_file"  # noqa: S105

REFRESH_INTERVAL = 600.0  # seconds, BST-3

_DURATION = re.compile(r"\d+(\.\d{1,9})?s")
_PLAIN_TEXT_TOKEN = "a token must not travel in plain text: use tls in channel_creds, or drop call_creds"  # noqa: S105

_Step = str | int
_Path = tuple[_Step, ...]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a TLS identity. A65: no CA file means the system's roots, and no certificate means no mTLS."""

    ca_certificate_file: str | None = None
    certificate_file: str | None = None
    private_key_file: str | None = None
    refresh_interval: float = REFRESH_INTERVAL


@dataclass(frozen=True, slots=True)
class ChannelCreds:
    """How a channel is secured: `insecure`, `tls` or `google_default`."""

    type: str
    config: TlsFiles | None = None  # of tls


@dataclass(frozen=True, slots=True)
class CallCreds:
    """Credentials that every call carries in addition to the channel's: `jwt_token_file`."""

    type: str
    file: str


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One xDS server, and how to connect to it. XTP-13: equal entries share a stream, so unknown fields are left out.

    BST-2: if `channel` is None, the bootstrap does not say how to secure the channel. The client then uses its own
    credentials, or TLS with the system's roots if it has none; never plain text.
    """

    uri: str
    channel: ChannelCreds | None = None
    calls: tuple[CallCreds, ...] = ()
    features: frozenset[str] = frozenset({V3})

    def __post_init__(self) -> None:
        # A97 does not say. gRPC fails every call on such a channel; this reports it before the first call.
        if self.calls and self.is_plain_text:
            raise UsageError(f"{self.uri}: {_PLAIN_TEXT_TOKEN}")

    @property
    def is_plain_text(self) -> bool:
        return self.channel is not None and self.channel.type == INSECURE

    @property
    def v3(self) -> bool:
        """VER-8: whether to use v3, the highest version that both ends know, chosen for each server."""
        return V3 in self.features

    @property
    def fail_on_data_errors(self) -> bool:
        return FAIL_ON_DATA_ERRORS in self.features

    @property
    def ignore_resource_deletion(self) -> bool:
        return IGNORE_RESOURCE_DELETION in self.features

    @property
    def resource_timer_is_transient_error(self) -> bool:
        return RESOURCE_TIMER_IS_TRANSIENT_ERROR in self.features

    @property
    def trusted_xds_server(self) -> bool:
        """BST-6: whether its resources may decide on matters of security, such as rewriting authorities (A81)."""
        return TRUSTED_XDS_SERVER in self.features


@dataclass(frozen=True, slots=True)
class AuthorityConfig:
    """The servers and the params for the resource names of one authority."""

    name: str | None  # None: the names that are not xdstp
    servers: tuple[ServerConfig, ...]  # in order of preference (A71)
    params: Params = NO_PARAMS
    listener_template: str | None = None
    fallback_on_reachability_only: bool = False  # FBK-7


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The configuration of a client."""

    servers: tuple[ServerConfig, ...]
    node: bytes = b""  # an envoy.config.core.v3.Node
    authorities: Mapping[str, AuthorityConfig] = field(default_factory=lambda: MappingProxyType({}))
    params: Params = NO_PARAMS
    default_listener_template: str = "%s"
    server_listener_template: str | None = None
    dynamic_parameters: bool = True  # DYN-54: if False, the client sends no locators and ignores `resource_name`

    @classmethod
    def load(
        cls,
        source: str | Path | Mapping[str, Any] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Bootstrap:
        """Read a bootstrap from a path, a mapping, JSON text, or where the environment says. Raises ConfigError."""
        file, document = find_document(source, environ)
        return _Reader(file, environ).bootstrap(document)

    @classmethod
    def for_server(
        cls,
        uri: str,
        *,
        v3: bool = True,
        features: Iterable[str] = (),
        params: Mapping[str, str] = NO_PARAMS,
        node: Mapping[str, Any] | None = None,
        authorities: Iterable[str] = (),
        channel_creds: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Bootstrap:
        """Make a bootstrap with one server, as `--server HOST:PORT` does. It is checked like a file.

        authorities    authorities whose xdstp names the server serves, too
        channel_creds  how to reach it, as in a bootstrap: {"type": "tls", "config": {...}}; None: in plain text
        """
        server = {
            "server_uri": uri,
            "channel_creds": [dict(channel_creds) if channel_creds is not None else {"type": INSECURE}],
            "server_features": [*features, *([V3] if v3 else ())],
        }
        known = {name: {"dynamic_parameters": dict(params)} for name in authorities}
        document = {"xds_servers": [server], "node": node, "dynamic_parameters": dict(params), "authorities": known}
        return cls.load(document, environ)

    @property
    def root(self) -> AuthorityConfig:
        """The authority of names that are not xdstp. DYN-48, DYN-49: its params are for these alone."""
        return AuthorityConfig(None, self.servers, self.params, self.default_listener_template)

    def authority(self, name: str) -> AuthorityConfig:
        """Look up an authority; the empty name is one too (A47). XTP-12: an unknown one is the caller's error."""
        known = self.authorities.get(name)
        if known is None:
            listed = ", ".join(sorted(map(repr, self.authorities))) or "none"
            raise UsageError(f"the bootstrap has no authority {name!r}; it has {listed}")
        return known

    def authority_of(self, name: str) -> AuthorityConfig:
        """Find the authority that is responsible for a resource name."""
        authority = xdstp.authority_of(name)
        if authority is not None:
            return self.authority(authority)
        if not self.servers:
            raise UsageError(f"no server for {name!r}: the bootstrap has no xds_servers outside its authorities")
        return self.root

    def listener_name(self, target: str, authority: str | None = None) -> str:
        """Name the Listener of the target `xds:///target`, or `xds://authority/target`. XTP-15."""
        if authority is None:
            return _expand(self.default_listener_template, target)
        template = self.authority(authority).listener_template
        return _expand(template or _authority_prefix(authority) + "envoy.config.listener.v3.Listener/%s", target)

    def server_listener_name(self, address: str) -> str:
        """Name the Listener of a gRPC server that listens on `address`."""
        if self.server_listener_template is None:  # A47: no default
            raise UsageError("the bootstrap has no server_listener_resource_name_template")
        return _expand(self.server_listener_template, address)


def _expand(template: str, text: str) -> str:
    """Fill in a template. In an xdstp template the text is percent-encoded."""
    return template.replace("%s", xdstp.quote_path(text) if xdstp.is_xdstp(template) else text)


def _authority_prefix(name: str) -> str:
    return f"{xdstp.SCHEME}//{xdstp.quote_authority(name)}/"


# -- from a document to a Bootstrap


class _Reader:
    """Reads one document. It notes each problem and goes on, so that one run reports all of them."""

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self._file = file
        self._problems: list[Problem] = []
        self._v3 = v3_enabled(environ)
        self._params_on = dynamic_parameters_enabled(environ)

    def bootstrap(self, document: Any) -> Bootstrap:
        root = self._entry(document, ())
        if root is None:
            raise ConfigError(self._problems)
        servers = self._servers(root, ())
        result = Bootstrap(
            servers,
            self._node(root),
            self._authorities(root, servers),
            self._params(root, ()),
            self._string(root, (), "client_default_listener_resource_name_template") or "%s",
            self._string(root, (), "server_listener_resource_name_template"),
            self._params_on,
        )
        if not root.get("xds_servers") and not root.get("authorities"):
            self._wrong(("xds_servers",), "missing: a client needs a server to ask")
        if self._problems:
            raise ConfigError(self._problems)
        return result

    def _wrong(self, path: _Path, message: str) -> None:
        self._problems.append(Problem(message, self._file, path=show_path(path)))

    def _expect(self, value: Any, kind: type[_T], words: str, path: _Path) -> _T | None:
        """Check the type of a value. Null counts as absent, as in Go's and in proto3's JSON."""
        if value is None or isinstance(value, kind):
            return value
        self._wrong(path, f"expected {words}, got {kind_of(value)}")
        return None

    def _string(self, holder: Mapping[str, Any], path: _Path, key: str) -> str | None:
        return self._expect(holder.get(key), str, "a string", (*path, key))

    def _boolean(self, holder: Mapping[str, Any], path: _Path, key: str) -> bool:
        return self._expect(holder.get(key), bool, "true or false", (*path, key)) or False

    def _needed(self, holder: Mapping[str, Any], path: _Path, key: str) -> str | None:
        """Return a string that must be there and must not be empty."""
        value = holder.get(key)
        if value in (None, ""):
            self._wrong((*path, key), "empty" if value == "" else "missing")
            return None
        return self._string(holder, path, key)

    def _object(self, holder: Mapping[str, Any], path: _Path, key: str) -> dict[str, Any]:
        return self._expect(holder.get(key), dict, "an object", (*path, key)) or {}

    def _list(self, holder: Mapping[str, Any], path: _Path, key: str) -> list[Any]:
        return self._expect(holder.get(key), list, "a list", (*path, key)) or []

    # -- node, params, authorities

    def _node(self, root: Mapping[str, Any]) -> bytes:
        faults: Faults = []
        try:
            message = to_message(_known_fields(Node.DESCRIPTOR, self._object(root, (), "node")), Node, faults)
            node = b"" if message is None else message.SerializeToString(deterministic=True)
            DiscoveryRequest.FromString(DiscoveryRequest(node=message).SerializeToString())  # as a server will read it
        except (RecursionError, DecodeError, OverflowError):  # protobuf has limits that JSON lacks
            self._wrong(("node",), "nested too deeply for protobuf, or with a number too large for it")
            return b""
        for path, text in faults:
            self._wrong(("node", *path), text)
        return node

    def _params(self, holder: Mapping[str, Any], path: _Path) -> Params:
        if not self._params_on:
            return NO_PARAMS
        params = self._object(holder, path, "dynamic_parameters")
        for key, value in params.items():
            if not isinstance(value, str):  # DYN-57
                self._wrong((*path, "dynamic_parameters", key), f"expected a string, got {kind_of(value)}")
        return Params({key: value for key, value in params.items() if isinstance(value, str)})

    def _authorities(self, root: Mapping[str, Any], servers: tuple[ServerConfig, ...]) -> Mapping[str, AuthorityConfig]:
        found: dict[str, AuthorityConfig] = {}
        authorities = self._object(root, (), "authorities")
        for name in authorities:
            path = ("authorities", name)
            entry = self._object(authorities, path[:1], name)
            own = self._servers(entry, path) or servers  # FBK-6
            if not (own or entry.get("xds_servers") or root.get("xds_servers")):
                self._wrong((*path, "xds_servers"), "missing here, and there are none at the top level to use instead")
            template = self._authority_template(entry, path, name)
            reachability = self._boolean(entry, path, "fallback_on_reachability_only")
            found[name] = AuthorityConfig(name, own, self._params(entry, path), template, reachability)
        return MappingProxyType(found)

    def _authority_template(self, entry: Mapping[str, Any], path: _Path, name: str) -> str | None:
        key = "client_listener_resource_name_template"
        template = self._string(entry, path, key)
        if template is not None and not template.startswith(_authority_prefix(name)):  # XTP-15
            self._wrong((*path, key), f"must start with {_authority_prefix(name)}")
        return template

    # -- servers

    def _servers(self, holder: Mapping[str, Any], path: _Path) -> tuple[ServerConfig, ...]:
        items = enumerate(self._list(holder, path, "xds_servers"))
        servers = (self._server(item, (*path, "xds_servers", index)) for index, item in items)
        return tuple(server for server in servers if server is not None)

    def _server(self, value: Any, path: _Path) -> ServerConfig | None:
        entry = self._entry(value, path)
        if entry is None:
            return None
        uri = self._needed(entry, path, "server_uri")
        channel = self._channel(entry, path)
        calls = self._calls(entry, path)
        features = {feature for feature in self._list(entry, path, "server_features") if isinstance(feature, str)}
        known = (features & FEATURES) - (set() if self._v3 else {V3})  # VER-7
        if uri is None:
            return None
        if calls and channel is not None and channel.type == INSECURE:
            self._wrong((*path, "call_creds"), _PLAIN_TEXT_TOKEN)
            return None
        return ServerConfig(uri, channel, calls, frozenset(known))

    def _entry(self, value: Any, path: _Path) -> dict[str, Any] | None:
        """Check an element of a list, or the document. Null is an error here, as it can't mean "absent"."""
        if value is None:
            self._wrong(path, "expected an object, got null")
        return self._expect(value, dict, "an object", path)

    def _channel(self, server: Mapping[str, Any], path: _Path) -> ChannelCreds | None:
        """BST-2: return the first entry of a known type; the others' configuration is not read.

        Returns None if the list is missing or empty (A30), which leaves the choice to the client.
        """
        types = self._typed(server, path, "channel_creds")
        for kind, entry, where in types:
            match kind:
                case "insecure":
                    return ChannelCreds(INSECURE)
                case "tls":
                    return self._tls(entry, where)
                case "google_default":
                    return self._google_default(where)
                case _:
                    continue
        if types:  # an entry without a type is an error already
            named = ", ".join(kind for kind, _, _ in types)
            text = f"none of these is supported: {named}; use one of {TLS}, {INSECURE}, {GOOGLE_DEFAULT}"
            self._wrong((*path, "channel_creds"), text)
        return None

    def _calls(self, server: Mapping[str, Any], path: _Path) -> tuple[CallCreds, ...]:
        """BST-4: return all entries of known types."""
        calls: list[CallCreds] = []
        for kind, entry, where in self._typed(server, path, "call_creds"):
            if kind == JWT_TOKEN_FILE:
                config = self._object(entry, where, "config")
                file = self._needed(config, (*where, "config"), "jwt_token_file")
                if file is not None:
                    calls.append(CallCreds(kind, file))
        return tuple(dict.fromkeys(calls))

    def _typed(self, server: Mapping[str, Any], path: _Path, key: str) -> list[tuple[str, dict[str, Any], _Path]]:
        """Return the entries of a list that have a type, with the type and the path of each."""
        found = []
        for index, value in enumerate(self._list(server, path, key)):
            where = (*path, key, index)
            entry = self._entry(value, where)
            kind = None if entry is None else self._needed(entry, where, "type")
            if entry is not None and kind is not None:
                found.append((kind, entry, where))
        return found

    def _google_default(self, path: _Path) -> ChannelCreds:
        # The type is known, so the next entry is not tried: a missing package must not lead to plain text.
        if not (_importable("google.auth") and _importable("requests")):
            self._wrong((*path, "type"), "google_default needs a package that is not installed: google-auth[requests]")
        return ChannelCreds(GOOGLE_DEFAULT)

    def _tls(self, entry: Mapping[str, Any], path: _Path) -> ChannelCreds:
        config, where = self._object(entry, path, "config"), (*path, "config")
        ca, certificate, key = (
            self._string(config, where, name) or None
            for name in ("ca_certificate_file", "certificate_file", "private_key_file")
        )
        if (certificate is None) != (key is None):  # BST-3
            missing, given = ("certificate", "private_key") if certificate is None else ("private_key", "certificate")
            self._wrong((*where, f"{missing}_file"), f"missing: {given}_file needs it")
        return ChannelCreds(TLS, TlsFiles(ca, certificate, key, self._interval(config, where)))

    def _interval(self, config: Mapping[str, Any], path: _Path) -> float:
        text = self._string(config, path, "refresh_interval")
        if text is None:
            return REFRESH_INTERVAL
        if not _DURATION.fullmatch(text) or float(text[:-1]) == 0:
            self._wrong((*path, "refresh_interval"), f'expected a duration such as "600s", got the string {text}')
            return REFRESH_INTERVAL
        return float(text[:-1])


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the parent package is missing
        return False


def _known_fields(descriptor: Any, value: Any) -> Any:
    """Drop the keys for which a message has no field, at any depth, and return the rest to be checked."""
    if not isinstance(value, dict) or has_own_form(descriptor.full_name):
        return value
    fields = {spelling: item for item in descriptor.fields for spelling in (item.name, item.json_name)}
    return {key: _known_inside(fields[key], item) for key, item in value.items() if key in fields}


def _known_inside(item: Any, value: Any) -> Any:
    if item.message_type is None or item.message_type.GetOptions().map_entry:
        return value
    if item.is_repeated and isinstance(value, list):
        return [_known_fields(item.message_type, entry) for entry in value]
    return _known_fields(item.message_type, value)
