"""The xDS clients of gRPC in Node, Go and Java against a real server: for each the same scenarios as for grpcio."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import scenarios
from tests.support.lab import Lab
from tests.support.toolchains import CLIENTS, command

# Each test on both engines. The first one of a language builds its program, and a first build fetches its packages.
pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.timeout(600)]

Argv = list[str | Path]


@pytest.fixture(params=CLIENTS)
def program(request: pytest.FixtureRequest) -> Argv:
    return command(request.param)


# SRV-1, SRV-6, SRV-23, SOT-2, SOT-5, ORD-1
def test_calls_reach_the_backend_and_an_update_moves_them(lab: Lab, program: Argv):
    scenarios.calls_reach_the_backend_and_an_update_moves_them(lab, program)


# SOT-6, SOT-8
def test_a_removed_listener_fails_the_calls_and_they_recover(lab: Lab, program: Argv):
    scenarios.a_removed_listener_fails_the_calls_and_they_recover(lab, program)


# NAK-1, NAK-3, NAK-4, NAK-6, NAK-28
def test_a_bad_cluster_does_not_hold_back_the_good_one(lab: Lab, program: Argv):
    scenarios.a_bad_cluster_does_not_hold_back_the_good_one(lab, program)


# DYN-12, DYN-18, DYN-28, SRV-22
def test_two_clients_get_their_own_variants(lab: Lab, program: Argv):
    scenarios.two_clients_get_their_own_variants(lab, program)
