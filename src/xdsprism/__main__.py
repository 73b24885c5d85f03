"""`python -m xdsprism` is the command `xdsprism`."""

from __future__ import annotations

from .cli.main import main

if __name__ == "__main__":
    main(prog_name="xdsprism")
