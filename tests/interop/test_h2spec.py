"""h2spec, the conformance tests of HTTP/2 that its implementers share, against the transport of our own."""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path

import pytest

from tests.support.certificates import identity
from tests.support.toolchains import command
from xdsprism.server.engine_h2 import H2Engine
from xdsprism.server.health import Health


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_everything_that_h2spec_knows_holds(secure: bool, tmp_path: Path) -> None:
    context = None
    if secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*identity(tmp_path, "server"))
    engine = H2Engine(Health(()).methods(), receive_bytes=4 << 20, tls=context)
    address = await engine.start("127.0.0.1:0")
    flags = ["-h", "127.0.0.1", "-p", address.rpartition(":")[2], "-o", "5", *(["-t", "-k"] if secure else [])]
    checking = await asyncio.create_subprocess_exec(*command("h2spec"), *flags, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(checking.communicate(), 180)
    await engine.stop(1)
    text = output.decode()
    count = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", text)
    assert count is not None, text[-2000:]
    tests, passed, skipped, failed = map(int, count.groups())
    assert (passed, skipped, failed) == (tests, 0, 0), text[text.find("Failures:") :]
    assert tests > 140
