"""The command `xdsprism`. Only click is imported here: each command imports what it needs when it runs."""

from __future__ import annotations

from typing import Any

import click

from ..builds import running
from ..errors import UsageError, XdsError
from ..release import __version__
from .bench import bench
from .check import check
from .confirm import confirm
from .diff import diff
from .events import events
from .explain import explain
from .failures import Failure, WrongUsage, print_json, wants_json
from .get import get
from .history import history
from .importing import import_
from .matrix import matrix
from .outlet import checked_output
from .policy import policy
from .relay import relay
from .serve import serve
from .status import status
from .variables import HELP, add_variables, name_variable
from .watch import watch

ARGS = "xdsprism.args"  # in the context's meta: the arguments as typed


class Commands(click.Group):
    """The commands; turns XdsErrors into exit statuses (DESIGN 4)."""

    def main(self, *args: Any, **options: Any) -> Any:
        with checked_output():
            return super().main(*args, **options)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGS] = [*args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            if wants_json(self, ctx, ctx.meta[ARGS]):
                print_json(error)
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:
            name_variable(error)
            raise
        except XdsError as error:
            raise (WrongUsage if isinstance(error, UsageError) else Failure)(error) from error


@click.group(cls=Commands, epilog=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="xdsprism", message=f"%(prog)s, version %(version)s ({running()})")
def main() -> None:
    """An xDS control plane: one resource name, many variants, and each client gets its own.

    \b
    Try it:
      xdsprism serve examples/config
      xdsprism get rds main --server 127.0.0.1:18000 --param env=prod
    """  # noqa: D301 - click's own mark: do not re-wrap


_QUESTIONS = (get, watch, check, explain, matrix, status, events, history, diff)
for _command in (serve, relay, *_QUESTIONS, confirm, import_, bench, policy):
    add_variables(_command)
    main.add_command(_command)
