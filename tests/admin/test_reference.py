"""What /api and the reference say of the admin port is what it answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.admin.rig import Office
from tests.support import web
from xdsprism.admin.cache_model import RelayView
from xdsprism.admin.dashboard import PATHS as FILES
from xdsprism.admin.http import View, build, routes
from xdsprism.admin.reference import PARAMETERS, PATHS, page
from xdsprism.server.http_port import HttpPort


def view_of(office: Office, daemon: str) -> View:
    """The view of a daemon. That of a relay has no relay behind it: nothing here asks for more than parameters."""
    if daemon == "serve":

        async def confirm(_: str | None) -> Any:
            raise AssertionError

        return replace(office.view, confirm=confirm)
    return replace(office.view, loads=None, confirm=None, relay=cast("RelayView", object()))


@asynccontextmanager
async def opened(view: View) -> AsyncIterator[tuple[str, int]]:
    port = HttpPort(build(view), "127.0.0.1:0", "admin")
    task = asyncio.create_task(port.serve())
    yield web.split(port.address)
    port.stop()
    await task


@pytest.mark.parametrize("daemon", ["serve", "relay"])
async def test_each_path_is_described_and_knows_the_parameters_that_it_is_said_to(office: Office, daemon: str):
    view = view_of(office, daemon)
    async with opened(view) as address:
        listed = json.loads((await asyncio.to_thread(web.get, *address, "/api")).body)["paths"]
        for each in listed:
            answer = await asyncio.to_thread(web.get, *address, f"{each['path']}?nonsense=1", each["method"])
            names = re.search(r"this page knows: ([^\"]*)", answer.body)
            assert (each["path"], answer.status) == (each["path"], 400)
            assert names is not None
            assert names[1] == (", ".join(each["parameters"]) or "none")
    there = {(method, route.path) for route in routes(view) for method in (route.methods or set()) - {"HEAD"}}
    assert {(each["method"], each["path"]) for each in listed} == there - {("GET", file) for file in FILES}


def test_each_parameter_is_explained_and_each_explanation_is_of_a_parameter():
    assert {name for each in PATHS for name in each.parameters} == set(PARAMETERS)
    assert list(PARAMETERS) == sorted(PARAMETERS)


def test_the_reference_has_each_path():
    text = page()
    assert all(f"{each.path}`" in text for each in PATHS)
