"""Control planes on libraries that nobody here wrote. Which commands they obey is told in their sources."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs import Program, ProgramDied
from tests.support.toolchains import command


class ForeignPlane:
    """One running control plane. A command has taken effect when its method returns."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._program = Program(name, command(name), folder / f"{name}.log", pipe=True, obeys=True)
        self._published: set[tuple[str, str]] = set()
        ready, port = self._line().split()
        assert ready == "ready"
        self.port = int(port)
        self.address = f"127.0.0.1:{port}"

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
