"""What `import xdsprism` exports, and its version."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import xdsprism
from tests.cli.rig import environment
from xdsprism.builds import running

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
    "Access",
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


def test_exports_are_these_and_not_more_than_31():
    # 30, and `Access`: who may use the admin port, which a program can open too.
    assert sorted(xdsprism.__all__) == sorted(EXPORTS)
    assert len(EXPORTS) <= 31


def test_every_export_is_there():
    for name in xdsprism.__all__:
        assert getattr(xdsprism, name) is not None


def test_a_name_that_is_not_exported_is_an_attribute_error():
    assert not hasattr(xdsprism, "Hub")


def test_dir_lists_every_export_before_it_is_used_and_nothing_private():
    done = python("import xdsprism; print(*dir(xdsprism))")
    assert [name for name in done.split() if not name.startswith("__")] == sorted(EXPORTS)
    assert "__version__" in done.split()


def test_a_star_import_brings_every_export():
    names = python("from xdsprism import *; print(*(name for name in globals() if not name.startswith('__')))")
    assert sorted(names.split()) == sorted(EXPORTS)


def test_the_command_the_package_and_its_metadata_have_one_version():
    printed = python("import sys; from xdsprism.cli.main import main; sys.argv[1:] = ['--version']; main()")
    assert printed == f"xdsprism, version {xdsprism.__version__} ({running()})\n"
    assert metadata.version("xdsprism") == xdsprism.__version__


def python(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), timeout=60, check=True
    )
    return done.stdout


def test_importing_the_package_imports_nothing_heavy():
    program = (
        "import sys, xdsprism; print([n for n in ('grpc', 'envoy', 'google.protobuf', 'yaml') if n in sys.modules])"
    )
    assert python(program) == "[]\n"
