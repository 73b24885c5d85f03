"""The admin port, page by page."""

from __future__ import annotations

import asyncio
import http.client
import json
import re

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret

import xdsprism
from tests.admin.rig import Office, Peer
from tests.support import web
from xdsprism import CLUSTER, SECRET, Store
from xdsprism.admin import http as pages
from xdsprism.admin.config_model import ConfigLoads
from xdsprism.builds import running
from xdsprism.core.model.facts import Refused
from xdsprism.errors import Problem
from xdsprism.sources.files import LoadReport


async def _raw(office: Office, path: str) -> web.Answer:
    return await asyncio.to_thread(web.get, *web.split(office.admin), path)


async def test_the_index_links_pages_that_are_there(office: Office):
    index = await _raw(office, "/")
    assert index.status == 200
    links = re.findall(r'(?:href|src)="(/[^"]+)"', index.body)
    pages = {"overview", "resources", "clients", "config", "upstreams", "history", "loads"}
    files = {"/static/icon.svg", "/static/style.css", "/static/app.js"}
    assert set(links) == {*(f"/api/{page}" for page in pages), "/metrics", "/healthz", "/readyz", *files}
    there = [link for link in links if link != "/api/upstreams"]  # of a relay, as the page says
    assert [(await _raw(office, link)).status for link in there] == [200] * len(there)


async def test_alive_and_ready_are_two_questions(office: Office):
    assert await office.get("/readyz") == (200, {"status": "ready"})
    office.unready = "the configuration is being loaded"
    expected = {"status": "not ready", "reason": "the configuration is being loaded"}
    assert await office.get("/readyz") == (503, expected)
    assert await office.get("/healthz") == (200, {"status": "alive"})


async def test_an_unknown_page_is_404_in_json(office: Office):
    assert await office.error("/api/nothing") == (404, "there is no such page; /api lists all pages")
    assert (await office.error("/api/resources/"))[0] == 404


async def test_only_reading_is_possible(office: Office):
    def post() -> tuple[int, object]:
        connection = http.client.HTTPConnection(*web.split(office.admin), timeout=10)
        connection.request("POST", "/api/resources", b"{}")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    assert await asyncio.to_thread(post) == (405, {"error": "Method Not Allowed"})


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/api/resources?typ=cds",
            "unknown parameter 'typ'; this page knows: type, name, search, offset, limit, bodies",
        ),
        ("/healthz?x=1", "unknown parameter 'x'; this page knows: none"),
        ("/api/resources?type=pods", "type= is not a resource type: use one of cds, eds, "),
        ("/api/resources?limit=many", "limit= is not a number"),
        ("/api/resources?limit=0", "limit= is not between 1 and 10000"),
        ("/api/clients?limit=10001", "limit= is not between 1 and 10000"),
        ("/api/clients?offset=-1", "offset= is not a number"),
        ("/api/resources?bodies=yes", "bodies= is neither 0 nor 1"),
        ("/api/resources?name=a&name=b", "parameter 'name' is given twice"),
        ("/api/resources?name=a&search=b", "name= and search= exclude each other: a name, or a part of names"),
        ("/api/explain?name=shop", "type= is missing: /api/explain?type=rds&name=main&param=env%3Dprod"),
        ("/api/explain?type=cds", "name= is missing"),
        ("/api/explain?type=cds&name=shop&param=env", "a param= is not KEY=VALUE: write it as KEY%3DVALUE"),
        ("/api/explain?type=cds&name=shop&param=a%3D1&param=a%3D2", "two param= have the same key"),
    ],
)
async def test_wrong_parameters_are_400_and_say_what_would_be_right(office: Office, path: str, message: str):
    status, said = await office.error(path)
    assert status == 400
    assert said.startswith(message)


# -- /api/resources


# DYN-47
async def test_resources_lists_every_variant_with_its_constraints(office: Office):
    page = await office.page("/api/resources")
    assert page["types"] == [{"type": "cds", "type_url": CLUSTER, "resources": 2}]
    assert (page["total"], page["offset"], page["revision"]) == (2, 0, 1)
    plain, shop = page["resources"]
    assert (plain["name"], plain["aliases"], plain["params"]) == ("plain", ["simple"], [])
    assert [variant["constraint"] for variant in plain["variants"]] == ["true"]
    assert (shop["type"], shop["type_url"], shop["name"], shop["params"]) == ("cds", CLUSTER, "shop", ["env"])
    assert [variant["constraint"] for variant in shop["variants"]] == ["env=prod", "env=test"]
    known = office.store.table(CLUSTER).get("shop")
    assert known is not None
    assert [variant["version"] for variant in shop["variants"]] == [variant.version for variant in known.variants]
    assert all("body" not in variant and variant["origin"] is None for variant in shop["variants"])


async def test_resources_can_be_filtered_and_paged(office: Office):
    async def names(query: str) -> tuple[int, list[str]]:
        page = await office.page(f"/api/resources?{query}")
        return page["total"], [resource["name"] for resource in page["resources"]]

    assert await names("type=cluster") == (2, ["plain", "shop"])
    assert await names("type=eds") == (0, [])
    assert await names("name=shop") == (1, ["shop"])
    assert await names("name=simple") == (1, ["plain"])
    assert await names("name=nope") == (0, [])
    assert await names("limit=1") == (2, ["plain"])
    assert await names("limit=1&offset=1") == (2, ["shop"])
    assert await names("offset=2") == (2, [])
    assert await names("search=l") == (1, ["plain"])
    assert await names("search=P") == (2, ["plain", "shop"])
    assert await names("search=p&limit=1&offset=1") == (2, ["shop"])
    assert await names("search=simple") == (0, [])
    assert await names("search=shop&type=eds") == (0, [])


