"""The dashboard in a headless Chromium, on a server with an Envoy and other clients.

Each page fails its test if it complains in the console, opens a dialog, or asks another host for anything.
Screenshots are in build/screenshots. `make pictures` puts those of the README into docs/pictures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.rpc.status_pb2 import Status

from tests.interop.browsing import (
    PHONE,
    WIDE,
    Browser,
    chromium,
    longest_task,
    overflow,
    rows,
    shot,
)
from tests.support import envoy as envoys
from tests.support import web
from tests.support.control_plane import ControlPlane, source_path
from tests.support.lab import Lab
from tests.support.programs import Program
from tests.support.resources import Document, endpoints, listener, routes, static_cluster, to
from tests.support.streams import DELTA, SOTW, Ads, argv_of
from tests.support.waiting import becomes, eventually
from xdsprism import CLUSTER, ROUTE, SECRET

NONE = "\N{EN DASH}"
HTML = "<img src=x onerror=alert(1)>"
TOKEN = "a-token-that-nobody-can-guess-0123456789"
SHOP = {
    "$match": [
        {"when": "env=prod and region=eu", "value": "shop-eu"},
        {"when": "env=prod", "value": "shop"},
        {"when": "env=test", "value": "shop-next"},
    ]
}
VIEWS = ["", "resources", f"resource?type={ROUTE}&name=main", "clients", "client?stream=1", "cache", "events"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def write(server: ControlPlane) -> None:
    """A shop in three variants, its clusters and endpoints, and a name that is HTML."""
    server.write("listeners", listener("web", "main"))
    server.write("routes", {"$when": "env in (prod, test)", **routes("main", to(SHOP))})
    names = ("shop", "shop-eu", "shop-next", "checkout", "payment", "search")
    server.write("clusters", *(static_cluster(name, "127.0.0.1", 1) for name in names))
    zones = [{"$when": "zone=a", **endpoints("checkout", 1)}, {"$when": "zone!=a", **endpoints("checkout", 2)}]
    server.write("endpoints", *zones)
    server.write("odd", static_cluster(HTML, "127.0.0.1", 1))


class Fleet:
    """A server with an Envoy, and clients that are made by hand."""

    def __init__(self, lab: Lab, *, members: bool = True) -> None:
        self.server = lab.control_plane()
        write(self.server)
        with pytest.MonkeyPatch.context() as patch:  # so that pages and pictures have short paths
            patch.chdir(self.server.config.parent)
            patch.setattr(self.server, "config", Path(self.server.config.name))
            self.server.start()
        node = {"id": "envoy-1", "cluster": "edge", "metadata": {"env": "prod", "region": "eu"}}
        self.envoy = lab.start_envoy(envoys.bootstrap("delta", self.server.port, node))
        self.channel = lab.channel(argv_of("grpcio"), self.server.address)
        for number, env in enumerate(("prod", "prod", "prod", "test", "test", "qa") if members else (), 1):
            self.join(f"web-{number}", {"env": env, "zone": "ab"[number % 2]})
        eventually(lambda: self.envoy.listeners().get("web"))

    @property
    def admin(self) -> str:
        return self.server.admin

    def join(self, node: str, params: dict[str, str]) -> None:
        """A client that asks for the route configuration by a locator, and ACKs."""
        stream = Ads(self.channel.open(DELTA), node, delta=True)
        found = [pb.ResourceLocator(name="main", dynamic_parameters=params)]
        request = pb.DeltaDiscoveryRequest(node={"id": node}, type_url=ROUTE, resource_locators_subscribe=found)
        stream.call.send(request.SerializeToString())
        stream.answer()

    def ignore(self, node: str) -> None:
        """A client that answers nothing."""
        call = self.channel.open(SOTW)
        request = pb.DiscoveryRequest(node={"id": node}, type_url=CLUSTER, resource_names=["search"])
        call.send(request.SerializeToString())
        call.message(1)

    def reject(self, node: str, message: str) -> None:
        """A client that rejects a cluster."""
        call = self.channel.open(SOTW)
        request = pb.DiscoveryRequest(node={"id": node}, type_url=CLUSTER, resource_names=["payment"])
        call.send(request.SerializeToString())
        request.response_nonce = pb.DiscoveryResponse.FromString(call.message(1)).nonce
        request.error_detail.CopyFrom(Status(code=3, message=message))
        call.send(request.SerializeToString())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with pytest.MonkeyPatch.context() as patch, Lab(tmp_path_factory.mktemp("fleet")) as lab:
        patch.setattr(ControlPlane, "engine", "h2")
        yield Fleet(lab)


def value(page: Any, name: str) -> str:
    return str(page.locator(f'.tile:has(.name:text-is("{name}")) .value').inner_text())


def see(page: Any, text: str) -> None:
    """Wait for a text."""
    page.get_by_text(text).first.wait_for()


# -- what there is


def test_the_overview_shows_real_clients_and_an_edit_appears_without_a_reload(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin) as page:
        becomes(lambda: value(page, "Clients"), "7")
        becomes(lambda: value(page, "Synced"), "100%")
        assert value(page, "Resources") == "10"
        assert ["rds", "1", "3"] in rows(page, "Resources by type")
        page.locator("svg.curve").wait_for()
        page.evaluate("window.isTheSame = true")
        page.get_by_role("link", name="Resources", exact=True).click()
        see(page, "payment")
        fleet.server.write("more", static_cluster("appeared-meanwhile", "127.0.0.1", 1))
        see(page, "appeared-meanwhile")
        fleet.server.remove("more")
        page.get_by_text("appeared-meanwhile").wait_for(state="detached")
        assert page.evaluate("window.isTheSame")
        shot(page, "resources")


def test_resources_are_found_by_type_and_by_a_part_of_the_name(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin, "resources") as page:
        page.get_by_label("Part of a name").fill("SHOP")
        becomes(lambda: [row[1] for row in rows(page, "Resources")], ["shop", "shop-eu", "shop-next"])
        assert page.evaluate("location.hash") == "#/resources?search=SHOP&offset=0"
        page.get_by_label("Part of a name").fill("")
        page.get_by_label("Type").select_option(label="eds (1)")
        becomes(lambda: [row[:3] for row in rows(page, "Resources")], [["eds", "checkout", "zone=a\nzone!=a"]])


def test_the_matrix_is_right_and_a_cell_is_explained(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin, f"resource?type={ROUTE}&name=main") as page:
        page.locator("table.matrix").wait_for()
        becomes(lambda: sorted(row[0] for row in rows(page, "Variants")), ["A", "B", "C"])
        letters = {row[1]: row[0] for row in rows(page, "Variants")}
        cells = page.locator("button.cell").evaluate_all(
            "cells => cells.map((each) => [each.ariaLabel, each.innerText])"
        )
        assert len(cells) == 4 * 3
        for label, letter in cells:
            where, _, what = label.partition(": ")
            choices = dict(each.split(" ") for each in where.split(", "))
            params = {key: choice for key, choice in choices.items() if choice != "absent"}
            query = "".join(f"&param={key}%3D{choice}" for key, choice in params.items())
            chosen = json.loads(fleet.server.get(f"/api/explain?type=rds&name=main{query}"))["variant"]
            assert what.partition(", ")[2] == chosen["constraint"] if chosen else what == "does not exist"
            assert letter == (letters[chosen["constraint"]] if chosen else NONE)
        page.get_by_role("button", name="env prod, region eu").click()
        assert page.get_by_label("Params").input_value() == "env=prod region=eu"
        see(page, "needs env=test, but env is prod")
        shot(page, "resource")


def test_explain_says_what_params_get_and_why_not_the_others(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin, f"resource?type={ROUTE}&name=main") as page:
        box = page.get_by_label("Params")
        box.fill("env=test, zone=a")
        see(page, "needs env=prod, but env is test")
        assert page.locator(".answer").inner_text().startswith("gets env=test")
        box.fill("env=qa")
        see(page, "It does not exist for these params.")
        box.fill("env")
        see(page, "write KEY=VALUE, not env")


def test_two_variants_are_compared_line_by_line(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin, f"resource?type={ROUTE}&name=main") as page:
        page.locator(".diff").wait_for()
        gone, come = (page.locator(f".diff .{kind}").all_inner_texts() for kind in ("gone", "come"))
        assert len(gone) == len(come) == 1
        assert gone[0].startswith("-")
        assert '"cluster": "shop' in gone[0]
        assert gone[0][1:] != come[0][1:]
        page.get_by_label("From").select_option("1")
        see(page, "Their contents are equal.")


def test_who_has_which_leads_to_the_client(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin, f"resource?type={ROUTE}&name=main") as page:
        page.get_by_role("link", name="envoy-1").click()
        see(page, "the current version")
        becomes(lambda: page.locator("h1").inner_text(), "envoy-1 SYNCED")
        eventually(lambda: {row[1] for row in rows(page, "Resources of this client")} >= {"lds", "rds", "cds"})
        shot(page, "client")


# -- what goes wrong


def test_a_nack_appears_with_its_reason(browser: Browser, fleet: Fleet) -> None:
    message = f"no such field: {HTML}"
    with browser.page(fleet.admin) as page:
        see(page, "No client rejected anything, and none is behind.")
        fleet.reject("web-nack", message)
        see(page, message)
        becomes(lambda: [row[:3] for row in rows(page, "Clients in trouble")][:1], [["NACKED", "web-nack", "cds"]])
        becomes(lambda: value(page, "NACKs"), "1")
        page.get_by_role("link", name="web-nack").click()
        becomes(lambda: page.locator("h1").inner_text(), "web-nack NACKED")
        see(page, "rejected")
        page.get_by_role("link", name="Clients", exact=True).first.click()
        becomes(lambda: page.locator("h1").inner_text(), "Clients")  # the page before has a box of that name, too
        page.get_by_label("State").select_option("NACKED")
        becomes(lambda: [row[:2] for row in rows(page, "Clients")], [["NACKED", "web-nack"]])
        shot(page, "clients")


def test_events_come_as_they_happen(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin, "events") as page:
        see(page, "These come as they happen.")
        see(page, "Revision 1 by file load, 10 changed")  # from before the page was opened
        earlier = page.locator(".state:text-is('revision')").count()
        fleet.server.write("more", static_cluster("in-an-event", "127.0.0.1", 1))
        see(page, "in-an-event")
        fleet.join("comes-now", {"env": "prod"})
        see(page, "comes-now")
        assert page.locator(".state:text-is('revision')").count() == earlier + 1
        fleet.server.remove("more")
        becomes(page.locator(".state:text-is('revision')").count, earlier + 2)
        shot(page, "events")


# OPS-14
def test_a_name_that_is_html_is_shown_as_text(browser: Browser, fleet: Fleet) -> None:
    fleet.join(HTML, {HTML: HTML})
    with browser.page(fleet.admin, "resources") as page:
        page.get_by_role("link", name=HTML).click()
        becomes(lambda: page.locator("h1").inner_text(), HTML)
        page.get_by_role("link", name="Clients", exact=True).click()
        becomes(lambda: page.locator("h1").inner_text(), "Clients")
        page.get_by_role("link", name=HTML).click()
        becomes(lambda: page.locator("h1").inner_text(), f"{HTML} SYNCED")
        assert page.locator("main img").count() == 0
    # If code of the page tried all the same, the browser would not have it, and would say so in the console.
    with browser.page(fleet.admin, faults=True) as page:
        tried = "try { document.body.innerHTML = '<b>x</b>'; 'done' } catch (error) { error.name }"
        assert page.evaluate(tried) == "TypeError"


# OPS-14
def test_no_secret_is_on_a_page(browser: Browser, fleet: Fleet) -> None:
    key = "-----BEGIN PRIVATE KEY-----hunter2"
    secret = {"name": "key", "generic_secret": {"secret": {"inline_string": key}}}
    fleet.server.write("secret", {"@type": SECRET, **secret})
    with browser.page(fleet.admin, "events") as page:
        see(page, "config/secret.yaml:1")
        page.get_by_role("link", name="key", exact=True).first.click()
        page.get_by_role("button", name="Contents of A").click()
        see(page, "[redacted]")
        assert "hunter2" not in page.content()
    fleet.server.remove("secret")


def test_keys_that_do_not_fit_into_the_matrix_are_held_where_one_says(browser: Browser, fleet: Fleet) -> None:
    keys = [f"k{number:02}" for number in range(12)]
    only = [" and ".join([f"{key}=x", *(f"not {each} exists" for each in keys[:at])]) for at, key in enumerate(keys)]
    fleet.server.write("wide", *({"$when": each, **static_cluster("wide", "127.0.0.1", 1)} for each in only))
    with browser.page(fleet.admin, "resources") as page:
        page.get_by_role("link", name="wide", exact=True).click()
        page.locator("table.matrix").wait_for()
        held = page.locator(".held select")
        assert [held.nth(at).input_value() for at in range(held.count())] == [""] * held.count()
        last = page.get_by_label("k11", exact=True)
        absent = page.locator("button.cell .nothing").count()
        assert absent > 0
        last.select_option("=x")
        becomes(page.locator("button.cell .nothing").count, absent - 1)
        assert page.get_by_label("k11", exact=True).input_value() == "=x"
    fleet.server.remove("wide")


def test_very_many_variants_are_listed_in_part(browser: Browser, fleet: Fleet) -> None:
    many = [{"when": f"host=h{number:03}", "value": f"to-{number}"} for number in range(450)]
    document = {"$when": " or ".join(each["when"] for each in many), **routes("many", to({"$match": many}))}
    fleet.server.write_json("many", document)
    eventually(lambda: json.loads(fleet.server.get("/api/resources?type=rds&name=many"))["total"])
    with browser.page(fleet.admin, f"resource?type={ROUTE}&name=many") as page:
        see(page, "and 250 more")
        assert len(rows(page, "Variants")) == 200
        page.get_by_label("Params").fill("host=h333")
        see(page, "host=h333")
        assert longest_task(page) < 1_000
    (fleet.server.config / "many.json").unlink()


# -- how it is used


def test_everything_is_reached_by_keyboard(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin) as page:
        see(page, "Clients by state")
        page.keyboard.press("2")
        see(page, "payment")
        page.keyboard.press("/")
        page.keyboard.type("main")
        becomes(lambda: [row[1] for row in rows(page, "Resources")], ["main"])
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        becomes(lambda: page.locator("h1").inner_text(), "main")
        page.locator("table.matrix").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("env=test")
        see(page, "needs env=prod, but env is test")
        page.keyboard.press("Escape")
        page.keyboard.press("u")
        see(page, "payment")
        page.keyboard.press("3")
        page.get_by_role("heading", name="Clients").wait_for()
        page.keyboard.press("?")
        see(page, "Previous and next page")
        page.keyboard.press("Escape")
        page.keyboard.press("1")
        see(page, "Clients by state")
    with browser.page(fleet.admin) as page:
        see(page, "Clients by state")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the contents"
        seen = set()
        for _ in range(12):
            page.keyboard.press("Tab")
            seen.add(page.evaluate("document.activeElement.textContent"))
        assert {"Overview", "Resources", "Clients", "Events"} <= {text.strip() for text in seen}


@pytest.mark.parametrize("view", VIEWS)
def test_it_fits_the_width_of_a_phone(browser: Browser, fleet: Fleet, view: str) -> None:
    with browser.page(fleet.admin, view, viewport=PHONE, has_touch=True) as page:
        page.locator("h1").wait_for()
        see(page, "live")
        page.wait_for_load_state("networkidle") if view != "events" else None
        assert overflow(page) <= 0
        shot(page, f"phone-{view.partition('?')[0] or 'overview'}")


def test_it_is_dark_where_the_system_is_and_the_switch_decides(browser: Browser, fleet: Fleet) -> None:
    def lightness(page: Any) -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))

    with browser.page(fleet.admin, color_scheme="dark") as page:
        see(page, "Clients by state")
        page.locator("svg.curve").wait_for()
        assert lightness(page) < 150
        shot(page, "overview-dark")
        page.keyboard.press("t")
        becomes(lambda: (lightness(page) > 600, page.locator("#theme").inner_text()), (True, "Light"))
        page.reload()
        see(page, "Clients by state")
        becomes(lambda: lightness(page) > 600, True)
        page.keyboard.press("t")
        becomes(lambda: (lightness(page) < 150, page.locator("#theme").inner_text()), (True, "Dark"))


def test_the_pictures_of_the_readme(
    browser: Browser, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ControlPlane, "engine", "h2")
    with Lab(tmp_path_factory.mktemp("pictures")) as lab, ExitStack() as programs:
        fleet = Fleet(lab, members=False)
        fleet.server.remove("odd")
        for env, streams in (("prod", 40), ("test", 17)):
            words = [
                sys.executable,
                "-m",
                "xdsprism",
                "bench",
                "rds",
                "main",
                "--param",
                f"env={env}",
                "--duration",
                "600",
            ]
            words += ["--server", fleet.server.address, "--streams", str(streams), "--connections", "2"]
            program = Program(env, words, tmp_path / f"{env}.log", env=source_path())
            programs.callback(program.kill)
        fleet.ignore("web-7")
        fleet.reject("web-8", "no such field: 'dns_lookup_familly' (cds/payment)")
        with browser.page(fleet.admin) as page:
            becomes(lambda: value(page, "Clients"), "60")
            for number in range(40):
                edited = routes("main", to(SHOP, "/" * (1 + number % 3)))
                fleet.server.write("routes", {"$when": "env in (prod, test)", **edited})
                page.wait_for_timeout(100 + 15 * abs(20 - number))
            becomes(lambda: [row[1] for row in rows(page, "Clients in trouble")][:1], ["web-8"])
            shot(page, "dashboard-overview", picture=True)
        with browser.page(fleet.admin, f"resource?type={ROUTE}&name=main", viewport=WIDE | {"height": 900}) as page:
            page.get_by_role("button", name="env prod, region eu").click()
            see(page, "needs env=test, but env is prod")
            page.evaluate("scrollTo(0, 0); document.activeElement.blur()")
            shot(page, "dashboard-resource", picture=True)


def test_a_hidden_page_asks_for_nothing(browser: Browser, fleet: Fleet) -> None:
    with browser.page(fleet.admin) as page:
        see(page, "Clients by state")
        page.evaluate(
            "Object.defineProperty(document, 'hidden', { get: () => window.isAway, configurable: true });"
            "window.isAway = true; document.dispatchEvent(new Event('visibilitychange'));"
        )
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.wait_for_timeout(5_000)  # two and a half overviews
        assert asked == []
        page.evaluate("window.isAway = false; document.dispatchEvent(new Event('visibilitychange'))")
        eventually(lambda: page.wait_for_timeout(100) or asked)


# OPS-14
def test_with_a_token_the_page_asks_for_it_and_keeps_it_for_its_tab(
    browser: Browser, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ControlPlane, "engine", "h2")
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    file.chmod(0o600)
    server = lab.control_plane()
    write(server)
    server.flags = ["--admin-token-file", str(file)]
    server.start()
    with browser.page(server.admin, faults=True) as page:  # Chromium notes each 401 in the console
        see(page, "This server needs a token")
        assert "payment" not in page.content()
        shot(page, "token")
        page.get_by_label("Token").fill("a-wrong-token-of-some-length")
        page.keyboard.press("Enter")
        see(page, "This token is not accepted.")
        page.keyboard.press("Escape")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Use it").click()
        becomes(lambda: value(page, "Resources"), "10")
        page.keyboard.press("5")
        see(page, "These come as they happen.")
        page.reload()
        see(page, "These come as they happen.")
        assert TOKEN not in page.content() + page.url
        assert page.evaluate("JSON.stringify(localStorage) + document.cookie") == "{}"
        page.get_by_role("button", name="Sign out").click()
        see(page, "This server needs a token")


# -- a relay


def test_a_relay_shows_its_cache_and_a_server_that_is_lost(
    browser: Browser, fleet: Fleet, lab: Lab, tmp_path: Path
) -> None:
    server = {"server_uri": fleet.server.address, "channel_creds": [{"type": "insecure"}]}
    bootstrap = tmp_path / "bootstrap.json"
    bootstrap.write_text(json.dumps({"xds_servers": [server], "node": {"id": "relay"}}))
    ports = [f"127.0.0.1:{web.free_port()}" for _ in range(2)]
    words = [
        sys.executable,
        "-m",
        "xdsprism",
        "relay",
        "--bootstrap",
        bootstrap,
        "--listen",
        ports[0],
        "--admin",
        ports[1],
    ]
    relay = Program("relay", words, tmp_path / "relay.log", env=source_path())
    try:
        eventually(lambda: "ready" in relay.text())
        channel = lab.channel(argv_of("grpcio"), ports[0])
        for node in ("behind-1", "behind-2"):
            stream = channel.discovery(node)
            stream.ask(CLUSTER, "shop")
            stream.answer()
        with browser.page(ports[1], "cache") as page:
            becomes(lambda: value(page, "Servers"), "1 of 1")
            becomes(lambda: [row[:2] for row in rows(page, "Servers")], [["connected", fleet.server.address]])
            becomes(lambda: value(page, "Hit rate"), "50.0%")
            shot(page, "cache")
            page.keyboard.press("2")
            page.get_by_role("link", name="shop", exact=True).click()
            becomes(lambda: [row[3] for row in rows(page, "Variants")][:1], [fleet.server.address])
            fleet.server.stop()
            page.keyboard.press("4")
            becomes(lambda: [row[0] for row in rows(page, "Servers")], ["not connected"])
            becomes(lambda: value(page, "Servers"), "0 of 1")
    finally:
        relay.kill()


# -- very much


def test_ten_thousand_resources_and_a_thousand_clients(
    browser: Browser, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(ControlPlane, "engine", "h2")
    server = lab.control_plane()
    server.flags = ["--validate", "off"]
    many: list[Document] = [static_cluster(f"service-{number:05}", "127.0.0.1", 1) for number in range(10_000)]
    server.write_json("many", {"resources": many})
    server.start()
    load = ["bench", "cds", *(f"service-{number:05}" for number in range(20)), "--server", server.address]
    load += ["--streams", "1000", "--connections", "20", "--duration", "600"]
    fleet = Program("fleet", [sys.executable, "-m", "xdsprism", *load], tmp_path / "fleet.log", env=source_path())
    longest: dict[str, float] = {}
    try:
        with browser.page(server.admin) as page:
            becomes(lambda: value(page, "Clients"), "1,000")
            longest["overview"] = longest_task(page)
            page.keyboard.press("2")
            see(page, "service-00042")
            page.keyboard.press("]")
            see(page, "service-00142")
            page.keyboard.press("/")
            page.keyboard.type("9999")
            becomes(lambda: [row[1] for row in rows(page, "Resources")], ["service-09999"])
            longest["resources"] = longest_task(page)
            page.goto(f"http://{server.admin}/#/resource?type={CLUSTER}&name=service-00001")
            see(page, "of 1,000")
            longest["one resource"] = longest_task(page)
            page.keyboard.press("3")
            page.get_by_role("heading", name="Clients").wait_for()
            see(page, "of 1,000")
            page.keyboard.press("]")
            see(page, f"101 {NONE} 200 of 1,000")
            longest["clients"] = longest_task(page)
            page.locator("td a.row").first.click()
            see(page, "Resources of this client")
            longest["one client"] = longest_task(page)
            page.keyboard.press("5")
            see(page, "and 9,990 more")
            longest["events"] = longest_task(page)
            busy = "setTimeout(() => { const end = performance.now() + 200; while (performance.now() < end); })"
            page.evaluate(busy)
            eventually(lambda: longest_task(page) >= 190)  # it does measure; what takes less than 50 ms is no long task
    finally:
        fleet.kill()
    with capsys.disabled():
        print("\nlongest task of the page so far, in ms:", longest)
    assert max(longest.values()) < 1_000
