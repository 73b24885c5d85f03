"""Runs a target with libFuzzer. Importing this instruments the code that is fuzzed, and needs `atheris`."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

HERE = Path(__file__).parent
LARGEST = 1_500  # bytes of an input that is kept

with atheris.instrument_imports(include=["xdsprism", "hpack", "h11"]):
    from fuzz.targets import TARGETS
    from fuzz.words import WORDS


def main(verb: str, words: list[str], usage: str) -> None:
    name = words[0] if verb == "keep" and words else verb
    if name not in TARGETS:
        raise SystemExit(f"{usage}\nTargets: {', '.join(TARGETS)}")
    kept, found = HERE / "corpus" / name, HERE / "found" / name
    for folder in (kept, found, HERE / "crashes"):
        folder.mkdir(parents=True, exist_ok=True)
    if verb == "keep":
        _keep(name, kept, found)
    elif words and words[0].startswith("-"):
        _fuzz(name, words)
    else:
        limits = [f"-max_total_time={words[0] if words else 60}", "-timeout=20", "-rss_limit_mb=1500"]
        limits.append(f"-artifact_prefix={HERE}/crashes/{name}-")
        limits += _dictionary(name)
        _fuzz(name, ["-print_final_stats=1", *limits, str(found), str(kept)])


def _fuzz(name: str, options: list[str]) -> None:
    """Ends the process. What stands first is how libFuzzer starts itself again."""
    atheris.Setup([f"{sys.executable} -m fuzz {name}", f"-max_len={LARGEST}", *options], _saving(name))
    atheris.Fuzz()


def _saving(name: str) -> Callable[[bytes], None]:
    """Write what breaks the target before libFuzzer does: an alarm may end it first."""
    target = TARGETS[name]

    def run(data: bytes) -> None:
        try:
            target(data)
        except Exception:
            (HERE / "crashes" / f"{name}-{hashlib.sha1(data, usedforsecurity=False).hexdigest()}").write_bytes(data)
            raise

    return run


def _dictionary(name: str) -> list[str]:
    """What libFuzzer is to try in many places."""
    if name not in WORDS:
        return []
    file = HERE / "found" / f"{name}.dict"
    escaped = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in WORDS[name])
    file.write_text("".join(f'"{word}"\n' for word in escaped))
    return [f"-dict={file}"]


def _keep(name: str, kept: Path, found: Path) -> None:
    """The fuzzer fills a folder and ends the process: what was in there before is one of the choices."""
    for file in kept.iterdir():
        file.replace(found / file.name)
    _fuzz(name, ["-merge=1", "-use_counters=0", str(kept), str(found)])
