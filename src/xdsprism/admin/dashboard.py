"""Serves the files of the dashboard: a page, its style and its scripts. They are the same for every server.

The page shows what the API of this port returns, and nothing else. Its content security policy lets the browser take
scripts, styles and data from this port only, no inline script or style, and no text where HTML is expected: names and
messages come from clients, and may look like HTML.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from starlette.responses import Response

PAGE = "index.html"
FOLDER = "/static/"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "require-trusted-types-for 'script'; trusted-types 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, as it is sent."""

    contents: bytes
    media_type: str
    tag: str  # changes with the contents


def _read() -> dict[str, StaticFile]:
    """Read all files, by the paths at which they are served."""
    found: dict[str, StaticFile] = {}
    for file in files(__package__).joinpath("static").iterdir():
        media_type = TYPES.get(f".{file.name.rpartition('.')[2]}")
        if media_type is not None:
            contents = file.read_bytes()
            path = "/" if file.name == PAGE else FOLDER + file.name
            found[path] = StaticFile(contents, media_type, f'"{sha256(contents).hexdigest()[:32]}"')
    return found


FILES = _read()
PATHS = frozenset(FILES) - {"/"}


def respond(path: str, known: str | None) -> Response:
    """Send a file; `known`: the tag of the one that the browser has."""
    file = FILES[path]
    headers = {"cache-control": "no-cache", "etag": file.tag, "content-security-policy": POLICY}
    if known is not None and file.tag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.contents, headers=headers, media_type=file.media_type)
