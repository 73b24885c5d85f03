"""The identities and validity times that are read from certificates."""

from __future__ import annotations

import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.certificates import identity
from xdsprism.server.certificates import Certificate, certificates, identities_of, read_certificate


def names(*, uris: tuple[str, ...] = (), hosts: tuple[str, ...] = (), common_name: str = "") -> tuple[str, ...]:
    return Certificate(0.0, 0.0, uris, hosts, common_name).identities


def test_spiffe_ids_come_first_then_other_uris_then_hosts() -> None:
    found = names(uris=("https://a/", "spiffe://prod/shop"), hosts=("b", "a"), common_name="somebody")
    assert found == ("spiffe://prod/shop", "https://a/", "b", "a")


def test_the_common_name_counts_only_if_there_is_no_other() -> None:
    assert names(common_name="envoy-7") == ("envoy-7",)
    assert names(hosts=("a",), common_name="envoy-7") == ("a",)
    assert names() == ()


def test_nothing_but_a_uri_can_pass_for_a_spiffe_id() -> None:
    assert names(hosts=("spiffe://prod/admin",), common_name="spiffe://prod/admin") == ()
    assert names(uris=("shop.example.com",)) == ()


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("certificates")
    file, _ = identity(
        folder, "shop", ("URI:spiffe://prod/shop", "DNS:shop.example.com", "IP:127.0.0.1", "email:a@b.c")
    )
    return file.read_bytes()


def test_a_certificate_as_openssl_makes_it(known: bytes) -> None:
    (read,) = certificates(b"some words before\n" + known)
    assert read is not None
    assert (read.uris, read.hosts, read.common_name) == (("spiffe://prod/shop",), ("shop.example.com",), "shop")
    assert read.not_before <= time.time() + 1
    assert read.not_after - read.not_before == 2 * 24 * 3600
    assert identities_of(known) == identities_of(ssl.PEM_cert_to_DER_cert(known.decode())) == read.identities


def test_several_are_read_in_their_order(known: bytes, tmp_path: Path) -> None:
    other = identity(tmp_path, "other")[0].read_bytes()
    broken = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    found = certificates(known + broken + other)
    assert [each.common_name if each else None for each in found] == ["shop", None, "other"]


def test_a_certificate_may_have_no_identity(tmp_path: Path) -> None:
    file, _ = identity(tmp_path, "Jörg", ())
    assert identities_of(file.read_bytes()) in {("Jörg",), ("J\xc3\xb6rg",)}  # as openssl understands its arguments


@given(at=st.integers(0, 10_000), change=st.binary(max_size=4))
def test_a_damaged_certificate_is_parsed_or_refused(known: bytes, at: int, change: bytes) -> None:
    der = ssl.PEM_cert_to_DER_cert(known.decode())
    at %= len(der)
    damaged = der[:at] + change + der[at + len(change) :] if change else der[:at]
    assert all(isinstance(each, str) for each in identities_of(damaged))
    with suppress(ValueError):  # and nothing else
        read_certificate(damaged)
    assert identities_of(b"-----BEGIN CERTIFICATE-----\n" + damaged) == ()
