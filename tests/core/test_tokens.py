"""Bearer tokens: which prove something, what, and for how long."""

from __future__ import annotations

import hashlib
import hmac
import json
import string
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tokens import AUDIENCE, Signer, encoded
from xdsprism.core.policy import tokens as rules
from xdsprism.core.policy.tokens import Bearer, SigningKey, Standing, TokenRefusal, Tokens
from xdsprism.errors import PeerError
from xdsprism.sources.jwks import parse_keys

NOW = 1_700_000_000.0
ONE, OTHER = Signer("one"), Signer("two")
RSA = Signer("rsa", "RS256")
DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"  # of base64url


def keys_of(*jwks: dict[str, Any]) -> list[SigningKey]:
    return parse_keys(json.dumps({"keys": jwks}).encode(), "keys.json")


def accepting(*signers: Signer, audiences: Iterable[str] = (AUDIENCE,), issuers: Iterable[str] = ()) -> Tokens:
    return Tokens(keys_of(*(each.jwk() for each in signers)), audiences, issuers)


def judge(token: str, tokens: Tokens | None = None, now: float = NOW) -> Bearer | TokenRefusal:
    return (tokens or accepting(ONE, OTHER, RSA)).judge([f"Bearer {token}"], now)


def subject(token: str, tokens: Tokens | None = None, now: float = NOW) -> str:
    found = judge(token, tokens, now)
    assert isinstance(found, Bearer), found
    return str(found.identity)


def refused(token: str, tokens: Tokens | None = None, now: float = NOW) -> str:
    found = judge(token, tokens, now)
    assert isinstance(found, TokenRefusal), found
    assert not any(part and part in found.message for part in token.split(".") if len(part) > 12)
    return found.cause


# -- what is accepted


@pytest.mark.parametrize("algorithm", [*rules.ALGORITHMS, "Ed448"])
def test_a_token_of_each_algorithm_proves_its_subject(algorithm: str):  # OPS-16
    signer = Signer("k", "EdDSA", curve="Ed448") if algorithm == "Ed448" else Signer("k", algorithm)
    assert subject(signer.token("web", now=NOW), accepting(signer)) == "jwt:web"
    head, body, _ = signer.token("web", now=NOW).split(".")
    for size in (1, 64, 500):
        assert refused(f"{head}.{body}.{encoded(bytes(size))}", accepting(signer)) == "signature"
    # RFC 8725, 3.1: a key that says which algorithm it is for is for no other
    others = [name for name in rules.ALGORITHMS if name != signer.algorithm]
    bound = Tokens(keys_of(signer.jwk(alg=signer.algorithm)), [AUDIENCE])
    assert subject(signer.token("web", now=NOW), bound) == "jwt:web"
    assert {refused(signer.token(now=NOW, header={"alg": other}), bound) for other in others} == {"key"}


def test_the_scheme_is_of_any_case_and_the_audience_one_of_several():
    token = ONE.token(now=NOW, aud=["a", AUDIENCE])
    for said in (f"bearer {token}", f"BEARER   {token}", f"Bearer {token} "):
        assert isinstance(accepting(ONE, audiences=["x", AUDIENCE]).judge([said], NOW), Bearer)


def test_a_subject_is_taken_as_it_is():
    for text in ("spiffe://example.com/a", "A b", "a\nb", "*", "ü", "x" * rules.MAX_SUBJECT):
        assert subject(ONE.token(text, now=NOW)) == f"jwt:{text}"


# -- what is refused


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("",),
        ("Bearer",),
        ("Bearer ",),
        ("Basic dXNlcjpwYXNz",),
        (ONE.token(now=NOW),),
        (f"Bearer {ONE.token(now=NOW)}", f"Bearer {ONE.token(now=NOW)}"),
    ],
)
def test_an_authorization_that_is_not_one_bearer_token_is_refused(values: tuple[str, ...]):
    # OPS-16: one of two could be what another server looked at
    found = accepting(ONE).judge(values, NOW)
    assert isinstance(found, TokenRefusal)
    assert found.cause == "header"


def test_a_token_without_a_signature_is_refused():  # OPS-17
    for name in ("none", "None", "NONE", ""):
        head = encoded(json.dumps({"alg": name, "kid": "one"}).encode())
        body = ONE.token(now=NOW).split(".")[1]
        assert refused(f"{head}.{body}.") == "form"
        assert refused(f"{head}.{body}.AAAA") == "algorithm"


