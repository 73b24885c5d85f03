"""`xdsprism check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tests.cli.rig import run, write
from tests.support.resources import routes, static_cluster, to
from xdsprism.messages import protos


def test_lists_every_variant_and_what_none_covers(config: Path):
    done = run("check", config)
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "RESOURCE        VARIANT",
        "cds/shop        true",
        "cds/shop-next   true",
        "eds/shop        zone=a",
        "eds/shop        zone!=a",
        "rds/main        env=prod",
        "rds/main        env=test",
        "",
        "No variant for, among others:",
        "rds/main   env=other",
        "rds/main   no params",
    ]
    assert done.stderr == "valid: 4 resources, 6 variants, 3 files\n"


def test_wide_says_where_each_variant_is_written(config: Path):
    done = run("check", config, "-o", "wide")
    header, first, *_ = done.stdout.splitlines()
    assert header.split() == ["RESOURCE", "VARIANT", "VERSION", "BYTES", "ORIGIN"]
    name, variant, version, size, origin = first.split()
    assert (name, variant, origin) == ("cds/shop", "true", f"{config}/clusters.yaml:1")
    assert len(version) == 16
    assert int(size) > 20


# DYN-34
def test_only_wide_shows_the_keys_that_were_added(tmp_path: Path):
    write(tmp_path, "one", {"$when": "env=prod and version=v1", **routes("main", to("a"))})
    write(tmp_path, "two", {"$when": "env=test", **routes("main", to("b"))})
    wide = run("check", tmp_path, "-o", "wide")
    assert "env=test and (version exists or not version exists)" in wide.stdout
    for shown in (run("check", tmp_path), run("check", tmp_path, "-o", "json"), run("check", tmp_path, "-o", "yaml")):
        assert shown.exit_code == 0
        assert "env=test" in shown.stdout
        assert "version exists or" not in shown.stdout
    why = run("explain", "rds", "main", tmp_path, "--param", "env=test")
    assert "env=test" in why.stdout
    assert "version exists or" not in why.stdout


def warnings(text: str) -> list[str]:
    return [line.removeprefix("warning: ") for line in text.splitlines() if line.startswith("warning: ")]


# DYN-12
def test_a_key_that_no_node_gives_is_a_warning_with_its_place(config: Path):
    done = run("check", config, "--node-params", "env,node.locality.zone")
    assert done.exit_code == 0
    hint = "only locator clients can send it; name it in --node-params if clients have it by their node"
    assert warnings(done.stderr) == [f"{config}/endpoints.yaml:1: eds/shop mentions 'zone': {hint}"]
    assert warnings(run("check", config, "--node-params", "env,zone").stderr) == []
    assert warnings(run("check", config, "--node-params", "*").stderr) == []
    assert warnings(run("check", config).stderr) == []
    assert len(warnings(run("check", config, "--node-params", "none").stderr)) == 2


# DYN-12
def test_a_field_that_no_node_has_is_a_warning_always(tmp_path: Path):
    for name, when in (("main", "node.zone=a"), ("other", "node.zone=b and node.locality.zone=x")):
        write(tmp_path, name, {"$when": when, **routes(name, to("a"))})
    (warning,) = warnings(run("check", tmp_path).stderr)
    assert warning.startswith(f"{tmp_path}/main.yaml:1: rds/main (and 1 more) mentions 'node.zone': a node has no such")
    assert "node.locality.zone" in warning
    both = warnings(run("check", tmp_path, "--node-params", "*").stderr)
    assert ["'node.locality.zone': only locator" in each for each in both] == [True, False]


# DYN-12
def test_wrong_node_params_are_wrong_usage(config: Path):
    done = run("check", config, "--node-params", "node.zone")
    assert done.exit_code == 2
    assert "the node has no field 'node.zone'" in done.stderr


def test_name_json_and_yaml_are_for_programs(config: Path):
    assert run("check", config, "-o", "name").stdout == "cds/shop\ncds/shop-next\neds/shop\nrds/main\n"
    listed = json.loads(run("check", config, "-o", "json").stdout)
    assert listed == yaml.safe_load(run("check", config, "-o", "yaml").stdout)
    main = listed["resources"][-1]
    assert (main["type"], main["name"], main["params"]) == ("rds", "main", ["env"])
    assert [variant["constraint"] for variant in main["variants"]] == ["env=prod", "env=test"]
    assert {} in main["not_covered"]
    assert all(resource["not_covered"] == [] for resource in listed["resources"][:-1])


# OPS-8
def test_every_problem_of_every_file_is_reported(config: Path):
    overlap = [{"$when": "env=prod", **routes("other", to("a"))}, {"$when": "env!=test", **routes("other", to("b"))}]
    write(config, "typo", static_cluster("x", "127.0.0.1", 1) | {"tpye": "EDS"})
    write(config, "wrong", static_cluster("y", "127.0.0.1", 1) | {"connect_timeout": "soon"})
    done = run("check", config)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert f"{config}/typo.yaml:14: tpye: " in done.stderr
    assert f"{config}/wrong.yaml:4: connect_timeout: " in done.stderr
    assert done.stderr.endswith("Error: the configuration is refused: 2 problems\n")

    for file in ("typo", "wrong"):
        (config / f"{file}.yaml").unlink()
    write(config, "overlap", *overlap)
    done = run("check", config)
    assert done.exit_code == 1
    assert (
        f"{config}/overlap.yaml:1: envoy.config.route.v3.RouteConfiguration 'other': both match env=prod" in done.stderr
    )
    assert done.stderr.endswith("Error: the configuration is refused: 1 problem\n")


def test_an_empty_directory_is_valid_and_lists_nothing(tmp_path: Path):
    done = run("check", tmp_path)
    assert (done.exit_code, done.stdout.strip()) == (0, "RESOURCE   VARIANT")
    assert done.stderr == "valid: 0 resources, 0 variants, 0 files\n"
    assert json.loads(run("check", tmp_path, "-o", "json").stdout) == {"resources": []}


def test_wrong_usage_is_status_2(config: Path):
    assert run("check").exit_code == 2
    assert run("check", config / "nowhere").exit_code == 2
    assert run("check", config, "-o", "xml").exit_code == 2


# -- what Envoy would refuse

NAMELESS_HOST = {
    "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    "name": "main",
    "virtual_hosts": [{"domains": ["*"]}],
}


def test_validate_warn_turns_errors_into_warnings(tmp_path: Path):
    write(tmp_path, "routes", NAMELESS_HOST)
    refused = run("check", tmp_path)
    assert refused.exit_code == 1
    assert "virtual_hosts[0].name: must not be empty" in refused.stderr
    done = run("check", tmp_path, "--validate", "warn")
    assert done.exit_code == 0
    warning, valid = done.stderr.splitlines()
    assert warning.startswith(f"warning: {tmp_path}/routes.yaml:")
    assert warning.endswith(": virtual_hosts[0].name: must not be empty")
    assert valid.startswith("valid: ")
    off = run("check", tmp_path, "--validate", "off")
    assert (off.exit_code, "warning" in off.stderr) == (0, False)


def test_types_of_ones_own_are_given_as_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protos, "_types", protos._Types())  # noqa: SLF001 # types that a user gives stay for as long as the program runs
    config, own = tmp_path / "config", tmp_path / "own.binpb"
    config.mkdir()
    extension = {"@type": "envoy.config.core.v3.TypedExtensionConfig", "name": "x"}
    write(config, "a", {**extension, "typed_config": {"@type": "acme.v1.Thing"}})
    file = FileDescriptorProto(name="thing.proto", package="acme.v1", syntax="proto3")
    file.message_type.add(name="Thing")
    own.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    assert run("check", config).exit_code == 1
    assert run("check", config, "--descriptors", own).exit_code == 0


def test_a_file_that_holds_no_descriptors_is_refused(config: Path, tmp_path: Path):
    own = tmp_path / "own.binpb"
    own.write_text("syntax = 'proto3';\n")
    done = run("check", config, "--descriptors", own)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{own}: is not a FileDescriptorSet: make it with `protoc")
