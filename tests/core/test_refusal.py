"""Which subscriptions are refused, and why (DYN-46, VHD-26)."""

from __future__ import annotations

import pytest

from xdsprism.core.model.limits import Limits
from xdsprism.core.model.types import CLUSTER, VIRTUAL_HOST, Params

LIMITS = Limits()


@pytest.mark.parametrize(
    ("params", "kind", "text"),
    [
        ({str(number): "" for number in range(1025)}, "params", "1025 parameters; at most 1024"),
        ({"k" * 257: ""}, "key_bytes", "a key of 257 bytes; at most 256"),
        ({"é" * 129: ""}, "key_bytes", "a key of 258 bytes"),
        ({"k": "v" * 8193}, "value_bytes", "a value of 8193 bytes; at most 8192"),
        ({"k": "é" * 4097}, "value_bytes", "a value of 8194 bytes"),
        ({str(number): "v" * 8191 for number in range(9)}, "params_bytes", "73728 bytes in all; at most 65536"),
    ],
)
def test_a_locator_past_a_limit_is_refused_and_the_reason_says_which(params, kind, text):
    # DYN-46
    refusal = LIMITS.refuses(CLUSTER, "a", Params(params))
    assert refusal is not None
    assert refusal.kind == kind
    assert text in str(refusal)
    assert len(str(refusal)) < 200


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {f"{number:032}": "v" * 32 for number in range(1024)},
        {"k" * 256: "v" * 8192},
        {f"{number}": "v" * 8191 for number in range(8)},
        {"é" * 128: "é" * 4096},
    ],
)
def test_a_locator_at_the_limits_is_served(params):
    # DYN-46
    assert LIMITS.refuses(CLUSTER, "x" * 4096, params) is None


@pytest.mark.parametrize("type_url", [CLUSTER, VIRTUAL_HOST])
@pytest.mark.parametrize(("name", "size"), [("x" * 4097, 4097), ("é" * 2049, 4098), ("\udc80" * 2000, 6000)])
def test_a_name_past_the_limit_is_refused_without_being_quoted(type_url, name, size):
    # VHD-26
    refusal = LIMITS.refuses(type_url, name, None)
    assert refusal is not None
    assert (refusal.kind, refusal.message) == (
        "name_bytes",
        f"the name has {size} bytes; at most 4096 are accepted",
    )


def test_a_type_url_past_the_limit_is_refused():
    # DYN-46
    refusal = LIMITS.refuses("x" * 4097, "a", None)
    assert refusal is not None
    assert refusal.kind == "type_url_bytes"
