"""Paths that lead to what is no file, or to more than a file should have: one clean message, and nobody waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.rig import Daemon, run, write
from tests.support.odd_files import KINDS, at_most, odd_file
from tests.support.resources import static_cluster
from tests.support.waiting import becomes, eventually
from xdsprism import ConfigError, Tls
from xdsprism.admin.tokens import read_tokens
from xdsprism.server.tls import read_material
from xdsprism.sources import files, strict_yaml
from xdsprism.sources.files import FileSource

COMMANDS = {
    "policy": ("check", "--policy", "{}"),
    "policy test": ("policy", "test", "{}", "{}"),
    "bootstrap": ("get", "cds", "--bootstrap", "{}"),
    "descriptors": ("check", "config", "--descriptors", "{}"),
}


@pytest.mark.parametrize("kind", KINDS[:-1])  # most commands refuse a directory as wrong usage
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_what_is_no_file_and_waits_for_nobody(tmp_path: Path, command: str, kind: str) -> None:
    config = write(tmp_path / "config", "a", static_cluster("a", "127.0.0.1", 1))
    with odd_file(tmp_path / "odd", kind) as path, at_most(20):
        arguments = [str(config) if each == "config" else each.format(path) for each in COMMANDS[command]]
        result = run(*arguments)
    assert result.exit_code == 1
    assert f"it is {kind}, and only regular files are read" in result.stderr
    assert str(tmp_path / "odd") in result.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [lambda path: read_material(Tls(path, path)), read_tokens], ids=["tls", "tokens"])
def test_secrets_that_are_no_files_are_refused(tmp_path: Path, read: Callable[[str], object], kind: str) -> None:
    with odd_file(tmp_path / "odd", kind) as path, at_most(20), pytest.raises(ConfigError) as caught:
        read(str(path))
    assert str(caught.value) == f"{path}: can't be read: it is {kind}, and only regular files are read"


def test_odd_things_that_come_into_the_directory_of_a_server_stop_nothing(tmp_path: Path, config: Path) -> None:
    """Named as configuration, they are problems, and gone with them; the configuration waits for that."""
    with Daemon(tmp_path, config) as daemon:
        for kind in KINDS[:-1]:
            with odd_file(config / "odd.yaml", kind):
                eventually(lambda: not daemon.page("/api/config")["last_load"]["ok"])
                (problem,) = daemon.page("/api/config")["last_load"]["errors"]
                assert problem["message"] == f"is {kind}, although its name is that of a configuration file"
            (config / "odd.yaml").unlink()
            eventually(lambda: daemon.page("/api/config")["last_load"]["ok"])
        os.mkfifo(config / "readme")  # another name is nobody's business
        write(config, "later", static_cluster("later", "127.0.0.1", 1))
        becomes(lambda: daemon.page("/api/resources?type=cds&name=later")["total"], 1)


def test_a_file_that_is_larger_than_memory_is_refused_unread(tmp_path: Path, config: Path) -> None:
    with (config / "huge.yaml").open("wb") as opened:
        opened.truncate(1 << 40)
    result = run("check", config)
    assert result.exit_code == 1
    most = f"{files.MAX_BYTES:,}"
    assert f"huge.yaml: can't be read: it has more than {most} bytes, the most that is read of such a file" in (
        result.stderr
    )


@contextmanager
def nested_directories(above: Path, depth: int) -> Iterator[None]:
    """Make directories inside each other, and take them away: `rmtree` would recurse into them."""
    inner = os.open(above, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=inner)
        outer, inner = inner, os.open("a", os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    try:
        yield
    finally:
        while (above / "a" / "a").exists():
            (above / "a" / "a").rename(above / "b")
            (above / "a").rmdir()
            (above / "b").rename(above / "a")
        (above / "a").rmdir()


def test_directories_may_be_nested_thousands_deep(config: Path) -> None:
    """More than a path can name: the rest of them can't be read, and that is a problem like any other."""
    with nested_directories(config, 2_500):
        result = run("check", config)
    assert result.exit_code == 1
    assert "can't be read: File name too long\nError: the configuration is refused: 1 problem\n" in result.stderr


