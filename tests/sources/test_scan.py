from __future__ import annotations

import os
from pathlib import Path

import pytest

from xdsprism.sources.scan import Scan, scan


def names(found: Scan, below: Path) -> list[str]:
    return [os.path.relpath(path, below) for path in found.files]


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# nothing\n")
    return path


def test_directories_are_searched_all_the_way_down(tmp_path: Path) -> None:
    for name in ("b.yaml", "a/c.yml", "a/d/e.json", "a/readme.md", ".hidden.yaml", ".git/f.yaml", "a/.g/h.yaml"):
        write(tmp_path / name)
    found = scan([str(tmp_path)])
    assert names(found, tmp_path) == ["a/c.yml", "a/d/e.json", "b.yaml"]
    assert found.problems == {}


def test_a_mounted_config_map_is_read_once_through_its_visible_names(tmp_path: Path) -> None:
    write(tmp_path / "..2024_11_15" / "a.yaml")
    (tmp_path / "..data").symlink_to("..2024_11_15")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    found = scan([str(tmp_path)])
    assert names(found, tmp_path) == ["a.yaml"]
    assert found.targets == {tmp_path.resolve() / "..2024_11_15" / "a.yaml"}


def test_a_file_reached_by_two_paths_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.yaml")
    (tmp_path / "a" / "again.yaml").symlink_to("x.yaml")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    found = scan([str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "x.yaml")])
    assert len(found.files) == 1
    assert found.problems == {}


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    file = write(tmp_path / "config")
    assert list(scan([str(file)]).files) == [str(file)]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    (tmp_path / "directory.yaml").mkdir()
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe.yaml")
    return tmp_path


def test_every_odd_thing_is_a_problem_with_a_name(odd: Path) -> None:
    found = scan([str(odd)])
    assert found.files == {}
    assert {os.path.relpath(path, odd): problem for path, problem in found.problems.items()} == {
        "directory.yaml": "is a directory, although its name is that of a configuration file",
        "dangling.yaml": "is a symlink to nowhere, which does not exist",
        "loop.yaml": "can't be read: Too many levels of symbolic links",
        "pipe.yaml": "is a named pipe, although its name is that of a configuration file",
    }


@pytest.mark.parametrize(
    ("root", "problem"),
    [
        ("missing", "does not exist"),
        ("dangling.yaml", "is a symlink to nowhere, which does not exist"),
        ("directory.yaml", "is a directory, although its name is that of a configuration file"),
        ("loop", "can't be read: Too many levels of symbolic links"),
    ],
)
def test_a_root_that_can_not_be_read_is_a_problem(odd: Path, root: str, problem: str) -> None:
    assert scan([str(odd / root)]).problems == {str(odd / root): problem}


def test_a_directory_that_can_not_be_listed_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> object:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert scan([str(tmp_path)]).problems == {str(tmp_path): "can't be read: Permission denied"}


def test_a_file_that_goes_away_meanwhile_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, gone = write(tmp_path / "a.yaml"), write(tmp_path / "b.yaml")
    listing = os.scandir

    def list_then_remove(path: str) -> object:
        found = listing(path)
        gone.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(os, "scandir", list_then_remove)
    found = scan([str(tmp_path)])
    assert list(found.files) == [str(kept)]
    assert found.problems == {}
