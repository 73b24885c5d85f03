"""The front door stays small (STYLE, habit 15)."""

from __future__ import annotations

import subprocess
import sys

import xdsprism
from tests.cli.rig import environment

EXPORTS = [
    "CLUSTER",
    "ENDPOINT",
    "EXTENSION_CONFIG",
    "LB_ENDPOINT_COLLECTION",
    "LISTENER",
    "ROUTE",
    "RUNTIME",
    "SCOPED_ROUTE",
    "SECRET",
    "VIRTUAL_HOST",
    "Bootstrap",
    "Client",
    "ConfigError",
    "Expression",
    "Limits",
    "Params",
    "PeerError",
    "Provided",
    "Relay",
    "Server",
    "Settings",
    "Store",
    "Tls",
    "TypeSpec",
    "Update",
    "UsageError",
    "WatchError",
    "XdsError",
    "check_rules",
    "parse",
]


def test_exports_are_these_and_not_more_than_30():
    assert sorted(xdsprism.__all__) == sorted(EXPORTS)
    assert len(EXPORTS) <= 30


def test_every_export_is_there():
    for name in xdsprism.__all__:
        assert getattr(xdsprism, name) is not None


def test_what_is_not_exported_is_an_attribute_error():
    assert not hasattr(xdsprism, "Hub")


def test_importing_the_package_imports_nothing_heavy():
    program = (
        "import sys, xdsprism; print([n for n in ('grpc', 'envoy', 'google.protobuf', 'yaml') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=60, check=True
    )
    assert done.stdout == "[]\n"
