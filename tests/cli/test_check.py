"""`xdsprism check`."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.cli.rig import run, write
from tests.support.resources import routes, static_cluster, to


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
def test_every_problem_of_every_file_is_told(config: Path):
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
