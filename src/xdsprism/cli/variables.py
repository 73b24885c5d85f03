"""Read options from environment variables: `XDSPRISM_LOG_LEVEL` sets `--log-level` of every command (DESIGN 4).

An option on the command line wins over a variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from ..errors import UsageError

PREFIX = "XDSPRISM_"
HELP = (
    f"Every option can be set by an environment variable too, such as {PREFIX}LOG_LEVEL for --log-level; an option on "
    "the command line wins. Switches take 1, yes, on, true, or 0, no, off, false. Separate the values of an option "
    "that may be given several times by spaces."
)


def variable_of(option: click.Option) -> str:
    """The variable of an option, by its long name; of `--delta/--sotw` by the first, to which it says yes or no."""
    name = max(option.opts, key=len)
    return PREFIX + name.lstrip("-").replace("-", "_").upper()


def add_variables(command: click.Command) -> None:
    """Give each option of a command its variable, and mention that once in the command's help."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    for option in options:
        option.envvar = variable_of(option)
    command.epilog = HELP
    if command.callback is not None:
        command.callback = _naming(options, command.callback)


def name_variable(error: click.BadParameter) -> None:
    """Name the variable in an error if the wrong value came from it, and not from the command line."""
    param, ctx = error.param, error.ctx
    if isinstance(param, click.Option) and ctx is not None and _is_from_variable(ctx, param):
        error.param_hint = f"'{max(param.opts, key=len)}' (set by {variable_of(param)})"


def choose_typed(*names: str) -> tuple[bool, ...]:
    """Which of several options that exclude each other count: if one is typed, variables of the others do not."""
    ctx = click.get_current_context()
    sources = [ctx.get_parameter_source(name) for name in names]
    if ParameterSource.COMMANDLINE not in sources:
        return (True,) * len(names)
    return tuple(source is not ParameterSource.ENVIRONMENT for source in sources)


def _is_from_variable(ctx: click.Context, param: click.Parameter) -> bool:
    return param.name is not None and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT


def _naming(options: list[click.Option], callback: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command so that an error which it raises later names the variable of each option in its text."""

    @wraps(callback)
    def call(*args: Any, **given: Any) -> Any:
        ctx = click.get_current_context()
        try:
            return callback(*args, **given)
        except UsageError as error:
            text = str(error)
            found = [variable_of(each) for each in options if _is_from_variable(ctx, each) and _names(text, each)]
            if not found:
                raise
            raise UsageError(f"{text} (set by {' and '.join(found)})") from error

    return call


def _names(text: str, option: click.Option) -> bool:
    return any(re.search(rf"{re.escape(each)}(?![\w-])", text) for each in option.opts if each.startswith("--"))
