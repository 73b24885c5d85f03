"""The admin port refuses requests that web pages have browsers send."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
from typing import Any

import pytest

from tests.admin.rig import Office
from tests.support import web
from xdsprism.admin.guard import HostNames, host_of
from xdsprism.sources.files import NotConfirmedError

# -- names


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("a.example", "a.example"),
        ("A.Example.:80", "a.example"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("a.example:", "a.example"),
        ("a.example:b", "a.example:b"),
        ("", ""),
    ],
)
def test_the_host_of_a_header(header: str, host: str) -> None:
    assert host_of(header) == host


LOOPBACK = ["127.0.0.1:1", "127.0.0.2", "[::1]:18001", "localhost:9", "LOCALHOST.", "[::ffff:127.0.0.1]"]
ADDRESSES = ["10.1.2.3:18001", "[fd00::1]:18001", "192.0.2.7"]
STRANGERS = [
    "evil.example",
    "evil.example:18001",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1:18001.evil.example",
    "evil.example:127.0.0.1",
    "127.0.0.1@evil.example",
    "[evil.example]",
    "xn--lcalhost-7za",
]


# OPS-14
@pytest.mark.parametrize("listen", ["127.0.0.1:18001", "localhost:18001", "[::1]:18001"])
def test_a_port_of_this_machine_alone_goes_by_loopback_addresses(listen: str) -> None:
    names = HostNames(listen)
    assert all(map(names.has, LOOPBACK))
    assert not any(map(names.has, [*ADDRESSES, *STRANGERS]))


# OPS-14
@pytest.mark.parametrize("listen", ["0.0.0.0:18001", "[::]:18001", "10.1.2.3:18001", "host.example:18001"])
def test_a_port_for_others_goes_by_addresses_and_by_no_name_but_its_own(listen: str) -> None:
    names = HostNames(listen)
    assert all(map(names.has, [*LOOPBACK, *ADDRESSES, listen]))
    assert not any(map(names.has, STRANGERS))


# OPS-14
def test_names_that_are_given_are_taken_without_their_ports() -> None:
    names = HostNames("127.0.0.1:18001", ["xds.Example", "10.9.9.9"])
    assert all(map(names.has, ["xds.example", "XDS.example.:443", "10.9.9.9:1", *LOOPBACK]))
    assert not any(map(names.has, ["a.xds.example", "10.9.9.8", *STRANGERS]))


# -- the port


async def send(
    office: Office, method: str, path: str, headers: dict[str, str], body: bytes = b""
) -> tuple[int, dict[str, str], str]:
    def ask() -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(*web.split(office.admin), timeout=10)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


PAGES = ["/", "/healthz", "/readyz", "/metrics", "/api/resources?bodies=1", "/api/clients", "/api/config", "/api/loads"]


# OPS-14
@pytest.mark.parametrize("path", [*PAGES, "/nothing"])
async def test_a_request_for_another_host_name_gets_only_the_remedy(office: Office, path: str):
    status, _, body = await send(office, "GET", path, {"host": "rebound.example:18001"})
    assert status == 421
    assert json.loads(body) == {
        "error": "the Host header names another server; if clients reach this port by that name, "
        "start the server with --admin-host rebound.example"
    }


# OPS-14
async def test_a_host_that_is_no_name_is_not_repeated(office: Office):
    status, _, body = await send(office, "GET", "/", {"host": "<script>alert(1)</script>"})
    assert (status, "script>" in body, "--admin-host NAME" in body) == (421, False, True)


# OPS-14
async def test_a_request_of_http_1_0_without_a_host_is_answered(office: Office):
    reader, writer = await asyncio.open_connection(*web.split(office.admin))
    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 20)).endswith(b'{"status":"alive"}')
    writer.close()


FOREIGN: list[dict[str, str]] = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "unheard-of"},
    {"sec-fetch-site": "same-origin", "origin": "null"},
]


# OPS-14
@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "NONSENSE"])
async def test_a_page_of_another_site_may_send_nothing_but_get(office: Office, method: str, headers: dict[str, str]):
    for path in ("/api/resources", "/healthz", "/nothing"):
        assert (await send(office, method, path, headers))[0] == 403
    assert (await send(office, method, "/healthz", {"origin": f"http://{office.admin}"}))[0] in (200, 405)


# OPS-14
async def test_a_page_with_two_origins_is_foreign_if_one_is(office: Office):
    reader, writer = await asyncio.open_connection(*web.split(office.admin))
    own = f"http://{office.admin}"
    head = f"POST /api/config/confirm HTTP/1.1\r\nhost: {office.admin}\r\norigin: {own}\r\norigin: http://evil.example"
    writer.write(f"{head}\r\nconnection: close\r\n\r\n".encode())
    assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 403")
    writer.close()


# OPS-13, OPS-14
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:3000"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://[bad"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/config/confirm"), ("DELETE", "/api/resources?type=cds&name=shop")]
)
async def test_a_page_of_another_site_changes_nothing(office: Office, method: str, path: str, headers: dict[str, str]):
    status, _, body = await send(office, method, path, headers)
    assert status == 403
    assert "a page of another site may not change anything here" in body
    assert not [value for value in headers.values() if len(value) > 4 and value in body]


# OPS-13
async def test_a_page_of_this_port_and_a_program_may(office: Office):
    asked: list[str | None] = []

    async def confirm(change: str | None) -> Any:
        asked.append(change)
        raise AssertionError

    office.confirm = confirm
    own = {"origin": f"http://{office.admin}", "sec-fetch-site": "same-origin"}
    for headers in (own, {}, {"sec-fetch-site": "none"}):
        assert (await send(office, "POST", "/api/config/confirm", headers))[0] == 500  # it came to what fails here
    assert len(asked) == 3


# OPS-13
def test_a_page_of_a_proxy_whose_name_was_given_may() -> None:
    names = HostNames("127.0.0.1:18001", ["xds.example"])
    assert names.is_own_page("https://xds.example", "127.0.0.1:18001")
    assert not names.is_own_page("https://xds.example.evil", "127.0.0.1:18001")
    assert not HostNames("127.0.0.1:18001").is_own_page("https://xds.example", "127.0.0.1:18001")


# OPS-14
@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        *[("GET", path, {}, 200) for path in PAGES],
        ("GET", "/nothing", {}, 404),
        ("PUT", "/api/resources", {}, 405),
        ("GET", "/api/resources?limit=x", {}, 400),
        ("GET", "/", {"host": "evil.example"}, 421),
        ("POST", "/api/config/confirm", {"origin": "null"}, 403),
        ("POST", "/api/config/confirm", {}, 500),
    ],
)
async def test_every_answer_has_headers_that_restrict_browsers(
    office: Office, method: str, path: str, headers: dict[str, str], status: int
):
    seen, said, _ = await send(office, method, path, headers)
    assert seen == status
    assert said["x-content-type-options"] == "nosniff"
    assert said["cross-origin-resource-policy"] == "same-origin"
    policy = said["content-security-policy"]
    own = "script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    own += "require-trusted-types-for 'script'; trusted-types 'none'; "
    for_page = own if (path, status) == ("/", 200) else ""
    assert policy == f"default-src 'none'; {for_page}base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


# OPS-14
async def test_the_page_has_nothing_that_its_policy_does_not_allow(office: Office):
    _, _, page = await send(office, "GET", "/", {})
    assert not re.search(r"<(style|iframe|form|base|object|embed)\b|\sstyle=|\son\w+=", page, re.IGNORECASE)
    for tag, attribute in (("script", "src"), ("link", "href"), ("img", "src")):
        tags = re.findall(rf"<{tag}\b[^>]*>", page)
        assert tags
        assert all(re.search(rf' {attribute}="/static/[a-z_]+[.][a-z]+"', each) for each in tags)
    assert all(not contents.strip() for contents in re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL))


SECRET = "hunter2hunter2"


# OPS-14
@pytest.mark.parametrize(
    "path",
    [
        f"/api/resources?type={SECRET}",
        f"/api/resources?limit={SECRET}",
        f"/api/resources?offset={SECRET}",
        f"/api/resources?bodies={SECRET}",
        f"/api/resources?{SECRET}=1",
        f"/api/resources?name=a&name={SECRET}",
        f"/api/explain?type=cds&name={SECRET}",
        f"/api/explain?type=a.b.{SECRET}&name=x",
        f"/api/explain?type=cds&name=shop&param={SECRET}",
        f"/api/explain?type=cds&name=shop&param={SECRET}%3D1&param={SECRET}%3D2",
        f"/{SECRET}",
        f"/healthz?token={SECRET}",
    ],
)
async def test_an_error_repeats_no_value_of_the_request(office: Office, path: str):
    for method in ("GET", "POST", "DELETE"):
        status, said, body = await send(office, method, path, {"authorization": SECRET}, SECRET.encode())
        assert 400 <= status < 500
        assert SECRET not in body
        assert SECRET not in str(said)


# OPS-14
async def test_an_id_that_is_none_is_not_repeated(office: Office):
    async def confirm(change: str | None) -> Any:
        raise NotConfirmedError(f"it is another change by now, not {change}")

    office.confirm = confirm
    status, _, body = await send(office, "POST", f"/api/config/confirm?id={SECRET}", {})
    assert (status, SECRET in body) == (409, False)
    status, _, body = await send(office, "POST", "/api/config/confirm?id=5d1c3ab0e2f4", {})
    assert (status, "not 5d1c3ab0e2f4" in body) == (409, True)