def test_a_public_key_is_no_secret_to_sign_with():  # OPS-17
    for signer in (ONE, RSA):
        for name, how in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
            head = encoded(json.dumps({"alg": name, "kid": signer.kid}).encode())
            content = f"{head}.{signer.token(now=NOW).split('.')[1]}"
            forged = encoded(hmac.new(signer.pem, content.encode(), how).digest())
            assert refused(f"{content}.{forged}") == "algorithm"


def test_another_key_of_the_same_name_proves_nothing():  # OPS-17
    assert refused(Signer("one").token(now=NOW)) == "signature"
    assert refused(Signer("three").token(now=NOW)) == "key"


def test_a_token_that_was_changed_is_refused():
    head, body, signature = ONE.token("web", now=NOW).split(".")
    other = encoded(json.dumps({"sub": "root", "aud": AUDIENCE, "exp": NOW + 60}).encode())
    assert refused(f"{head}.{other}.{signature}") == "signature"
    assert refused(f"{head}.{body}.{OTHER.token('web', now=NOW).split('.')[2]}") == "signature"
    assert refused(f"{head}.{body}.AAAA") == "signature"
    assert refused(RSA.token(now=NOW)[:-40] + "A" * 40) == "signature"


def test_no_key_comes_from_the_token():  # OPS-17: nothing is ever fetched, as the core can't
    mine = Signer("mine")
    lures: list[dict[str, Any]] = [
        {"jwk": mine.jwk()},
        {"jku": "http://127.0.0.1:1/jwks"},
        {"x5u": "http://127.0.0.1:1/x5u"},
        {"x5c": ["AAAA"]},
    ]
    for header in lures:
        assert refused(mine.token(now=NOW, header=header)) == "key"
        assert refused(mine.token(now=NOW, header={**header, "kid": None})) == "signature"
        assert refused(mine.token(now=NOW, header={**header, "kid": "one"})) == "signature"
        assert subject(ONE.token("web", now=NOW, header=header)) == "jwt:web"


def test_a_token_with_critical_extensions_is_refused():  # OPS-17
    for critical in (["b64"], ["exp"], [], None, "x"):
        header = {"crit": critical, "b64": False} if critical is not None else {"crit": [None]}
        assert refused(ONE.token(now=NOW, header=header)) == "form"


GARBAGE = [
    "a",
    "a.b",
    "a.b.c.d",
    "..",
    "\x00.\x00.\x00",
    "e30.e30.e30",
    f"{encoded(b'[]')}.e30.AAAA",
    f"{encoded(b'{')}.e30.AAAA",
    encoded(b"[" * 5000) + ".e30.AAAA",
    f"{encoded(bytes([0xFF, 0xFE]))}.e30.AAAA",
    f"{encoded(json.dumps({'alg': 'ES256', 'kid': 7}).encode())}.e30.AAAA",
    f"{encoded(json.dumps({'alg': ['ES256']}).encode())}.e30.AAAA",
    "x" * (rules.MAX_TOKEN + 1),
    ONE.token(now=NOW, pad="x" * rules.MAX_TOKEN),
    ONE.token(now=NOW) + "=",
    ONE.token(now=NOW)[:-1] + "!",
]


@pytest.mark.parametrize("number", range(len(GARBAGE)))
def test_garbage_is_refused(number: int):
    assert refused(GARBAGE[number]) in ("form", "algorithm")


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_refused_and_raises_nothing(head: str, body: str, signature: str):
    said = ".".join(encoded(part.encode(errors="replace")) for part in (head, body, signature))
    for text in (said, f"{head}.{body}.{signature}"):
        assert isinstance(judge(text), TokenRefusal)


def test_a_signature_has_one_spelling():
    good = ONE.token(now=NOW)
    assert subject(good) == "jwt:web"
    at = DIGITS.index(good[-1])  # of its six bits, four mean nothing, and are 0
    assert {refused(good[:-1] + DIGITS[at + more]) for more in range(1, 16)} == {"form"}


