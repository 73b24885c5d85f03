"""How `get` and `watch` reach the server of --server: by TLS or in plain text, and as which node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from ..errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

NODE = "xdsprism"  # the id of the node, unless an option or a bootstrap says another


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The TLS files towards a server, and the id of the node that asks."""

    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    node_id: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise UsageError(
                f"a certificate and its key go together: give {'--cert' if self.cert is None else '--key'} too"
            )
        if self.cert is not None and not self.has_tls:
            raise UsageError("--cert needs --tls or --ca: without them the server is asked in plain text")

    @property
    def has_tls(self) -> bool:
        return self.tls or self.ca is not None

    def channel_creds(self) -> dict[str, Any] | None:
        """Return the credentials as a bootstrap has them; None: plain text."""
        if not self.has_tls:
            return None
        files = {"ca_certificate_file": self.ca, "certificate_file": self.cert, "private_key_file": self.key}
        return {"type": "tls", "config": {name: file for name, file in files.items() if file is not None}}

    def check(self, *, has_server: bool) -> None:
        """Raise UsageError if there is TLS for a server that a bootstrap names."""
        if self.has_tls and not has_server:
            option = "--tls" if self.tls else "--ca"
            raise UsageError(f"{option} goes with --server: a bootstrap has channel_creds for each of its servers")


def access_options(command: F) -> Callable[..., Any]:
    """Add --tls, --ca, --cert, --key and --node-id; the command gets a ServerAccess as `access`."""

    @wraps(command)
    def call(
        *args: Any, tls: bool, ca: str | None, cert: str | None, key: str | None, node_id: str | None, **given: Any
    ) -> Any:
        return command(*args, access=ServerAccess(tls, ca, cert, key, node_id), **given)

    made: Callable[..., Any] = call
    for decorate in (
        click.option(
            "--node-id",
            metavar="ID",
            help=f"The node to ask as.  [default: {NODE}, or the node of the bootstrap]",
        ),
        click.option("--key", metavar="FILE", help="The private key of --cert (PEM, not encrypted)."),
        click.option("--cert", metavar="FILE", help="The certificate to show to --server, if it asks for one (PEM)."),
        click.option(
            "--ca", metavar="FILE", help="Ask --server over TLS, and trust the authorities in this file (PEM)."
        ),
        click.option("--tls", is_flag=True, help="Ask --server over TLS, and trust the authorities of the system."),
    ):
        made = decorate(made)
    return made
