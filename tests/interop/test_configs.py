"""The same configurations to xdsprism and to a real Envoy: the two agree, or it is written down why not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.configs.compare import Verdict, compare, judge, resources
from tests.support.envoy import binary

CONFIGS = Path(__file__).parents[2] / "interop/configs"
DOCUMENTS = sorted((CONFIGS / "documents").glob("*.yaml"))
EXPECTED = re.compile(r"# xdsprism: (accepts|refuses)\n# envoy: (accepts|refuses|lacks)\n# \S")


def test_there_are_many_documents_and_each_says_what_is_expected_of_it() -> None:
    assert len(DOCUMENTS) >= 150
    assert [file.name for file in DOCUMENTS if not EXPECTED.match(file.read_text())] == []


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
def test_xdsprism_and_envoy_say_of_a_document_what_it_says_they_do(file: Path, tmp_path: Path) -> None:
    (verdict,) = [judge(each, tmp_path, str(binary())) for each in resources(file)]
    match = EXPECTED.match(file.read_text())
    assert match is not None
    theirs = "lacks" if not verdict.able else "refuses" if verdict.refusal else "accepts"
    assert (bool(verdict.problems), theirs) == (match[1] == "refuses", match[2]), (verdict.problems, verdict.refusal)
    assert verdict.values in ("", "equal")


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.stem)
def test_every_refusal_has_file_and_line(file: Path, tmp_path: Path) -> None:
    (resource,) = resources(file)
    problems = judge(resource, tmp_path, "false").problems
    assert all(each.startswith((f"{file}:", "Error: ")) for each in problems)
    assert not problems or re.match(rf"{re.escape(str(file))}:\d+: ", problems[0])


# -- the other forms that a folder may hold

BOOTSTRAP = """
static_resources:
  clusters:
  - {name: a, connect_timeout: 1s}
  - {name: b, connect_timeout: -1s}
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains: [{filters: []}]
"""
DUMP = """
configs:
- "@type": type.googleapis.com/envoy.admin.v3.ClustersConfigDump
  static_clusters:
  - cluster: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a}
- "@type": type.googleapis.com/envoy.admin.v3.RoutesConfigDump
  dynamic_route_configs:
  - version_info: "1"
    route_config:
      "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
      name: main
      virtual_hosts: [{name: a, domains: [a]}, {name: b, domains: [A]}]
"""
GOLDEN = "- {name: a, type: static}\n- {name: b, type: unheard_of}\n"
ALONE = """
"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
name: a
alt_stat_name: one
alt_stat_name: two
---
"@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
name: x
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("configs")
    for name, text in {"envoy": BOOTSTRAP, "dump": DUMP, "http.clusters": GOLDEN, "deep/alone": ALONE}.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / f"{name}.yaml").write_text(text)
    (made / "broken.yaml").write_text("a: [")
    return made


@pytest.fixture(scope="module")
def verdicts(folder: Path) -> list[Verdict]:
    return compare(folder, str(binary()))


def outcomes(verdicts: list[Verdict]) -> Iterator[tuple[str, str]]:
    for each in verdicts:
        file, _, line = each.resource.place.rpartition(":")
        yield f"{Path(file).name}:{line}", each.outcome


def test_resources_are_found_in_bootstraps_dumps_lists_and_documents(verdicts: list[Verdict]) -> None:
    assert dict(outcomes(verdicts)) == {
        "alone.yaml:2": "refused by xdsprism alone",
        "alone.yaml:7": "not judged by Envoy",
        "dump.yaml:5": "accepted by both",
        "dump.yaml:10": "refused by both",
        "envoy.yaml:4": "accepted by both",
        "envoy.yaml:5": "refused by both",
        "envoy.yaml:7": "accepted by both",
        "http.clusters.yaml:1": "accepted by both",
        "http.clusters.yaml:2": "refused by both",
    }
    assert {each.values for each in verdicts} == {"", "equal"}


def test_a_problem_of_a_resource_in_a_larger_document_is_said_of_the_place_of_that(
    folder: Path, verdicts: list[Verdict]
) -> None:
    (problem, _) = next(each.problems for each in verdicts if each.resource.place.endswith("envoy.yaml:5"))
    assert problem == f"{folder}/envoy.yaml:5: connect_timeout: must be greater than 0s"


def test_the_program_prints_the_counts_and_what_only_one_of_the_two_takes(folder: Path) -> None:
    command = [sys.executable, str(CONFIGS / "compare.py"), str(folder), "--envoy", str(binary())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split(": ")[0].strip() for line in done.stdout.splitlines()]
    assert lines[:6] == [
        "9 resources",
        "4 accepted by both (4 equal)",
        "3 refused by both",
        "1 refused by xdsprism alone",
        "0 accepted by xdsprism alone",
        "1 not judged by Envoy",
    ]
    assert lines[6:] == ["refused by xdsprism alone", "not judged by Envoy"]
    assert "alone.yaml:2" in done.stdout.splitlines()[6]
    assert "broken.yaml: not read" in done.stderr
