"""locks/: which packages the Makefile installs, and the hashes of their files."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from scripts import lock

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]
EXTRAS = PROJECT["project"]["optional-dependencies"]

RUN = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"], *GROUPS["build"]]
WANTED = {
    "run": RUN,
    "test": [*RUN, *EXTRAS["test"], *EXTRAS["otel"]],
    "fuzz": [*RUN, *EXTRAS["test"], *EXTRAS["otel"], *EXTRAS["fuzz"]],
    "browser": GROUPS["browser"],
    "docs": GROUPS["docs"],
    "envoy": GROUPS["envoy"],
    "grpcio-v2": GROUPS["grpcio-v2"],
    "tools": GROUPS["tools"],
}

PYTHONS = [word.split()[-1] for word in PROJECT["project"]["classifiers"] if re.search(r"Python :: 3\.\d+$", word)]
PLATFORMS = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}
ANYWHERE = [
    {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": platform,
        "platform_system": system,
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    for python in PYTHONS
    for platform, system in PLATFORMS.items()
]


@dataclass(frozen=True)
class Pin:
    name: str
    version: Version
    marker: Marker | None
    hashes: int

    def is_for(self, environment: dict[str, str]) -> bool:
        return self.marker is None or self.marker.evaluate(environment)


def pins(name: str) -> list[Pin]:
    """All that pip is told, comments apart; anything of another form is an error."""
    lines = [line for line in (ROOT / f"locks/{name}.txt").read_text().splitlines() if not line.strip().startswith("#")]
    found = []
    for entry in "\n".join(lines).replace("\\\n", " ").splitlines():
        asked, *hashes = entry.split(" --hash=")
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", each) for each in hashes), entry
        requirement = Requirement(asked)
        [specifier] = requirement.specifier
        assert specifier.operator == "==", entry
        version = Version(specifier.version)
        found.append(Pin(canonicalize_name(requirement.name), version, requirement.marker, len(hashes)))
    return found


def test_there_is_a_lock_for_each_virtual_environment() -> None:
    assert {file.stem for file in (ROOT / "locks").iterdir()} == set(WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_each_package_is_locked_to_one_version_with_the_hashes_of_its_files(name: str) -> None:
    found = pins(name)
    assert found
    assert [pin.name for pin in found if not pin.hashes] == []


@pytest.mark.parametrize("name", WANTED)
def test_a_lock_does_not_say_where_packages_come_from(name: str) -> None:
    text = (ROOT / f"locks/{name}.txt").read_text()
    assert not re.search(r"://|^\s*-|index", text.replace("    --hash", ""), re.MULTILINE)


def _unmet(name: str) -> Iterator[str]:
    found = pins(name)
    for environment in ANYWHERE:
        if name == "grpcio-v2" and environment["python_version"] != "3.11":
            continue
        for text in WANTED[name]:
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate(environment):
                continue
            locked = [p.version for p in found if p.name == canonicalize_name(wanted.name) and p.is_for(environment)]
            if len(locked) != 1 or not wanted.specifier.contains(locked[0], prereleases=True):
                where = f"Python {environment['python_version']} on {environment['sys_platform']}"
                yield f"{text}: locks/{name}.txt has {[*map(str, locked)]} for {where}: run `make lock`"


@pytest.mark.parametrize("name", WANTED)
def test_a_lock_has_what_the_project_asks_for_on_every_python_and_platform(name: str) -> None:
    assert list(_unmet(name)) == []


def test_the_locks_are_for_every_python_that_the_project_names() -> None:
    oldest = SpecifierSet(PROJECT["project"]["requires-python"])
    assert [python for python in PYTHONS if python not in oldest] == []
    assert lock.PYTHONS == PYTHONS


def _needed(texts: list[str]) -> set[str]:
    """The packages that these requirements lead to, here, by what is installed."""
    waiting = [Requirement(text) for text in texts]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        for extra in ("", *wanted.extras):
            key = canonicalize_name(wanted.name), extra
            if key in seen:
                continue
            seen.add(key)
            for text in metadata.requires(key[0]) or ():
                further = Requirement(text)
                if further.marker is None or further.marker.evaluate({"extra": extra}):
                    waiting.append(further)
    return {name for name, _ in seen}


@pytest.mark.parametrize("name", ["run", "test"])
def test_a_lock_has_nothing_else_and_nothing_is_missing_below(name: str) -> None:
    """A lock of a time when the project asked for more, or for less, is not one for today."""
    here = {"extra": ""}
    wanted = [text for text in WANTED[name] if (marker := Requirement(text).marker) is None or marker.evaluate(here)]
    assert {pin.name for pin in pins(name) if pin.is_for(here)} == _needed(wanted)


def test_all_locks_of_the_project_have_the_same_versions() -> None:
    """One virtual environment gets them one after the other."""
    whole = {(pin.name, str(pin.marker)): pin.version for pin in pins("fuzz")}
    for name in ("run", "test"):
        differ = [pin.name for pin in pins(name) if whole.get((pin.name, str(pin.marker))) != pin.version]
        assert differ == [], name


def test_what_is_installed_is_what_is_locked() -> None:
    differ = [
        p.name for p in pins("test") if p.is_for({"extra": ""}) and Version(metadata.version(p.name)) != p.version
    ]
    assert differ == []


def test_the_makefile_installs_from_locks_alone() -> None:
    commands = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("\t")]
    environments = [line for line in commands if "scripts/venv.py" in line]
    assert len(environments) >= 6
    assert [line for line in environments if not re.search(r"locks/[a-z0-9-]+\.txt|\$<", line)] == []
    others = [line for line in commands if re.search(r"\bpip\b", line)]
    assert [line for line in others if "--no-index" not in line] == []


# -- other tools


def test_what_npm_installs_has_a_checksum_and_no_host() -> None:
    for file in ROOT.glob("interop/*/package.json"):
        lock = json.loads(file.with_name("package-lock.json").read_text())
        packages = {name: each for name, each in lock["packages"].items() if name}
        assert packages
        assert [name for name, each in packages.items() if not each.get("integrity", "").startswith("sha512-")] == []
        assert "://" not in "".join(each.get("resolved", "") for each in packages.values())


def test_what_go_builds_has_checksums() -> None:
    modules = [file for part in ("interop", "bench", "scripts") for file in ROOT.glob(f"{part}/**/go.mod")]
    assert len(modules) >= 5
    for file in modules:
        sums = file.with_name("go.sum").read_text()
        required = re.findall(r"^\s*(?:require )?(\S+) (v\S+)", file.read_text(), re.MULTILINE)
        beside = re.findall(r"^\s*(?:replace )?(\S+) => \.", file.read_text(), re.MULTILINE)  # a folder, not a download
        instead = dict(re.findall(r"^\s*(?:replace )?(\S+) => (\S+ v\S+)", file.read_text(), re.MULTILINE))
        wanted = [instead.get(name, f"{name} {version}") for name, version in required if name not in beside]
        missing = [each for each in wanted if f"{each}/go.mod h1:" not in sums]
        assert (str(file.relative_to(ROOT)), missing) == (str(file.relative_to(ROOT)), [])


def test_what_maven_builds_has_exact_versions() -> None:
    """Maven 3 has no lock: it compares each file with the checksum beside it, and the Makefile has it refuse."""
    for file in ROOT.glob("interop/*/pom.xml"):
        versions = re.findall(r"<version>(.*?)</version>|<\S*version\S*>(.*?)</", file.read_text())
        assert versions
        assert [found for found in versions if re.search(r"[\[\(,]|SNAPSHOT|LATEST|RELEASE", "".join(found))] == []
    commands = re.findall(r"mvn .*compile", (ROOT / "Makefile").read_text())
    assert len(commands) == 2
    assert [command for command in commands if "--strict-checksums" not in command] == []
