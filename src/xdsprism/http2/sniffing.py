"""Guesses which protocol a client speaks that sent no HTTP/2 preface, for the log and a metric (OPS-15)."""

from __future__ import annotations

import re

from .facts import Cause

CLIENT_HELLO = b"\x16\x03"  # a TLS handshake record, version 3.x
_METHOD = re.compile(rb"[A-Z]{1,20}(?: |\Z)")  # RFC 9112, section 3: a method and a space, or as much as has arrived


def detect_protocol(start: bytes) -> tuple[Cause, str]:
    """Name the cause and describe it, by the first bytes that the client sent."""
    if start[:2] == CLIENT_HELLO:
        return Cause.TLS, "it speaks TLS, and this port has none"
    if _METHOD.match(start):
        return Cause.HTTP1, "it speaks HTTP/1, and this port HTTP/2"
    return Cause.OTHER, "it speaks neither HTTP/2 nor TLS"
