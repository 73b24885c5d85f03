"""Every option of every command by its environment variable."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.core import ParameterSource
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.cli.rig import Daemon, run
from xdsprism import Limits
from xdsprism.cli.main import main
from xdsprism.messages.protos import find_message

OPTIONS = [
    (name, option)
    for name, command in sorted(main.commands.items())
    for option in command.params
    if isinstance(option, click.Option) and option.expose_value
]
WORDS: dict[str, str] = {
    "serve": "CONFIG",
    "check": "CONFIG",
    "diff": "CONFIG",
    "get": "cds",
    "watch": "cds",
    "bench": "cds",
    "import": "-",
}


def ident(value: object) -> str:
    return value.opts[-1] if isinstance(value, click.Option) else str(value)


def variable(option: click.Option) -> str:
    (long,) = [each for each in option.opts if each.startswith("--")]
    return "XDSPRISM_" + long[2:].replace("-", "_").upper()


def arguments(name: str, config: Path) -> list[str]:
    if name in ("explain", "matrix"):
        return ["cds", "shop"]
    word = WORDS.get(name)
    return [] if word is None else [str(config) if word == "CONFIG" else word]


# Values of the kinds that are ours, and what becomes of them.
NAMED: dict[str, tuple[str, Any]] = {
    "NAME": ("a.example b.example", ("a.example", "b.example")),
    "SECONDS": ("7", 7.0),
    "N%": ("7%", 7.0),
    "NAME=NUMBER": ("types=7 requests=9", Limits(types=7, requests=9)),
}


def value_for(option: click.Option, file: Path) -> tuple[str, Any]:
    """A value that it takes and that is not the default, and what becomes of it."""
    kind: Any = option.type
    if isinstance(kind, click.Choice):
        return kind.choices[-1], kind.choices[-1]
    if option.is_flag:
        return ("no", False) if option.default else ("yes", True)
    if isinstance(kind, click.Path):
        path = str(file if kind.file_okay else file.parent)
        return path, path
    if kind.name in NAMED:
        return NAMED[kind.name]
    if option.multiple:
        return "a=1 b=2", {"a": "1", "b": "2"}
    if isinstance(kind, (click.FloatRange, click.IntRange)):
        return "7", 7
    return ("127.0.0.1:7", "127.0.0.1:7") if kind.name.startswith("HOST") else ("some,words", "some,words")


def parsed(name: str, words: list[str]) -> click.Context:
    whole = click.Context(main, **main.context_settings)
    return main.commands[name].make_context(name, list(words), parent=whole)


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=ident)
def test_an_option_can_be_set_by_its_variable(
    name: str, option: click.Option, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert option.name is not None
    file = config / "clusters.yaml"
    text, expected = value_for(option, file)
    monkeypatch.setenv(variable(option), text)
    ctx = parsed(name, arguments(name, config))
    assert ctx.params[option.name] == expected
    assert ctx.get_parameter_source(option.name) is ParameterSource.ENVIRONMENT


@pytest.mark.parametrize("name", ["serve", "relay", "check", "explain", "matrix"])
def test_descriptors_can_be_given_by_their_variable(
    name: str, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which no command sees as a value: the types are known from then on."""
    own = FileDescriptorSet()
    own.file.add(name=f"own_{name}.proto", package="own", syntax="proto3").message_type.add(name=f"For{name.title()}")
    (tmp_path / "own.binpb").write_bytes(own.SerializeToString())
    monkeypatch.setenv("XDSPRISM_DESCRIPTORS", str(tmp_path / "own.binpb"))
    parsed(name, arguments(name, config))
    assert find_message(f"own.For{name.title()}") is not None


