"""Options and argument types that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from ipaddress import ip_address
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.model.node_params import NODE_FIELDS
from ..core.model.settings import ENGINE
from ..errors import UsageError

if TYPE_CHECKING:
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
            self.fail(f"{value!r} is no HOST:PORT, such as 127.0.0.1:18000 or [::1]:18000", param, ctx)
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
            self.fail(f"{value!r} is no host name, such as xds.example.com: without scheme, port or path", param, ctx)
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
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


class Percent(click.ParamType[float]):
    """A part of a whole: N%, from 0% to 100%."""

    name = "N%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _PERCENT.fullmatch(value)
        if found is None or float(found[1]) > 100:
            self.fail(f"{value!r} is no part of a whole, such as 50%: from 0% to 100%", param, ctx)
        return float(found[1])


class Assignment(click.ParamType[tuple[str, str]]):
    """KEY=VALUE. The value may be empty and may contain `=`; the key may not."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, rest = value.partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is no KEY=VALUE, such as env=prod", param, ctx)
        return key, rest


def params_option(command: F) -> F:
    what = "A parameter of the client; may be given several times."
    return click.option("--param", "-p", "params", type=Assignment(), multiple=True, callback=_unique, help=what)(
        command
    )


def _unique(_: click.Context, param: click.Parameter, value: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """A client sends one value per key; two would mean that one of them is ignored."""
    params = dict(value)
    if len(params) != len(value):
        twice = next(key for key, _ in value if sum(1 for other, _ in value if other == key) > 1)
        raise click.BadParameter(f"{twice!r} is given twice, and a parameter has one value", param=param)
    return params


def _not_zero(_: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value == 0:
        raise click.BadParameter("0 seconds are no interval", param=param)
    return value


def daemon_options(command: F) -> F:
    """What `serve` and `relay` have in common: their ports, how they answer, what they log."""
    for decorate in reversed(
        [
            click.option(
                "--listen",
                type=Address(),
                default="127.0.0.1:18000",
                show_default=True,
                help="Where xDS clients connect.",
            ),
            click.option(
                "--admin",
                type=OptionalAddress(),
                metavar="HOST:PORT|off",
                default="127.0.0.1:18001",
                show_default=True,
                help="Status pages and metrics, or 'off'.",
            ),
            click.option(
                "--admin-host",
                "admin_hosts",
                type=HostName(),
                multiple=True,
                help="A name that the admin port is asked by, beside addresses, localhost and the HOST of --admin: a "
                "DNS name, or that of a proxy. Requests for other names are refused, since a web page may have sent "
                "them. May be given several times.",
            ),
            node_params_option(
                "What of its node is a param of a client that sends none of its own: keys of the node's metadata, "
                f"nested ones by dots (labels.app), and {', '.join(NODE_FIELDS)}. "
                "'*': every string in the metadata; 'none': nothing.",
                default="*",
            ),
            click.option(
                "--resource-errors",
                type=click.Choice(["locators", "all", "none"]),
                default="locators",
                show_default=True,
                help="Which subscriptions are told why a resource is missing: those with params of their own, all, "
                "or none.",
            ),
            click.option(
                "--transport",
                type=click.Choice(["v2,v3", "v3"]),
                default="v2,v3",
                show_default=True,
                help="Which versions of the API are served; both are on the one port.",
            ),
            click.option(
                "--rest",
                type=OptionalAddress(),
                metavar="HOST:PORT|off",
                default="off",
                show_default=True,
                help="Where clients fetch and poll over HTTP, in JSON; or 'off'.",
            ),
            click.option(
                "--rest-hold",
                type=Seconds(),
                default=20.0,
                show_default=True,
                help="How long a REST request waits if nothing is new; not longer than Envoy says that it waits.",
            ),
            click.option(
                "--load-interval",
                type=Seconds(),
                default=10.0,
                show_default=True,
                callback=_not_zero,
                help="How often clients report their loads (LRS).",
            ),
            click.option(
                "--load-clusters",
                metavar="NAME,NAME|*",
                default="*",
                show_default=True,
                help="Of which clusters.",
            ),
            click.option(
                "--engine",
                type=click.Choice(["grpcio", "h2"]),
                default=ENGINE,
                show_default=True,
                help="What carries the streams: a transport of our own, or grpcio's, which costs more and bounds less "
                "of what clients send.",
            ),
            click.option(
                "--max-connection-age",
                metavar="SECONDS",
                type=Seconds(),
                callback=_not_zero,
                help="End connections that are older, gently: clients come back at once, perhaps to another server. "
                "Each has up to a tenth more or less, so that not all leave together.  [default: never]",
            ),
            click.option(
                "--tls-cert",
                metavar="FILE",
                help="Speak TLS, with the certificate in here, and those that lead to its root (PEM). These files are "
                "read again when they change.",
            ),
            click.option("--tls-key", metavar="FILE", help="The certificate's key (PEM)."),
            click.option(
                "--tls-client-ca",
                metavar="FILE",
                help="Take only clients that have a certificate of one of these authorities (PEM).",
            ),
            click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
            click.option(
                "--log-level",
                type=click.Choice(["debug", "info", "warning", "error"]),
                default="info",
                show_default=True,
            ),
        ]
    ):
        command = decorate(command)
    return command


def node_params_option(text: str, default: str | None = None) -> Callable[[F], F]:
    """DESIGN 6.2: `serve` and `relay` go by it, `check` is told of it."""
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
    "What Envoy would refuse is an error, a warning, or not looked for. Where it is an error, it is still a warning in "
    "what only gRPC can use: listeners with an api_listener, and what they alone lead to."
)


def descriptors_option(command: F) -> F:
    return click.option(
        "--descriptors",
        metavar="FILE",
        multiple=True,
        expose_value=False,
        callback=_know,
        help="Message types of your own: a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE` "
        "and `buf build -o FILE` make it. May be given several times.",
    )(command)


def _know(_: click.Context, __: click.Parameter, files: tuple[str, ...]) -> None:
    for file in files:
        from ..messages.protos import add_descriptors

        add_descriptors(file)


def keys(option: str, text: str) -> Collection[str] | None:
    """DESIGN 6.2. None: all of them."""
    if text == "*":
        return None
    if text == "none":
        return frozenset()
    listed = [key.strip() for key in text.split(",")]
    if not all(listed) or "*" in listed:
        raise UsageError(f"{option} {text!r} is no list of keys: write env,version or '*' or none")
    return frozenset(listed)


def settings_of(given: Mapping[str, Any]) -> Settings:
    """What the options above say about the protocol."""
    from ..core.model.settings import Settings

    clusters = given["load_clusters"]
    return Settings(
        node_params=keys("--node-params", given["node_params"]),
        resource_errors=given["resource_errors"],
        poll_hold=given["rest_hold"],
        load_interval=given["load_interval"],
        load_clusters=None if clusters == "*" else _clusters(clusters),
    )


def _clusters(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or "*" in names:
        raise UsageError(f"--load-clusters {text!r} is no list of clusters: write shop,checkout or '*'")
    return frozenset(names)


def tls_of(given: Mapping[str, Any]) -> Tls | None:
    cert, key, client_ca = (given[name] for name in ("tls_cert", "tls_key", "tls_client_ca"))
    if cert is None and key is None:
        if client_ca is not None:
            raise UsageError("--tls-client-ca needs a certificate of our own: give --tls-cert and --tls-key too")
        return None
    if cert is None or key is None:
        missing = "--tls-cert" if cert is None else "--tls-key"
        raise UsageError(f"a certificate and its key go together: give {missing} too")
    from ..server.tls import Tls

    return Tls(cert, key, client_ca)


def optional(address: str) -> str | None:
    return None if address == "off" else address


def announce(line: str) -> None:
    """A daemon serves though nobody can read what it says: its log may be on a disk that is full."""
    with suppress(OSError):
        click.echo(f"xdsprism: {line}", err=True)