@pytest.mark.parametrize(
    ("claims", "cause"),
    [
        ({"exp": NOW - rules.LEEWAY}, "expired"),
        ({"exp": None}, "claims"),
        ({"exp": str(int(NOW) + 60)}, "claims"),
        ({"exp": True}, "claims"),
        ({"exp": 10**400}, "claims"),
        ({"exp": float("inf")}, "claims"),
        ({"nbf": "soon"}, "claims"),
        ({"nbf": NOW + rules.LEEWAY + 1}, "early"),
        ({"iat": NOW + rules.LEEWAY + 1}, "early"),
        ({"aud": None}, "audience"),
        ({"aud": "other"}, "audience"),
        ({"aud": ["other", 7]}, "audience"),
        ({"aud": {AUDIENCE: 1}}, "audience"),
        ({"aud": AUDIENCE.upper()}, "audience"),
        ({"iss": 7}, "issuer"),
        ({"subject": None}, "claims"),
        ({"subject": ""}, "claims"),
        ({"subject": 7}, "claims"),
        ({"subject": ["web"]}, "claims"),
        ({"subject": "\ud800"}, "claims"),
        ({"subject": "x" * (rules.MAX_SUBJECT + 1)}, "claims"),
    ],
)
def test_a_claim_that_is_wrong_or_missing_refuses_the_token(claims: dict[str, Any], cause: str):  # OPS-17
    assert refused(ONE.token(**({"now": NOW} | claims))) == cause


def test_claims_that_are_no_object_are_refused():
    for body in (b"[]", b'"web"', b"", b"{", b"[" * 4000, b"\xff"):
        token = ONE.sign(body) if body else ONE.sign(b" ")
        assert refused(token) == "claims"


def test_clocks_may_differ_a_little():
    token = ONE.token(now=NOW, exp=NOW + 100, nbf=NOW)
    assert subject(token, now=NOW - rules.LEEWAY) == "jwt:web"
    assert refused(token, now=NOW - rules.LEEWAY - 1) == "early"
    assert subject(token, now=NOW + 100 + rules.LEEWAY - 1) == "jwt:web"
    assert refused(token, now=NOW + 100 + rules.LEEWAY) == "expired"


def test_if_issuers_are_listed_it_is_one_of_them():
    tokens = accepting(ONE, issuers=["https://a", "https://b"])
    assert subject(ONE.token(now=NOW, iss="https://b"), tokens) == "jwt:web"
    for issuer in (None, "https://c", "https://a/"):
        assert refused(ONE.token(now=NOW, iss=issuer), tokens) == "issuer"


# -- which keys are tried


def test_keys_are_found_by_name_and_without_one_a_few_are_tried():
    many = [Signer(None) for _ in range(rules.TRIES + 2)]
    tokens = accepting(*many)
    assert subject(many[rules.TRIES - 1].token(now=NOW), tokens) == "jwt:web"
    found = judge(many[rules.TRIES].token(now=NOW), tokens)
    assert isinstance(found, TokenRefusal)
    assert (found.cause, found.checks) == ("signature", rules.TRIES)
    assert "give the token a kid" in found.message
    # A key of the token's own name comes before all that have none.
    assert subject(ONE.token(now=NOW), accepting(*many, ONE)) == "jwt:web"
    assert subject(ONE.token(now=NOW, header={"kid": None}), accepting(OTHER, RSA, ONE)) == "jwt:web"


def test_a_key_for_something_else_verifies_nothing():
    for more in ({"use": "enc"}, {"use": "x509-svid"}, {"key_ops": ["sign"]}):
        assert refused(ONE.token(now=NOW), Tokens(keys_of(ONE.jwk(**more), OTHER.jwk()), [AUDIENCE])) == "key"
    for more in ({"use": "sig"}, {"use": "jwt-svid"}, {"key_ops": ["verify"]}):
        assert subject(ONE.token(now=NOW), Tokens(keys_of(ONE.jwk(**more)), [AUDIENCE])) == "jwt:web"


# -- what it costs


class Counting:
    """Counts the checks of signatures."""

    def __init__(self, *signers: Signer) -> None:
        self.checks = 0
        self.tokens = Tokens([self._counted(key) for key in keys_of(*(each.jwk() for each in signers))], [AUDIENCE])

    def _counted(self, key: SigningKey) -> SigningKey:
        def verifies(algorithm: str, content: bytes, signature: bytes) -> bool:
            self.checks += 1
            return key.verifies(algorithm, content, signature)

        return SigningKey(key.kid, key.thumbprint, key.algorithms, verifies)