@pytest.mark.parametrize(("name", "option"), [each for each in OPTIONS if each[1].is_flag], ids=ident)
@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", False), ("no", False), ("off", False), ("false", False), ("1", True), ("on", True), ("Yes", True)],
)
def test_a_switch_takes_yes_and_no(
    name: str, option: click.Option, config: Path, monkeypatch: pytest.MonkeyPatch, text: str, *, expected: bool
) -> None:
    assert option.name is not None
    monkeypatch.setenv(variable(option), text)
    assert parsed(name, arguments(name, config)).params[option.name] is expected


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (name, option)
        for name, option in OPTIONS
        if type(option.type) is not type(click.STRING)
        and (not isinstance(option.type, click.Path) or option.type.exists)  # what is to be written may be any path
    ],
    ids=ident,
)
def test_a_wrong_value_names_the_variable(
    name: str, option: click.Option, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable(option), "nonsense/of:all=kinds" if option.type.name != "KEY=VALUE" else "nonsense")
    done = run(name, *arguments(name, config))
    assert done.exit_code == 2
    assert f"(set by {variable(option)})" in done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"XDSPRISM_NODE_PARAMS": "a,,b"},
            "--node-params 'a,,b' is not a list of keys: write env,version or '*' or none",
        ),
        ({"XDSPRISM_LOAD_CLUSTERS": ","}, "--load-clusters ',' is not a list of clusters: write shop,checkout or '*'"),
        (
            {"XDSPRISM_TLS_CLIENT_CA": "x"},
            "--tls-client-ca needs a server certificate: give --tls-cert and --tls-key too",
        ),
    ],
)
def test_errors_raised_later_name_the_variable_too(
    variables: dict[str, str], said: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = run("serve", config)
    assert (done.exit_code, done.stderr) == (2, f"Error: {said} (set by {next(iter(variables))})\n")


def test_a_wrong_value_that_was_typed_names_the_option_alone(config: Path) -> None:
    done = run("serve", config, "--listen", "nonsense")
    assert done.exit_code == 2
    assert "Invalid value for '--listen': " in done.stderr
    assert "XDSPRISM_" not in done.stderr


def test_an_empty_variable_is_none(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDSPRISM_LISTEN", "")
    assert parsed("serve", [str(config)]).params["listen"] == "127.0.0.1:18000"


def test_a_typed_option_wins_over_a_variable(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDSPRISM_LISTEN", "127.0.0.1:1")
    assert parsed("serve", [str(config), "--listen", "127.0.0.1:2"]).params["listen"] == "127.0.0.1:2"


def test_a_server_that_is_typed_comes_before_a_bootstrap_in_a_variable(
    shared: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bootstrap.json"
    entry = {"server_uri": shared.listen, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    file.write_text(json.dumps({"xds_servers": [entry], "node": {"id": "me"}}))
    names = "cds/shop\ncds/shop-next\n"
    with monkeypatch.context() as patch:
        patch.setenv("XDSPRISM_BOOTSTRAP", str(file))
        assert run("get", "cds", "--server", shared.listen, "-o", "name").stdout == names
        patch.setenv("XDSPRISM_SERVER", "127.0.0.1:1")
        done = run("get", "cds", "-o", "name")
        assert done.exit_code == 2
        assert done.stderr.endswith("give one of them (set by XDSPRISM_SERVER and XDSPRISM_BOOTSTRAP)\n")
        assert run("get", "cds", "--bootstrap", file, "-o", "name").stdout == names


def test_a_config_that_is_typed_comes_before_an_admin_port_in_a_variable(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDSPRISM_ADMIN", "127.0.0.1:1")
    assert run("explain", "cds", "shop", config).exit_code == 0
    done = run("explain", "cds", "shop")
    assert (done.exit_code, "no answer from the admin port 127.0.0.1:1" in done.stderr) == (1, True)


def test_serve_by_variables_alone(tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"REST": "127.0.0.1:0", "LOG_FORMAT": "json", "LOG_LEVEL": "warning", "ENGINE": "h2"}.items():
        monkeypatch.setenv(f"XDSPRISM_{name}", value)
    with Daemon(tmp_path, config) as daemon:
        assert daemon.rest
        assert "configuration loaded" not in daemon.stderr


@pytest.mark.parametrize("name", [None, *sorted(main.commands)])
def test_help_tells_of_variables_once(name: str | None) -> None:
    text = run(*([name] if name is not None else []), "--help").stdout
    assert re.sub(r"\s+", " ", text).count("Every option can be set by an environment variable too") == 1
    assert text.count("XDSPRISM_") == 1
