"""docs/operate.md: its commands are run against the fleet that it describes, and print what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.cli.rig import environment
from tests.docs.walking import Walk, blocks
from tests.support import web
from tests.support.scripted_fleet import ScriptedClient
from tests.support.waiting import eventually
from xdsprism import CLUSTER, ROUTE
from xdsprism.admin import events
from xdsprism.admin.events import KEEPALIVE, QUEUED, READERS
from xdsprism.admin.history_model import SHOWN
from xdsprism.core.model.history import KEPT, REVISIONS

PAGE = (Path(__file__).parents[2] / "docs/operate.md").read_text()
WHY = "unknown cluster 'checkout-v2'"


def _normal(text: str) -> list[str]:
    """The lines with their words, and without what differs from run to run: times, versions and ports."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "WHEN", text)
    text = re.sub(r"\b(\d+[smhd])+\b", "TIME", re.sub(r"\b[0-9a-f]{16}\b", "VERSION", text))
    return [" ".join(line.split()) for line in re.sub(r"(127\.0\.0\.1):\d+", r"\1:PORT", text).splitlines()]


# NAK-12
def test_each_command_prints_what_the_page_says(walk: Walk) -> None:
    walk.serve("serve", "examples/config", "--listen", "127.0.0.1:18000", "--admin", "127.0.0.1:18001")
    address = walk.translate("127.0.0.1:18000")
    with (
        ScriptedClient(address, "envoy-1", delta=True, env="prod") as bad,
        ScriptedClient(address, "envoy-2", delta=True, env="prod") as behind,
        ScriptedClient(address, "envoy-3", delta=True, env="test") as well,
    ):
        for each in (bad, behind, well):
            each.ack(each.subscribe(CLUSTER, "*").read())
            each.ack(each.subscribe(ROUTE, "main").read())
        admin = web.split(walk.translate("127.0.0.1:18001"))
        eventually(lambda: '"SYNCED": 3' in web.get(*admin, "/api/clients").body)
        routes = walk.folder / "examples/config/routes.yaml"
        routes.write_text(routes.read_text().replace("cluster: checkout", "cluster: checkout-v2"))
        bad.nack(bad.read(), WHY)
        behind.read()
        eventually(lambda: '"NACKED": 1, "STALE": 1' in web.get(*admin, "/api/clients").body)
        found = re.findall(r"^```(sh|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        output: list[str] = []
        for language, text in found:
            if language == "text":
                missing = [line for line in _normal(text) if not any(each.startswith(line) for each in output)]
                assert missing == []
            else:
                output = [line for command in text.splitlines() for line in _normal(_run(walk, command))]
    assert [language for language, _ in found].count("text") == 5


def _run(walk: Walk, command: str) -> str:
    words = shlex.split(walk.translate(command))
    if words[0] == "curl":
        return walk.run(command)
    assert words[0] == ".venv/bin/xdsprism"
    argv = [sys.executable, "-m", "xdsprism", *words[1:]]
    done = subprocess.run(
        argv, cwd=walk.folder, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    is_in_trouble = words[1] == "status" and "cds" not in words  # as the page says of the exit status
    is_difference = words[1:3] == ["diff", "1"]
    assert (done.returncode, done.stderr) == (int(is_in_trouble or is_difference), "")
    if words[1:3] == ["diff", "examples/config"]:
        assert not done.stdout
    return done.stdout


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"the last {REVISIONS:,} revisions, and of their contents {KEPT >> 20} MiB" in " ".join(PAGE.split())
    assert len(blocks("sh", PAGE)) == 9
    assert f"place of what waited for it ({QUEUED:,} events). There may be {READERS} readers" in " ".join(PAGE.split())
    assert f"every {KEEPALIVE:g} seconds" in PAGE
    assert f"{SHOWN} variants are listed" in PAGE


def test_each_event_is_described() -> None:
    described = set(re.findall(r"^\| `(\w+)` \|", PAGE.partition("### Events")[2], re.MULTILINE))
    written = set(re.findall(r"^\| (\w+) +\| ", events.__doc__ or "", re.MULTILINE)) - {"event"}
    assert described == written
