"""`xdsprism import`: what it writes, prints and refuses."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.rig import command, environment, run

ENVOY = """\
node: {id: a, cluster: b}
static_resources:
  clusters:
  - {name: shop, connect_timeout: 1s}
  secrets:
  - {name: pass, generic_secret: {secret: {inline_string: hunter2}}}
"""
FILES = ["bootstrap.yaml", "resources/clusters.yaml", "resources/secrets.yaml"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "envoy.yaml"
    path.write_text(ENVOY)
    return path


def piped(text: bytes, *args: object) -> subprocess.CompletedProcess[bytes]:
    argv = command("import", "-", *args)
    return subprocess.run(argv, input=text, capture_output=True, env=environment(), timeout=60, check=False)


def below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_files_are_written_and_named(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("import", source, "--out", out)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "".join(f"wrote {out / file}\n" for file in FILES) + "imported: 1 cds, 1 sds\n"
    assert below(out) == FILES
    assert (out / "resources/clusters.yaml").read_text() == (
        f"---\n# from {source}:4: static_resources.clusters[0]\n"
        "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: shop\nconnect_timeout: 1s\n"
    )
    assert run("check", out / "resources", "-o", "name").stdout == "cds/shop\nsds/pass\n"


def test_files_with_secrets_are_for_their_owner_only(source: Path, tmp_path: Path) -> None:  # OPS-14
    out = tmp_path / "out"
    before = os.umask(0o022)
    try:
        assert run("import", source, "--out", out).exit_code == 0
        assert run("import", source, "--out", out, "--force").exit_code == 0
    finally:
        os.umask(before)
    modes = {file: stat.S_IMODE((out / file).stat().st_mode) for file in FILES}
    assert modes == {"bootstrap.yaml": 0o644, "resources/clusters.yaml": 0o644, "resources/secrets.yaml": 0o600}
    assert "hunter2" in (out / "resources/secrets.yaml").read_text()


def test_without_a_folder_all_is_printed_and_no_secret(source: Path, tmp_path: Path) -> None:  # OPS-14
    done = run("import", source)
    assert done.exit_code == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("# ") and line.endswith(".yaml")] == [
        f"# {file}" for file in FILES
    ]
    found = [*yaml.safe_load_all(done.stdout)]
    assert [each.get("name") for each in found] == [None, "shop", "pass"]
    assert found[2]["generic_secret"] == {"secret": {"inline_string": "[redacted]"}}
    assert done.stderr == "secrets are not shown: --show-secrets prints them\nimported: 1 cds, 1 sds\n"
    assert "hunter2" in run("import", source, "--show-secrets").stdout
    assert below(tmp_path) == ["envoy.yaml"]


def test_existing_files_are_kept_unless_forced(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "resources").mkdir(parents=True)
    (out / "resources/clusters.yaml").write_text("mine")
    done = run("import", source, "--out", out)
    told = f"Error: {out}/resources/clusters.yaml exists: give --force to overwrite it, or another folder with --out\n"
    assert (done.exit_code, done.stderr) == (1, told)
    assert below(out) == ["resources/clusters.yaml"]
    assert (out / "resources/clusters.yaml").read_text() == "mine"
    assert run("import", source, "--out", out, "--force").exit_code == 0
    assert "name: shop" in (out / "resources/clusters.yaml").read_text()


def test_resources_that_were_there_before_are_pointed_out(source: Path, tmp_path: Path) -> None:
    old = tmp_path / "out/resources/listeners.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("")
    done = run("import", source, "--out", tmp_path / "out")
    assert f"warning: {old} was there before: `serve` reads it too\n" in done.stderr


def test_standard_input_is_read(tmp_path: Path) -> None:
    done = piped(ENVOY.encode(), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "# from <stdin>:4: " in (tmp_path / "out/resources/clusters.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"\xff", "<stdin>:1: is not UTF-8: byte 0xff"),
        (b"static_resources: {clusters: [{name: [}]}", "<stdin>:1: not valid YAML: "),
        (b"hello: 1", "<stdin>:1: this is neither an Envoy bootstrap"),
    ],
)
def test_a_wrong_input_is_a_problem_with_its_line(text: bytes, problem: str) -> None:
    done = piped(text)
    assert (done.returncode, done.stdout) == (1, b"")
    first, last = done.stderr.decode().splitlines()
    assert first.startswith(problem)
    assert last == "Error: the configuration is refused: 1 problem"


def test_a_folder_that_can_not_be_written_is_an_error(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/resources").write_text("a file")
    done = run("import", source, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert done.stderr.endswith(f"\nError: {tmp_path}/out/resources: can't be written: File exists\n")


@pytest.mark.parametrize(
    ("address", "host", "port"), [("10.0.0.1:18000", "10.0.0.1", 18000), ("[::1]:1", "::1", 1), ("xds:80", "xds", 80)]
)
def test_the_bootstrap_has_the_address_of_the_server(source: Path, address: str, host: str, port: int) -> None:
    bootstrap: Any = next(yaml.safe_load_all(run("import", source, "--server", address).stdout))
    (cluster,) = bootstrap["static_resources"]["clusters"]
    (locality,) = cluster["load_assignment"]["endpoints"]
    (endpoint,) = locality["lb_endpoints"]
    assert endpoint["endpoint"]["address"] == {"socket_address": {"address": host, "port_value": port}}


@pytest.mark.parametrize("args", [["--server", "nowhere"], ["--out", __file__], []])
def test_wrong_usage_is_status_2(args: list[str]) -> None:
    assert run("import", *args, *(["-"] if args else [])).exit_code == 2


def test_names_can_not_end_a_comment(tmp_path: Path) -> None:
    source = tmp_path / "envoy\nname: x.yaml"
    source.write_text(ENVOY)
    done = run("import", source)
    assert [each["name"] for each in yaml.safe_load_all(done.stdout) if "name" in each] == ["shop", "pass"]
