"""python -m bench peers: xdsprism beside other servers, in one run."""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import figures, tables
from bench.measuring import Outcome, Pace, measure
from bench.programs import BINARIES, COMMANDS, GENERATOR, OWN_GENERATOR, certificate, serve_before
from bench.scenarios import BEFORE, COMPILED, QUICK, SCENARIOS, Entry, Scenario, beside_before, chosen
from bench.tables import everything, placed

DOCUMENT = Path(__file__).parent.parent / "PERFORMANCE.md"
DESCRIPTORS = 20_000  # a server with 1000 connections has more of them than most shells allow


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench peers", description="xdsprism beside other servers, in one run."
    )
    parser.add_argument("--quick", action="store_true", help="a few scenarios and rounds, within two minutes")
    parser.add_argument("--scenario", action="append", help="one of them, or S1 for all its forms; may be repeated")
    parser.add_argument("--rounds", type=int, help="how many; figures are medians over them")
    parser.add_argument("--seconds", type=float, help="of changes, for each server in each round")
    parser.add_argument("--own-load", action="store_true", help="our own generator, as where there is no Go")
    parser.add_argument("--before", type=Path, metavar="SRC", help="beside other sources of ours, and nobody else")
    parser.add_argument("--write", action="store_true", help="put the tables into PERFORMANCE.md too")
    return parser.parse_args(arguments)


def run(arguments: Sequence[str] = ("--write",)) -> None:
    options = options_of(arguments)
    usual = Pace(3, 0.4) if options.quick else Pace()
    pace = Pace(options.rounds or usual.rounds, options.seconds or usual.seconds)
    generator = OWN_GENERATOR if options.own_load else generator_here()
    if not Path(COMMANDS[COMPILED][0]).exists():
        print("The compiled build is not there: `make compiled` makes it.", file=sys.stderr, flush=True)
    _allow_descriptors()
    scenarios = chosen(options.scenario) if options.scenario else QUICK if options.quick else SCENARIOS
    if options.before:
        serve_before(options.before)
        scenarios = [beside_before(scenario) for scenario in scenarios]
    outcomes = {}
    for scenario in scenarios:
        print(f"{scenario.key}: {scenario.title} ...", end=" ", file=sys.stderr, flush=True)
        start = time.monotonic()
        outcomes[scenario.key] = _measured(scenario, generator, pace)
        print(f"{time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    if options.before:
        print(f"{machine(pace, generator)}\n\n{tables.beside_before(scenarios, outcomes)}")
        return
    text = everything(scenarios, outcomes, machine(pace, generator))
    print(text)
    if options.write:
        DOCUMENT.write_text(placed(DOCUMENT.read_text(), text))


def generator_here() -> Sequence[str]:
    if Path(GENERATOR[0]).exists():
        return GENERATOR
    print("The Go programs are not built, make bench does it where there is Go:", file=sys.stderr)
    print("there are no peers, and the load is our own, which is slower.", file=sys.stderr, flush=True)
    return OWN_GENERATOR


def taking_part(scenario: Scenario) -> list[Entry]:
    """Those that there are programs for."""
    return [each for each in scenario.entries if each.server == BEFORE or Path(COMMANDS[each.server][0]).exists()]


def _measured(scenario: Scenario, generator: Sequence[str], pace: Pace) -> Outcome:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if scenario.tls:
            certificate(folder)
        return measure(scenario, taking_part(scenario), generator, folder, pace)


def _allow_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def machine(pace: Pace, generator: Sequence[str]) -> str:
    parts = [figures.machine(), *_go_versions()]
    how = f"medians of {pace.rounds} interleaved rounds of {pace.seconds:g} s"
    load = "" if generator == GENERATOR else "; the load is made by our own generator, in Python, and is the limit"
    return f"{', '.join(parts)}; {how}{load}."


def _go_versions() -> list[str]:
    """As they are built into the programs."""
    peers = [str(BINARIES / name) for name in ("linear", "diderot") if (BINARIES / name).exists()]
    if not peers:
        return []
    said = subprocess.run(["go", "version", "-m", *peers], check=False, capture_output=True, text=True).stdout
    found = dict.fromkeys(re.findall(r"dep\t\S*/(go-control-plane|grpc|diderot)\t(v\S+)", said))
    toolchain = re.search(r": go(\S+)", said)
    return [*([f"Go {toolchain[1]}"] if toolchain else []), *[f"{_known(name)} {number}" for name, number in found]]


def _known(module: str) -> str:
    return "grpc-go" if module == "grpc" else module
