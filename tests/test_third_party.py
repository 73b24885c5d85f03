"""THIRD_PARTY.md: under which licences the things are that come with xdsprism, or are installed with it."""

from __future__ import annotations

import re
from importlib import metadata

import pytest

from scripts import third_party
from xdsprism.messages import descriptors


def test_the_page_is_what_the_metadata_of_the_packages_says() -> None:
    assert third_party.PAGE.read_text() == third_party.page(), "run `make third-party`"


def test_all_that_is_installed_with_it_may_be_handed_on_under_the_apache_license() -> None:
    shipped = third_party.packages(third_party.PROJECT["project"]["dependencies"])
    assert {"grpcio", "anyio"} < set(shipped)  # asked for by us, and by what we ask for
    assert [name for name in shipped if not third_party.is_permissive(third_party.licence(name))] == []


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ("MIT", True),
        ("MIT-0", True),
        ("MIT OR GPL-3.0-only", True),
        ("Apache-2.0 AND BSD-2-Clause", True),
        ("Apache-2.0 AND LGPL-2.1", False),
        ("MPL-2.0", False),
        ("Proprietary", False),
    ],
)
def test_a_licence_fits_if_one_choice_of_it_is_permissive_in_all_parts(terms: str, fits: bool) -> None:
    assert third_party.is_permissive(terms) == fits


def test_a_copyleft_licence_would_be_named_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    of = third_party.licence
    monkeypatch.setattr(third_party, "licence", lambda name: "AGPL-3.0-only" if name == "anyio" else of(name))
    assert "Not compatible" in third_party.page()
    assert "anyio (AGPL-3.0-only)" in third_party.page()


def test_every_bundled_descriptor_has_a_source_with_a_licence() -> None:
    files = list(descriptors.shipped()._files)  # noqa: SLF001 # methods find only files with messages
    assert len(files) > 800
    starts = tuple(third_party.SOURCES)
    assert [name for name in files if not name.startswith(starts)] == []
    assert [start for start in starts if not any(name.startswith(start) for name in files)] == []


def test_the_terms_are_in_the_package() -> None:
    assert third_party.PROJECT["project"]["license-files"] == ["LICENSE", "THIRD_PARTY.md"]
    stated = re.findall(r"^License-File: (.*)$", str(metadata.metadata("xdsprism")), re.MULTILINE)
    assert stated == ["LICENSE", "THIRD_PARTY.md"]
