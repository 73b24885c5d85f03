"""`xdsprism import`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from . import output as out
from .options import Address, descriptors_option

if TYPE_CHECKING:
    from pathlib import Path

    from ..sources.importing.importer import Imported, ImportedDocument, ImportedFile

STDIN = "-"


@click.command("import", short_help="Make resources of an Envoy bootstrap or config dump.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--out",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="The folder to write: bootstrap.yaml, and resources/ for `serve`.  [default: print all of it]",
)
@click.option(
    "--server",
    type=Address(),
    default="127.0.0.1:18000",
    show_default=True,
    help="Where the Envoys will find xdsprism.",
)
@click.option("--force", is_flag=True, help="Overwrite files in the folder of --out.")
@click.option(
    "--show-secrets",
    is_flag=True,
    help="Print keys, passwords and tokens. Without it they are [redacted]; --out writes them in any case.",
)
@descriptors_option
def import_(file: str, folder: str | None, server: str, *, force: bool, show_secrets: bool) -> None:
    """Make resources to serve of FILE, and the bootstrap with which Envoy fetches them over ADS.

    FILE is an Envoy bootstrap (YAML or JSON), or what Envoy's admin port answers to /config_dump?include_eds; `-` reads
    it from the standard input. Listeners, clusters, secrets and the route configurations in listeners become resources.
    What Envoy needs before it has a control plane stays in the bootstrap, which says why. Existing files are not
    overwritten without --force.

    \b
    Example:
      xdsprism import envoy.yaml --out imported
      xdsprism check imported/resources
      xdsprism serve imported/resources
      envoy -c imported/bootstrap.yaml
      curl -s http://127.0.0.1:9901/config_dump?include_eds | xdsprism import - --out imported
    """  # noqa: D301
    from ..sources.importing.bootstrap import ServerAddress
    from ..sources.importing.importer import import_text

    host, _, port = server.rpartition(":")
    name = "<stdin>" if file == STDIN else file
    imported = import_text(_read(file, name), name, ServerAddress(host.strip("[]"), int(port)))
    for each in imported.warnings:
        out.note(f"warning: {each}")
    if folder is None:
        _print(imported, show_secrets=show_secrets)
    else:
        _write(imported, folder, force=force)
    for text in imported.staying:
        out.note(text)
    from ..core.model.types import TYPES

    labels = {spec.url: spec.label for spec in TYPES}
    counts = ", ".join(f"{count} {labels[type_url]}" for type_url, count in imported.counts.items())
    out.note(f"imported: {counts or 'no resources that can be served as they are'}")


def _read(file: str, name: str) -> str:
    """Return the text of the file. Raises ConfigError."""
    from ..errors import ConfigError, Problem
    from ..file_reading import read_file
    from ..sources.files import MAX_BYTES

    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if file == STDIN else read_file(file, MAX_BYTES)
    except OSError as error:
        raise ConfigError([Problem(f"can't be read: {error.strerror}", name)]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError([Problem(f"it has more than {MAX_BYTES:,} bytes", name)])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(f"is not UTF-8: byte 0x{raw[error.start]:02x}", name, line)]) from None


def _print(imported: Imported, *, show_secrets: bool) -> None:
    """Print all files one after the other."""
    from .documents import HINT

    hidden = False
    for file in imported.files:
        click.echo(f"# {file.path}")
        for document in file.documents:
            content, has_secrets = (document.content, False) if show_secrets else document.without_secrets()
            hidden |= has_secrets
            click.echo(_text(document, content), nl=False)
    if hidden:
        out.note(HINT)


def _text(document: ImportedDocument, content: dict[str, object]) -> str:
    """Return a document as YAML, with its comments."""
    from ..printable import printable

    start, _, rest = out.yaml_text(content).partition("\n")
    comments = [f"# {printable(each)}" for each in document.comments]
    return "\n".join([start, *comments, rest])


def _write(imported: Imported, folder: str, *, force: bool) -> None:
    """Write all files, or none if one exists and `force` is not given."""
    from pathlib import Path

    from ..errors import XdsError

    top = Path(folder)
    there = [file.path for file in imported.files if (top / file.path).exists()]
    if there and not force:
        raise XdsError(f"{top / there[0]} exists: give --force to overwrite it, or another folder with --out")
    try:
        for file in imported.files:
            path = top / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_file(path, file)
            out.note(f"wrote {path}")
    except OSError as error:
        raise XdsError(f"{error.filename}: can't be written: {error.strerror}") from error
    made = {file.path for file in imported.files}
    for old in sorted((top / "resources").glob("**/*.*")):
        name = old.relative_to(top).as_posix()
        if old.suffix in (".yaml", ".yml", ".json") and name not in made:
            out.note(f"warning: {old} was there before: `serve` reads it too")


def _write_file(path: Path, file: ImportedFile) -> None:
    """Write a file in one step. One that has secrets can be read by its owner only."""
    import os

    text = "".join(_text(each, each.content) for each in file.documents)
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)  # of a run that was interrupted
    mode = 0o600 if file.has_secrets else 0o666
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as sink:
        sink.write(text)
    draft.replace(path)
