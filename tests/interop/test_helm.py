"""The chart in deploy/helm, as Helm itself renders it, beside what the renderer of our own makes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helm import render
from tests.support.toolchains import command

CHART = Path(__file__).parents[2] / "deploy/helm/xdsprism"
VALUES: list[dict[str, Any]] = [
    {},
    {"existingConfigMap": "mine", "replicas": 5, "image": "other:1", "args": ["--rest=off"], "adminSecret": "token"},
    {"config": {"a.yaml": "name: a\nother: 'b'\n", "b.json": '{"name": "b"}'}, "resources": {}},
]


@pytest.mark.parametrize("values", VALUES, ids=["defaults", "all", "files"])
def test_helm_renders_what_our_renderer_does(values: dict[str, Any], tmp_path: Path) -> None:
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(values))
    helm = [*command("helm"), "template", "some", CHART, "--values", given]
    done = subprocess.run(helm, capture_output=True, text=True, check=True, timeout=60)
    made = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout) if each}
    ours = {(each["kind"], each["metadata"]["name"]): each for each in render(CHART, "some", values)}
    if "config" in values:  # Helm adds to a mapping of the chart's values; ours replaces it
        made["ConfigMap", "some-config"]["data"].pop("clusters.yaml")
        made["Deployment", "some"]["spec"]["template"]["spec"]["containers"][0].pop("resources")
        ours["Deployment", "some"]["spec"]["template"]["spec"]["containers"][0].pop("resources")
    assert made == ours


def test_helm_finds_no_fault_with_the_chart() -> None:
    done = subprocess.run([*command("helm"), "lint", CHART], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout
    assert "WARNING" not in done.stdout
