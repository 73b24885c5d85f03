"""xdstp names: many spellings, one resource."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdsprism.core.model.types import CLUSTER, Params
from xdsprism.core.model.xdstp import (
    XdsName,
    authority_of,
    canonical,
    collection_of,
    complaint,
    is_glob,
    is_wild,
    own_name,
    parse,
    spelled,
)
from xdsprism.errors import UsageError

LISTENER = "envoy.config.listener.v3.Listener"

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
names = st.builds(
    XdsName,
    authority=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    type=text,
    id=text,
    context=st.dictionaries(text, st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=3).map(
        Params
    ),
)


def test_a_name_is_an_authority_a_type_an_id_and_context() -> None:
    name = parse(f"xdstp://auth.example/{LISTENER}/grpc/client/a?project=12&env=prod")
    assert name == XdsName("auth.example", LISTENER, "grpc/client/a", Params({"env": "prod", "project": "12"}))


# XTP-1, XTP-11
@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("xdstp://a/T/foo", "xdstp://a/T/foo"),
        ("xdstp:///T/foo", "xdstp:///T/foo"),
        ("xdstp://a/T/foo?", "xdstp://a/T/foo"),
        ("xdstp://a/T/foo?b=2&a=1", "xdstp://a/T/foo?a=1&b=2"),
        ("xdstp://a/T/foo?a=1&&b=2&", "xdstp://a/T/foo?a=1&b=2"),
        ("xdstp://a/T/foo?a=1&a=2", "xdstp://a/T/foo?a=2"),
        ("xdstp://a/T/foo?a=2&b=1&a=1", "xdstp://a/T/foo?a=1&b=1"),
        ("xdstp://a/T/foo?a=", "xdstp://a/T/foo?a="),
        ("xdstp://a/T/foo?a=b=c", "xdstp://a/T/foo?a=b%3Dc"),
        ("xdstp://a/T/foo#entry=x,alt=xdstp://b/T/bar?x=y", "xdstp://a/T/foo"),
        ("xdstp://a/T/foo?a=1#", "xdstp://a/T/foo?a=1"),
        ("xdstp://a/T/foo#x?a=1", "xdstp://a/T/foo"),
        ("xdstp://a/T/foo%23x", "xdstp://a/T/foo%23x"),
        ("xdstp://a/T/foo?a=1%23x", "xdstp://a/T/foo?a=1%23x"),
        ("xdstp://a/T/foo/bar//baz/", "xdstp://a/T/foo/bar//baz/"),
        ("xdstp://a/T/[::1]:80", "xdstp://a/T/%5B::1%5D:80"),
        ("xdstp://a/T/%5b%3a%3a1%5d%3A80", "xdstp://a/T/%5B::1%5D:80"),
        ("xdstp://a/T/%66oo", "xdstp://a/T/foo"),
        ("xdstp://a/T/a%2Fb", "xdstp://a/T/a/b"),
        ("xdstp://a/T%2Fx/b", "xdstp://a/T%2Fx/b"),
        ("xdstp://a/T/100%25", "xdstp://a/T/100%25"),
        ("xdstp://a/T/%2525", "xdstp://a/T/%2525"),
        ("xdstp://a/T/a b", "xdstp://a/T/a%20b"),
        ("xdstp://a/T/a+b", "xdstp://a/T/a+b"),
        ("xdstp://a/T/x?k=a+b", "xdstp://a/T/x?k=a%2Bb"),
        ("xdstp://a/T/x?k=%26&%3D=1", "xdstp://a/T/x?%3D=1&k=%26"),
        ("xdstp://a/T/\u00e9", "xdstp://a/T/%C3%A9"),
        ("xdstp://[::1]:80/T/x", "xdstp://[::1]:80/T/x"),
        ("xdstp://A.Example/T/x", "xdstp://A.Example/T/x"),
    ],
)
def test_every_spelling_of_a_name_becomes_the_same(spelling: str, expected: str) -> None:
    assert canonical(spelling) == expected


@pytest.mark.parametrize("name", ["", "foo", "foo?b=1&a=2#x", "http://a/T/foo", "XDSTP://a/T/x", "xdstpx", "%zz", "*"])
def test_any_other_name_is_left_alone(name: str) -> None:
    assert canonical(name) == name
    assert authority_of(name) is None
    assert not is_glob(name)


@given(names)
def test_a_printed_name_parses_into_the_same_name(name: XdsName) -> None:
    assert parse(str(name)) == name
    assert canonical(str(name)) == str(name)
    assert str(name).isascii()


@given(st.text(st.sampled_from("aT/?&=#%2F5*:\u00e9 "), max_size=20))
def test_a_name_is_refused_or_has_one_canonical_form(tail: str) -> None:
    try:
        once = canonical("xdstp://" + tail)
    except UsageError:
        return
    assert canonical(once) == once
    assert parse(once) == parse("xdstp://" + tail)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("xdstp:", "start with xdstp://"),
        ("xdstp:/T/foo", "start with xdstp://"),
        ("xdstp:T/foo", "start with xdstp://"),
        ("xdstp://", "no resource type"),
        ("xdstp://auth", "no resource type"),
        ("xdstp://auth/", "no resource type"),
        ("xdstp://auth//foo", "no resource type"),
        ("xdstp://auth#/T/foo", "no resource type"),
        ("xdstp://auth?/T/foo", "no resource type"),
        ("xdstp://auth/T", "no id"),
        ("xdstp://auth/T/", "no id"),
        ("xdstp://auth/T/?a=b", "no id"),
        ("xdstp://auth/T/a?b", "key=value, not 'b'"),
        ("xdstp://auth/T/a?=b", "key=value, not '=b'"),
        ("xdstp://auth/T/50%", "'%' is not valid percent-encoding"),
        ("xdstp://auth/T/%zz", "'%zz' is not valid percent-encoding"),
        ("xdstp://auth/T/a?k=%1", "'%1' is not valid percent-encoding"),
        ("xdstp://%/T/a", "'%' is not valid percent-encoding"),
        ("xdstp://auth/T/%ff", "UTF-8"),
    ],
)
@pytest.mark.parametrize("read", [canonical, authority_of, is_glob])
def test_a_name_that_is_broken_is_refused_with_the_reason(read, name: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(name)
    assert why in str(caught.value)
    assert repr(name) in str(caught.value)


# XTP-12: whom to ask
@pytest.mark.parametrize(
    ("name", "authority"),
    [("xdstp://auth.example/T/x", "auth.example"), ("xdstp:///T/x", ""), ("xdstp://a%20b/T/x", "a b")],
)
def test_the_authority_of_a_name_may_be_empty(name: str, authority: str) -> None:
    assert authority_of(name) == authority


@pytest.mark.parametrize(
    ("name", "glob"),
    [
        ("xdstp://a/T/*", True),
        ("xdstp://a/T/foo/*", True),
        ("xdstp://a/T/foo/*?a=b#x", True),
        ("xdstp://a/T/foo*", False),
        ("xdstp://a/T/*/foo", False),
        ("xdstp://a/T/foo?a=*", False),
    ],
)
def test_a_glob_ends_in_a_step_that_is_a_star(name: str, glob: bool) -> None:
    assert is_glob(name) is glob


# -- collections


# XTP-3, XTP-4
@pytest.mark.parametrize(
    ("name", "glob"),
    [
        ("xdstp://a/T/foo", "xdstp://a/T/*"),
        ("xdstp://a/T/foo/bar", "xdstp://a/T/foo/*"),
        ("xdstp:///T/foo/bar/baz", "xdstp:///T/foo/bar/*"),
        ("xdstp://a/T/foo/bar?a=1&b=x/y", "xdstp://a/T/foo/*?a=1&b=x/y"),
        ("xdstp://a/T/foo/", "xdstp://a/T/foo/*"),
        ("xdstp://a/T/a%3Fb/c", "xdstp://a/T/a%3Fb/*"),
        ("foo/bar", None),
        ("*", None),
    ],
)
def test_a_name_is_in_the_collection_one_step_up(name: str, glob: str | None) -> None:
    assert collection_of(name) == glob
    assert is_wild(name) == (name == "*")
    assert glob is None or is_wild(glob)


@given(names)
def test_a_name_and_its_collection_differ_in_the_last_step_alone(name: XdsName) -> None:
    glob = collection_of(str(name))
    assert glob is not None
    whole = parse(glob)
    assert (whole.authority, whole.type, whole.context) == (name.authority, name.type, name.context)
    assert whole.is_glob
    assert whole.id == name.id.rpartition("/")[0] + ("/*" if "/" in name.id else "*")
    assert is_wild(str(name)) == name.is_glob


# XTP-9, XTP-10
@given(names)
def test_each_name_that_a_resource_may_have_may_be_subscribed_to(name: XdsName) -> None:
    url = f"type.googleapis.com/{name.type}" if "/" not in name.type else name.type
    try:
        own = own_name(str(name), url)
    except UsageError:
        return
    assert own == str(name)
    assert complaint(own, url, globs=False) is None


def test_a_name_that_is_not_xdstp_may_be_anything() -> None:
    assert own_name("foo/*#x", "T") == "foo/*#x"
    assert complaint("foo/*#x", "T", globs=False) is None
    assert spelled("foo/*#x") == "foo/*#x"


# XTP-11: directives are for whoever asks
def test_a_name_may_be_asked_for_with_directives_and_reserved_context() -> None:
    name = "xdstp://a/x.T/foo?xds.resource.vip=1#entry=b"
    assert complaint(name, "type.googleapis.com/x.T", globs=False) is None
    assert spelled(name) == "xdstp://a/x.T/foo?xds.resource.vip=1"


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        ("a#alt=b", "no directives"),
        ("foo/*", "glob collection"),
        ("a?xds.node=x", "'xds.node'"),
    ],
)
def test_a_name_that_only_subscribes_is_refused_as_the_name_of_a_resource(tail: str, why: str) -> None:
    # XTP-10, XTP-11
    with pytest.raises(UsageError, match=why):
        own_name(f"xdstp://x/envoy.config.cluster.v3.Cluster/{tail}", CLUSTER)
