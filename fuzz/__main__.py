"""python -m fuzz TARGET [SECONDS]: feed a target with whatever finds new ways through the code, and keep what did.

Needs `atheris`, which is installed by `make fuzz`. New inputs go to a folder of their own, fuzz/found/TARGET; what
breaks the target is written to fuzz/crashes. `python -m fuzz keep TARGET` makes the smallest set of inputs that goes
all the known ways, out of both folders, the new corpus. Options of libFuzzer may stand in the place of SECONDS.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

HERE = Path(__file__).parent
LARGEST = 1_500  # bytes of an input that is kept

with atheris.instrument_imports(include=["xdsprism.http2", "hpack"]):
    from fuzz.targets import TARGETS


def main() -> None:
    verb, *words = sys.argv[1:] or [""]
    name = words[0] if verb == "keep" and words else verb
    if name not in TARGETS:
        raise SystemExit(f"{__doc__}\nTargets: {', '.join(TARGETS)}")
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
        _fuzz(name, ["-print_final_stats=1", *limits, str(found), str(kept)])


def _fuzz(name: str, options: list[str]) -> None:
    """Ends the process. What stands first is how libFuzzer starts itself again."""
    atheris.Setup([f"{sys.executable} -m fuzz {name}", f"-max_len={LARGEST}", *options], TARGETS[name])
    atheris.Fuzz()


def _keep(name: str, kept: Path, found: Path) -> None:
    """The fuzzer fills a folder and ends the process: what was in there before is one of the choices."""
    for file in kept.iterdir():
        file.replace(found / file.name)
    _fuzz(name, ["-merge=1", "-use_counters=0", str(kept), str(found)])


main()
