"""`check --policy`, `policy test`, and `--policy` of `serve` and `relay`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.admin.relay_rig import write_bootstrap
from tests.cli.rig import Daemon, Plain, run, write
from tests.support.resources import routes, to
from tests.support.waiting import eventually
from xdsprism import ROUTE

POLICY = """\
rules:
- identity: spiffe://example.com/prod/*
  node: prod-*
  types: [cds, rds]
  names: {"*": [shop*]}
  params: {env: {pin: prod}, zone: any}
- identity: anonymous
  names: {rds: [main]}
  params: {env: {allow: [prod]}}
"""
CASES = """\
- {as: spiffe://example.com/prod/web, node: prod-1, type: cds, name: shop-1, allow: true, rule: 1, gets: {env: prod}}
- {as: spiffe://example.com/prod/web, node: prod-1, type: sds, name: shop-1, allow: false, rule: 1}
- {as: spiffe://example.com/prod/web, node: test-1, type: cds, name: shop-1, allow: false, rule: 0}
- {as: anonymous, type: rds, name: main, params: {env: test}, allow: false}
- {as: anonymous, type: rds, name: main, locator: {env: prod}, allow: true, gets: {env: prod}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def test_check_validates_a_policy_alone_or_with_the_configuration(config: Path, policy: Path):
    done = run("check", "--policy", policy)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "valid policy: 2 rules, default: deny\n"
    done = run("check", config, "--policy", policy)
    assert done.exit_code == 0
    assert "valid: 4 resources" in done.stderr
    policy.write_text(POLICY + "- identity: nobody\n  node: 1\n")
    done = run("check", "--policy", policy)
    assert done.exit_code == 1
    assert f"{policy}:10: rules[2].identity: 'nobody' is no identity" in done.stderr
    assert "the configuration is refused: 2 problems" in done.stderr
    assert run("check").exit_code == 2


def test_check_warns_of_rules_for_nobody(policy: Path):
    policy.write_text("rules: [{identity: any}, {identity: anonymous}]")
    assert "rule 2 decides for nobody" in run("check", "--policy", policy).stderr


def test_cases_are_decided_as_expected_or_it_is_said_how_else(policy: Path, tmp_path: Path):
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES)
    done = run("policy", "test", policy, cases)
    assert (done.exit_code, done.stderr) == (0, "5 cases are decided as expected\n")
    cases.write_text(
        CASES.replace("name: main, params: {env: test}, allow: false", "name: other, allow: true")
        .replace("gets: {env: prod}}", "gets: {env: test}}", 1)
        .replace("rule: 0", "rule: 1")
    )
    done = run("policy", "test", policy, cases)
    assert done.exit_code == 1
    assert f"{cases}:1: the params are {{'env': 'prod'}}, and not {{'env': 'test'}} [rule 1" in done.stderr
    assert f"{cases}:3: it is rule 0 that decides, and not rule 1 [default: deny]" in done.stderr
    assert f"{cases}:4: the policy does not let this client have a resource of this name [rule 2" in done.stderr
    assert "3 of 5 cases are decided otherwise" in done.stderr


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("{as: nobody, type: cds, name: a, allow: true}", "'nobody' is no identity"),
        ("{as: anonymous, type: xds, name: a, allow: true}", "unknown resource type 'xds'"),
        ("{as: anonymous, type: cds, name: a}", "allow is missing"),
        ("{as: anonymous, type: cds, name: a, allow: true, want: 1}", "unknown key 'want'"),
        ("{as: anonymous, type: cds, name: a, allow: 'yes'}", "allow is true or false"),
        ("{as: anonymous, type: cds, name: a, allow: true, params: {env: 1}}", "params is a mapping of texts"),
    ],
)
def test_what_is_no_case_is_refused_with_its_line(policy: Path, tmp_path: Path, case: str, expected: str):
    cases = tmp_path / "cases.yaml"
    cases.write_text(f"- {case}\n")
    done = run("policy", "test", policy, cases)
    assert done.exit_code == 1
    assert f"{cases}:1: {expected}" in done.stderr


@pytest.mark.parametrize("verb", ["serve", "relay"])
def test_a_daemon_follows_its_policy_file(tmp_path: Path, policy: Path, verb: str):
    config = tmp_path / "config"
    write(config, "routes", routes("main", to("a")), routes("other", to("a")))
    with ExitStack() as stack:
        if verb == "serve":
            daemon = stack.enter_context(Daemon(tmp_path, config, "--policy", policy))
        else:
            origin = stack.enter_context(Daemon(tmp_path, config))
            source = write_bootstrap(tmp_path, origin.listen)
            daemon = stack.enter_context(Daemon(tmp_path, "--bootstrap", source, "--policy", policy, verb="relay"))
        assert daemon.get("rds", "main").exit_code == 0
        assert "the policy has rules for certificates, and no client can show one" in daemon.stderr
        assert "the policy does not let this client" in daemon.get("rds", "other").output
        assert eventually(lambda: daemon.metric('xdsprism_denied_subscriptions_total{kind="name",type="rds"}')) == 1
        assert "is denied envoy.config.route.v3.RouteConfiguration 'other'" in daemon.stderr
        policy.write_text("rules: [{identity: nobody}]")
        eventually(lambda: "changed policy refused, the one in force stays" in daemon.stderr)
        assert daemon.get("rds", "main").exit_code == 0
        with Plain(daemon.listen, ROUTE, "other") as stream:
            assert not stream.read().resources
            (client,) = daemon.page("/api/clients")["clients"]
            rule = f"rule 2, anonymous ({policy}:7)"
            assert client["policy"] == {"identities": ["anonymous"], "rule": rule, "denied": {"name": 1}}
            policy.write_text("rules: [{identity: anonymous, names: {rds: [other]}}]")
            eventually(lambda: "another policy is in force, of 1 rules" in daemon.stderr)
            assert len(stream.read().resources) == 1
        assert daemon.get("rds", "other").exit_code == 0
        assert daemon.get("rds", "main").exit_code != 0


@pytest.mark.parametrize("verb", ["serve", "relay"])
def test_a_daemon_does_not_start_with_a_policy_that_has_problems(tmp_path: Path, config: Path, policy: Path, verb: str):
    policy.write_text("rules: [{identity: nobody}]")
    given = [config] if verb == "serve" else ["--bootstrap", write_bootstrap(tmp_path, "127.0.0.1:1")]
    done = run(verb, *given, "--policy", policy, "--listen", "127.0.0.1:0", "--admin", "off")
    assert done.exit_code == 1
    assert "'nobody' is no identity" in done.stderr


def test_explain_says_what_an_identity_gets_and_why(config: Path, policy: Path):
    web = ("--policy", policy, "--as", "spiffe://example.com/prod/web", "--node", "prod-1")
    policy.write_text(POLICY.replace("[shop*]", "[main]"))
    done = run("explain", "rds", "main", config, *web, "--param", "other=1")
    assert done.exit_code == 0
    assert done.stdout.startswith(
        f"By rule 1, spiffe://example.com/prod/* ({policy}:2):\n"
        "Ignored of its node, and denied in a locator where variants mention it: other\n"
        "rds/main for a client with env=prod is\n"
    )
    done = run("explain", "rds", "main", config, *web, "--param", "env=test")
    assert done.exit_code == 1
    assert (
        "rds/main is denied to spiffe://example.com/prod/web: the policy does not let this client claim" in done.stdout
    )
    done = run("explain", "cds", "shop", config, *web[:-1], "test-1", "-o", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["policy"] == {
        "identity": "spiffe://example.com/prod/web",
        "node": "test-1",
        "rule": "default: deny",
        "denied": "no rule of the policy is for a client with this identity and node id",
        "params": {},
        "ignored": [],
    }


def test_explain_wants_a_policy_and_an_identity_together(config: Path, policy: Path):
    for args in (("--policy", policy), ("--as", "anonymous"), ("--node", "x")):
        done = run("explain", "rds", "main", config, *args)
        assert (done.exit_code, "go together" in done.stderr) == (2, True)
    done = run("explain", "rds", "main", "--admin", "127.0.0.1:1", "--policy", policy, "--as", "anonymous")
    assert (done.exit_code, "needs CONFIG" in done.stderr) == (2, True)
