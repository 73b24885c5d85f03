"""docs/tls.md, typed in from top to bottom: certificates, a server, a client by its bootstrap, an Envoy, a program."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.support import web
from tests.support.envoy import Envoy, bootstrap
from tests.support.programs import Program
from tests.support.waiting import becomes, eventually
from xdsprism.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tls.md").read_text()
CHILD = {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part), "PYTHONUNBUFFERED": "1"}


def block(language: str, number: int = 0) -> str:
    return str(re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[number])


class Walk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples")
        self.listen = ""
        self.admin = ""
        self.server: Program | None = None

    def make_certificates(self) -> None:
        for line in block("sh").splitlines():
            subprocess.run(shlex.split(line), cwd=self.folder, check=True, capture_output=True)

    def serve(self, line: str = "", admin: str = "127.0.0.1:0") -> None:
        argv = [sys.executable, "-m", *self.absolute(shlex.split(line or block("sh", 1)))]
        argv += ["--listen", "127.0.0.1:0", "--admin", admin, "--engine", "h2"]
        self.server = server = Program("serve", argv, self.folder / "serve.log", env=CHILD)
        found = eventually(lambda: re.search(r"listen=(\S+) admin=(\S+)", server.text()))
        assert found is not None
        self.listen, self.admin = found.groups()

    def absolute(self, words: list[str]) -> list[str]:
        """As if typed in the folder where everything is."""
        return [str(self.folder / word) if (self.folder / word).exists() else word for word in words]

    def run(self, *argv: str) -> str:
        done = subprocess.run(
            [sys.executable, *argv],
            cwd=self.folder,
            env={**os.environ, **CHILD},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def client(self) -> dict[str, Any]:
        (found,) = json.loads(web.get(*web.split(self.admin), "/api/clients").body)["clients"]
        return dict(found)

    def close(self) -> None:
        if self.server is not None:
            self.server.kill()


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    walk = Walk(tmp_path)
    walk.make_certificates()
    yield walk
    walk.close()


# BST-3
def test_the_page_works_as_it_is_written(walk: Walk) -> None:
    walk.serve()
    port = walk.listen.rpartition(":")[2]
    (walk.folder / "bootstrap.json").write_text(block("json").replace("18000", port))
    printed = walk.run("-m", *shlex.split(block("sh", 2)))
    assert "cds/shop\n" in printed
    promised = re.findall(r"^INFO (me connected from ipv4:127.0.0.1:)\d+( as \S+) \(\w+\)$", PAGE, re.MULTILINE)
    (words,) = promised
    server = walk.server
    assert server is not None
    eventually(lambda: all(part in server.text() for part in words))

    # The same files, in an Envoy.
    config = bootstrap("delta", int(port), {"id": "envoy", "cluster": "docs"})
    (control_plane,) = config["static_resources"]["clusters"]
    control_plane |= yaml.safe_load(re.sub(r"filename: (\S+\.\w+)", rf"filename: {walk.folder}/\1", block("yaml")))
    (walk.folder / "envoy").mkdir()
    envoy = Envoy(walk.folder / "envoy", config)
    try:
        becomes(lambda: "shop" in envoy.clusters(), expected=True)
        assert walk.client()["identities"] == ["spiffe://example.com/envoy"]
    finally:
        envoy.close()


def test_the_admin_port_is_protected_as_it_is_written(walk: Walk) -> None:
    make, serve = block("sh", 3).splitlines()
    subprocess.run(["sh", "-c", make], cwd=walk.folder, check=True)
    walk.serve(serve, "0.0.0.0:0")
    curl, ask = block("sh", 4).replace("18001", walk.admin.rpartition(":")[2]).splitlines()
    scraped = subprocess.run(["sh", "-c", curl], cwd=walk.folder, check=True, capture_output=True, text=True)
    assert "xdsprism_tls_certificate_not_after_seconds" in scraped.stdout
    assert "main for a client with env=prod is" in walk.run("-m", *shlex.split(ask))


def test_the_program_runs(walk: Walk) -> None:
    program = "import asyncio\nimport xdsprism as xp\nstore = xp.Store()\nasync def main():\n"
    program += textwrap.indent(block("python"), "    ") + "asyncio.run(main())\n"
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", walk.run("-c", program))


@pytest.mark.parametrize(
    "flag", [f"--{admin}{name}" for admin in ("", "admin-") for name in ("tls-cert", "tls-key", "tls-client-ca")]
)
def test_flags_of_the_page_are_explained_by_the_command(flag: str) -> None:
    assert flag in PAGE
    for verb in ("serve", "relay"):
        assert flag in CliRunner().invoke(main, [verb, "--help"]).stdout
