"""The dashboard: its files, who may have them, and the pages of the API that only it needs. No browser is involved.

tests/interop/test_dashboard.py looks at it in a browser.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster

import xdsprism.admin
from tests.admin.rig import Office, Peer, eventually_async, locator
from tests.admin.test_guard import send
from tests.admin.test_tokens import TOKEN
from xdsprism import CLUSTER, Store
from xdsprism.admin import read_model
from xdsprism.admin.dashboard import FILES, PATHS, POLICY
from xdsprism.admin.guard import HostNames, RequestGuard
from xdsprism.admin.overview_model import Recent
from xdsprism.admin.tokens import Tokens
from xdsprism.core.model.steps import EVERY, finish

FOLDER = Path(xdsprism.admin.__file__).parent / "static"
SCRIPTS = sorted(FOLDER.glob("*.js"))
HTML = "<img src=x onerror=alert(1)>"

# -- files


async def test_every_file_of_the_folder_is_served_as_what_it_is(office: Office):
    assert {path.name for path in FOLDER.iterdir()} == {path.rpartition("/")[2] or "index.html" for path in FILES}
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
    for path, file in FILES.items():
        status, headers, body = await send(office, "GET", path, {})
        assert (status, body.encode()) == (200, file.contents)
        kind = kinds[path.rpartition(".")[2] if path != "/" else "html"]
        assert headers["content-type"].partition(";")[0] == kind
        assert headers["content-security-policy"] == POLICY
        assert headers["cache-control"] == "no-cache"
        again = await send(office, "GET", path, {"if-none-match": headers["etag"]})
        assert (again[0], again[2]) == (304, "")


@pytest.mark.parametrize(
    "path", ["/static/", "/static/none.js", "/static/../http.py", "/static/%2e%2e/http.py", "/static//app.js"]
)
async def test_nothing_else_is_served_from_the_folder(office: Office, path: str):
    assert (await send(office, "GET", path, {}))[0] == 404


# OPS-14
def test_names_can_not_become_html_or_code():
    """The policy has browsers refuse it, too; nothing in the scripts tries."""
    assert "'unsafe" not in POLICY
    assert "require-trusted-types-for 'script'" in POLICY
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc"
    forbidden += r"|\beval\(|new Function|javascript:|\.cssText|setTimeout\(\s*[\"'`]"
    for script in SCRIPTS:
        assert not re.search(forbidden, script.read_text()), script.name


# OPS-14
def test_no_file_names_another_host():
    for path, file in FILES.items():
        found = re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", file.contents)
        assert [each for each in found if not each.endswith(b"//www.w3.org")] == [], path


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_imports_only_scripts_and_what_they_export(script: Path):
    for names, file in re.findall(r'^import \{([^}]+)\} from "\./([a-z_]+\.js)";', script.read_text(), re.MULTILINE):
        source = (FOLDER / file).read_text()
        exported = set(re.findall(r"^export (?:async )?(?:function|class|const|let) (\w+)", source, re.MULTILINE))
        assert {name.split(" as ")[0].strip() for name in names.split(",")} <= exported
    assert script.read_text().count("\nimport ") + script.read_text().startswith("import ") == len(
        re.findall(r'^import \{[^}]+\} from "\./', script.read_text(), re.MULTILINE)
    )


# OPS-14
async def test_with_tokens_the_files_are_open_and_what_they_show_is_not(store: Store):
    tokens = Tokens([TOKEN.encode()])
    async with Office(store, guard=RequestGuard(HostNames("127.0.0.1:1"), tokens=lambda: tokens)) as office:
        for path in FILES:
            assert (await send(office, "GET", path, {}))[0] == 200
            assert (await send(office, "POST", path, {}))[0] == 401
        for path in ("/api/overview", "/api/matrix?type=cds&name=shop", "/api/holders?type=cds&name=shop"):
            status, headers, body = await send(office, "GET", path, {})
            assert (status, "shop" in body) == (401, False)
            assert headers["www-authenticate"].startswith("Bearer")
            assert (await send(office, "GET", path, {"authorization": f"Bearer {TOKEN}"}))[0] == 200
    assert all(path.startswith("/static/") for path in PATHS)


# -- /api/overview


async def test_the_overview_counts_clients_by_state_and_says_who_is_in_trouble(office: Office):
    async with Peer(office.server.address, delta=True) as good, Peer(office.server.address, delta=False) as bad:
        answer = await good.ask(CLUSTER, ["plain"], node={"id": "good"})
        await good.send(type_url=CLUSTER, response_nonce=answer.nonce)
        answer = await bad.ask(CLUSTER, ["plain"], node={"id": HTML})
        error = {"code": 3, "message": "no such field"}
        await bad.send(type_url=CLUSTER, response_nonce=answer.nonce, resource_names=["plain"], error_detail=error)

        async def states() -> dict[str, int]:
            found: dict[str, int] = (await office.page("/api/overview"))["clients"]["states"]
            return found

        await eventually_async(states, {"NACKED": 1, "STALE": 0, "NOT SENT": 0, "SYNCED": 1})
        found = await office.page("/api/overview")
        (troubled,) = found["troubled"]
        expected = {"node": HTML, "state": "NACKED", "type": "cds", "message": "no such field"}
        assert {key: troubled[key] for key in expected} == expected
        assert found["streams"] == {"total": 2, "delta": 1, "sotw": 1}
        assert found["totals"] == {
            "requests": 4,
            "responses": 2,
            "resources": 2,
            "removals": 0,
            "acks": 1,
            "nacks": 1,
        }
    assert (found["daemon"], found["unready"], found["revision"]) == ("serve", None, 1)
    assert found["resources"]["total"] == 2
    assert found["resources"]["types"] == [{"type": "cds", "type_url": CLUSTER, "resources": 2, "variants": 3}]
    assert (found["config"]["from"], found["config"]["last_load"], found["cache"]) == (["config"], None, None)


async def test_an_overview_is_computed_once_a_second_however_many_ask():
    now, made = [100.0], 0

    async def make() -> bytes:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return b"%d" % made

    recent = Recent(1.0, lambda: now[0])
    assert await asyncio.gather(*(recent.get(make) for _ in range(5))) == [b"1"] * 5
    now[0] += 0.9
    assert await recent.get(make) == b"1"
    now[0] += 0.2
    assert await recent.get(make) == b"2"


async def test_an_error_of_an_overview_is_not_kept():
    async def fail() -> bytes:
        raise ValueError

    async def make() -> bytes:
        return b"good"

    recent = Recent(1.0, lambda: 100.0)
    with pytest.raises(ValueError):  # noqa: PT011 # its own
        await recent.get(fail)
    assert await recent.get(make) == b"good"


# -- /api/matrix


async def test_the_matrix_has_every_choice_and_what_it_leads_to(office: Office):
    found = await office.page("/api/matrix?type=cds&name=shop")
    assert [variant["constraint"] for variant in found["variants"]] == ["env=prod", "env=test"]
    (key,) = found["keys"]
    values = [{"is": "value", "value": "prod"}, {"is": "value", "value": "test"}]
    assert key == {"key": "env", "choices": [*values, {"is": "other"}, {"is": "absent"}], "values_left_out": 0}
    assert found["cells"] == [0, 1, None, None]
    held = await office.page("/api/matrix?type=cds&name=shop&param=env%3Dtest")
    assert (held["keys"][0]["held"], held["cells"]) == ({"is": "value", "value": "test"}, [0])
    assert [variant["constraint"] for variant in held["variants"]] == ["env=test"]
    assert held["variants_left_out"] == 1
    assert (await office.page("/api/matrix?type=cds&name=simple"))["name"] == "plain"
    assert await office.error("/api/matrix?type=cds&name=nope") == (404, "there is no cds of that name")
    assert await office.error("/api/matrix?type=eds&name=shop") == (404, "there is no eds of that name")


# -- /api/holders


async def test_holders_has_each_subscription_with_its_variant(office: Office):
    async with Peer(office.server.address, delta=True) as one, Peer(office.server.address, delta=False) as all_:
        found = [locator("shop", {"env": env}) for env in ("prod", "test", "qa")]
        await one.send(type_url=CLUSTER, node={"id": "one"}, resource_locators_subscribe=found)
        await one.read()
        await all_.ask(CLUSTER, [], node={"id": HTML, "metadata": {"env": "prod"}})
        page = await office.page("/api/holders?type=cds&name=shop")
        assert (page["total"], len(page["holders"])) == (4, 4)
        counts = {each["constraint"]: each["subscriptions"] for each in page["variants"]}
        assert counts == {"env=prod": 2, "env=test": 1, None: 1}
        assert {each["node"] for each in page["holders"]} == {"one", HTML}
        (second,) = (await office.page("/api/holders?type=cds&name=shop&offset=1&limit=1"))["holders"]
        assert second == page["holders"][1]
    assert await office.error("/api/holders?type=cds&name=nope") == (404, "there is no cds of that name")


# -- search


async def test_a_search_goes_through_very_many_names_in_steps():
    store = Store()
    with store.transaction() as tx:
        for number in range(40 * EVERY):
            tx.put(Cluster(name=f"Shop-{number}"))
    steps = read_model.search(store, None, "SHOP-7")
    assert sum(1 for _ in steps) >= 3
    found = finish(read_model.search(store, None, "shop-77"))
    names = [name for _, (name, _) in found]
    assert names == sorted(names)
    assert len(names) == 1 + 10  # 77, and 770 to 779
