"""The Python of docs/program.md, block by block: what the page shows works as it says."""

from __future__ import annotations

import asyncio
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism as xp
from tests.docs.test_readme import PROGRAM, blocks
from tests.support import web


def block(words: str) -> str:
    """The one block of the page that contains these words."""
    (found,) = [each for each in blocks("python", PROGRAM) if words in each]
    return found


async def run(program: str, **names: Any) -> dict[str, Any]:
    """Run a block as the body of an async function, and return its variables."""
    scope: dict[str, Any] = {"xp": xp, "asyncio": asyncio, **names}
    exec(f"async def body():\n{textwrap.indent(program, '    ')}\n    return locals()", scope)
    found: dict[str, Any] = await scope["body"]()
    return found


def store() -> xp.Store:
    made = xp.Store()
    with made.transaction() as tx:
        tx.put(Cluster(name="backend"), when="env=prod")
    return made


async def test_the_files_of_the_page_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: '
    (tmp_path / "static.yaml").write_text(f"{text}static\n")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "a.yaml").write_text(f"{text}a\n---\n{text}b\n")
    monkeypatch.chdir(tmp_path)
    made = xp.Store()
    await run(block("store.follow("), store=made)
    assert capsys.readouterr().out.split()[1] == "2"
    assert [name for _, name in made] == ["static", "a", "b"]


async def test_the_page_reads_a_store_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    await run(block("store.get("), store=store())
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("backend env=prod ")
    assert last == re.findall(r"# (1 <Store .*>)", PROGRAM)[0]


async def test_the_admin_port_of_the_page_answers(capsys: pytest.CaptureFixture[str]) -> None:
    program = block("admin=") + "    answer = await asyncio.to_thread(get, server.admin_address)\n"
    found = await run(program, store=store(), get=lambda address: web.get(*web.split(address), "/api/clients"))
    assert found["answer"].status == 200
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_the_tokens_of_the_page_are_an_access() -> None:
    (text,) = [line for line in PROGRAM.splitlines() if "access=xp.Access(" in line]
    access = eval(text.strip().strip("`.").removeprefix("access="), {"xp": xp})
    assert access.check("0.0.0.0:18001") == ""