async def test_resources_shows_the_number_of_subscribers(office: Office):
    async with Peer(office.server.address, delta=True) as one, Peer(office.server.address, delta=False) as other:
        await one.ask(CLUSTER, ["shop"])
        await other.ask(CLUSTER, ["*"])
        page = await office.page("/api/resources")
    assert {resource["name"]: resource["subscribers"] for resource in page["resources"]} == {"plain": 1, "shop": 2}


async def test_bodies_are_shown_on_request_and_secrets_never(office: Office):
    secret = Secret(name="key")
    secret.tls_certificate.private_key.inline_string = "hunter2"
    secret.generic_secret.secret.inline_string = "hunter2"
    with office.store.transaction() as tx:
        tx.put(secret)
    page = await office.page("/api/resources?bodies=1")
    bodies = {each["name"]: [variant["body"] for variant in each["variants"]] for each in page["resources"]}
    assert bodies["shop"][0] == {"@type": CLUSTER, "name": "shop", "alt_stat_name": "prod"}
    assert bodies["key"] == ["[redacted]"]
    assert "hunter2" not in json.dumps(page)
    assert "body" not in json.dumps(await office.page("/api/resources?bodies=0"))
    assert (await office.page(f"/api/resources?type={SECRET}"))["total"] == 1


async def test_a_long_list_lets_the_loop_turn_between_rows(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "SLICE", 0.0)
    with store.transaction() as tx:
        for number in range(2_000):
            tx.put(Cluster(name=f"c{number:05}"))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with Office(store) as office:
        counting = asyncio.create_task(count())
        page = await pages._page_response(pages.read_model.resources(store, limit=1_500))  # noqa: SLF001 # over HTTP others would take turns as well
        counting.cancel()
        assert turns >= 1_500
        assert len(json.loads(bytes(page.body))["resources"]) == 1_500
        whole = await office.page("/api/resources")
    assert (whole["total"], len(whole["resources"])) == (2_002, 1_000)


# -- /api/config


async def test_config_before_and_after_loads(office: Office):
    nothing = {
        "version": xdsprism.__version__,
        "build": running(),
        "from": ["config"],
        "reload": {"by": "events"},
        "last_load": None,
        "last_good_load": None,
        "held_back": None,
    }
    assert await office.page("/api/config") == nothing
    loads: ConfigLoads = office.loads
    loads.record(LoadReport(0.0, 2, 3))
    good = {"time": "1970-01-01T00:00:00.000Z", "ok": True, "files": 2, "resources": 3, "errors": [], "warnings": []}
    assert await office.page("/api/config") == nothing | {"last_load": good, "last_good_load": good}
    loads.record(LoadReport(1.5, 2, 3, (Problem("no", "a.yaml", 7, "x.y"), Problem("why"))))
    page = await office.page("/api/config")
    assert page["last_good_load"] == good
    assert (page["last_load"]["ok"], page["last_load"]["time"]) == (False, "1970-01-01T00:00:01.500Z")
    assert page["last_load"]["errors"] == [
        {"file": "a.yaml", "line": 7, "path": "x.y", "message": "no"},
        {"file": None, "line": None, "path": None, "message": "why"},
    ]


async def test_config_has_the_warnings_of_the_last_load(office: Office):
    office.loads.record(LoadReport(0.0, 2, 3, (), (Problem("old", "a.yaml", 7, "x.y"),)))
    page = await office.page("/api/config")
    assert page["last_load"]["ok"]
    assert page["last_load"]["warnings"] == [{"file": "a.yaml", "line": 7, "path": "x.y", "message": "old"}]


# -- /api/explain


async def test_explain_names_the_variant_and_the_clause_that_fails(office: Office):
    page = await office.page("/api/explain?type=cds&name=shop&param=env%3Dprod&param=a%3D%3D")
    assert page["params"] == {"env": "prod", "a": "="}
    assert page["variant"]["constraint"] == "env=prod"
    assert [(other["constraint"], other["fails"], other["has"]) for other in page["others"]] == [
        ("env=test", "env=test", {"env": "prod"})
    ]
    assert page["absent"] is None


# DYN-11
async def test_explain_shows_the_negative_answer_for_params_without_a_variant(office: Office):
    page = await office.page("/api/explain?type=cds&name=shop")
    assert page["variant"] is None
    assert page["absent"] == "not env exists"
    assert [other["has"] for other in page["others"]] == [{"env": None}, {"env": None}]
    by_alias = await office.page("/api/explain?type=cds&name=simple")
    assert (by_alias["name"], by_alias["variant"]["constraint"]) == ("plain", "true")


async def test_explain_of_an_unknown_name_is_404_and_leaves_no_trace(office: Office):
    assert await office.error("/api/explain?type=cds&name=nope") == (404, "there is no cds of that name")
    assert (await office.error("/api/explain?type=my.own.Type&name=x"))[0] == 404
    assert [table.spec.url for table in office.store.tables()] == [CLUSTER]


def test_a_fault_is_logged_once_and_again_after_a_good_load():
    loads = ConfigLoads(("config",))
    one, two = Problem("no", "a.yaml", 7), Problem("why", "b.yaml", 1)
    assert loads.record(LoadReport(0.0, 2, 3)) is None
    assert loads.record(LoadReport(1.0, 2, 3, (one,))) == Refused(("a.yaml:7: no",))
    assert loads.record(LoadReport(2.0, 2, 3, (one,))) == Refused((), 1)
    assert loads.record(LoadReport(3.0, 2, 3, (one, two))) == Refused(("b.yaml:1: why",), 1)
    assert loads.record(LoadReport(4.0, 2, 3)) is None
    assert loads.record(LoadReport(5.0, 2, 3, (one,))) == Refused(("a.yaml:7: no",))
