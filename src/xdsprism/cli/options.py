"""Options and argument types that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from ipaddress import ip_address
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.model.limits import Limits
from ..core.model.node_params import NODE_FIELDS
from ..core.model.settings import ENGINE
from ..errors import UsageError
from ..similar import did_you_mean

if TYPE_CHECKING:
    from ..admin.access import Access
    from ..core.model.settings import Settings
    from ..server.tls import Tls

F = TypeVar("F", bound=Callable[..., Any])

# Where gRPC looks for a bootstrap.
ENVIRONMENT = ("GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG")

_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):(\d{1,5})")

_HOST = re.compile(r"\w(?:[\w.-]{0,251}[\w.])?", re.ASCII)

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%", re.ASCII)


class Address(click.ParamType[str]):
    """HOST:PORT, or [IPv6]:PORT."""

    name = "HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = _ADDRESS.fullmatch(value)
        if found is None or int(found[1]) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, such as 127.0.0.1:18000 or [::1]:18000", param, ctx)
        return value


class OptionalAddress(Address):
    """HOST:PORT, or 'off'."""

    name = "HOST:PORT|off"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if value == "off" else super().convert(value, param, ctx)


class HostName(click.ParamType[str]):
    """A DNS name or an address, without a port."""

    name = "NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        with suppress(ValueError):
            ip_address(value.strip("[]"))
            return value
        if not _HOST.fullmatch(value):
            text = f"{value!r} is not a host name such as xds.example.com: leave out scheme, port and path"
            self.fail(text, param, ctx)
        return value


class Seconds(click.ParamType[float]):
    """A length of time: a number, not less than 0."""

    name = "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1
        if seconds < 0 or not isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class Percent(click.ParamType[float]):
    """A part of a whole: N%, from 0% to 100%."""

    name = "N%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _PERCENT.fullmatch(value)
        if found is None or float(found[1]) > 100:
            self.fail(f"{value!r} is not a percentage from 0% to 100%, such as 50%", param, ctx)
        return float(found[1])


class Assignment(click.ParamType[tuple[str, str]]):
    """KEY=VALUE. The value may be empty and may contain `=`; the key may not."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, rest = value.partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not KEY=VALUE, such as env=prod", param, ctx)
        return key, rest


class LimitOf(click.ParamType[tuple[str, float]]):
    """NAME=NUMBER, where NAME is a field of `Limits`. Of a time, NUMBER may be `off`."""

    name = "NAME=NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        kinds = {each.name: str(each.type) for each in fields(Limits)}
        name, equals, text = value.partition("=")
        if not equals or name not in kinds:
            text = f"{value!r} is not NAME=NUMBER, such as types=64" if not equals else f"there is no limit {name!r}"
            hint = did_you_mean(name, kinds)
            self.fail(f"{text}; the limits are {', '.join(sorted(kinds))}{hint}", param, ctx)
        is_time = kinds[name] == "float"
        try:
            if is_time:
                return name, inf if text == "off" else float(text)
            return name, int(text)
        except ValueError:
            what = "a number of seconds, or off" if is_time else "a whole number"
            self.fail(f"{value!r}: {text!r} is not {what}", param, ctx)


def params_option(command: F) -> F:
    what = "A dynamic parameter of the client. May be given several times."
    return click.option("--param", "-p", "params", type=Assignment(), multiple=True, callback=_unique, help=what)(
        command
    )


