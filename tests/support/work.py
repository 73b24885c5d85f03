"""How much work something is: the calls of functions of some files. Unlike time, it is the same in each run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FrameType
from typing import Any

import xdsprism
from xdsprism.builds import running

_ROOT = Path(xdsprism.__file__).parent


@contextmanager
def counted(*files: str) -> Iterator[Counter[str]]:
    """Count calls of the functions in these files (`core/watch/upstream.py`), and each time a generator goes on."""
    compiled = [file for file in files if (_ROOT / file).with_suffix(EXTENSION_SUFFIXES[0]).is_file()]
    if compiled and running() == "compiled":
        raise RuntimeError(
            f"calls in compiled modules are not seen: {compiled}. List this in tests/compiled_skips.toml"
        )
    names = {str(_ROOT / file): file for file in files}
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        file = names.get(frame.f_code.co_filename) if event == "call" else None
        if file is not None:
            found[f"{file}:{frame.f_code.co_qualname}"] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
