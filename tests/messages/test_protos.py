from __future__ import annotations

import subprocess
import sys

import pytest

from tests.messages.samples import installed_types
from xdsprism.messages.protos import close_matches, find_message, type_name, type_url


def test_every_type_of_xds_protos_is_found_by_its_name() -> None:
    missing = [each.full_name for each in installed_types() if find_message(each.full_name) is None]
    assert missing == []


def test_finding_a_message_imports_few_modules() -> None:
    program = (
        "import sys; from xdsprism.messages.protos import find_message;"
        "assert find_message('envoy.config.cluster.v3.Cluster.EdsClusterConfig');"
        "assert find_message('envoy.extensions.filters.http.router.v3.Router');"
        "assert not find_message('envoy.nowhere.v3.Thing');"
        "loaded = [name for name in sys.modules if name.startswith('envoy.') and name.endswith('_pb2')];"
        "assert len(loaded) < 60, len(loaded)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("envoy.config.cluster.v3.Clustr", "envoy.config.cluster.v3.Cluster"),
        ("envoy.config.clusters.v3.Cluster", "envoy.config.cluster.v3.Cluster"),
        ("envoy.config.route.v3.RouteConfig", "envoy.config.route.v3.RouteConfiguration"),
    ],
)
def test_a_close_name_is_suggested(wrong: str, right: str) -> None:
    assert find_message(wrong) is None
    assert right in close_matches(wrong)


@pytest.mark.parametrize("name", ["", "Cluster", "x.y.z", "os.path", "envoy", "envoy..v3", "envoy.config.cluster.v3."])
def test_an_odd_name_is_not_found_and_raises_nothing(name: str) -> None:
    assert find_message(name) is None
    assert isinstance(close_matches(name), list)


def test_a_type_url_is_a_type_name_with_a_prefix() -> None:
    assert type_name("type.googleapis.com/a.B") == type_name("a.B") == "a.B"
    assert type_url("a.B") == "type.googleapis.com/a.B"
