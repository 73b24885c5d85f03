"""`-o json` of a command that fails: an object on stdout that says why, and the same status and stderr as without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.rig import Daemon, run, write
from tests.support.resources import Document

NOBODY = "127.0.0.1:1"
BAD: Document = {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "nope": 1}
GOOD: Document = {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a"}


def errors(*args: object) -> tuple[int, list[dict[str, Any]]]:
    """The status and the errors of a command with -o json, which fails as it does without."""
    plain, done = run(*args), run(*args, "-o", "json")
    assert (done.exit_code, done.stderr) == (plain.exit_code, plain.stderr)
    answer = json.loads(done.stdout)
    found: list[dict[str, Any]] = answer["errors"]
    return done.exit_code, found


def test_each_problem_of_a_configuration_has_its_place(tmp_path: Path) -> None:
    file = write(tmp_path, "a", BAD, {**BAD, "name": "b"})
    for args in (["check", tmp_path], ["explain", "cds", "a", tmp_path]):
        status, found = errors(*args)
        assert status == 1
        assert [(each["file"], each["path"]) for each in found] == [(str(file), "nope")] * 2
        assert found[0]["line"] < found[1]["line"]
        assert all("no such field in envoy.config.cluster.v3.Cluster" in each["message"] for each in found), found


def test_warnings_of_a_valid_configuration_are_in_the_json(tmp_path: Path) -> None:
    write(tmp_path, "a", {**GOOD, "$when": "node.nope=1"})
    (warning,) = json.loads(run("check", tmp_path, "-o", "json").stdout)["warnings"]
    assert "mentions 'node.nope'" in warning["message"]
    assert warning["line"] > 0


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["get", "cds", "--server", NOBODY], 1, "UNAVAILABLE: "),
        (["watch", "cds", "--server", NOBODY], 1, "UNAVAILABLE: "),
        (["explain", "cds", "a", "--admin", NOBODY], 1, "no answer from the admin port"),
        (["confirm", "--admin", NOBODY], 1, "no answer from the admin port"),
        (["status", "--admin", NOBODY], 1, "no answer from the admin port"),
        (["get", "pods", "--server", NOBODY], 2, "unknown resource type 'pods'"),
        (["get", "cds"], 2, "no server to ask"),
        (["check"], 2, "give CONFIG, --policy, or both"),
        (["check", "--nope"], 2, "No such option '--nope'"),
        (["check", "nope.yaml"], 2, "Invalid value for '[CONFIG]...': Path 'nope.yaml' does not exist."),
    ],
)
def test_an_error_without_a_place_has_its_message(args: list[str], status: int, message: str) -> None:
    found = errors(*args)
    assert found[0] == status
    (error,) = found[1]
    assert error["message"].startswith(message), error
    assert (error["file"], error["line"], error["path"]) == (None, None, None)


@pytest.mark.parametrize("form", [["--output", "json"], ["--output=json"], ["-ojson"]])
def test_every_spelling_of_the_option_asks_for_it(form: list[str]) -> None:
    assert json.loads(run("confirm", "--admin", NOBODY, *form).stdout)["errors"]


def test_the_variable_asks_for_it_unless_the_option_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDSPRISM_OUTPUT", "json")
    assert json.loads(run("confirm", "--admin", NOBODY).stdout)["errors"]
    assert run("confirm", "--admin", NOBODY, "-o", "yaml").stdout == ""


def test_other_formats_and_other_commands_print_nothing_on_stdout() -> None:
    assert run("confirm", "--admin", NOBODY).stdout == ""
    assert run("serve", "nope", "--log-format", "json").stdout == ""
    assert run("nope", "-o", "json").stdout == ""


def test_get_prints_what_there_is_and_why_the_rest_is_missing(tmp_path: Path) -> None:
    write(tmp_path, "a", GOOD)
    with Daemon(tmp_path, tmp_path) as daemon:
        done = run("get", "cds", "a", "nope", "--server", daemon.listen, "-o", "json")
        alone = run("get", "cds", "nope", "--server", daemon.listen, "-o", "json")
    assert (done.exit_code, alone.exit_code) == (1, 1)
    answer = json.loads(done.stdout)
    assert [each["name"] for each in answer["resources"]] == ["a"]
    assert [each["message"] for each in answer["errors"]] == ["cds/nope does not exist"]
    assert json.loads(alone.stdout) == {"resources": [], "errors": answer["errors"]}
