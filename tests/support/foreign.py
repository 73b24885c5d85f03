"""Control planes on libraries that nobody here wrote. Which commands they obey is told in their sources."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs import Program, ProgramDied
from tests.support.toolchains import command


class ForeignPlane:
    """One running control plane. A command has taken effect when its method returns."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self._published: set[tuple[str, str]] = set()
        self._start()

    def _start(self, port: int = 0) -> None:
        self._program = Program(
            self.name, [*command(self.name), *([str(port)] if port else [])], self._log, pipe=True, obeys=True
        )
        ready, bound = self._line().split()
        assert ready == "ready"
        self.port = int(bound)
        self.address = f"127.0.0.1:{bound}"

    def kill(self) -> None:
        """As if its machine were gone."""
        self._program.kill()
        for pipe in (self._program.stdin, self._program.stdout):
            pipe.close()

    def restart(self, *commands: str) -> None:
        """Start another on the same port, after `kill`, which knows what these commands tell it and nothing else."""
        self._published.clear()
        self._start(self.port)
        self.publish(*commands)

    def publish(self, *commands: str) -> None:
        """Obey the commands, such as `cluster a 5`, and show the result to clients in one new version."""
        for each in commands:
            self._obey(each)
        self._obey("publish")

    def clear(self) -> None:
        """Back to a version without any resource for those who are of no env."""
        self.publish(*[f"delete {kind} {name}" for kind, name in sorted(self._published)])

    def close(self) -> None:
        """It ends with its stdin, and is killed where it does not."""
        try:
            self._program.stdin.close()
            assert self._program.wait() == 0, self._program.tail()
        finally:
            self._program.kill()
            self._program.stdout.close()

    def _obey(self, line: str) -> None:
        self._program.stdin.write(f"{line}\n".encode())
        self._program.stdin.flush()
        answer = self._line()
        assert answer == "ok", f"{line}: {answer}"
        match line.split():
            case ["in", *_]:
                pass
            case ["delete", kind, name]:
                self._published.discard((kind, name))
            case [kind, name, *_]:
                self._published.add((kind, name))

    def _line(self) -> str:
        line = self._program.stdout.readline()
        if not line:
            raise ProgramDied(f"{self.name} ended:\n{self._program.tail()}")
        return line.decode().rstrip("\n")
