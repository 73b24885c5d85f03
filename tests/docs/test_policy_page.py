"""docs/policy.md: its example is a policy that decides its cases as it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from tests.cli.rig import run
from tests.support.tokens import Signer, write_jwks
from xdsprism.core.policy import tokens
from xdsprism.core.policy.tokens import Bearer
from xdsprism.server import bearers
from xdsprism.sources import jwks
from xdsprism.sources.policy_file import load_policy

PATH = Path(__file__).parents[2] / "docs" / "policy.md"
PAGE = PATH.read_text()


def test_the_example_decides_its_cases(tmp_path: Path):
    policy, _, _, cases = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "policy.yaml").write_text(policy)
    (tmp_path / "cases.yaml").write_text(cases)
    done = run("check", "--policy", tmp_path / "policy.yaml")
    assert (done.exit_code, done.stderr) == (0, "valid policy: 2 rules, default: deny\n")
    done = run("policy", "test", tmp_path / "policy.yaml", tmp_path / "cases.yaml")
    assert (done.exit_code, done.stderr) == (0, "3 cases are decided as expected\n")


def test_the_example_of_tokens_takes_the_subject_of_a_pod(tmp_path: Path):
    _, text, _, _ = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    signer = Signer("pods", "RS256")
    (tmp_path / "policy.yaml").write_text(text)
    write_jwks(tmp_path / "jwks.json", signer)
    done = run("check", "--policy", tmp_path / "policy.yaml")
    assert (done.exit_code, done.stderr) == (0, "valid policy: 1 rules, default: deny, 1 keys for tokens\n")
    policy = load_policy(tmp_path / "policy.yaml")
    assert policy.tokens is not None
    token = signer.token("system:serviceaccount:prod:web", iss="https://issuer.example.com", now=1e9)
    found = policy.tokens.judge([f"Bearer {token}"], 1e9)
    assert isinstance(found, Bearer)
    assert policy.grant([found.identity], "n").rule.startswith("rule 1, ")


def test_the_numbers_of_tokens_are_those_of_the_code():
    section = PAGE.partition("## Bearer tokens")[2].partition("## Params")[0]
    (limits,) = re.findall(r"## Bearer tokens\n(.*?)\n## ", (PATH.parent / "limits.md").read_text(), re.DOTALL)
    rate = bearers.BAD_CHECKS
    for text in (section, limits):
        for number in (tokens.MAX_TOKEN, tokens.MAX_SUBJECT, tokens.REMEMBERED):
            assert f"{number:,}" in text
        assert f"at\nmost {tokens.TRIES} keys" in text or f"at most {tokens.TRIES} keys" in text
        assert f"{rate.burst} wrong signatures" in text
        assert f"{rate.per_second:g} more each second" in text
        assert f"at most {jwks.MAX_KEYS} keys" in text
        assert f"{jwks.MAX_BYTES // 1024} KiB" in text
    assert f"{tokens.LEEWAY:g} seconds" in section
    assert ", ".join(tokens.ALGORITHMS[:-1]) + " or EdDSA" in section
    assert set(get_args(tokens.RefusedFor)) <= set(re.findall(r"`(\w+)`", section))
