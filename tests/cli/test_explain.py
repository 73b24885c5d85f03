"""`xdsprism explain`, from files and from a running server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.rig import Daemon, run


def test_says_which_variant_and_why_not_the_other(config: Path):
    done = run("explain", "rds", "main", config, "--param", "env=prod", "-p", "team=x")
    assert done.exit_code == 0
    title, empty, *table = done.stdout.splitlines()
    assert (title, empty) == ("rds/main for a client with env=prod and team=x is", "")
    assert [line.split() for line in table] == [
        ["VARIANT", "WHY", "NOT", "ORIGIN"],
        ["=>", "env=prod", f"{config}/routes.yaml:1"],
        ["env=test", "needs", "env=test,", "but", "env", "is", "prod", f"{config}/routes.yaml:1"],
    ]


# DYN-11, as `explain` shows it
def test_where_nothing_matches_it_shows_the_negative_answer_and_fails(config: Path):
    done = run("explain", "route", "main", config, "--param", "env=qa")
    assert done.exit_code == 1
    assert done.stdout.startswith("rds/main does not exist for a client with env=qa.\n")
    assert "match env=qa.\n" in done.stdout
    assert "needs env=prod, but env is qa" in done.stdout
    nobody = run("explain", "rds", "main", config)
    assert nobody.exit_code == 1
    assert "does not exist for a client with no params" in nobody.stdout
    assert "match not env exists.\n" in nobody.stdout
    assert "needs env=prod, but there is no env" in nobody.stdout


def test_json_and_yaml_say_the_same(config: Path):
    as_json = json.loads(run("explain", "eds", "shop", config, "-p", "zone=a", "-o", "json").stdout)
    assert as_json == yaml.safe_load(run("explain", "eds", "shop", config, "-p", "zone=a", "-o", "yaml").stdout)
    assert as_json["variant"]["constraint"] == "zone=a"
    assert as_json["keys"] == ["zone"]
    assert [(other["fails"], other["has"]) for other in as_json["others"]] == [("zone!=a", {"zone": "a"})]
    assert as_json["absent"] is None


def test_a_running_server_gives_the_same_answer(daemon: Daemon, config: Path):
    for params in (["-p", "env=prod"], ["-p", "env=qa"], ["-p", 'env=a b&"=%'], []):
        from_files = run("explain", "rds", "main", config, *params)
        from_server = run("explain", "rds", "main", "--admin", daemon.admin, *params)
        assert from_server.stdout == from_files.stdout
        assert from_server.exit_code == from_files.exit_code
    gone = run("explain", "rds", "nope", "--admin", daemon.admin)
    assert (gone.exit_code, gone.stderr) == (1, "Error: rds/nope does not exist\n")


def test_an_unknown_resource_is_status_1(config: Path):
    done = run("explain", "rds", "nope", config)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "Error: rds/nope does not exist\n")


def test_a_server_that_is_not_there_is_status_1():
    done = run("explain", "rds", "main", "--admin", "127.0.0.1:1")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: no answer from the admin port 127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "Error: give either CONFIG or --admin"),
        (["--admin", "127.0.0.1:1", "."], "Error: give either CONFIG or --admin"),
        ([".", "--param", "env"], "'env' is not KEY=VALUE, such as env=prod"),
        ([".", "--param", "=x"], "'=x' is not KEY=VALUE"),
        ([".", "-p", "env=a", "-p", "env=b"], "'env' is given twice, and a parameter has one value"),
        (["--admin", "here"], "'here' is not HOST:PORT"),
    ],
)
def test_wrong_usage_is_status_2(flags: list[str], message: str):
    done = run("explain", "rds", "main", *flags)
    assert done.exit_code == 2
    assert message in done.stderr


def test_an_unknown_type_is_status_2_and_lists_the_known_ones(config: Path):
    done = run("explain", "pods", "main", config)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: unknown resource type 'pods': use one of cds, ")
