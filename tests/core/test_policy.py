"""Policies: which rule decides, which identities it is for, and what its grant makes of params."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdsprism.core.model.constraints import matches
from xdsprism.core.model.types import CLUSTER, ENDPOINT, LISTENER, SECRET, Params
from xdsprism.core.policy.globs import Glob, NameGlobs
from xdsprism.core.policy.grant import Grant, ParamRule
from xdsprism.core.policy.identity import Identity, IdentityGlob, parse_identity, proved
from xdsprism.core.policy.policy import KNOWN, Policy, Rule
from xdsprism.core.policy.rule_index import RuleIndex
from xdsprism.errors import UsageError

TEXTS = st.text(alphabet="ab*", max_size=8)


# -- globs


@given(TEXTS, st.text(alphabet="ab", max_size=8))
def test_a_glob_matches_what_the_regular_expression_of_it_matches(pattern: str, text: str):
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None
    assert Glob(pattern).matches(text) == expected


def test_a_glob_of_many_stars_takes_no_time_on_a_long_text():
    assert not Glob("*a" * 50 + "b").matches("a" * 100_000)


@given(st.lists(TEXTS, max_size=4), st.text(alphabet="ab", max_size=6))
def test_names_are_allowed_if_one_of_the_globs_matches(patterns: list[str], name: str):
    assert NameGlobs(patterns).allows(name) == any(Glob(each).matches(name) for each in patterns)


# -- identities


@pytest.mark.parametrize(
    ("pattern", "identity", "expected"),
    [
        ("spiffe://example.com/ns/prod/*", "spiffe://example.com/ns/prod/sa/web", True),
        ("spiffe://example.com/ns/prod/*", "SPIFFE://EXAMPLE.com/ns/prod/sa/web", True),
        ("spiffe://Example.com/ns/prod/*", "spiffe://example.com/ns/prod/sa/web", True),
        ("spiffe://example.com/ns/prod/*", "spiffe://example.com/ns/Prod/sa/web", False),
        ("spiffe://example.com/ns/prod", "spiffe://example.com/ns/prod/sa/web", False),
        ("spiffe://example.com/*", "spiffe://example.com", False),
        ("spiffe://example.com/*", "spiffe://example.com.evil.org/a", False),
        ("dns:*.example.com", "dns:web.example.com", True),
        ("dns:*.example.com", "dns:WEB.Example.COM.", True),
        ("dns:*.example.com", "dns:a.b.example.com", False),
        ("dns:*.example.com", "dns:example.com", False),
        ("dns:web.example.com", "dns:web.example.com.evil.org", False),
        ("dns:web", "subject:web", False),
        ("subject:CN=*,O=Example", "subject:CN=web,O=Example", True),
        ("subject:CN=*,O=Example", "subject:CN=web,OU=x,O=Example", False),
        ("subject:CN=*,O=Example", r"subject:CN=web\,O=Example", False),
        ("subject:CN=*,O=Example", "subject:CN=web+O=Example", False),
        ("subject:CN=*,O=Example", r"subject:CN=a\,b,O=Example", True),
        ("jwt:web-*", "jwt:web-1", True),
        ("jwt:web-*", "jwt:web-1/a\nb", True),
        ("jwt:web-*", "jwt:a-web-1", False),
        ("jwt:*", "jwt:spiffe://example.com/a", True),
        ("jwt:spiffe://example.com/*", "spiffe://example.com/a", False),
        ("spiffe://example.com/*", "jwt:spiffe://example.com/a", False),
        ("jwt:Web", "jwt:web", False),
        ("jwt:web", "jwt:web.", False),
        ("jwt:web", "dns:web", False),
        ("anonymous", "jwt:web", False),
        ("any", "dns:web", True),
        ("any", "anonymous", True),
        ("anonymous", "anonymous", True),
        ("anonymous", "dns:web", False),
    ],
)
def test_an_identity_is_matched_as_a_whole_and_by_its_kind(pattern: str, identity: str, expected: bool):
    assert IdentityGlob(pattern).matches(parse_identity(identity)) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "web",
        "spiffe://",
        "spiffe://*/ns",
        "spiffe://a.*/ns",
        "spiffe://a/b c",
        "dns:",
        "subject:",
        "jwt:",
        "host:a",
    ],
)
def test_a_text_that_can_match_no_identity_is_refused(text: str):
    with pytest.raises(UsageError):
        IdentityGlob(text)


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://example.com/a/../b",
        "spiffe://example.com/a//b",
        "spiffe://example.com/a/",
        "spiffe://example.com:1/a",
        "spiffe://user@example.com/a",
        "spiffe://example.com/a?b",
        "spiffe://example.com/%61",
        "https://example.com/a",
        "spiffe://" + "a" * 256 + "/b",
    ],
)
def test_a_uri_that_is_no_spiffe_id_proves_nothing(uri: str):
    assert proved([uri], [], "") == ()


def test_a_certificate_with_two_uris_is_no_spiffe_identity():
    both = ["spiffe://example.com/a", "spiffe://example.com/b"]
    assert proved(both, ["web"], "") == (Identity("dns", "web"),)
    assert proved([both[0], "https://example.com"], [], "") == ()


def test_a_common_name_is_no_host_name():
    assert proved([], [], "CN=web.example.com") == (Identity("subject", "CN=web.example.com"),)


# -- rules


IDENTITIES = st.sampled_from(["dns:a", "dns:b", "subject:CN=a", "anonymous", "any"])
RULES = st.lists(st.tuples(IDENTITIES, st.sampled_from([None, "n*", "*1"])), max_size=5)


@given(RULES, st.sampled_from(["dns:a", "dns:b", "subject:CN=a", "anonymous"]), st.sampled_from(["n1", "n2", "x1"]))
def test_the_first_rule_whose_identity_and_node_match_decides(rules: list[tuple[str, str | None]], who: str, node: str):
    # OPS-1
    policy = Policy(
        [
            Rule(IdentityGlob(text), Glob(glob) if glob is not None else None, types=frozenset({str(number)}))
            for number, (text, glob) in enumerate(rules)
        ]
    )
    first = next(
        (
            str(number)
            for number, (text, glob) in enumerate(rules)
            if text in (who, "any") and (glob is None or Glob(glob).matches(node))
        ),
        None,
    )
    grant = policy.grant(parse_identity(who), node)
    if first is None:
        assert grant.denies(CLUSTER, "a")
        assert not grant.allows_type("0")
    else:
        assert grant.allows_type(first)


def test_who_no_rule_is_for_is_denied_unless_the_default_is_to_allow():
    assert Policy().grant((), "n").denies(CLUSTER, "a")
    allowed = Policy(default="allow").grant((), "n")
    assert allowed.denies(CLUSTER, "a") is None
    assert allowed.denies(SECRET, "a")  # secrets are for those whom a rule names


def test_types_that_a_rule_leaves_out_are_all_but_secrets():
    grant = Grant("r")
    assert grant.allows_type(LISTENER)
    assert not grant.allows_type(SECRET)
    assert Grant("r", frozenset({SECRET})).allows_type(SECRET)
    assert not Grant("r", frozenset({SECRET})).allows_type(LISTENER)


def test_names_are_by_type_and_those_of_other_types_under_a_star():
    grant = Grant("r", names={CLUSTER: NameGlobs(["prod-*"]), "*": NameGlobs(["x"])})
    assert grant.denies(CLUSTER, "prod-1") is None
    assert grant.denies(CLUSTER, "x")
    assert grant.denies(ENDPOINT, "x") is None
    assert grant.denies(ENDPOINT, "prod-1")
    only = Grant("r", names={CLUSTER: NameGlobs(["*"])})
    assert only.visible(CLUSTER) is None
    assert only.denies(ENDPOINT, "x")  # names are listed, and there is none for this type


# -- params

RULE = {"env": ParamRule(pin="prod"), "zone": ParamRule(allow=frozenset("ab")), "version": ParamRule()}


@given(st.dictionaries(st.sampled_from(["env", "zone", "version", "other"]), st.sampled_from(["prod", "a", "c"])))
def test_a_claim_is_pinned_or_allowed_or_denied(params: dict[str, str]):
    for located in (False, True):
        claim = (Grant("r", params=RULE).claim_locator if located else Grant("r", params=RULE).claim_node)(
            Params(params)
        )
        wrong = params.get("env", "prod") != "prod" or params.get("zone", "a") != "a"
        assert (claim.denial is not None) == wrong
        if claim.denial is None:
            kept = {key: value for key, value in params.items() if key != "other"}
            assert claim.params == Params({**kept, "env": "prod"})
            assert (claim.unlisted or {}) == ({"other": params["other"]} if located and "other" in params else {})
        else:
            assert "prod" not in claim.denial.message  # it says nothing of what would be allowed
            assert matches(claim.denial.absence, params)


def test_without_params_nothing_may_be_claimed_and_any_lets_everything_pass():
    params = Params({"env": "prod"})
    assert Grant("r", params={}).claim_node(params).params == Params()
    assert Grant("r", params=None).claim_node(params).params == params


def test_grants_that_allow_the_same_are_equal_whatever_their_rule():
    one, other = (Grant(rule, names={"*": NameGlobs(["a", "b"])}, params=RULE) for rule in ("1", "2"))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Grant("1", names={"*": NameGlobs(["a"])}, params=RULE)
    assert one.visible(CLUSTER) == other.visible(CLUSTER)


# -- very many rules

WORDS = st.text(alphabet="ab*", min_size=1, max_size=4)
IDENTITY_GLOBS = st.one_of(
    st.sampled_from(["any", "anonymous"]),
    st.builds("spiffe://a/{}".format, WORDS),
    st.builds("dns:{}.{}".format, WORDS, WORDS),
    st.builds("subject:CN={},O={}".format, WORDS, WORDS),
    st.builds("jwt:{}".format, WORDS),
)
VALUES = st.text(alphabet="ab", min_size=1, max_size=4)
IDENTITIES = st.one_of(
    st.builds("spiffe://a/{}".format, VALUES),
    st.builds("dns:{}.{}".format, VALUES, VALUES),
    st.builds("subject:CN={},O={}".format, VALUES, VALUES),
    st.builds("jwt:{}".format, VALUES),
)


@given(
    st.lists(st.tuples(IDENTITY_GLOBS, st.none() | TEXTS), max_size=12),
    st.lists(IDENTITIES, max_size=3),
    st.text(alphabet="ab", max_size=6),
)
def test_the_rule_is_the_first_that_matches_as_if_each_were_tried(
    rules: list[tuple[str, str | None]], identities: list[str], node: str
):
    # OPS-1
    made = [Rule(IdentityGlob(who), Glob(where) if where is not None else None) for who, where in rules]
    proved = [identity for text in identities for identity in parse_identity(text)]
    first = next((number for number, rule in enumerate(made, 1) if rule.matches(proved, node)), None)
    text = Policy(made).grant(proved, node).rule
    assert text == (f"rule {first}, {made[first - 1].identity.text}" if first is not None else "default: deny")


@pytest.mark.parametrize(
    ("who", "where", "client"),
    [
        ("spiffe://a/tenant-{}/*", None, ("spiffe://a/tenant-7/x", "n")),
        ("spiffe://a/b", "tenant-{}-*", ("spiffe://a/b", "tenant-7-x")),
        ("anonymous", "*.tenant-{}", ("anonymous", "x.tenant-7")),
        ("dns:*.tenant-{}.example.com", None, ("dns:x.tenant-7.example.com", "n")),
        ("subject:CN=*,O=tenant-{}", "*", ("subject:CN=x,O=tenant-7", "n")),
        ("jwt:tenant-{}", None, ("jwt:tenant-7", "n")),
    ],
)
def test_a_client_is_compared_with_the_rules_that_may_be_for_it_alone(
    who: str, where: str | None, client: tuple[str, str]
):
    """Each stream asks once, and there may be a rule for each of thousands of tenants."""
    rules = [(IdentityGlob(who.format(n)), Glob(where.format(n)) if where else None) for n in range(10, 5_000)]
    rules.insert(3, (IdentityGlob(who.format(7)), Glob(where.format(7)) if where else None))
    assert RuleIndex(rules).candidates(parse_identity(client[0]), client[1]) == [3]


def test_what_is_remembered_of_clients_is_bounded_and_never_that_of_another():
    """A client may come with another node id each time."""
    made = Policy([Rule(IdentityGlob("anonymous"), Glob("a*")), Rule(IdentityGlob("jwt:x"), Glob("a*"))])
    web = parse_identity("jwt:x")
    for number in range(KNOWN + 10):
        assert made.grant((), f"a{number}").rule == "rule 1, anonymous"
        assert made.grant(web, f"a{number}").rule == "rule 2, jwt:x"
        assert made.grant(web, f"b{number}").rule == "default: deny"
    assert len(made._known) <= KNOWN  # noqa: SLF001 # the bound is on memory
