"""Pages that a reader walks through from top to bottom: each command is run, and prints what the page says."""

from __future__ import annotations

import pytest

from tests.docs.walking import ROOT, Walk


def test_the_tutorial_is_true(walk: Walk) -> None:
    # DYN-12, OPS-8, PRX-3
    walk.follow((ROOT / "docs/tutorial.md").read_text())


@pytest.mark.parametrize("page", ["tp2.md"])
def test_the_commands_of_a_page_succeed(walk: Walk, page: str) -> None:
    walk.follow((ROOT / "docs" / page).read_text())


def test_the_commands_about_relays_succeed(walk: Walk) -> None:
    # PRX-28
    walk.serve("serve", "examples/config", "--listen", "127.0.0.1:18000", "--admin", "off")
    walk.follow((ROOT / "docs/relay.md").read_text())
