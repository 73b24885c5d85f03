"""What is spoken by somebody who does not begin with the preface of HTTP/2: for the log, and for a metric (OPS-15)."""

from __future__ import annotations

import re

from .facts import Cause

CLIENT_HELLO = b"\x16\x03"  # is what TLS begins with
_METHOD = re.compile(rb"[A-Z]{1,20}(?: |\Z)")  # RFC 9112, section 3: the method and a space, or what came of that yet


def what_is_spoken(start: bytes) -> tuple[Cause, str]:
    if start[:2] == CLIENT_HELLO:
        return Cause.TLS, "TLS is spoken, and this port has none"
    if _METHOD.match(start):
        return Cause.HTTP1, "HTTP/1 is spoken, and this port has HTTP/2"
    return Cause.OTHER, "neither HTTP/2 nor TLS is spoken"
