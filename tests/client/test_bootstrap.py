"""The gRPC bootstrap: its contents, where it is found, and its errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from envoy.config.core.v3.base_pb2 import Node

from xdsprism.client import bootstrap as module
from xdsprism.client.bootstrap import Bootstrap, CallCreds, ChannelCreds, ServerConfig, TlsFiles
from xdsprism.core.model.types import NO_PARAMS, Params
from xdsprism.errors import ConfigError, UsageError

LISTENER = "envoy.config.listener.v3.Listener"
PLAIN = [{"type": "insecure"}]
V2_SERVER = {"server_uri": "one:1", "channel_creds": PLAIN}
SERVER = {**V2_SERVER, "server_features": ["xds_v3"]}
OTHER = {"server_uri": "two:2", "channel_creds": PLAIN, "server_features": ["xds_v3"]}
ROOT = {"xds_servers": [SERVER]}


def load(source: Any, **environ: str) -> Bootstrap:
    return Bootstrap.load(source, environ)


def server(**fields: Any) -> ServerConfig:
    return load({"xds_servers": [{**SERVER, **fields}]}).servers[0]


def secured(**fields: Any) -> ServerConfig:
    return server(channel_creds=[{"type": "tls"}], **fields)


def problems(source: Any, **environ: str) -> dict[str, str]:
    """What is wrong, by path."""
    with pytest.raises(ConfigError) as caught:
        load(source, **environ)
    assert len({problem.path for problem in caught.value.problems}) == len(caught.value.problems)
    return {problem.path: problem.message for problem in caught.value.problems}


def uris(servers: tuple[ServerConfig, ...]) -> list[str]:
    return [each.uri for each in servers]


# -- where it is found


# BST-1
def test_every_way_to_give_a_bootstrap_means_the_same(tmp_path: Path) -> None:
    text = json.dumps(ROOT)
    path = tmp_path / "bootstrap.json"
    path.write_text("\ufeff" + text, encoding="utf-8")
    expected = load(ROOT)
    assert uris(expected.servers) == ["one:1"]
    assert load(text) == load(f"\n\t {text}") == load(path) == load(str(path)) == expected
    assert load(None, GRPC_XDS_BOOTSTRAP=str(path)) == load(None, GRPC_XDS_BOOTSTRAP_CONFIG=text) == expected


# BST-1
def test_the_path_in_the_environment_wins_over_the_text(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.json"
    path.write_text(json.dumps(ROOT))
    text = json.dumps({"xds_servers": [OTHER]})
    found = load(None, GRPC_XDS_BOOTSTRAP=str(path), GRPC_XDS_BOOTSTRAP_CONFIG=text)
    assert uris(found.servers) == ["one:1"]
    assert uris(load(None, GRPC_XDS_BOOTSTRAP="", GRPC_XDS_BOOTSTRAP_CONFIG=text).servers) == ["two:2"]


def test_without_any_bootstrap_the_error_says_what_to_set() -> None:
    assert problems(None) == {
        "": "no bootstrap: set GRPC_XDS_BOOTSTRAP to the path of one, or GRPC_XDS_BOOTSTRAP_CONFIG to its JSON"
    }


def test_a_source_that_is_given_wins_over_the_environment() -> None:
    assert uris(load(ROOT, GRPC_XDS_BOOTSTRAP="/nowhere").servers) == ["one:1"]


@pytest.mark.parametrize("name", ["absent.json", "nul\0.json"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(ConfigError, match=r"can't read the bootstrap:") as caught:
        load(path)
    assert caught.value.problems[0].file == path
    with pytest.raises(ConfigError, match=r"can't read the bootstrap \(named by GRPC_XDS_BOOTSTRAP\):"):
        load(None, GRPC_XDS_BOOTSTRAP=path)


# DYN-53
def test_later_changes_of_the_mapping_do_not_change_the_bootstrap() -> None:
    source = {"xds_servers": [dict(SERVER)], "dynamic_parameters": {"env": "prod"}}
    found = load(source)
    source["dynamic_parameters"]["env"] = "test"  # type: ignore[call-overload]
    source["xds_servers"].clear()  # type: ignore[attr-defined]
    assert found.params == Params({"env": "prod"})
    assert uris(found.servers) == ["one:1"]
    with pytest.raises(TypeError):
        found.authorities["x"] = found.root  # type: ignore[index]


# -- broken text


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{\n  "xds_servers": [\n}', 3, "not JSON: "),
        ('{"a": 1', 1, "not JSON: "),
        ('{"node": {"id": "a", "id": "b"}}', 0, "duplicate key 'id' in an object"),
        ('{"a": NaN}', 0, "NaN is not JSON"),
        ('{"node": {"id": "\\ud800"}}', 0, "'\\ud800' is not a valid character"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", 0, "nested too deeply"),
    ],
)
def test_text_that_is_no_json_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, GRPC_XDS_BOOTSTRAP_CONFIG=text)
    [problem] = caught.value.problems
    assert (problem.file, problem.line) == ("GRPC_XDS_BOOTSTRAP_CONFIG", line)
    assert problem.message.startswith(message)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.json"
    path.write_bytes(b'{"node": {"id": "\xff"}}')
    assert problems(path) == {"": "not UTF-8"}


@pytest.mark.parametrize("text", ["null", "[]", '"{}"', "3"])
def test_a_file_that_holds_no_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bootstrap.json"
    path.write_text(text)
    assert problems(path)[""].startswith("expected an object, got ")


def test_a_mapping_that_is_no_json_is_refused() -> None:
    assert problems({**ROOT, "node": {"id": b"x"}})[""].startswith("can't be written as JSON: ")
    assert problems({**ROOT, "x": float("nan")})[""].startswith("can't be written as JSON: ")


def nested(depth: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(depth):
        metadata = {"x": metadata}
    return {**ROOT, "node": {"metadata": metadata}}


@pytest.mark.parametrize("depth", [33, 34, 400])  # three messages for each, and protobuf takes a hundred
def test_a_node_that_a_server_could_not_read_is_refused(depth: int) -> None:
    assert problems(nested(depth))["node"].startswith("nested too deeply")
    assert load(nested(32)).node


def test_a_number_that_protobuf_has_no_room_for_is_refused() -> None:
    assert list(problems({**ROOT, "node": {"metadata": {"x": 10**400}}})) == ["node"]


# -- servers


def test_fields_that_are_not_known_are_ignored() -> None:  # BST-1
    strange = {"certificate_providers": {"x": 1}, "xds_servers": [{**SERVER, "future": [1]}], "node": {"future": 1}}
    assert load(strange) == load(ROOT)


def test_null_counts_as_absent() -> None:
    keys = ("node", "authorities", "dynamic_parameters", "server_listener_resource_name_template")
    nothing = {**dict.fromkeys(keys), "xds_servers": [{**SERVER, "call_creds": None}]}
    assert load(nothing) == load(ROOT)


# VER-5, VER-6, VER-7
@pytest.mark.parametrize(
    ("features", "v3"),
    [
        (["xds_v3"], True),
        ([1, None, {"xds_v3": True}, ["xds_v3"], "xds_v9", "xds_v3", 1.5, False], True),
        ([], False),
        (None, False),
        (["XDS_V3", "xds_v2", ["xds_v3"]], False),
    ],
)
def test_server_features_choose_the_transport_and_unknown_ones_are_ignored(features: Any, v3: bool) -> None:
    assert server(server_features=features).v3 is v3


def test_every_server_chooses_its_transport_by_itself() -> None:  # VER-8
    assert [each.v3 for each in load({"xds_servers": [V2_SERVER, OTHER]}).servers] == [False, True]


# VER-12
@pytest.mark.parametrize(
    ("value", "v3"),
    [("false", False), ("FALSE", False), ("0", False), ("no", False), ("Off", False), ("true", True), ("", True)],
)
def test_the_environment_can_switch_v3_off(value: str, v3: bool) -> None:
    found = load(
        {**ROOT, "authorities": {"a": {"xds_servers": [OTHER]}}},
        GRPC_XDS_EXPERIMENTAL_V3_SUPPORT=value,
    )
    assert found.servers[0].v3 is v3
    assert found.authority("a").servers[0].v3 is v3


def test_each_server_feature_sets_its_own_flag() -> None:
    words = (
        "fail_on_data_errors",
        "ignore_resource_deletion",
        "resource_timer_is_transient_error",
        "trusted_xds_server",  # BST-6
    )
    for word in words:
        found = server(server_features=[word])
        assert [getattr(found, other) for other in words] == [word == other for other in words]
        assert not found.v3


# XTP-13
def test_server_entries_are_equal_if_all_that_is_understood_is_equal() -> None:
    one, same = server(), server(server_features=["xds_v3", "future", 1], future=1)
    assert one == same
    assert len({one, same}) == 1
    assert one != server(server_features=[])
    assert one != server(server_uri="two:2")
    assert secured() != secured(call_creds=[jwt("t")])


def test_the_servers_of_a_bootstrap_keep_their_order() -> None:
    assert uris(load({"xds_servers": [OTHER, SERVER]}).servers) == ["two:2", "one:1"]


# -- credentials


def jwt(path: Any) -> dict[str, Any]:
    return {"type": "jwt_token_file", "config": {"jwt_token_file": path}}


# BST-2
def test_the_first_channel_creds_that_are_supported_are_used() -> None:
    creds = [{"type": "future", "config": 3}, {"type": "tls"}, {"type": "insecure"}]
    assert server(channel_creds=creds).channel == ChannelCreds("tls", TlsFiles())
    assert (
        server(channel_creds=[{"type": "insecure", "config": 3}, {"type": "tls", "config": 3}]).channel.config is None
    )


# BST-2
def test_channel_creds_none_of_which_is_supported_are_refused() -> None:
    creds = [{"type": "future"}, {"type": "xds"}]
    assert problems({"xds_servers": [SERVER, {**SERVER, "channel_creds": creds}]}) == {
        "xds_servers[1].channel_creds": (
            "none of these is supported: future, xds; use one of tls, insecure, google_default"
        )
    }


# BST-2
@pytest.mark.parametrize("creds", [{}, {"channel_creds": None}, {"channel_creds": []}])
def test_channel_creds_may_be_left_out_and_that_never_means_plain_text(creds: Any) -> None:
    entry = {"server_uri": "one:1", "call_creds": [jwt("/a")], **creds}
    (found,) = load({"xds_servers": [entry]}).servers
    assert (found.channel, found.is_plain_text) == (None, False)
    assert found.calls == (CallCreds("jwt_token_file", "/a"),)


# BST-3
def test_tls_files_and_their_interval_are_read() -> None:
    config = {
        "ca_certificate_file": "ca",
        "certificate_file": "cert",
        "private_key_file": "key",
        "refresh_interval": "1.5s",
        "future": 1,
    }
    assert server(channel_creds=[{"type": "tls", "config": config}]).channel.config == TlsFiles(
        "ca", "cert", "key", 1.5
    )
    assert TlsFiles().refresh_interval == 600


# BST-3
@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"certificate_file": "c"}, "private_key_file"),
        ({"private_key_file": "k"}, "certificate_file"),
        ({"certificate_file": "c", "private_key_file": ""}, "private_key_file"),
        ({"ca_certificate_file": 3}, "ca_certificate_file"),
        ({"refresh_interval": 600}, "refresh_interval"),
        ({"refresh_interval": "600"}, "refresh_interval"),
        ({"refresh_interval": "-1s"}, "refresh_interval"),
        ({"refresh_interval": "0s"}, "refresh_interval"),
        ({"refresh_interval": "10m"}, "refresh_interval"),
        ({"refresh_interval": "1.0000000001s"}, "refresh_interval"),
    ],
)
def test_a_tls_configuration_that_makes_no_sense_is_refused(config: Any, field: str) -> None:
    entry = {**SERVER, "channel_creds": [{"type": "future"}, {"type": "tls", "config": config}]}
    assert list(problems({"xds_servers": [entry]})) == [f"xds_servers[0].channel_creds[1].config.{field}"]


# BST-2
def test_google_default_is_refused_where_its_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    # Not even with a weaker one behind it: a missing package must not turn a secure channel into plain text.
    entry = {**SERVER, "channel_creds": [{"type": "google_default"}, {"type": "insecure"}]}
    assert problems({"xds_servers": [entry]}) == {
        "xds_servers[0].channel_creds[0].type": (
            "google_default needs a package that is not installed: google-auth[requests]"
        )
    }


def test_google_default_is_taken_where_its_library_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    assert server(channel_creds=[{"type": "google_default"}]).channel == ChannelCreds("google_default")


def test_a_library_counts_as_missing_where_the_package_around_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google", ModuleType("google"))  # no package, so nothing can be inside
    assert list(problems({"xds_servers": [{**SERVER, "channel_creds": [{"type": "google_default"}]}]})) == [
        "xds_servers[0].channel_creds[0].type"
    ]


# BST-4
def test_all_call_creds_that_are_supported_are_used_and_others_ignored() -> None:
    creds = [{"type": "future", "config": 3}, jwt("/a"), jwt("/b"), jwt("/a")]
    assert secured(call_creds=creds).calls == (CallCreds("jwt_token_file", "/a"), CallCreds("jwt_token_file", "/b"))
    assert server(call_creds=[{"type": "future"}]).calls == ()


# BST-4
@pytest.mark.parametrize(
    ("creds", "path"),
    [
        ({"type": "jwt_token_file"}, ".config.jwt_token_file"),
        ({"type": "jwt_token_file", "config": 1}, ".config"),
        (jwt(""), ".config.jwt_token_file"),
        (jwt(None), ".config.jwt_token_file"),
        (jwt(1), ".config.jwt_token_file"),
        ({"config": {}}, ".type"),
        ("jwt_token_file", ""),
    ],
)
def test_call_creds_that_make_no_sense_are_refused(creds: Any, path: str) -> None:
    entry = {**SERVER, "channel_creds": [{"type": "tls"}], "call_creds": [creds]}
    assert f"xds_servers[0].call_creds[0]{path}" in problems({"xds_servers": [entry]})


# BST-4
def test_a_token_over_plain_text_is_refused() -> None:
    found = problems({"xds_servers": [{**SERVER, "call_creds": [jwt("/a")]}]})
    assert "plain text" in found["xds_servers[0].call_creds"]
    with pytest.raises(UsageError, match="plain text"):
        ServerConfig("one:1", ChannelCreds("insecure"), (CallCreds("jwt_token_file", "/a"),))


# -- node


def test_the_node_is_read_with_either_spelling_of_a_field() -> None:
    source = {
        "id": "a",
        "cluster": "lab",
        "metadata": {"k": [1, "x", None, {"a": True}]},
        "locality": {"region": "r", "subZone": "s", "future": 1},
        "user_agent_name": "me",
        "build_version": "of v2",
        "extensions": [{"name": "x", "future": 1}],
    }
    node = Node.FromString(load({**ROOT, "node": source}).node)
    expected = Node(id="a", cluster="lab", user_agent_name="me")
    expected.metadata.update({"k": [1, "x", None, {"a": True}]})
    expected.locality.region, expected.locality.sub_zone = "r", "s"
    expected.extensions.add(name="x")
    assert node == expected


def test_no_node_is_an_empty_one() -> None:
    assert load(ROOT).node == b""


@pytest.mark.parametrize(
    ("node", "path"),
    [
        ("x", "node"),
        ({"id": 3}, "node.id"),
        ({"cluster": ["x"]}, "node.cluster"),
        ({"metadata": "x"}, "node.metadata"),
        ({"locality": {"region": {}}}, "node.locality.region"),
        ({"extensions": "x"}, "node.extensions"),
        ({"extensions": [{"name": 1}]}, "node.extensions[0].name"),
    ],
)
def test_a_wrong_type_in_the_node_is_named(node: Any, path: str) -> None:
    assert list(problems({**ROOT, "node": node})) == [path]


# -- dynamic parameters


# DYN-48, DYN-49, DYN-50
def test_parameters_belong_to_the_root_or_to_one_authority_and_are_never_merged() -> None:
    found = load(
        {
            **ROOT,
            "dynamic_parameters": {"env": "prod", "version": "v1"},
            "authorities": {
                "with": {"dynamic_parameters": {"env": "test"}},
                "empty": {"dynamic_parameters": {}},
                "without": {},
            },
        }
    )
    assert found.authority_of("foo").params == found.params == Params({"env": "prod", "version": "v1"})
    assert found.authority_of("xdstp://with/T/foo").params == Params({"env": "test"})
    assert found.authority_of("xdstp://empty/T/foo").params == NO_PARAMS
    assert found.authority_of("xdstp://without/T/foo").params == NO_PARAMS
    assert load(ROOT).params == NO_PARAMS


# DYN-57
@pytest.mark.parametrize("value", [1, True, None, 1.5, ["prod"], {"a": "b"}])
def test_a_parameter_that_is_no_string_makes_the_bootstrap_invalid(value: Any) -> None:
    wrong = {"dynamic_parameters": {"env": "prod", "a.b": value}}
    assert list(problems({**ROOT, **wrong, "authorities": {"a": wrong}})) == [
        'authorities.a.dynamic_parameters["a.b"]',
        'dynamic_parameters["a.b"]',
    ]


# DYN-57
@pytest.mark.parametrize("value", ["env=prod", ["env"], 1, False])
def test_parameters_that_are_no_object_make_the_bootstrap_invalid(value: Any) -> None:
    assert list(problems({**ROOT, "dynamic_parameters": value})) == ["dynamic_parameters"]


# DYN-54
def test_switched_off_parameters_are_not_read_at_all() -> None:
    wrong = {"dynamic_parameters": {"env": 1}}
    source = {**ROOT, **wrong, "authorities": {"a": wrong}}
    found = load(source, GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS="false")
    assert not found.dynamic_parameters
    assert found.params == found.authority("a").params == NO_PARAMS


# DYN-54
@pytest.mark.parametrize("environ", [{}, {"GRPC_EXPERIMENTAL_XDS_DYNAMIC_PARAMETERS": "true"}])
def test_parameters_are_read_unless_they_are_switched_off(environ: dict[str, str]) -> None:
    found = load({**ROOT, "dynamic_parameters": {"env": "prod"}}, **environ)
    assert found.dynamic_parameters
    assert found.params == Params({"env": "prod"})


# -- authorities


# FBK-6
def test_an_authority_has_servers_of_its_own_or_those_of_the_root() -> None:
    authorities = {"own": {"xds_servers": [OTHER, SERVER]}, "none": {}, "empty": {"xds_servers": []}, "null": None}
    found = load({**ROOT, "authorities": authorities})
    assert uris(found.authority_of("xdstp://own/T/x").servers) == ["two:2", "one:1"]
    assert uris(found.authority_of("xdstp://none/T/x").servers) == ["one:1"]
    assert uris(found.authority_of("xdstp://empty/T/x").servers) == ["one:1"]
    assert uris(found.authority_of("xdstp://null/T/x").servers) == ["one:1"]
    assert uris(found.authority_of("x").servers) == ["one:1"]


# FBK-6
def test_without_servers_at_the_root_every_authority_needs_its_own() -> None:
    found = load({"authorities": {"own": {"xds_servers": [OTHER]}}})
    assert uris(found.authority_of("xdstp://own/T/x").servers) == ["two:2"]
    with pytest.raises(UsageError, match="no server for 'x'"):
        found.authority_of("x")
    wrong = {"node": {"id": 1}, "authorities": {"own": {"xds_servers": [OTHER]}, "none": {}}}
    assert list(problems(wrong)) == ["node.id", "authorities.none.xds_servers"]


@pytest.mark.parametrize("source", [{}, {"xds_servers": []}, {"authorities": {}}, {"xds_servers": None}])
def test_without_any_server_there_is_no_bootstrap(source: Any) -> None:
    assert problems(source) == {"xds_servers": "missing: a client needs a server to ask"}


# XTP-12
def test_an_unknown_authority_is_an_error_of_the_caller() -> None:
    found = load({**ROOT, "authorities": {"b": {}, "a": {}}})
    with pytest.raises(UsageError, match="no authority 'c'; it has 'a', 'b'"):
        found.authority_of("xdstp://c/T/x")
    with pytest.raises(UsageError, match="no authority ''; it has none"):
        load(ROOT).authority_of("xdstp:///T/x")
    with pytest.raises(UsageError, match="no id"):
        found.authority_of("xdstp://a/T")


# XTP-12, A47: the empty authority has an entry too, and that is not the root
def test_the_empty_authority_is_one_of_its_own() -> None:
    found = load({**ROOT, "authorities": {"": {"xds_servers": [OTHER]}}})
    assert found.authority_of("xdstp:///T/x").name == ""
    assert uris(found.authority_of("xdstp:///T/x").servers) == ["two:2"]
    assert found.authority_of("x").name is None


# -- names of listeners: XTP-15

CLIENT = "client_listener_resource_name_template"
DEFAULT = "client_default_listener_resource_name_template"
GRPC_SERVER = "server_listener_resource_name_template"


@pytest.mark.parametrize(
    ("template", "target", "name"),
    [
        (None, "a b/c?d", "a b/c?d"),
        ("%s", "[::1]:80", "[::1]:80"),
        ("grpc/%s/x", "a", "grpc/a/x"),
        ("fixed", "a", "fixed"),
        ("%s-%s", "%s", "%s-%s"),
        ("xdstp://a/T/client/%s?p=1", "h:80/x", "xdstp://a/T/client/h:80/x?p=1"),
        ("xdstp://a/T/%s", "[::1]:80", "xdstp://a/T/%5B::1%5D:80"),
        ("xdstp://a/T/%s", "a?b#c%d \u00e9", "xdstp://a/T/a%3Fb%23c%25d%20%C3%A9"),
        ("xdstp://a/T/%s", "!$&'()*+,;=:@-._~/", "xdstp://a/T/!$&'()*+,;=:@-._~/"),
    ],
)
def test_a_template_of_the_root_is_filled_in(template: str | None, target: str, name: str) -> None:
    assert load({**ROOT, DEFAULT: template}).listener_name(target) == name
    if template is not None:
        assert load({**ROOT, GRPC_SERVER: template}).server_listener_name(target) == name


def test_a_template_of_an_authority_is_filled_in_and_has_a_default() -> None:
    authorities = {"a.b": {CLIENT: "xdstp://a.b/T/client/%s?p=1"}, "plain": {}, "": {}, "x y": {}}
    found = load({**ROOT, DEFAULT: "not-used", "authorities": authorities})
    assert found.listener_name("s v", "a.b") == "xdstp://a.b/T/client/s%20v?p=1"
    assert found.listener_name("svc", "plain") == f"xdstp://plain/{LISTENER}/svc"
    assert found.listener_name("svc", "") == f"xdstp:///{LISTENER}/svc"
    spaced = found.listener_name("svc", "x y")
    assert spaced == f"xdstp://x%20y/{LISTENER}/svc"
    assert found.authority_of(spaced).name == "x y"
    with pytest.raises(UsageError, match="no authority 'c'"):
        found.listener_name("svc", "c")


@pytest.mark.parametrize("template", ["%s", "xdstp://a.bc/T/%s", "xdstp://a.b", "xdstp:///T/%s", "", 3])
def test_a_template_that_leaves_its_authority_makes_the_bootstrap_invalid(template: Any) -> None:
    assert list(problems({**ROOT, "authorities": {"a.b": {CLIENT: template}}})) == [f'authorities["a.b"].{CLIENT}']


def test_a_grpc_server_needs_a_template() -> None:
    with pytest.raises(UsageError, match=GRPC_SERVER):
        load(ROOT).server_listener_name("0.0.0.0:80")


# -- all faults at once


# BST-1
def test_every_fault_is_reported_with_the_file_and_the_path(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.json"
    source = {
        "xds_servers": [
            {"server_uri": 3, "channel_creds": [{"type": 4}, {"type": "insecure"}], "server_features": "xds_v3"},
            None,
            {"server_uri": "", "channel_creds": {}},
            {"channel_creds": [None, {"type": "insecure"}]},
        ],
        "node": {"id": 1},
        "authorities": {"a": [], "b": {"xds_servers": {}}},
        DEFAULT: [],
    }
    path.write_text(json.dumps(source))
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert {problem.path for problem in caught.value.problems} == {
        "xds_servers[0].server_uri",
        "xds_servers[0].channel_creds[0].type",
        "xds_servers[0].server_features",
        "xds_servers[1]",
        "xds_servers[2].server_uri",
        "xds_servers[2].channel_creds",
        "xds_servers[3].server_uri",
        "xds_servers[3].channel_creds[0]",
        "node.id",
        "authorities.a",
        "authorities.b.xds_servers",
        DEFAULT,
    }
    assert {problem.file for problem in caught.value.problems} == {str(path)}
    assert f"{path}: xds_servers[0].server_uri: expected a string, got the number 3" in str(caught.value)


# -- without a file


def test_one_server_is_enough_for_a_bootstrap() -> None:
    found = Bootstrap.for_server("h:1", environ={})
    assert found.servers == (ServerConfig("h:1", ChannelCreds("insecure"), (), frozenset({"xds_v3"})),)
    assert not Bootstrap.for_server("h:1", v3=False, environ={}).servers[0].v3
    full = Bootstrap.for_server(
        "h:1", features=["fail_on_data_errors"], params={"env": "prod"}, node={"id": "me"}, environ={}
    )
    assert full.servers[0].fail_on_data_errors
    assert full.servers[0].v3
    assert full.authority_of("x").params == Params({"env": "prod"})
    assert Node.FromString(full.node) == Node(id="me")
    with pytest.raises(ConfigError, match="server_uri: empty"):
        Bootstrap.for_server("", environ={})
