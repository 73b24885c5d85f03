"""`xdsprism matrix`, from files and from a running server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from tests.cli.rig import Daemon, run

TWO_KEYS = """
"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
$when: env=prod
name: two
---
"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
$when: env=test and tier=a
name: two
"""


def test_a_row_for_each_combination_that_makes_a_difference(tmp_path: Path):
    file = tmp_path / "two.yaml"
    file.write_text(TWO_KEYS)
    done = run("matrix", "cds", "two", file)
    assert done.exit_code == 0
    title, empty, head, *rows = done.stdout.splitlines()
    assert (title, empty) == ("cds/two by params:", "")
    assert head.split() == ["env", "tier", "VARIANT", "ORIGIN"]
    assert [re.split(" {3,}", line) for line in rows] == [
        ["prod", "(any)", "env=prod", f"{file}:2"],
        ["test", "a", "env=test and tier=a", f"{file}:6"],
        ["test", "(other)", "-"],
        ["test", "(absent)", "-"],
        ["(other)", "(any)", "-"],
        ["(absent)", "(any)", "-"],
    ]


def test_a_param_holds_its_key(config: Path):
    done = run("matrix", "rds", "main", config, "--param", "env=prod", "-p", "team=x")
    assert done.stdout.startswith("rds/main by params, where env prod:\n\nVARIANT")
    assert len(done.stdout.splitlines()) == 4
    assert done.stdout.splitlines()[3].split()[0] == "env=prod"


def test_a_running_server_gives_the_same_answer(daemon: Daemon, config: Path):
    for params in ([], ["-p", "env=prod"]):
        from_files = run("matrix", "rds", "main", config, *params)
        from_server = run("matrix", "rds", "main", "--admin", daemon.admin, *params)
        assert (from_server.stdout, from_server.exit_code) == (from_files.stdout, 0)
    gone = run("matrix", "rds", "nope", "--admin", daemon.admin)
    assert (gone.exit_code, gone.stderr) == (1, "Error: rds/nope does not exist\n")


def test_json_and_yaml_say_the_same(config: Path):
    as_json = json.loads(run("matrix", "eds", "shop", config, "-o", "json").stdout)
    assert as_json == yaml.safe_load(run("matrix", "eds", "shop", config, "-o", "yaml").stdout)
    assert [key["key"] for key in as_json["keys"]] == ["zone"]
    assert [variant["constraint"] for variant in as_json["variants"]] == ["zone=a", "zone!=a"]
    assert as_json["cells"] == [0, 1, 1]


def test_files_and_a_server_together_are_wrong_usage(config: Path):
    done = run("matrix", "rds", "main", config, "--admin", "127.0.0.1:1")
    assert (done.exit_code, "give either CONFIG or --admin" in done.stderr) == (2, True)
    assert run("matrix", "rds", "nope", config).exit_code == 1
