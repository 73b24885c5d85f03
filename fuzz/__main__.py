"""python -m fuzz TARGET [SECONDS]: feed a target with whatever finds new ways through the code, and keep what did.

Needs `atheris`, which is installed by `make fuzz`. New inputs go to a folder of their own, fuzz/found/TARGET; what
breaks the target is written to fuzz/crashes. `python -m fuzz keep TARGET` makes the smallest set of inputs that goes
all the known ways, out of both folders, the new corpus. Options of libFuzzer may stand in the place of SECONDS.
`python -m fuzz list` names the targets. `python -m fuzz live [SECONDS]` talks to running programs (live.py); both do
without `atheris`.
"""

import sys


def main() -> None:
    verb, *words = sys.argv[1:] or [""]
    if verb == "live":
        from fuzz import live  # noqa: PLC0415 - the one without atheris

        live.main(words)
    elif verb == "list":
        from fuzz.targets import TARGETS  # noqa: PLC0415

        print(*TARGETS)
    else:
        from fuzz import fuzzer  # noqa: PLC0415 - the others

        fuzzer.main(verb, words, __doc__ or "")


main()
