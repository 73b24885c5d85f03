"""The site of the documentation: which pages it has, and where their links lead. `make docs` builds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scripts import docs_site
from xdsprism.core.model.types import TYPES

ROOT = Path(__file__).parents[2]
NAMES = {name for name, _ in docs_site.pages()}


def listed(nav: list[dict[str, object]]) -> list[str]:
    """The pages in a part of the navigation."""
    found = []
    for each in nav:
        for target in each.values():
            found += listed(target) if isinstance(target, list) else [str(target)]
    return found


def test_the_navigation_has_each_page_once() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(listed(config["nav"])) == sorted(NAMES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_links_lead_to_pages_of_the_site(name: str) -> None:
    text = dict(docs_site.pages())[name]
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [each for each in targets if each not in NAMES and not (ROOT / "docs" / each).is_file()] == []


def test_a_link_to_a_file_that_is_not_on_the_site_is_an_error() -> None:
    assert docs_site.moved("docs/serve.md", "[a](../README.md#x) [b](tls.md)") == "[a](index.md#x) [b](tls.md)"
    with pytest.raises(KeyError, match=re.escape("src/xdsprism/app.py")):
        docs_site.moved("docs/serve.md", "[a](../src/xdsprism/app.py)")


def test_the_reference_of_commands_has_each_command_and_option() -> None:
    text = docs_site.commands()
    paths = [path for path, _ in docs_site.walk(docs_site.program(), ("xdsprism",))]
    assert ("xdsprism", "policy", "test") in paths
    for path, command in docs_site.walk(docs_site.program(), ("xdsprism",)):
        assert f"## {' '.join(path)}\n" in text
        for option in command.params:
            assert option.param_type_name == "argument" or any(each in text for each in option.opts)


def test_the_reference_of_files_has_keys_expressions_and_types_of_the_code() -> None:
    text = docs_site.files()
    assert all(each in text for each in ("`$when: EXPR`", "$match:", "$base:", '"in" "("'))
    assert all(f"`{spec.url.partition('/')[2]}`" in text and f"`{spec.words[0]}`" in text for spec in TYPES)
