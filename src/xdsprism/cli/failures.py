"""What a command says when it fails: a message or a problem a line on stderr, and with `-o json` an object on stdout.

    {"errors": [{"file": "a.yaml", "line": 3, "path": "virtual_hosts[0]", "message": "..."}]}

What is not known is null. A command that has printed its own JSON, with `errors` in it, prints no second object.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, Any

import click

from ..errors import ConfigError, Problem, XdsError
from ..printable import printable, printable_lines
from . import output as out
from .variables import variable_of


class Failure(click.ClickException):
    """An XdsError, printed as click prints its own errors: one message and an exit status, never a traceback."""

    def __init__(self, error: XdsError) -> None:
        super().__init__(printable_lines(str(error)))
        self.problems = error.problems if isinstance(error, ConfigError) else ()

    def show(self, file: IO[Any] | None = None) -> None:
        """Print one problem per line, as compilers do, so that editors find the place."""
        if not self.problems:
            super().show(file)
            return
        for problem in self.problems:
            click.echo(printable(str(problem)), err=True)
        count = len(self.problems)
        click.echo(f"Error: the configuration is refused: {count} problem{'s' if count > 1 else ''}", err=True)


class WrongUsage(Failure):
    """A mistake of the caller, with exit status 2."""

    exit_code = 2


class NotCompared(Failure):
    """There was nothing to compare. Exit status 1 of `diff` says that there is a difference."""

    exit_code = 3


def problem_row(problem: Problem) -> dict[str, Any]:
    """Return a problem as JSON has it."""
    return {
        "file": problem.file or None,
        "line": problem.line or None,
        "path": problem.path or None,
        "message": problem.message,
    }


def error_row(message: str) -> dict[str, Any]:
    """Return an error that is in no file as JSON has it."""
    return problem_row(Problem(message))


def print_json(error: click.ClickException) -> None:
    """Print the object with the errors, unless the command has printed its own."""
    if not out.has_printed_json():
        problems: Sequence[Problem] = error.problems if isinstance(error, Failure) else ()
        rows = [*map(problem_row, problems)] or [error_row(error.format_message())]
        out.json_line({"errors": rows})


def wants_json(group: click.Group, ctx: click.Context, args: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON: also where they are wrong, so that there is no command yet to ask."""
    command: click.Command | None = group
    rest = [*args]
    while isinstance(command, click.Group) and rest:
        command = command.get_command(ctx, rest.pop(0))
    options = [each for each in command.params if each.name == "output"] if command is not None else []
    if not options or not isinstance(options[0], click.Option):
        return False
    found = os.environ.get(variable_of(options[0]), "")
    for arg, following in zip(rest, [*rest[1:], ""], strict=False):
        if arg in ("-o", "--output"):
            found = following
        elif arg.startswith("--output="):
            found = arg.partition("=")[2]
        elif arg.startswith("-o") and not arg.startswith("--"):
            found = arg[2:].removeprefix("=")
    return found == "json"
