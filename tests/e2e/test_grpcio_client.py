"""grpcio's own xDS client against a real server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import grpcio_caller, scenarios
from tests.support.lab import Lab

pytestmark = pytest.mark.usefixtures("engine")  # each test on both

CLIENT = [sys.executable, Path(grpcio_caller.__file__)]


# SRV-1, SRV-6, SRV-23, SOT-2, SOT-5, ORD-1
def test_calls_reach_the_backend_and_an_update_moves_them(lab: Lab):
    scenarios.calls_reach_the_backend_and_an_update_moves_them(lab, CLIENT)


# SOT-6, SOT-8
def test_a_removed_listener_fails_the_calls_and_they_recover(lab: Lab):
    scenarios.a_removed_listener_fails_the_calls_and_they_recover(lab, CLIENT)


# NAK-1, NAK-3, NAK-4, NAK-6, NAK-28
def test_a_bad_cluster_does_not_hold_back_the_good_one(lab: Lab):
    scenarios.a_bad_cluster_does_not_hold_back_the_good_one(lab, CLIENT)


# DYN-12, DYN-18, DYN-28, SRV-22
def test_two_clients_get_their_own_variants(lab: Lab):
    scenarios.two_clients_get_their_own_variants(lab, CLIENT)
