"""`-` in place of a file: the configuration comes from the standard input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cli.rig import command, environment, run, write
from tests.support.resources import Document, static_cluster


def fed(text: str | bytes, *args: object) -> subprocess.CompletedProcess[bytes]:
    """A command that is given this text."""
    raw = text.encode() if isinstance(text, str) else text
    return subprocess.run(command(*args), input=raw, capture_output=True, env=environment(), timeout=60, check=False)


def cluster(name: str) -> Document:
    return static_cluster(name, "127.0.0.1", 1)


def documents(*given: Document) -> str:
    return yaml.safe_dump_all(given, sort_keys=False)


def test_check_reads_the_standard_input() -> None:
    done = fed(documents(cluster("a")), "check", "-")
    assert (done.returncode, done.stdout.split()[-2:]) == (0, [b"cds/a", b"true"])
    assert done.stderr == b"valid: 1 resources, 1 variants, 1 files\n"
    assert fed(json.dumps(cluster("a")), "check", "-", "-o", "name").stdout == b"cds/a\n"


def test_files_and_the_standard_input_are_one_configuration(tmp_path: Path) -> None:
    write(tmp_path, "a", {**cluster("a"), "$when": "env=prod"})
    more = documents({**cluster("a"), "$when": "env!=prod"})
    assert fed(more, "check", tmp_path, "-").stderr == b"valid: 1 resources, 2 variants, 2 files\n"
    clash = fed(documents({**cluster("a"), "$when": "env=prod"}), "check", tmp_path, "-")
    assert clash.returncode == 1
    assert b"<stdin>:1" in clash.stderr


def test_explain_and_matrix_read_it_too() -> None:
    text = documents({**cluster("a"), "$when": "env=prod"})
    explained = fed(text, "explain", "cds", "a", "-", "--param", "env=prod")
    assert (explained.returncode, explained.stderr) == (0, b"")
    assert b"<stdin>:1" in explained.stdout
    assert fed(text, "matrix", "cds", "a", "-").returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "<stdin>:"),
        (b"\xff", "<stdin>:1: is not UTF-8: byte 0xff"),
        (documents(cluster("a"), {"@type": "nope"}), "<stdin>:"),
    ],
)
def test_problems_in_it_have_their_line(text: str | bytes, said: str) -> None:
    done = fed(text, "check", "-", "-o", "json")
    assert done.returncode == 1
    assert said in done.stderr.decode()
    (error, *_) = json.loads(done.stdout)["errors"]
    assert error["file"] == "<stdin>"
    assert error["line"] >= 1


def test_an_empty_input_has_no_resources() -> None:
    done = fed("", "check", "-")
    assert (done.returncode, done.stderr) == (0, b"valid: 0 resources, 0 variants, 1 files\n")


def test_what_check_reads_may_be_all_files_at_once(config: Path) -> None:
    printed = run("check", config, "-o", "name").stdout
    assert "cds/shop" in printed
    whole = "---\n".join(file.read_text() for file in sorted(config.glob("*.yaml")))
    assert fed(whole, "check", "-", "-o", "name").stdout.decode() == printed
