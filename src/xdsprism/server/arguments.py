"""Refuses wrong arguments of a server as it is made, and says what was expected."""

from __future__ import annotations

from typing import get_args

from ..argument_types import expect_named
from ..core.model.settings import Engine, Settings
from ..core.model.store import Store
from ..core.policy.policy import Policy
from ..errors import UsageError
from .addresses import check_listen
from .tls import Tls

NONE = type(None)


def check_addresses(listen: object, rest: object, admin: object) -> None:
    """Raise TypeError or UsageError unless each is HOST:PORT; only `listen` has to be given."""
    expect_named("listen", listen, str)
    check_listen(str(listen))
    for name, address in (("rest", rest), ("admin", admin)):
        expect_named(name, address, str, NONE)
        if address is not None:
            check_listen(str(address), name)


def check_parts(store: object, settings: object, tls: object, policy: object) -> None:
    """Raise TypeError unless each is an object of its class; only the store has to be given."""
    expect_named("store", store, Store)
    expect_named("settings", settings, Settings, NONE)
    expect_named("tls", tls, Tls, NONE)
    expect_named("policy", policy, Policy, NONE)


def check_values(engine: object, max_connection_age: object, receive_bytes: object) -> None:
    """Raise TypeError or UsageError unless the engine is known, and the numbers are above 0."""
    if engine not in get_args(Engine):
        raise UsageError(f"engine is {' or '.join(get_args(Engine))}, not {engine!r}")
    expect_named("max_connection_age", max_connection_age, float, NONE)
    expect_named("receive_bytes", receive_bytes, int)
    for name, number in (("max_connection_age", max_connection_age), ("receive_bytes", receive_bytes)):
        if isinstance(number, int | float) and number <= 0:
            raise UsageError(f"{name} is a number above 0, not {number!r}")
