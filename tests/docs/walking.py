"""Walks through a page as a reader would: writes its files, runs its commands, and compares what they print.

Of the blocks of a page these count:

- the first block after "Write this to `PATH`:" is written to that file;
- each line of a `sh` block is run. A server or relay goes on running, and the walk waits until it is ready;
- each line of a `text` block must be in the output of the command above it, with the same words in the same order.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import web
from tests.support.programs import Program
from tests.support.waiting import becomes, eventually

ROOT = Path(__file__).parents[2]
PORTS = ("18000", "18001", "18080", "18100", "18101", "10000", "9901")
CHILD = {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part), "PYTHONUNBUFFERED": "1"}
XDSPRISM = [sys.executable, "-m", "xdsprism"]
_BLOCK = re.compile(r"^(?:[^\n]*\b[Ww]rite this to `([^`]+)`:\n\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str, page: str) -> list[str]:
    """The blocks of a page in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


class Walk:
    """A walk through a page, in a copy of the examples whose ports are free ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: str(web.free_port()) for port in PORTS}
        shutil.copytree(ROOT / "examples", folder / "examples")
        for file in [*folder.glob("examples/**/*.yaml"), *folder.glob("examples/*.json")]:
            file.write_text(self.translate(file.read_text()))
        self._programs: list[Program] = []

    def translate(self, text: str) -> str:
        """Put the free ports in place of those on the page."""
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        return text

    def start(self, name: str, argv: list[str], env: dict[str, str] | None = None) -> Program:
        program = Program(name, argv, self.folder / f"{name}.log", env=env, cwd=self.folder)
        self._programs.append(program)
        return program

    def serve(self, *words: str) -> Program:
        """Start a server or relay, and wait until it is ready."""
        argv = [*XDSPRISM, *map(self.translate, words)]
        program = self.start(f"{words[0]}-{len(self._programs)}", argv, CHILD)
        eventually(lambda: "xdsprism: ready" in program.text())
        return program

    def run(self, command: str) -> str:
        """Run one line of a block, as a reader would type it, and return what it prints."""
        words = shlex.split(self.translate(command))
        match words:
            case ["curl", url]:
                return web.get(*web.split(url.split("/")[2]), "/" + url.split("/", 3)[3]).body
            case ["curl", "-X", method, url]:
                return web.get(*web.split(url.split("/")[2]), "/" + url.split("/", 3)[3], method=method).body
            case ["rm", name]:
                (self.folder / name).unlink()
                return ""
            case [".venv/bin/xdsprism", ("serve" | "relay"), *_]:
                self.serve(*words[1:])
                return ""
            case [".venv/bin/xdsprism", *rest]:
                done = subprocess.run(
                    [*XDSPRISM, *rest],
                    cwd=self.folder,
                    env={**os.environ, **CHILD},
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert done.returncode == 0, f"{command}: {done.stderr}"
                return done.stdout
        raise AssertionError(f"no way to run {command!r}")

    def follow(self, page: str) -> None:
        """Walk through a whole page."""
        last = output = ""
        for name, language, text in _BLOCK.findall(page):
            if name:
                target = self.folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self.translate(text))
            elif language == "sh":
                for last in text.splitlines():
                    output = self.run(last)
            elif language == "text" and _missing(text, output):
                # A change of a file takes a moment to be live.
                becomes(lambda command=last, text=text: _missing(text, self.run(command)), [])

    def close(self) -> None:
        for program in self._programs:
            program.kill()
            print(f"end of {program.name}:\n{program.tail()}")  # pytest shows it where the walk failed


def _missing(text: str, output: str) -> list[str]:
    """Return the lines of a block that are not in the output."""
    seen = " ".join(output.split())
    return [line for line in text.splitlines() if " ".join(line.split()) not in seen]
