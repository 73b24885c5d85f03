"""Gather the pages of the documentation into build/docs, where `make docs` builds the site from them.

The pages are those of the repository. Links between them are changed to where they lie on the site. The reference of
commands, of the admin port and of files is made from the code.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath

import click

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "build/docs"

# Pages that are not in docs/, and their names on the site.
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "PERFORMANCE.md": "performance.md",
    "SECURITY.md": "reporting.md",
    "THIRD_PARTY.md": "third-party.md",
    "bench/README.md": "bench.md",
    "fuzz/README.md": "fuzz.md",
}
EXAMPLES = "examples.md"
DEPLOY = "deploy-files.md"
LICENCE = "licence.md"
_LINK = re.compile(r"(\]\()(?!https?:|#)([^)#]+)")


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    for name, text in pages():
        target = TARGET / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    shutil.copytree(ROOT / "docs/pictures", TARGET / "pictures")


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page of the site."""
    for source in sources():
        yield places()[source], moved(source, (ROOT / source).read_text())
    yield LICENCE, f"# Licence\n\n```text\n{(ROOT / 'LICENSE').read_text().rstrip()}\n```\n"
    yield EXAMPLES, _files("Examples", "examples")
    yield DEPLOY, _files("Files for a deployment", "deploy")
    yield "commands.md", commands()
    yield "admin-api.md", admin_api()
    yield "files.md", files()


def sources() -> list[str]:
    """Return the files that are pages of the site."""
    return [*ELSEWHERE, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]


def places() -> dict[str, str]:
    """Return where each file is on the site."""
    found = {**ELSEWHERE, "LICENSE": LICENCE}
    found |= {str(path.relative_to(ROOT)): path.name for path in (ROOT / "docs").glob("*.md")}
    found |= {str(path.relative_to(ROOT)): f"pictures/{path.name}" for path in (ROOT / "docs/pictures").iterdir()}
    for folder, page in (("examples", EXAMPLES), ("deploy", DEPLOY)):
        for path in (ROOT / folder).rglob("*"):
            found[str(path.relative_to(ROOT))] = page
    return found


def moved(source: str, text: str) -> str:
    """Change the links of a page to where their targets are on the site. Raises KeyError for a target that is not."""
    known = places()

    def link(match: re.Match[str]) -> str:
        return match[1] + known[normpath(Path(source).parent / match[2])]

    return _LINK.sub(link, text)


def _files(title: str, folder: str) -> str:
    """Make a page of the files in a folder."""
    parts = [f"# {title}\n\nThese files are in `{folder}/` of the source.\n"]
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            language = {".py": "python", ".json": "json"}.get(path.suffix, "yaml")
            parts.append(f"## {path.relative_to(ROOT)}\n\n```{language}\n{path.read_text().rstrip()}\n```\n")
    return "\n".join(parts)


# -- the reference


def commands() -> str:
    """Make the reference of the command line from the commands themselves: what `--help` prints, for all of them."""
    parts = ["# Commands\n\nThis is what `xdsprism COMMAND --help` prints.\n"]
    for path, command in walk(program(), ("xdsprism",)):
        # The names are those of the group: click keeps the option that it makes first.
        context = click.Context(
            command,
            info_name=" ".join(path),
            max_content_width=100,
            terminal_width=100,
            help_option_names=["-h", "--help"],
        )
        help_text = command.get_help(context).partition("\n  Every option can be set by")[0].rstrip()
        parts.append(f"## {' '.join(path)}\n\n```text\n{help_text}\n```\n")
    return "\n".join(parts)


def program() -> click.Command:
    """Return the command `xdsprism`."""
    from xdsprism.cli.main import main as command  # noqa: PLC0415 - the pages themselves need no package

    return command


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command with its words, and the commands below it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, each in sorted(command.commands.items()):
            yield from walk(each, (*path, name))


def admin_api() -> str:
    """Return the reference of the admin port, which the admin port itself has too."""
    from xdsprism.admin.reference import page  # noqa: PLC0415 - the pages themselves need no package

    return page()


FILES = """# Configuration files

`xdsprism serve CONFIG...` and `xdsprism check CONFIG...` read files named `.yaml`, `.yml` and `.json`, and directories
with all that is below them. [serve.md](serve.md) says which files are read, how large they may be and what is checked,
and [design.md](design.md), section 3, has the exact rules.

A document is one of these:

- a resource in proto3 JSON with its `@type`: a full type URL, or the full name of the message alone;
- an `envoy.service.discovery.v3.Resource` with `name` or `resource_name`, `resource`, `aliases`, `ttl`;
- a document with a list `resources:`, as Envoy reads it from files.

## What varies

| key | where | meaning |
|---|---|---|
"""


def files() -> str:
    """Make the reference of configuration files: keys, expressions and types, as the code has them."""
    from xdsprism.core.model import expr  # noqa: PLC0415 - the pages themselves need no package
    from xdsprism.core.model.template import MATCH, WHEN  # noqa: PLC0415
    from xdsprism.core.model.types import TYPES  # noqa: PLC0415
    from xdsprism.sources.parse import BASE  # noqa: PLC0415

    keys = (
        (f"{WHEN}: EXPR", "an element of a list", "the element is there where the expression holds"),
        (f"{WHEN}: EXPR", "the root of a document", "the document is one variant, with that constraint"),
        (
            f"{MATCH}: [{{when, value}}, ..., {{value}}]",
            "in place of a value",
            "the first branch that holds; none: no field",
        ),
        (f"{BASE}: true, or EXPR", "the root of a VirtualHost", "the host is in the base set that such clients get"),
    )
    grammar = (expr.__doc__ or "").split("\n\n")[1]
    parts = [FILES.rstrip("\n"), *(f"| `{key}` | {where} | {meaning} |" for key, where, meaning in keys)]
    parts += ["\n## Expressions\n", f"```text\n{grammar}\n```\n"]
    parts += [
        "\n## Types\n",
        "Each type has these words on the command line and in policies. Any other type works by its full name.\n",
    ]
    parts += ["| words | message |", "|---|---|"]
    parts += [f"| {', '.join(f'`{word}`' for word in spec.words)} | `{spec.url.partition('/')[2]}` |" for spec in TYPES]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
