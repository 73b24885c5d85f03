"""Policy files: what is read, what is refused and where, and what happens when a file changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from xdsprism.core.model.types import CLUSTER, LISTENER, SECRET, Params
from xdsprism.core.policy.identity import parse_identity
from xdsprism.core.policy.policy import Policy
from xdsprism.errors import ConfigError
from xdsprism.sources.policy_file import load_policy, parse_policy, watch_policy

WHOLE = """\
default: deny
rules:
- identity: spiffe://example.com/ns/prod/*
  node: prod-*
  types: [lds, rds, cds, eds, sds]
  names: {sds: [prod-*], "*": ["*"]}
  params:
    env: {pin: prod}
    zone: {allow: [a, b]}
    version: any
- identity: any
  params: any
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_policy(text, "p.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_everything_that_a_policy_may_have_is_read():
    policy = parse_policy(WHOLE, "p.yaml")
    prod = policy.grant(parse_identity("spiffe://example.com/ns/prod/web"), "prod-1")
    assert prod.rule == "rule 1, spiffe://example.com/ns/prod/* (p.yaml:3)"
    assert prod.denies(SECRET, "prod-1") is None
    assert prod.denies(SECRET, "test-1")
    assert prod.denies(LISTENER, "x") is None
    assert prod.claim_node(Params({"zone": "a"})).params == Params({"env": "prod", "zone": "a"})
    other = policy.grant(parse_identity("spiffe://example.com/ns/prod/web"), "test-1")
    assert other.rule == "rule 2, any (p.yaml:11)"
    assert other.denies(SECRET, "prod-1")
    assert other.claim_node(Params({"zone": "z"})).params == Params({"zone": "z"})
    assert parse_policy("{}", "p.yaml").grant((), "n").denies(CLUSTER, "a")
    assert parse_policy('{"default": "allow"}', "p.json").grant((), "n").denies(CLUSTER, "a") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("default: maybe", "p.yaml:1: default: write deny or allow"),
        ("defualt: deny", "p.yaml:1: defualt: unknown key 'defualt': a policy has default, jwks, audience"),
        ("rules: {}", "p.yaml:1: rules: rules are a list, and not a mapping"),
        ("rules:\n- node: a", "p.yaml:2: rules[0]: identity is missing"),
        ("rules:\n- identity: web", "p.yaml:2: rules[0].identity: 'web' is no identity"),
        ("rules:\n- identity: spiffe://*/a", "p.yaml:2: rules[0].identity: 'spiffe://*/a': write the trust domain out"),
        ("rules:\n- identity: any\n  nodes: a", "p.yaml:3: rules[0].nodes: unknown key 'nodes'"),
        ("rules:\n- identity: any\n  node: 7", "p.yaml:3: rules[0].node: this is a text, and not the number 7"),
        ("rules:\n- identity: any\n  types: [cds, xds]", "p.yaml:3: rules[0].types[1]: unknown resource type 'xds'"),
        ("rules:\n- identity: any\n  types: [cds, clusters]", "p.yaml:3: rules[0].types[1]: 'clusters' is there twice"),
        ("rules:\n- identity: any\n  names: {cds: a}", "p.yaml:3: rules[0].names.cds: patterns of names are a list"),
        ("rules:\n- identity: any\n  names: {cds: ['']}", "p.yaml:3: rules[0].names.cds[0]: this text is empty"),
        ("rules:\n- identity: any\n  params: {env: prod}", "p.yaml:3: rules[0].params.env: what is said of a param"),
        ("rules:\n- identity: any\n  params: {env: {pin: no}}", "p.yaml:3: rules[0].params.env.pin: this is a text"),
        (
            "rules:\n- identity: any\n  params: {env: {pin: a, allow: [b]}}",
            "p.yaml:3: rules[0].params.env: write one of",
        ),
        ("rules:\n- identity: any\n  params: {env: {allow: []}}", "p.yaml:3: rules[0].params.env.allow: list a value"),
        ("rules:\n- identity: any\n  identity: any", "p.yaml:3: duplicate key 'identity'"),
        ("rules:\n- identity: jwt:a", "p.yaml:2: rules[0].identity: jwt: needs a `jwks` at the top"),
        ("audience: a", "p.yaml:1: audience: without a `jwks`, which verifies tokens, audience means nothing"),
        ("issuer: a", "p.yaml:1: issuer: without a `jwks`, which verifies tokens, issuer means nothing"),
        ("default: deny\njwks: none.json\naudience: a", "p.yaml:2: jwks: none.json can't be read: No such file"),
        ("jwks: 7\naudience: a", "p.yaml:1: jwks: this is a text, and not the number 7"),
        ('jwks: "a\\0b"\naudience: a', "p.yaml:1: jwks: this is no path of a file"),
        ("a: b: c", "p.yaml:1: not valid YAML"),
        ("rules: []\n---\nrules: []", "p.yaml:1: a policy is one document, and here are 2"),
        ("", "p.yaml:1: a policy is one document, and here are 0"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, expected: str):
    (problem,) = problems(text)
    assert problem.startswith(expected)


def test_all_problems_are_reported_at_once():
    assert len(problems("default: x\nrules:\n- identity: x\n  types: [x]\n- 7\n")) == 4


def test_a_rule_that_decides_for_nobody_is_a_warning():
    text = "rules:\n- identity: dns:a\n- identity: dns:a\n  node: x\n- identity: any\n- identity: dns:b\n"
    assert [str(each) for each in parse_policy(text, "p.yaml").warnings()] == [
        "p.yaml:3: rule 2 decides for nobody: rule 1 is for all of its clients",
        "p.yaml:6: rule 4 decides for nobody: rule 3 is for all of its clients",
    ]
    assert parse_policy(WHOLE, "p.yaml").warnings() == []


def test_a_file_that_is_missing_or_no_text_is_a_problem(tmp_path: Path):
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        load_policy(tmp_path / "none.yaml")
    (tmp_path / "p.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_policy(tmp_path / "p.yaml")


class Watched:
    """A policy file that is watched, and what came of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.taken: asyncio.Queue[Policy] = asyncio.Queue()
        self.refused: asyncio.Queue[ConfigError] = asyncio.Queue()

    def write(self, text: str) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.path)


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Watched]:
    found = Watched(folder / "policy.yaml")
    found.write(WHOLE)
    file = watch_policy(found.path)
    file.load()
    task = asyncio.create_task(file.run(found.taken.put_nowait, found.refused.put_nowait))
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_changed_file_is_taken_and_a_bad_one_changes_nothing(tmp_path: Path):
    async with watched(tmp_path) as file, asyncio.timeout(60):
        file.write("rules: [{identity: any}]")
        assert len((await file.taken.get()).rules) == 1
        file.write("rules: [{identity: nobody}]")
        assert "is no identity" in str(await file.refused.get())
        file.path.unlink()
        assert "can't be read" in str(await file.refused.get())
        file.write("rules: []")
        assert (await file.taken.get()).rules == ()
        assert file.taken.empty()
        assert file.refused.empty()
