"""Build the package: hatchling (PEP 517), with mypyc where a wheel is to be compiled.

hatchling asks a hook for its requirements without saying whether the install is editable. This asks for mypyc only if
it is used, so that an editable install is as quick as without it.
"""

from __future__ import annotations

from typing import Any

import chosen
import hook
from hatchling import build
from hatchling.build import *  # noqa: F403 - all functions of PEP 517 and PEP 660


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return what a wheel takes beside hatchling."""
    compiles = hook.wanted() != "pure" and hook.why_not() is None
    return [*build.get_requires_for_build_wheel(config_settings), *[chosen.compiler_requirement()] * compiles]
