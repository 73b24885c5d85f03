"""Which release of xdsprism this is."""

from __future__ import annotations

from importlib import metadata


def release() -> str:
    try:
        return metadata.version("xdsprism")
    except metadata.PackageNotFoundError:  # run from its sources
        return "(not installed)"
