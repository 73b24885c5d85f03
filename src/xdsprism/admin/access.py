"""Who may use the admin port: its settings, and what is too open to start with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..argument_types import expect_named, expect_strings
from ..errors import UsageError
from ..server.tls import Tls
from .guard import HostNames


@dataclass(frozen=True, slots=True)
class Access:
    """How the admin port is protected.

    hosts         further host names that it answers to
    tls           its certificate, which need not be that of the xDS port; None: plain text
    token_file    a file with the tokens that requests need (tokens.py); None: no token is needed
    open_metrics  whether /metrics needs no token
    """

    hosts: tuple[str, ...] = ()
    tls: Tls | None = None
    token_file: str | Path | None = None
    open_metrics: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", expect_strings("hosts", self.hosts))
        expect_named("tls", self.tls, Tls, type(None))
        if self.token_file is not None:
            expect_named("token_file", self.token_file, str, os.PathLike)
            object.__setattr__(self, "token_file", Path(self.token_file))
        expect_named("open_metrics", self.open_metrics, bool)
        if self.open_metrics and self.token_file is None:
            raise UsageError("--admin-open-metrics needs --admin-token-file: without it every page is open")

    def check(self, listen: str) -> str:
        """Check an address to listen on, and return a warning, or nothing.

        Raises UsageError if other machines would reach the port and could use it without a token or a certificate:
        its pages show who connects and what is served, and it changes things.
        """
        if HostNames(listen).is_loopback:
            return ""
        if self.token_file is None and (self.tls is None or self.tls.client_ca is None):
            raise UsageError(
                f"--admin {listen} lets every machine that reaches it see and change what is served: give "
                "--admin-token-file, or --admin-tls-client-ca with --admin-tls-cert and --admin-tls-key, or listen on "
                "127.0.0.1 (in a program: Access(token_file=...), or Access(tls=Tls(...)) with a client_ca)"
            )
        if self.tls is None:
            return (
                f"the admin port {listen} speaks plain text, so that the network can read its tokens: give "
                "--admin-tls-cert and --admin-tls-key, unless a proxy encrypts"
            )
        return ""
