"""Errors that would end the attempt say what to do next: each text, as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.rig import FREE, Daemon, run, write
from tests.support.resources import static_cluster

CLUSTER = "{'@type': envoy.config.cluster.v3.Cluster, name: a, connect_timeout: 1s"
IS_REFUSED = "Error: the configuration is refused: 1 problem"


def refused(folder: Path, **files: str) -> list[str]:
    """The problems that `check` prints about these files, without their folder."""
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    done = run("check", folder)
    assert (done.exit_code, done.stdout) == (1, "")
    *problems, last = done.stderr.splitlines()
    assert last == IS_REFUSED
    return [each.removeprefix(f"{folder}/") for each in problems]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("static_resources: {clusters: []}\n", "bootstrap"),
        ("node: {id: a}\ndynamicResources: {}\n", "bootstrap"),
        ("'@type': envoy.config.bootstrap.v3.Bootstrap\n", "bootstrap"),
        ("configs:\n- '@type': type.googleapis.com/envoy.admin.v3.ClustersConfigDump\n", "config dump"),
        ("- '@type': type.googleapis.com/envoy.admin.v3.ClustersConfigDump\n", "config dump"),
        ("'@type': type.googleapis.com/envoy.admin.v3.ClustersConfigDump\n", "config dump"),
    ],
)
def test_what_envoy_has_is_to_be_imported(tmp_path: Path, text: str, kind: str) -> None:  # OPS-8
    told = f"is an Envoy {kind} and no resource: run `xdsprism import {tmp_path}/a.yaml --out DIR`"
    assert refused(tmp_path, a=text) == [f"a.yaml:1: {told}"]
    served = run("serve", tmp_path, "--listen", FREE, "--admin", FREE)
    assert (served.exit_code, served.stderr) == (1, f"{tmp_path}/a.yaml:1: {told}\n{IS_REFUSED}\n")


def test_a_bare_list_belongs_under_resources(tmp_path: Path) -> None:
    assert refused(tmp_path, a=f"- {CLUSTER}}}\n") == ["a.yaml:1: a list of resources: put it under `resources:`"]
    (tmp_path / "a.yaml").write_text(f"resources:\n- {CLUSTER}}}\n")
    assert run("check", tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("conditions", "rest"),
    [
        (["env=prod"], "env!=prod"),
        (["env=prod", "env=test"], "'not env in (prod, test)'"),
        (["env=prod and zone=a"], "zone!=a or env!=prod"),
        (["env exists"], "not env exists"),
        (["not env exists"], "env exists"),
        (["env!=prod"], "env=prod"),
        (['"a b"=c'], "'\"a b\"!=c'"),
    ],
)
def test_a_plain_document_beside_others_is_told_what_they_leave(
    tmp_path: Path, conditions: list[str], rest: str
) -> None:  # DYN-37
    others = "".join(f"---\n{CLUSTER}, $when: '{each}', lb_policy: RANDOM}}\n" for each in conditions)
    (problem,) = refused(tmp_path, a=others, b=f"{CLUSTER}}}\n")
    assert problem.startswith("b.yaml:1: envoy.config.cluster.v3.Cluster 'a': both match ")
    assert f" (the other is at {tmp_path}/a.yaml:" in problem
    assert problem.endswith(f"); add `$when: {rest}` here")
    (tmp_path / "b.yaml").write_text(f"'@type': envoy.config.cluster.v3.Cluster\n$when: {rest}\nname: a\n")
    done = run("check", tmp_path, "--validate", "off")
    assert done.exit_code == 0, done.stderr
    assert "No variant for" not in done.stdout


def test_a_plain_document_beside_others_that_leave_nobody_is_to_be_removed(tmp_path: Path) -> None:
    others = "".join(f"---\n{CLUSTER}, $when: '{each}'}}\n" for each in ("env=prod", "env!=prod"))
    (problem,) = refused(tmp_path, a=others, b=f"{CLUSTER}}}\n")
    assert problem.endswith("); remove this one: every client has one of the others")


def test_a_resource_that_is_there_twice_is_named_with_both_places(tmp_path: Path) -> None:  # DYN-37
    (problem,) = refused(tmp_path, a=f"\n\n{CLUSTER}}}\n", b="\n" * 8 + f"{CLUSTER}}}\n")
    places = f"{tmp_path}/a.yaml:3 and {tmp_path}/b.yaml:9"
    assert problem == (
        f"a.yaml:3: envoy.config.cluster.v3.Cluster 'a' is defined in {places}: both match every client: `true` and "
        "`true`; keep one, or say with `$when` which clients get which"
    )


def test_an_unknown_extension_can_be_wrapped_or_made_known(tmp_path: Path) -> None:
    own = "transport_socket: {name: x, typed_config: {'@type': acme.v1.Own, size: 5}}"
    told = "unknown type acme.v1.Own; wrap it in a TypedStruct, or make it known with --descriptors FILE"
    assert refused(tmp_path, a=f"{CLUSTER}, {own}}}\n") == [f"a.yaml:1: transport_socket.typed_config.@type: {told}"]


def test_an_unknown_resource_type_can_be_made_known(tmp_path: Path) -> None:
    told = "unknown type acme.v1.Own; --descriptors FILE makes types of your own known"
    assert refused(tmp_path, a="{'@type': acme.v1.Own, name: a}\n") == [f"a.yaml:1: @type: {told}"]


def test_a_field_that_is_nearly_another_is_named(tmp_path: Path) -> None:
    told = "no such field in envoy.config.cluster.v3.Cluster; did you mean lb_policy?"
    assert refused(tmp_path, a=f"{CLUSTER}, lb_polcy: RANDOM}}\n") == [f"a.yaml:1: lb_polcy: {told}"]


def test_a_mark_that_is_nearly_another_is_named(tmp_path: Path) -> None:
    told = "unknown key `$wen`; keys that begin with $ are `$when` and `$match`; did you mean $when?"
    assert refused(tmp_path, a=f"{CLUSTER}, $wen: env=prod}}\n") == [f"a.yaml:1: $wen: {told}"]


# -- names, types, limits and params


def test_explain_names_a_resource_that_is_nearly_the_one_asked_for(config: Path) -> None:
    done = run("explain", "rds", "mian", config)
    assert (done.exit_code, done.stderr) == (1, "Error: rds/mian does not exist; did you mean main?\n")


def test_explain_asks_a_server_for_a_name_that_is_near(shared: Daemon) -> None:
    done = run("explain", "rds", "mian", "--admin", shared.admin)
    assert (done.exit_code, done.stderr) == (1, "Error: rds/mian does not exist; did you mean main?\n")


def test_explain_suggests_only_names_that_the_policy_allows(tmp_path: Path, config: Path) -> None:  # OPS-2
    policy = tmp_path / "policy.yaml"
    policy.write_text("default: deny\nrules:\n- {identity: any, names: {cds: [shop-n*, shpo]}}\n")
    done = run("explain", "cds", "shpo", config, "--policy", policy, "--as", "anonymous")
    assert done.stderr.startswith("Error: cds/shpo does not exist for anonymous, by rule 1, ")
    assert "did you mean shop?" not in done.stderr


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["explain", "cluser", "a", "CONFIG"], "or a type URL; did you mean cluster?"),
        (["get", "lstener", "--server", "127.0.0.1:1"], "or a type URL; did you mean listener?"),
        (["serve", "CONFIG", "--limit", "reqests=1"], "; did you mean requests?"),
        (["serve", "CONFIG", "--node-params", "node.idd"], "; did you mean node.id?"),
        (["sevre", "CONFIG"], "No such command 'sevre'. Did you mean 'serve'?"),
    ],
)
def test_a_word_that_is_nearly_another_is_named(config: Path, argv: list[str], hint: str) -> None:
    done = run(*[str(config) if each == "CONFIG" else each for each in argv])
    assert done.exit_code == 2
    assert done.stderr.endswith(f"{hint}\n")


def test_a_key_of_a_policy_that_is_nearly_another_is_named(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("defualt: deny\n")
    done = run("check", "--policy", policy)
    told = "defualt: unknown key 'defualt': a policy has "
    assert done.stderr.startswith(f"{policy}:1: {told}")
    assert done.stderr.splitlines()[0].endswith("; did you mean default?")


NO_VARIANT = "no variant of rds/main mentions evn; the params that variants mention are env; did you mean env?\n"


def test_explain_says_which_params_no_variant_mentions(config: Path) -> None:
    done = run("explain", "rds", "main", config, "-p", "env=prod", "-p", "evn=prod")
    assert (done.exit_code, done.stderr) == (0, NO_VARIANT)
    done = run("explain", "rds", "main", config, "-p", "evn=prod", "-o", "json")
    assert (done.exit_code, done.stderr) == (1, NO_VARIANT)
    done = run("explain", "cds", "shop", config, "-p", "env=prod")
    assert done.stderr == "no variant of cds/shop mentions env; variants mention no params\n"


def test_get_says_which_params_no_variant_mentions(shared: Daemon) -> None:
    done = shared.get("rds", "main", "-p", "env=prod", "-p", "evn=prod", "-o", "name")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "rds/main\n", NO_VARIANT)
    done = shared.get("rds", "main", "-p", "evn=prod")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"rds/main does not exist\n{NO_VARIANT}"
    done = shared.get("rds", "main", "-p", "env=prod", "-o", "name")
    assert done.stderr == ""


def test_a_name_with_control_characters_is_one_line(tmp_path: Path) -> None:  # OPS-14
    folder = write(tmp_path / "config", "a", static_cluster("shop\n\x1b[31mred", "127.0.0.1", 1)).parent
    done = run("explain", "cds", "shop\n\x1b[31mrd", folder)
    assert done.stderr == "Error: cds/shop\\n\\x1b[31mrd does not exist; did you mean shop\\n\\x1b[31mred?\n"
