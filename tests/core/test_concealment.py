"""What a client says about a resource, without the secrets that it quotes."""

from __future__ import annotations

import pytest

from xdsprism.core.model.concealment import NOT_SHOWN, WORK, without_contents, without_secrets
from xdsprism.core.model.types import SECRET, Variant, make_variant

KEY = "hunter2-is-the-key"


# OPS-14
@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f'private_key {{ inline_string: "{KEY}" }} at 7', "private_key { inline_string: [redacted] } at 7"),
        (f'{{"inlineBytes": "{KEY}"}}', '{"inlineBytes": [redacted]}'),
        (f"inline_string: 'a\\'{KEY}' b", "inline_string: [redacted] b"),
        (f'inline_string: "a\\"{KEY}', "inline_string: [redacted]"),  # cut off by its client
        (f'auth_password: "{KEY}"', "auth_password: [redacted]"),
        (f'access_token="{KEY}";', "access_token=[redacted];"),
        (f"a -----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY----- b", "a [redacted] b"),
        (f"a -----BEGIN RSA PRIVATE KEY-----\n{KEY}", "a [redacted]"),
        (f"authorization: Bearer {KEY}", "authorization: Bearer [redacted]"),
        (f"http://me:{KEY}@a.example/", "http://me:[redacted]@a.example/"),
    ],
)
def test_what_looks_like_a_secret_field_is_removed(text: str, left: str) -> None:
    assert without_secrets(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "Failed to load certificate chain from <inline>, only P-256 ECDSA certificates are supported",
        "cluster: unknown cluster 'shop' at http://a.example:80/ (inline_string is empty)",
        "Proto constraint validation failed (ClusterValidationError.ConnectTimeout: value must be greater than 0s)",
        "",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert without_secrets(text) == text


def secret(body: bytes) -> Variant:
    return make_variant(SECRET, "tenant/server-cert", body)


# OPS-14
def test_a_word_that_is_in_a_secret_is_removed_from_what_is_said_of_it() -> None:
    known = [secret(b"\n\x03abc"), secret(f"\n\x11tenant/server-cert{KEY} and more".encode())]
    said = f"tenant/server-cert: can't read '{KEY}', nor {KEY[:9]}. It is not more={KEY}"
    left = without_contents(said, known)
    assert left == "tenant/server-cert: can't read '[redacted]', nor [redacted]. It is not [redacted]=[redacted]"
    assert without_contents("Failed to load private key", known) == "Failed to load private key"


# OPS-14
def test_where_nothing_can_be_compared_nothing_is_shown() -> None:
    assert without_contents(KEY, []) == NOT_SHOWN
    assert without_contents(f"{KEY} again", [secret(bytes(WORK // 2))]) == NOT_SHOWN


# OPS-14
def test_the_repr_of_a_variant_has_no_contents() -> None:
    assert KEY not in repr(secret(KEY.encode()))