PAIRS = zip("abcdefgh", "bcdefghi", strict=True)
LAUGHS = "".join(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in PAIRS)


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("a.yaml", f"a: &a [x, x, x, x, x, x, x, x, x]\n{LAUGHS}", 7, "aliases expand to more than 1,000,000 nodes"),
        ("a.yaml", "a:\n  " + "[" * 100_000, 2, "nested deeper than 100 levels"),
        ("a.yaml", "".join(f"{' ' * depth}a:\n" for depth in range(3_000)), 101, "nested deeper than 100 levels"),
        ("a.json", '{"a":\n' + "[" * 100_000, 2, "nested deeper than 100 levels"),
        ("a.yaml", '"@type": x\n$when: "' + "not " * 10_000 + 'a=b"\n', 2, "nested more than 32 deep"),
        ("a.yaml", '"@type": x\n$when: "' + "(" * 10_000 + 'a=b"\n', 2, "nested more than 32 deep"),
        ("a.yaml", '"@type": x\n$when: "' + "a=b or " * 5_000 + 'a=b"\n', 2, "more than 4,096 parts"),
    ],
    ids=["laughs", "yaml", "yaml blocks", "json", "expression", "parentheses", "long expression"],
)
def test_what_grows_or_nests_without_measure_is_refused_with_its_line(
    tmp_path: Path, name: str, text: str, line: int, message: str
) -> None:
    (tmp_path / name).write_text(text)
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{tmp_path / name}:{line}: ")
    assert message in result.stderr
    assert len(result.stderr) < 6_000


@pytest.mark.parametrize(("suffix", "opening"), [("yaml", "[\n"), ("json", "[\n")])
def test_a_document_has_so_many_nodes(
    tmp_path: Path, suffix: str, opening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"xdsprism.sources.strict_{suffix}.MAX_NODES", 1_000)
    file = tmp_path / f"a.{suffix}"
    file.write_text(opening + ",\n".join(["{}"] * 999) + "]")
    result = run("check", file)
    assert "a list of resources: put it under" in result.stderr  # as far as that it is read
    file.write_text(opening + ",\n".join(["{}"] * 1_000) + "]")
    result = run("check", file)
    message = "the document has more than 1,000 nodes: split it into several"
    assert result.stderr.startswith(f"{file}:1001: {message}\n")


def test_a_file_has_so_many_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_yaml, "MAX_DOCUMENTS", 100)
    file = tmp_path / "a.yaml"
    file.write_text("---\n" * 200)
    with pytest.raises(ConfigError) as caught:
        FileSource([file]).load()
    assert str(caught.value) == f"{file}:101: the file has more than 100 documents: split it into several"


def test_a_link_that_leads_out_of_the_directory_is_followed_and_watched(tmp_path: Path, config: Path) -> None:
    """As kubectl and Envoy do: whoever may write into the directory decides what is served."""
    outside = write(tmp_path / "elsewhere", "outside", static_cluster("outside", "127.0.0.1", 1))
    (config / "linked.yaml").symlink_to(outside)
    (config / "folder").symlink_to(tmp_path / "elsewhere")
    (config / "up").symlink_to(tmp_path)  # no loop: each file and directory counts once
    with Daemon(tmp_path, config) as daemon:
        assert daemon.page("/api/resources?type=cds&name=outside")["total"] == 1
        write(tmp_path / "elsewhere", "outside", static_cluster("edited", "127.0.0.1", 1))
        becomes(lambda: daemon.page("/api/resources?type=cds&name=edited")["total"], 1)


@pytest.mark.parametrize("secret", ["hunter2secret", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END"])
def test_a_link_to_a_file_with_a_secret_shows_nothing_of_it(tmp_path: Path, secret: str) -> None:
    (tmp_path / "secret").write_text(secret)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "a.yaml").symlink_to(tmp_path / "secret")
    result = run("check", tmp_path / "config")
    assert result.exit_code == 1
    assert "a document must be a mapping with an @type, this is a string" in result.stderr
    assert not any(line in result.output for line in secret.splitlines())
