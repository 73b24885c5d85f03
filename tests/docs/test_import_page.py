"""docs/import.md, followed from top to bottom with a real Envoy."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.docs.walking import CHILD, ROOT, XDSPRISM, Walk
from tests.support import web
from tests.support.envoy import binary
from tests.support.waiting import becomes
from xdsprism.sources.importing.importer import BOOTSTRAP_FILE, REDACTED, SERVED

PAGE = (ROOT / "docs/import.md").read_text()


class ImportWalk(Walk):
    """A walk that can start an Envoy, and pipe an answer into a command."""

    def run(self, command: str) -> str:
        if command.startswith(".venv-envoy/bin/envoy"):
            *_, file = shlex.split(command)
            flags = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
            self.start("envoy", [str(binary()), "-c", file, *flags])
            return ""
        if command.startswith("curl -s "):
            asked, _, rest = command.partition(" | ")
            argv = [*XDSPRISM, *shlex.split(rest)[1:]]
            answer = super().run(asked.replace("-s ", ""))
            done = subprocess.run(
                argv, cwd=self.folder, env={**os.environ, **CHILD}, input=answer, text=True, timeout=60, check=False
            )
            assert done.returncode == 0
            return ""
        if command.startswith("curl "):  # Envoy may still be starting
            url = shlex.split(self.translate(command))[1]
            host, port = web.split(url.split("/")[2])
            becomes(lambda: web.get(host, port, "/" + url.split("/", 3)[3]).status, 200)
        return super().run(command)


def test_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = ImportWalk(tmp_path)
    monkeypatch.setenv("XDSPRISM_SERVER", walk.translate("127.0.0.1:18000"))  # the default, on a port that is free
    try:
        walk.follow(PAGE)
    finally:
        walk.close()
    made = {path.relative_to(walk.folder / "imported").as_posix() for path in walk.folder.glob("imported/**/*.*")}
    assert made == {BOOTSTRAP_FILE, *(f"{SERVED}/{each}.yaml" for each in ("listeners", "routes", "clusters"))}
    bootstrap = (walk.folder / "imported" / BOOTSTRAP_FILE).read_text()
    assert "# cds/statsd stays: the bootstrap names it in stats_sinks[0].typed_config.tcp_cluster_name\n" in bootstrap


def test_the_page_names_the_files_that_are_written() -> None:
    assert re.findall(r"^\| `([^`]+)` \| ", PAGE, re.MULTILINE)[:3] == [BOOTSTRAP_FILE, f"{SERVED}/", f"{REDACTED}/"]
