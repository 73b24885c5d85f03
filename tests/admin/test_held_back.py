"""A change that is held back: on the admin port, in metrics and in the log, and its confirmation."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.admin.rig import Office
from tests.support import web
from xdsprism.core.model.facts import ChangeHeldBack, ChangeLetThrough
from xdsprism.core.model.removal_guard import HeldBack, Loss
from xdsprism.core.model.types import CLUSTER, LISTENER
from xdsprism.observe.holding_metrics import HoldingMetrics
from xdsprism.observe.logs import FactLog
from xdsprism.sources.files import LoadReport, NotConfirmedError

LOSSES = (Loss(CLUSTER, tuple(f"c{n:02}" for n in range(36)), 40), Loss(LISTENER, ("web",), 1))
WHY = "36 of 40 cds would be removed, which is more than 50%"
HELD = HeldBack("5d1c3ab0e2f4", 1000.0, LOSSES, (), (WHY,))


class Desk:
    """Confirms what it is told to."""

    def __init__(self) -> None:
        self.held: HeldBack | None = HELD
        self.asked: list[str | None] = []

    async def confirm(self, change: str | None) -> HeldBack:
        self.asked.append(change)
        if self.held is None:
            raise NotConfirmedError("nothing is held back")
        if change not in (None, self.held.id):
            raise NotConfirmedError("it is another by now", self.held)
        through, self.held = self.held, None
        return through


@pytest.fixture
def desk(office: Office) -> Desk:
    desk = Desk()
    office.confirm = desk.confirm
    office.loads.record(LoadReport(999.0, 1, 41))
    office.loads.record(LoadReport(1000.0, 1, 4, held=HELD))
    return desk


async def post(office: Office, path: str, **headers: str) -> tuple[int, object]:
    answer = await asyncio.to_thread(web.post, office.admin, path, b"", headers)
    return answer.status, json.loads(answer.body)


# OPS-13
@pytest.mark.usefixtures("desk")
async def test_the_page_of_the_configuration_says_what_is_held_back_why_and_how_to_let_it_through(office: Office):
    page = await office.page("/api/config")
    assert page["held_back"] == {
        "id": HELD.id,
        "since": "1970-01-01T00:16:40.000Z",
        "why": [WHY],
        "removals": [
            {"type": "cds", "type_url": CLUSTER, "removed": 36, "of": 40, "names": [f"c{n:02}" for n in range(20)]},
            {"type": "lds", "type_url": LISTENER, "removed": 1, "of": 1, "names": ["web"]},
        ],
        "confirm": {
            "command": f"xdsprism confirm --admin {office.admin} --id {HELD.id}",
            "request": f"POST /api/config/confirm?id={HELD.id}",
        },
    }
    assert (page["last_load"]["ok"], page["last_load"]["errors"]) == (False, [])
    assert page["last_good_load"]["time"] == "1970-01-01T00:16:39.000Z"


# OPS-13
@pytest.mark.usefixtures("desk")
async def test_the_server_is_ready_and_says_that_a_change_is_held_back(office: Office):
    assert await office.get("/readyz") == (200, {"status": "ready", "held_back": f"{WHY}; see /api/config"})


# OPS-13
@pytest.mark.parametrize("query", ["", f"?id={HELD.id}"])
async def test_a_confirmation_answers_with_what_it_let_through(office: Office, desk: Desk, query: str):
    status, said = await post(office, f"/api/config/confirm{query}")
    assert isinstance(said, dict)
    assert (status, said["let_through"]["id"], said["let_through"]["why"]) == (200, HELD.id, [WHY])
    assert desk.asked == [HELD.id if query else None]


# OPS-13
async def test_a_confirmation_of_another_change_or_of_nothing_is_refused(office: Office, desk: Desk):
    status, said = await post(office, "/api/config/confirm?id=other")
    assert isinstance(said, dict)
    assert (status, said["error"], said["held_back"]["id"]) == (409, "it is another by now", HELD.id)
    desk.held = None
    nothing = {"error": "nothing is held back", "held_back": None}
    assert await post(office, "/api/config/confirm") == (409, nothing)


# OPS-13
async def test_only_a_post_from_the_same_site_confirms(office: Office, desk: Desk):
    assert (await office.error("/api/config/confirm"))[0] == 405
    assert (await post(office, "/api/config/confirm", origin="http://elsewhere.test"))[0] == 403
    assert (await post(office, "/api/config/confirm?name=x"))[0] == 400
    assert desk.asked == []
    assert (await post(office, "/api/config/confirm", origin=f"http://{office.admin}"))[0] == 200


# OPS-13
def test_metrics_count_what_is_held_back_until_it_is_not():
    registry = CollectorRegistry()
    metrics = HoldingMetrics(registry, lambda type_url: "lds" if type_url == LISTENER else "cds")

    def lines() -> list[str]:
        text = generate_latest(registry).decode().splitlines()
        return [line for line in text if line[0] != "#" and "_created" not in line]

    counted = "xdsprism_held_back_changes_total"
    assert lines() == ["xdsprism_config_held_back 0.0", f"{counted} 0.0"]
    metrics([ChangeHeldBack(HELD, "confirm it")])
    metrics.show(HELD)
    assert lines() == [
        "xdsprism_config_held_back 1.0",
        'xdsprism_config_held_back_removals{type="cds"} 36.0',
        'xdsprism_config_held_back_removals{type="lds"} 1.0',
        f"{counted} 1.0",
    ]
    metrics.show(None)
    assert lines() == ["xdsprism_config_held_back 0.0", f"{counted} 1.0"]


# OPS-13
def test_the_log_says_why_and_what_to_do(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO):
        FactLog()([ChangeHeldBack(HELD, "confirm it"), ChangeLetThrough(HELD)])
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            f"configuration held back ({HELD.id}), the last good one stays: {WHY}; to let it through: confirm it",
        ),
        (
            "WARNING",
            f"configuration that was held back ({HELD.id}) is confirmed, 36 of 40 cds, 1 of 1 lds removed: {WHY}",
        ),
    ]