def test_equal_tokens_are_checked_once_and_judged_by_the_time_each_time():
    counting = Counting(ONE)
    token = ONE.token(now=NOW, exp=NOW + 10)
    for at in range(5):
        assert subject(token, counting.tokens, NOW + at) == "jwt:web"
    assert refused(token, counting.tokens, NOW + 10 + rules.LEEWAY) == "expired"
    assert counting.checks == 1
    for _ in range(3):
        assert refused(ONE.token(now=NOW, aud="other"), counting.tokens) == "audience"
    assert counting.checks == 4  # an ES256 signature has chance in it, so these are three tokens


def test_what_is_remembered_is_bounded_and_the_tokens_that_are_used_stay(monkeypatch: pytest.MonkeyPatch):
    def verifies(algorithm: str, content: bytes, signature: bytes) -> bool:
        nonlocal checks
        checks += 1
        return True

    checks = 0
    tokens = Tokens([SigningKey("one", "t", frozenset({"ES256"}), verifies)], [AUDIENCE])
    used = ONE.token("used", now=NOW)
    for number in range(rules.REMEMBERED + 10):
        head, body, _ = used.split(".")
        judge(f"{head}.{body}.{encoded(number.to_bytes(4))}", tokens)
        if number % 1000 == 0:
            judge(used, tokens)
    assert tokens.remembered == rules.REMEMBERED
    before = checks
    judge(used, tokens)
    assert checks == before


def test_without_a_check_left_only_known_tokens_are_accepted():
    tokens = accepting(ONE)
    known, new = ONE.token("known", now=NOW), ONE.token("new", now=NOW)
    assert isinstance(judge(known, tokens), Bearer)
    assert isinstance(tokens.judge([f"Bearer {known}"], NOW, may_check=False), Bearer)
    found = tokens.judge([f"Bearer {new}"], NOW, may_check=False)
    assert isinstance(found, TokenRefusal)
    assert (found.cause, found.checks) == ("rate", 0)


def test_what_no_key_can_have_signed_costs_no_check():
    counting = Counting(ONE)
    for token in ("x", Signer("three").token(now=NOW), RSA.token(now=NOW), ONE.token(now=NOW, header={"crit": ["x"]})):
        refused(token, counting.tokens)
    assert counting.checks == 0


# -- how long it holds


def standing(token: str | None, now: float = 0.0, wall: float = NOW) -> Standing:
    found = judge(token) if token is not None else None
    assert not isinstance(found, TokenRefusal)
    return Standing(found, now, wall)


def test_a_call_ends_when_its_token_expires():  # OPS-18
    call = standing(ONE.token(now=NOW, exp=NOW + 100), now=5.0)
    end = 5 + 100 + rules.LEEWAY
    assert (call.before(None), call.before(50.0), call.before(1e9)) == (end, 50.0, end)
    call.check(end - 1)
    with pytest.raises(PeerError, match="UNAUTHENTICATED: the token has expired: come back with a fresh one"):
        call.check(end)
    assert (call.is_over(end - 1), call.is_over(end)) == (False, True)


def test_no_token_lasts_for_ever():
    call = standing(ONE.token(now=NOW, exp=10**300))
    assert call.before(None) == rules.LONGEST


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        (accepting(ONE), True),
        (accepting(OTHER, Signer("one"), ONE), True),
        (accepting(OTHER), False),
        (accepting(Signer("one")), False),
        (accepting(ONE, audiences=["other"]), False),
        (accepting(ONE, audiences=["other", AUDIENCE]), True),
        (accepting(ONE, issuers=["https://a"]), True),
        (accepting(ONE, issuers=["https://b"]), False),
        (None, False),
    ],
)
def test_a_call_ends_if_another_policy_would_not_accept_its_token(changed: Tokens | None, holds: bool):  # OPS-18
    call = standing(ONE.token(now=NOW, iss="https://a"))
    assert call.review(changed) is not holds
    assert call.is_over(0.0) is not holds
    if not holds:
        with pytest.raises(PeerError, match="UNAUTHENTICATED: the server accepts other tokens now"):
            call.check(0.0)


def test_a_key_that_is_bound_to_another_algorithm_ends_what_it_signed():
    call = standing(RSA.token(now=NOW))
    assert not call.review(Tokens(keys_of(RSA.jwk(alg="RS256")), [AUDIENCE]))
    assert call.review(Tokens(keys_of(RSA.jwk(alg="PS256")), [AUDIENCE]))


def test_a_call_whose_token_nobody_asked_for_ends_when_a_policy_asks():  # OPS-18
    call = standing(None)
    assert call.before(None) is None
    assert not call.review(None)
    call.check(1e12)
    assert call.review(accepting(ONE))
