"""What README and docs say is run here: every command block, the YAML, the Python, and where the links lead."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.walking import CHILD, Walk, blocks
from tests.support import web
from tests.support.envoy import binary
from tests.support.waiting import becomes, eventually

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SERVE = (ROOT / "docs/serve.md").read_text()
PROGRAM = (ROOT / "docs/program.md").read_text()
PERFORMANCE = (ROOT / "PERFORMANCE.md").read_text()
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "bench/README.md"]


def commands() -> list[str]:
    return [line for block in blocks("sh", README) for line in block.splitlines() if line]


def test_first_screen_has_exactly_the_two_commands_for_a_fresh_machine() -> None:
    first = re.findall(r"^```\n(.*?)^```$", README.split("\n## ")[0], re.MULTILINE | re.DOTALL)
    lines = [line.split("#")[0].strip() for block in first for line in block.splitlines() if line.startswith("make")]
    assert lines == ["make run", "make test"]
    assert len(README.split("\n## ")[0].splitlines()) <= 30


def test_five_minutes_to_a_working_variant_with_envoy(walk: Walk) -> None:
    # DYN-12, OPS-8
    listen = f"127.0.0.1:{walk.ports['18000']}"
    serve = [sys.executable, "-m", "xdsprism", "serve", str(walk.folder / "examples/config")]
    admin = f"127.0.0.1:{walk.ports['18001']}"
    server = walk.start("serve", [*serve, "--listen", listen, "--admin", admin], CHILD)
    eventually(lambda: "xdsprism: ready" in server.text())
    rest = iter(commands())

    production, canary = walk.run(next(rest)), walk.run(next(rest))
    assert "cluster: checkout" in production
    assert "shop-next" not in production
    assert "shop-next" in canary
    assert "cluster: checkout" not in canary
    assert "shop-next" not in walk.run(next(rest)).partition("\n")[0]

    assert next(rest) == "make envoy"
    assert re.search(r"^envoy:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    start = shlex.split(next(rest))
    assert start[0] == ".venv-envoy/bin/envoy"
    walk.start("envoy", [str(binary()), "-c", str(walk.folder / start[2]), "--disable-hot-restart"])
    ask = next(rest)
    becomes(lambda: walk.run(ask), "You are in production.\n")
    assert "`You are in production.`" in README

    routes = walk.folder / "examples/config/routes.yaml"
    routes.write_text(routes.read_text().replace("You are in production.", "You edited me."))
    becomes(lambda: walk.run(ask), "You edited me.\n")

    routes.write_text(routes.read_text().replace("prefix: /checkout", "prefixx: /checkout"))
    status = next(rest)
    report = eventually(lambda: json.loads(walk.run(status)), lambda report: not report["last_load"]["ok"])
    assert "prefixx" in json.dumps(report)
    assert "routes.yaml" in json.dumps(report)
    assert walk.run(ask) == "You edited me.\n"
    routes.write_text(routes.read_text().replace("prefixx", "prefix"))
    assert "main" in walk.run(next(rest))
    assert not list(rest)


def test_the_example_of_what_varies_makes_three_variants(walk: Walk) -> None:
    example = next(block for block in blocks("yaml", README) if "$when" in block)
    (walk.folder / "example.yaml").write_text(example)
    listed = walk.run(".venv/bin/xdsprism check example.yaml -o json")
    assert "That makes three variants" in README
    assert listed.count('"version"') == 3


def test_the_relay_answers_and_goes_on_when_its_server_is_gone(walk: Walk) -> None:
    # PRX-10
    start, ask = (line for line in README.splitlines() if "xdsprism " in line and "127.0.0.1:18100" in line)
    serve = [sys.executable, "-m", "xdsprism", "serve", str(walk.folder / "examples/config"), "--admin", "off"]
    server = walk.start("serve", [*serve, "--listen", f"127.0.0.1:{walk.ports['18000']}"], CHILD)
    words = shlex.split(walk.translate(start))[1:]
    words = [str(walk.folder / word) if word.startswith("examples/") else word for word in words]
    relay = walk.start("relay", [sys.executable, "-m", "xdsprism", *words], CHILD)
    eventually(lambda: "xdsprism: ready" in server.text() and "xdsprism: ready" in relay.text())
    first = walk.run(ask)
    assert "cluster: checkout" in first
    server.kill()
    assert walk.run(ask) == first


def test_the_figures_are_those_of_the_performance_page() -> None:
    rows = re.findall(r"^\| (S\d[^|]+?) \| ([\d.]+) \| ([\d.]+) \|$", README, re.MULTILINE)
    quoted = {
        (build, name, ratio) for name, *ratios in rows for build, ratio in zip(("compiled", "h2"), ratios, strict=True)
    }
    row = r"^\| (compiled|h2) +\| ([^|]+?) +\| (?:gcp Linear|gcp Snapshot|diderot) +\| at [^|]+\| ([\d.]+) +\|"
    measured = set(re.findall(row, PERFORMANCE, re.MULTILINE))
    assert len(quoted) == 10
    assert quoted <= measured, "README.md quotes figures that PERFORMANCE.md has not"


def test_each_page_of_the_documentation_is_linked_from_the_readme_or_a_page_that_is() -> None:
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            targets = re.findall(r"\]\((?!http)([^)#]+\.md)[)#]", page.read_text())
            waiting += [(page.parent / target).resolve() for target in targets]
    assert [page for page in DOCUMENTS if page not in seen] == []


def test_the_example_of_hosts_on_demand_is_served(walk: Walk) -> None:
    # VHD-3, VHD-13
    (walk.folder / "hosts.yaml").write_text(next(block for block in blocks("yaml", SERVE) if "$base" in block))
    ask = next(line for line in SERVE.splitlines() if line.startswith("xdsprism get vhds"))
    listen = f"127.0.0.1:{walk.ports['18000']}"
    serve = [sys.executable, "-m", "xdsprism", "serve", str(walk.folder / "hosts.yaml"), "--listen", listen]
    server = walk.start("serve", [*serve, "--admin", "off"], CHILD)
    eventually(lambda: "xdsprism: ready" in server.text())
    assert "name: main/shop" in walk.run(f".venv/bin/{ask}")
    assert "name: main/status" in walk.run(f".venv/bin/xdsprism get vhds --server {listen} --param env=prod")
    assert walk.run(f".venv/bin/xdsprism get vhds --server {listen} --param env=test") == ""


def test_the_example_of_polling_is_answered(walk: Walk) -> None:
    # RST-1
    serve = next(line for line in SERVE.splitlines() if line.startswith("xdsprism serve") and "--rest" in line)
    words = shlex.split(walk.translate(serve))[1:]
    words[1] = str(walk.folder / words[1])
    argv = [sys.executable, "-m", "xdsprism", *words, "--listen", "127.0.0.1:0", "--admin", "off"]
    server = walk.start("serve", argv, CHILD)
    eventually(lambda: "xdsprism: ready" in server.text())
    ask = next(line for line in SERVE.splitlines() if line.startswith("curl -H"))
    header, url, body = (shlex.split(walk.translate(ask))[place] for place in (2, 3, 5))
    address, _, path = url.removeprefix("http://").partition("/")
    key, _, value = header.partition(": ")
    answer = web.post(address, f"/{path}", body.encode(), {key: value})
    assert answer.status == 200, answer
    assert "You are in production." in answer.body


def test_the_program_runs() -> None:
    program = blocks("python", README)[0]
    setting = """
        import asyncio
        from envoy.config.cluster.v3 import cluster_pb2
        cluster, other_cluster = cluster_pb2.Cluster(name="a"), cluster_pb2.Cluster(name="a", alt_stat_name="b")
        async def main():
    """
    source = textwrap.dedent(setting) + textwrap.indent(program, "    ") + "\nasyncio.run(main())\n"
    done = subprocess.run(
        [sys.executable, "-c", source], env={**os.environ, **CHILD}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"127\.0\.0\.1:\d+ 127\.0\.0\.1:\d+\n", done.stdout)


def test_the_watching_program_runs(tmp_path: Path) -> None:
    program = blocks("python", README)[1]
    setting = """
        import asyncio, json
        from envoy.config.cluster.v3 import cluster_pb2
        import xdsprism as xp
        async def main():
            store = xp.Store()
            with store.transaction() as tx:
                tx.put(cluster_pb2.Cluster(name="backend"), when="env=prod")
            async with xp.Server(store, listen="127.0.0.1:0") as server:
                entry = {"server_uri": server.address, "channel_creds": [{"type": "insecure"}]}
                with open("bootstrap.json", "w") as file:
                    json.dump({"xds_servers": [{**entry, "server_features": ["xds_v3"]}]}, file)
    """
    body = textwrap.indent(program + "        break\n", "        ")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(setting) + body + "\nasyncio.run(main())\n"],
        env={**os.environ, **CHILD},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == 'name: "backend"\n None None\n'


# VHD-19
def test_the_provider_runs(tmp_path: Path) -> None:
    (program,) = [each for each in blocks("python", PROGRAM) if "store.provider" in each]
    before = """
        import asyncio, json
        from envoy.config.route.v3.route_components_pb2 import VirtualHost
        import xdsprism as xp
        asked = []
        def look_up(host):
            asked.append(host)
            return {"cluster": "shop", "next_cluster": "shop-next"} if host == "shop.example.com" else None
        async def main():
            store = xp.Store()
    """
    after = """
        async with xp.Server(store, listen="127.0.0.1:0") as server:
            entry = {"server_uri": server.address, "channel_creds": [{"type": "insecure"}]}
            bootstrap = {"xds_servers": [{**entry, "server_features": ["xds_v3"]}]}
            async with xp.Client(bootstrap, delta=True) as client:
                for env in ("canary", "prod", "test"):
                    made = await client.get(xp.VIRTUAL_HOST, "main/shop.example.com", params={"env": env}, timeout=30)
                    print(made.routes[0].route.cluster)
                print(len(asked))
    asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(before) + textwrap.indent(program, "    ") + textwrap.dedent(after)],
        env={**os.environ, **CHILD},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["shop-next", "shop", "shop", "2"]


def anchors(page: str) -> set[str]:
    """What a link may lead to: headings, as GitHub writes them, and anchors of rows."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', page))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_code_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", text):
        page = document.parent / target if target else document
        assert page.exists(), target
        assert not anchor or anchor in anchors(page.read_text()), f"{target}#{anchor}"
    for target in re.findall(
        r"`((?:core|server|sources|messages|client|relay|observe|admin|cli|testing)/[a-z_]*(?:\.py)?)`", text
    ):
        assert (ROOT / "src/xdsprism" / target).exists(), target
