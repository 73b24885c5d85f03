"""The host names that the admin port of a daemon accepts."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

from tests.admin.relay_rig import write_bootstrap
from tests.cli.rig import FREE, Daemon, run
from tests.support import web
from tests.support.waiting import becomes


def _status(daemon: Daemon, host: str, method: str = "GET", path: str = "/api/clients") -> int:
    connection = http.client.HTTPConnection(*web.split(daemon.admin), timeout=10)
    try:
        connection.request(method, path, headers={"host": host})
        return connection.getresponse().status
    finally:
        connection.close()


# OPS-14
def test_only_a_name_that_was_given_is_answered(tmp_path: Path, config: Path):
    with Daemon(tmp_path, config, "--admin-host", "xds.example", "--admin-host", "proxy.example") as daemon:
        for name in ("xds.example", "XDS.example:443", "proxy.example", daemon.admin, "localhost"):
            assert _status(daemon, name) == 200
        assert _status(daemon, "evil.example") == 421
        assert _status(daemon, "evil.example") == 421
        becomes(lambda: "start the server with --admin-host evil.example" in daemon.stderr, expected=True)
        assert daemon.stderr.count("WARNING the admin port refuses requests for an unknown host name") == 1


# OPS-14
def test_names_may_be_in_a_variable(tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDSPRISM_ADMIN_HOST", "xds.example proxy.example")
    with Daemon(tmp_path, config) as daemon:
        assert [_status(daemon, name) for name in ("xds.example", "proxy.example", "a.example")] == [200, 200, 421]


# OPS-14, PRX-28
def test_a_page_that_has_its_name_lead_to_a_relay_can_not_empty_its_cache(tmp_path: Path):
    bootstrap = write_bootstrap(tmp_path, "127.0.0.1:1")
    with Daemon(tmp_path, "--bootstrap", bootstrap, "--admin-host", "xds.example", verb="relay") as relay:
        path = "/api/resources?type=cds&name=shop"
        assert _status(relay, "evil.example", "DELETE", path) == 421
        assert _status(relay, "xds.example", "DELETE", path) == 404  # it may, and there is nothing


@pytest.mark.parametrize("name", ["http://a", "a:80", "a/b", "", "a b", "-a", "*"])
def test_an_invalid_host_name_is_refused(config: Path, name: str):
    done = run("serve", config, "--listen", FREE, "--admin", FREE, "--admin-host", name)
    assert done.exit_code == 2
    assert f"{name!r} is not a host name such as xds.example.com" in done.stderr.replace("\n", " ")
