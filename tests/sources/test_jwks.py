"""JWKS files: which keys are read, and what is wrong with a file, where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.tokens import Signer, encoded, write_jwks
from xdsprism.errors import ConfigError
from xdsprism.sources.jwks import MAX_BYTES, MAX_KEYS, parse_keys
from xdsprism.sources.policy_file import load_policy, parse_policy

EC, RSA, ED = Signer("ec"), Signer("rsa", "RS256"), Signer("ed", "EdDSA")


def problems(data: bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_keys(data, "keys.json")
    return [str(problem) for problem in caught.value.problems]


def jwks(*keys: Any) -> bytes:
    """A line for each key."""
    return ('{"keys": [\n' + ",\n".join(json.dumps(key) for key in keys) + "\n]}").encode()


def test_keys_are_read_with_their_names_and_algorithms():
    found = parse_keys(jwks(EC.jwk(), RSA.jwk(alg="PS256"), RSA.jwk(kid="other"), ED.jwk()), "keys.json")
    assert [(key.kid, sorted(key.algorithms)) for key in found] == [
        ("ec", ["ES256"]),
        ("rsa", ["PS256"]),
        ("other", ["PS256", "PS384", "PS512", "RS256", "RS384", "RS512"]),
        ("ed", ["EdDSA"]),
    ]
    assert len({key.thumbprint for key in found}) == 3  # the name of a key makes it no other key


def test_keys_for_something_else_are_passed_over():
    others = [RSA.jwk(use="enc"), EC.jwk(use="x509-svid"), EC.jwk(key_ops=["sign"]), RSA.jwk(alg="RSA-OAEP-256")]
    assert [key.kid for key in parse_keys(jwks(*others, ED.jwk(use="sig")), "keys.json")] == ["ed"]
    assert problems(jwks(*others)) == ["keys.json:1: keys: there is no key here that verifies signatures"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (7, "keys[1]: a key is an object"),
        ({"kty": "oct", "k": "aHVudGVyMg"}, "keys[1].kty: this is a symmetric key"),
        ({"kty": "oct", "k": "aHVudGVyMg", "use": "enc"}, "keys[1].kty: this is a symmetric key"),
        (EC.private_jwk(), "keys[1].d: this is a private key: list the public key only"),
        (RSA.private_jwk() | {"use": "enc"}, "keys[1].d: this is a private key: list the public key only"),
        ({"kty": "AKP"}, "keys[1].kty: unknown key type: there are RSA, EC, OKP"),
        ({"kty": ["RSA"]}, "keys[1].kty: unknown key type"),
        ({}, "keys[1].kty: unknown key type"),
        (EC.jwk(kid=7), "keys[1].kid: the kid is a text"),
        (EC.jwk(kid=""), "keys[1].kid: the kid is a text"),
        (EC.jwk(crv="secp256k1"), "keys[1].crv: the curve is none for signatures of this type: P-256, "),
        (ED.jwk(crv="X25519"), "keys[1].crv: the curve is none for signatures"),
        (ED.jwk(crv="P-256"), "keys[1].crv: the curve is none for signatures"),
        (EC.jwk(crv=["P-256"]), "keys[1].crv: the curve is none for signatures"),
        (EC.jwk(alg="ES384"), "keys[1].alg: this alg does not fit the key: ES256"),
        (RSA.jwk(alg="HS256"), "keys[1].alg: this alg does not fit the key: PS256, "),
        (RSA.jwk(alg=7), "keys[1].alg: the alg is a text"),
        (EC.jwk(x="AAAA"), "keys[1]: the key can't be read: check crv, x, y"),
        (EC.jwk(y=7), "keys[1]: the key has no y that is a text"),
        (RSA.jwk(n="ü"), "keys[1]: the key can't be read: check e, n"),
        (ED.jwk(x=""), "keys[1]: the key can't be read: check crv, x"),
    ],
)
def test_a_key_that_can_not_be_used_is_a_problem_with_its_place(key: Any, expected: str):
    (problem,) = problems(jwks(EC.jwk(), key))
    assert problem.startswith(f"keys.json:3: {expected}")
    assert "aHVudGVyMg" not in problem  # OPS-14
    for value in key.values() if isinstance(key, dict) else ():
        assert not isinstance(value, str) or len(value) < 20 or value not in problem


def test_an_rsa_key_has_a_size_that_is_neither_broken_nor_slow():
    short = rsa.generate_private_key(65537, 1024).public_key().public_numbers().n
    for number, bits in ((short, 1024), ((1 << 8200) + 1, 8201)):
        key = RSA.jwk(n=encoded(number.to_bytes((number.bit_length() + 7) // 8)))
        assert problems(jwks(key)) == [f"keys.json:2: keys[0].n: the key has {bits} bits: 2048 to 8192 are accepted"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "keys.json:1: the file is empty"),
        (b"{", "keys.json:1: not valid JSON"),
        (b"\xff", "keys.json: the JWKS is not UTF-8"),
        (b"[]", "keys.json:1: there is no list of keys"),
        (b"{}", "keys.json:1: there is no list of keys"),
        (b'{"keys": {}}', "keys.json:1: there is no list of keys"),
        (b'{\n"keys": []}', "keys.json:2: keys: there is no key here that verifies signatures"),
        (b" " * (MAX_BYTES + 1), "keys.json: a JWKS has at most 262,144 bytes"),
        (jwks(*[7] * (MAX_KEYS + 1)), "keys.json:1: keys: a JWKS has at most 100 keys, and here are 101"),
        (b'{"keys": [' + b"[" * 200, "keys.json:1: nested deeper"),
    ],
)
def test_a_file_that_is_no_jwks_is_a_problem(data: bytes, expected: str):
    (problem,) = problems(data)
    assert problem.startswith(expected)


def test_all_keys_are_reported_at_once():
    assert len(problems(jwks(7, {"kty": "oct"}, EC.private_jwk()))) == 3


# -- in a policy


def test_a_policy_names_its_jwks_from_its_own_folder(tmp_path: Path):
    folder = tmp_path / "policy"
    folder.mkdir()
    write_jwks(folder / "keys.json", EC)
    text = "jwks: keys.json\naudience: [a, b]\nissuer: https://a\nrules: [{identity: 'jwt:*'}]"
    (folder / "policy.yaml").write_text(text)
    tokens = load_policy(folder / "policy.yaml").tokens
    assert tokens is not None
    assert tokens.count == 1
    for audience, issuer in (("a", "https://a"), ("b", "https://a"), ("c", "https://a"), ("a", "https://b")):
        found = tokens.judge([f"Bearer {EC.token(aud=audience, iss=issuer, now=1e9)}"], 1e9)
        assert hasattr(found, "identity") == (audience != "c" and issuer == "https://a")
    absolute = text.replace("keys.json", str(folder / "keys.json"))
    assert parse_policy(absolute, "elsewhere/policy.yaml").tokens is not None
    assert parse_policy("rules: []", "policy.yaml").tokens is None


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", "p.yaml:1: jwks: audience is missing: which `aud` do tokens for this server have?"),
        ("audience: []", "p.yaml:2: audience: list at least one audience"),
        ("audience: 7", "p.yaml:2: audience: this is a text, and not the number 7"),
        ("audience: [a, '']", "p.yaml:2: audience[1]: this text is empty"),
        ("audience: a\nissuer: []", "p.yaml:3: issuer: list at least one issuer"),
        ("audience: a\naudiences: a", "p.yaml:3: audiences: unknown key"),
    ],
)
def test_a_policy_says_for_whom_tokens_are(tmp_path: Path, more: str, expected: str):
    keys = write_jwks(tmp_path / "keys.json", EC)
    with pytest.raises(ConfigError) as caught:
        parse_policy(f"jwks: {keys}\n{more}", "p.yaml")
    (problem,) = map(str, caught.value.problems)
    assert problem.startswith(expected)


def test_problems_of_the_policy_and_of_its_jwks_are_reported_together(tmp_path: Path):
    keys = write_jwks(tmp_path / "keys.json", {"kty": "oct", "k": "hunter2"}, EC)
    with pytest.raises(ConfigError) as caught:
        parse_policy(f"default: maybe\njwks: {keys}\naudience: a\nrules: [{{identity: 'jwt:a'}}]", "p.yaml")
    first, second = map(str, caught.value.problems)
    assert first == "p.yaml:1: default: write deny or allow"
    assert second.startswith(f"{keys}:4: keys[0].kty: this is a symmetric key")
