"""Options and argument types that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):(\d{1,5})")


class Address(click.ParamType[str]):
    """HOST:PORT, or [IPv6]:PORT."""

    name = "HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = _ADDRESS.fullmatch(value)
        if found is None or int(found[1]) > 65535:
            self.fail(f"{value!r} is no HOST:PORT, such as 127.0.0.1:18000 or [::1]:18000", param, ctx)
        return value


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
