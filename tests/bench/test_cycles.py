"""Clients that connect, are served and disconnect leave the gauges of `xdsprism serve` where they were (OPS-7)."""

from __future__ import annotations

import re

import pytest

from bench import cycles


@pytest.mark.parametrize("engine", ["h2", "grpcio"])
def test_after_some_hundred_cycles_the_gauges_are_at_base(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    # OPS-7
    cycles.run(["--count", "200", "--engine", engine])
    told = capsys.readouterr().out
    rows = {row[1]: [int(each.replace(",", "")) for each in row[2].split()] for row in ROW.finditer(told)}
    assert rows.keys() == set(cycles.GAUGES)
    for name in ("xdsprism_streams", "xdsprism_connections", "xdsprism_clients"):
        assert rows[name] == [0, 0, 0]
    before, warm, after = rows["process_open_fds"]
    assert after <= max(before, warm)


ROW = re.compile(r"^(\w+) +((?:[\d,]+ *){3})$", re.MULTILINE)