def _unique(_: click.Context, param: click.Parameter, value: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Refuse a key that is given twice: a client sends one value per key, and one of the two would be ignored."""
    params = dict(value)
    if len(params) != len(value):
        twice = next(key for key, _ in value if sum(1 for other, _ in value if other == key) > 1)
        raise click.BadParameter(f"{twice!r} is given twice, and a parameter has one value", param=param)
    return params


def _not_zero(_: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value == 0:
        raise click.BadParameter("an interval must be longer than 0 seconds", param=param)
    return value


def _limits(_: click.Context, param: click.Parameter, given: tuple[tuple[str, float], ...]) -> Limits:
    """Make the limits of those that are given, and the defaults."""
    values: dict[str, Any] = dict(given)
    if len(values) != len(given):
        twice = next(name for name, _ in given if sum(1 for other, _ in given if other == name) > 1)
        raise click.BadParameter(f"{twice!r} is given twice", param=param)
    try:
        return Limits(**values)
    except UsageError as error:
        raise click.BadParameter(str(error), param=param) from error


def _told(value: float | None) -> str:
    """Return a default as people write it."""
    return "3/4 of all" if value is None else "off" if value == inf else f"{value:,g}" if value < 1 else f"{value:,.0f}"


def daemon_options(command: F) -> F:
    """Add the options that `serve` and `relay` share: ports, protocol, TLS and logs."""
    for decorate in reversed(
        [
            click.option(
                "--listen",
                type=Address(),
                default="127.0.0.1:18000",
                show_default=True,
                help="The port for xDS clients.",
            ),
            click.option(
                "--admin",
                type=OptionalAddress(),
                metavar="HOST:PORT|off",
                default="127.0.0.1:18001",
                show_default=True,
                help="The port for status pages and metrics, or 'off'.",
            ),
            click.option(
                "--admin-host",
                "admin_hosts",
                type=HostName(),
                multiple=True,
                help="A further host name under which the admin port answers, such as the DNS name of a proxy; "
                "addresses, localhost and the HOST of --admin always work. Requests for other names are refused, since "
                "a web page may have sent them. May be given several times.",
            ),
            click.option(
                "--admin-tls-cert",
                metavar="FILE",
                help="Use TLS on the admin port, with this certificate; it may be the one of --tls-cert.",
            ),
            click.option("--admin-tls-key", metavar="FILE", help="The private key of that certificate (PEM)."),
            click.option(
                "--admin-tls-client-ca",
                metavar="FILE",
                help="Let only clients with a certificate from one of the authorities in this file (PEM) use the admin "
                "port.",
            ),
            click.option(
                "--admin-token-file",
                metavar="FILE",
                help="Requests to the admin port need a token from this file: one in a line, sent as `Authorization: "
                "Bearer TOKEN`. /, /healthz and /readyz need none. The file is read again when it changes. If --admin "
                "is no loopback address, this or --admin-tls-client-ca is needed.",
            ),
            click.option(
                "--admin-open-metrics",
                is_flag=True,
                help="With --admin-token-file: /metrics needs no token either.",
            ),
            node_params_option(
                "Which values of its node are the params of a client that sends none: keys of the node's metadata, "
                f"nested ones by dots (labels.app), and {', '.join(NODE_FIELDS)}. "
                "'*': every string in the metadata; 'none': nothing.",
                default="*",
            ),
            click.option(
                "--resource-errors",
                type=click.Choice(["locators", "all", "none"]),
                default="locators",
                show_default=True,
                help="Which subscriptions get resource_errors that say why a resource is missing: those by locators, "
                "all, or none.",
            ),
            click.option(
                "--transport",
                type=click.Choice(["v2,v3", "v3"]),
                default="v2,v3",
                show_default=True,
                help="The xDS versions to serve, on the same port.",
            ),
            click.option(
                "--rest",
                type=OptionalAddress(),
                metavar="HOST:PORT|off",
                default="off",
                show_default=True,
                help="The port for clients that poll over HTTP, in JSON, or 'off'.",
            ),
            click.option(
                "--rest-hold",
                type=Seconds(),
                default=20.0,
                show_default=True,
                help="How long a REST request waits for a change; less if Envoy announces that it waits for less.",
            ),
            click.option(
                "--load-interval",
                type=Seconds(),
                default=10.0,
                show_default=True,
                callback=_not_zero,
                help="How often clients report their load (LRS).",
            ),
            click.option(
                "--load-clusters",
                metavar="NAME,NAME|*",
                default="*",
                show_default=True,
                help="The clusters whose load clients report; '*': all.",
            ),
            click.option(
                "--csds/--no-csds",
                default=True,
                show_default=True,
                help="Tell clients that ask over gRPC (CSDS) which clients there are, and how far each is with each "
                "resource. With --policy, a client is told of those only that the same rule is for.",
            ),
            click.option(
                "--engine",
                type=click.Choice(["grpcio", "h2"]),
                default=ENGINE,
                show_default=True,
                help="The transport: h2, built in, or grpcio, which uses more processor time and bounds less of what "
                "clients send.",
            ),
            click.option(
                "--limit",
                "limits",
                metavar="NAME=NUMBER",
                type=LimitOf(),
                multiple=True,
                callback=_limits,
                help="What clients may do at most (docs/limits.md). May be given several times. The names and defaults "
                f"are {', '.join(f'{each.name} ({_told(getattr(Limits(), each.name))})' for each in fields(Limits))}.",
            ),
            click.option(
                "--max-connection-age",
                metavar="SECONDS",
                type=Seconds(),
                callback=_not_zero,
                help="Drain connections that are older, so that clients reconnect, perhaps to another server. The age "
                "varies by up to a tenth, so that not all connections end together.  [default: never]",
            ),
            click.option(
                "--tls-cert",
                metavar="FILE",
                help="Use TLS, with the certificate in this file, followed by its intermediate certificates (PEM). The "
                "TLS files are read again when they change.",
            ),
            click.option("--tls-key", metavar="FILE", help="The private key of the certificate (PEM)."),
            click.option(
                "--tls-client-ca",
                metavar="FILE",
                help="Accept only clients with a certificate from one of the authorities in this file (PEM).",
            ),
            click.option(
                "--log-format",
                type=click.Choice(["text", "json"]),
                default="text",
                show_default=True,
                help="The format of log lines, which go to stderr.",
            ),
            click.option(
                "--log-level",
                type=click.Choice(["debug", "info", "warning", "error"]),
                default="info",
                show_default=True,
                help="The lowest level of lines to log.",
            ),
        ]
    ):
        command = decorate(command)
    return command


def node_params_option(text: str, default: str | None = None) -> Callable[[F], F]:
    """Make the option --node-params (DESIGN 6.2): `serve` and `relay` apply it, and `check` warns with it."""
    return click.option(
        "--node-params",
        metavar="KEY,KEY|*|none",
        default=default,
        show_default=default is not None,
        help=text,
    )


def validate_option(default: str | None, text: str) -> Callable[[F], F]:
    return click.option(
        "--validate",
        type=click.Choice(["envoy", "warn", "off"]),
        default=default,
        show_default=True,
        help=text,
    )


FILES_VALIDATED = (
    "What Envoy would refuse is an error (envoy), a warning (warn), or not checked (off). With `envoy` it is still "
    "only a warning in resources that only gRPC can use: listeners with an api_listener, and what only these lead to."
)


POLICY = (
    "A policy file (docs/policy.md): which client may have what, by its certificate or token. A change takes effect on "
    "open streams. Without it, every client may have everything."
)


def policy_option(text: str) -> Callable[[F], F]:
    """Add `--policy`."""
    return click.option("--policy", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help=text)


def policy_path(given: Mapping[str, Any]) -> Path | None:
    """Return the policy file of a daemon."""
    return Path(given["policy"]) if given["policy"] is not None else None


def descriptors_option(command: F) -> F:
    return click.option(
        "--descriptors",
        metavar="FILE",
        multiple=True,
        expose_value=False,
        callback=_know,
        help="Your own message types, as a FileDescriptorSet: `protoc --include_imports --descriptor_set_out=FILE` or "
        "`buf build -o FILE` make one. May be given several times.",
    )(command)


def _know(_: click.Context, __: click.Parameter, files: tuple[str, ...]) -> None:
    for file in files:
        from ..messages.protos import add_descriptors

        add_descriptors(file)


def keys(option: str, text: str) -> Collection[str] | None:
    """Parse a list of keys (DESIGN 6.2). None: all keys."""
    if text == "*":
        return None
    if text == "none":
        return frozenset()
    listed = [key.strip() for key in text.split(",")]
    if not all(listed) or "*" in listed:
        raise UsageError(f"{option} {text!r} is not a list of keys: write env,version or '*' or none")
    return frozenset(listed)


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Make the protocol settings from the options above."""
    from ..core.model.settings import Settings

    clusters = given["load_clusters"]
    return Settings(
        node_params=keys("--node-params", given["node_params"]),
        resource_errors=given["resource_errors"],
        poll_hold=given["rest_hold"],
        load_interval=given["load_interval"],
        load_clusters=None if clusters == "*" else _clusters(clusters),
        limits=given["limits"],
    )


def _clusters(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or "*" in names:
        raise UsageError(f"--load-clusters {text!r} is not a list of clusters: write shop,checkout or '*'")
    return frozenset(names)


def tls_of(given: Mapping[str, Any], prefix: str = "") -> Tls | None:
    """Make the TLS files of the options above; `prefix`: of whose options."""
    cert, key, client_ca = (given[f"{prefix}{name}"] for name in ("tls_cert", "tls_key", "tls_client_ca"))
    option = f"--{prefix.replace('_', '-')}tls-"
    if cert is None and key is None:
        if client_ca is not None:
            raise UsageError(f"{option}client-ca needs a server certificate: give {option}cert and {option}key too")
        return None
    if cert is None or key is None:
        missing = f"{option}cert" if cert is None else f"{option}key"
        raise UsageError(f"a certificate and its key go together: give {missing} too")
    from ..server.tls import Tls

    return Tls(cert, key, client_ca)


def access_of(given: Mapping[str, Any]) -> Access:
    """Make the settings that protect the admin port."""
    from ..admin.access import Access

    tokens = given["admin_token_file"]
    tls = tls_of(given, "admin_")
    if given["admin"] == "off":
        return Access()
    return Access(given["admin_hosts"], tls, Path(tokens) if tokens is not None else None, given["admin_open_metrics"])


def optional(address: str) -> str | None:
    return None if address == "off" else address


def announcing(log_format: str) -> Callable[[str], None]:
    """Return what prints the ready line on stderr, in the form of the log (DESIGN 4)."""
    return _announce if log_format == "text" else _announce_as_json


def _announce(line: str) -> None:
    """Print a line. A failure is ignored: a daemon goes on although its log is on a full disk."""
    with suppress(OSError):
        click.echo(f"xdsprism: {line}", err=True)


def _announce_as_json(line: str) -> None:
    """Print the line as an object of the log, with a field for each address."""
    from ..observe.logs import log_now

    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    with suppress(OSError):
        click.echo(log_now(line, fields), err=True)
