"""Reads the boolean environment variables that gRPC clients know."""

from __future__ import annotations

import os
from collections.abc import Mapping

V3_VARIABLE = "GRPC_XDS_EXPERIMENTAL_V3_SUPPORT"
PARAMS_VARIABLE = "GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS"

_OFF = frozenset({"false", "0", "no", "off"})


def switched_on(variable: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Read a boolean variable whose default is on: only `false`, `0`, `no` and `off`, in any case, switch it off."""
    return environ.get(variable, "").strip().lower() not in _OFF


def v3_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """VER-12: whether the client obeys `xds_v3` among a server's features."""
    return switched_on(V3_VARIABLE, environ)


def dynamic_parameters_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """DYN-54: whether a client or a relay sends locators and reads `resource_name`.

    The environment is read once (DYN-53): code that has a `Bootstrap` uses its `dynamic_parameters` instead.
    """
    return switched_on(PARAMS_VARIABLE, environ)
