"""`xdsprism events`, `history` and `diff`, against a server and a relay that run."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.cli.following import Following, follows
from tests.cli.rig import FREE, Daemon, Plain, run, separately, write
from tests.support.resources import routes, static_cluster, to
from tests.support.waiting import eventually
from xdsprism import CLUSTER, ROUTE


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Following]:
    with ExitStack() as stack:
        yield follows(stack, tmp_path)


def change(config: Path, port: int) -> None:
    write(config, "clusters", static_cluster("shop", "127.0.0.1", port), static_cluster("shop-next", "127.0.0.1", 2))


def test_a_change_of_a_file_is_told_as_it_happens_by_resource_variant_and_line(
    daemon: Daemon, config: Path, follow: Following
):
    told = follow(daemon, "--since", 0)
    first = told.next("revision", revision=1)
    assert (first["by"], first["total"], first["more"]) == ("file load", 4, 0)
    change(config, 7)
    second = told.next("revision", revision=2)
    (shop,) = second["changes"]
    assert (shop["type"], shop["name"], shop["change"]) == ("cds", "shop", "changed")
    (variant,) = shop["variants"]
    assert variant["origin"].endswith("clusters.yaml:1")
    assert told.next("load")["result"] == "ok"
    write(config, "clusters", {"@type": CLUSTER, "name": "shop", "nothing": 1})
    refused = told.next("load", result="refused")
    assert "nothing" in refused["problems"][0]


def test_a_nack_leads_to_the_variant_and_its_line_and_its_end_is_told(daemon: Daemon, config: Path, follow: Following):
    # NAK-12, NAK-13
    told = follow(daemon, "--node", "plain")
    with Plain(daemon.listen, ROUTE, "main", env="prod") as client:
        first = client.read()
        told.next("client", event="joined")
        client.nack(first, "no such cluster")
        nack = told.next("nack")
        write(config, "routes", {"$when": "env in (prod, test)", **routes("main", to("shop"))})
        client.ack(client.read())
        recovered = told.next("recovered")
    assert told.next("client", event="left")["node"] == "plain"
    assert (nack["node"], nack["type"], nack["message"]) == ("plain", "rds", "no such cluster")
    (rejected,) = nack["resources"]
    assert (rejected["name"], rejected["constraint"]) == ("main", "env=prod")
    assert rejected["origin"].endswith("routes.yaml:1")
    assert (recovered["node"], recovered["names"]) == ("plain", ["main"])
    eventually(lambda: "plain accepts rds/main again, after" in daemon.stderr)
    line = f"plain NACKed rds/main [env=prod] ({rejected['origin']}), nonce {first.nonce}: no such cluster"
    assert line in daemon.stderr


def test_a_server_that_comes_back_is_followed_from_where_it_was_lost(tmp_path: Path, config: Path, follow: Following):
    with Daemon(tmp_path, config) as daemon:
        told = follow(daemon)
        change(config, 7)
        assert told.next("revision")["revision"] == 2
        assert daemon.stop() == 0
        assert told.next("drain", event="started")["streams"] == 0
        assert told.next("drain", event="ended")
        admin = daemon.admin
    with Daemon(tmp_path, config, admin=admin) as daemon:
        # Revision 2 was of the server before. The admin port of this one is open before its files are loaded.
        assert told.next("gap")["newest"] in (None, 1)
        change(config, 8)
        assert told.next("revision", revision=2)["changes"][0]["change"] == "changed"
    assert f"lost {admin}: " in told.notes
    assert f"back again: {admin}" in told.notes
    told.process.send_signal(signal.SIGTERM)
    assert told.process.wait(20) == 0


def _moved(text: str) -> list[str]:
    """The lines that went, and those that came."""
    return [line.strip("-+ ") for line in text.splitlines() if line.startswith(("-  ", "+  "))]


def test_the_remembered_revisions_are_lines_for_people(daemon: Daemon, config: Path):
    change(config, 7)
    done = eventually(lambda: run("events", "--admin", daemon.admin), lambda done: "revision 2" in done.stdout)
    first, second = [line.split(" ", 1)[1] for line in done.stdout.splitlines()]
    what = "cds/shop, cds/shop-next, eds/shop (2 variants), rds/main (2 variants)"
    assert first == f"revision 1 by file load: added {what}"
    assert second == "revision 2 by file load: changed cds/shop"
    only = run("events", "--admin", daemon.admin, "--type", "rds", "-o", "json")
    (row,) = map(json.loads, only.stdout.splitlines())
    assert (row["kind"], [each["name"] for each in row["changes"]]) == ("revision", ["main"])


def test_the_history_is_a_table_and_wide_it_names_each_variant(daemon: Daemon, config: Path):
    change(config, 7)
    daemon.send(signal.SIGHUP)
    done = eventually(lambda: run("history", "--admin", daemon.admin), lambda done: len(done.stdout.splitlines()) == 3)
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["REVISION", "TIME", "BY", "CHANGES"]
    assert "changed cds/shop" in second
    assert "added cds/shop" in first
    wide = run("history", "--admin", daemon.admin, "-o", "wide").stdout
    assert [line for line in wide.splitlines() if "rds/main [env=prod]" in line and "routes.yaml:1" in line]
    assert run("history", "--admin", daemon.admin, "-o", "name", "--since", 1).stdout == "2\n"
    assert json.loads(run("history", "--admin", daemon.admin, "-o", "json").stdout)["revision"] == 2
    assert len(yaml.safe_load(run("history", "--admin", daemon.admin, "-o", "yaml").stdout)["revisions"]) == 2


def test_sighup_made_a_revision_if_it_found_a_change(daemon: Daemon, config: Path):
    change(config, 7)
    daemon.send(signal.SIGHUP)
    page = eventually(lambda: daemon.page("/api/history"), lambda page: page["total"] == 2)
    assert page["revisions"][0]["by"] in ("SIGHUP", "file load")  # whichever saw it first


def test_two_revisions_are_shown_as_a_difference(daemon: Daemon, config: Path):
    change(config, 7)
    eventually(lambda: daemon.page("/api/history")["total"] == 2)
    done = run("diff", 1, 2, "--admin", daemon.admin)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("changed cds/shop (")
    assert _moved(done.stdout) == ["port_value: 1", "port_value: 7"]
    assert run("diff", 1, 1, "--admin", daemon.admin).exit_code == 0
    assert run("diff", 2, 1, "--admin", daemon.admin, "-o", "name").stdout == "changed cds/shop\n"
    gone = run("diff", 1, 99, "--admin", daemon.admin)
    assert gone.exit_code == 3
    assert "not all of these revisions are remembered: 0 to 2" in gone.stderr


def test_files_are_compared_with_what_is_served(daemon: Daemon, config: Path, tmp_path: Path):
    same = run("diff", config, "--admin", daemon.admin)
    assert (same.exit_code, same.stdout) == (0, "")
    other = tmp_path / "other"
    write(other, "routes", {"$when": "env in (prod, qa)", **routes("main", to("shop"))})
    write(other, "clusters", static_cluster("shop", "127.0.0.1", 7), static_cluster("more", "127.0.0.1", 8))
    done = run("diff", other, "--admin", daemon.admin)
    assert done.exit_code == 1
    text = done.stdout
    assert "+name: more" in text
    assert "-name: shop-next" in text
    names = run("diff", other, "--admin", daemon.admin, "-o", "name").stdout.splitlines()
    assert sorted(names) == [
        "added cds/more",
        "added rds/main [env in (prod, qa)]",
        "changed cds/shop",
        "removed cds/shop-next",
        "removed eds/shop [zone!=a]",
        "removed eds/shop [zone=a]",
        "removed rds/main [env=prod]",
        "removed rds/main [env=test]",
    ]
    only = run("diff", other, "--admin", daemon.admin, "--type", "cds", "--name", "shop", "-o", "json")
    (row,) = json.loads(only.stdout)["differences"]
    assert _moved(row["diff"]) == ["port_value: 1", "port_value: 7"]
    assert run("diff", config, "--admin", daemon.admin).exit_code == 0  # nothing was changed


def test_a_difference_that_can_not_be_made_is_status_3_and_wrong_usage_is_2(daemon: Daemon, tmp_path: Path):
    bad = tmp_path / "bad"
    write(bad, "clusters", {"@type": CLUSTER, "name": "shop", "nothing": 1})
    done = run("diff", bad, "--admin", daemon.admin)
    assert done.exit_code == 3
    assert "the configuration is refused: 1 problem" in done.stderr
    nobody = run("diff", 1, 2, "--admin", "127.0.0.1:1")
    assert nobody.exit_code == 3
    for args in ((), (1,), (1, 2, 3), (1, bad)):
        assert run("diff", *args, "--admin", daemon.admin).exit_code == 2


def test_a_relay_has_revisions_of_its_own_and_loads_no_files(tmp_path: Path, daemon: Daemon, config: Path):
    entry = {"server_uri": daemon.listen, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
    bootstrap = tmp_path / "bootstrap.json"
    bootstrap.write_text(json.dumps({"xds_servers": [entry], "node": {"id": "relay"}}))
    with Daemon(tmp_path, "--bootstrap", bootstrap, verb="relay", admin=FREE) as relay:
        assert relay.get("cds", "shop", "-o", "name").stdout == "cds/shop\n"
        change(config, 7)
        done = eventually(lambda: run("events", "--admin", relay.admin), lambda done: "changed cds/shop" in done.stdout)
        assert "by upstream server: added cds/shop" in done.stdout
        compared = run("diff", config, "--admin", relay.admin)
        assert compared.exit_code == 3
        assert "this server loads no configuration" in compared.stderr


def test_events_of_a_client_need_follow_and_a_server_must_be_there():
    done = run("events", "--node", "envoy-1")
    assert done.exit_code == 2
    assert "--node needs --follow" in done.stderr
    assert separately("events", "--follow", "--admin", "127.0.0.1:1").returncode == 1


def test_the_difference_is_coloured_where_colours_are_wanted(daemon: Daemon, config: Path):
    change(config, 7)
    eventually(lambda: daemon.page("/api/history")["total"] == 2)
    from click.testing import CliRunner  # noqa: PLC0415

    from xdsprism.cli.main import main  # noqa: PLC0415

    done = CliRunner().invoke(main, ["diff", "1", "2", "--admin", daemon.admin], color=True)
    assert "\x1b[31m" in done.output
    assert "\x1b[32m" in done.output


def test_no_name_can_begin_a_line_of_its_own_or_control_a_terminal(daemon: Daemon, config: Path):
    write(config, "evil", static_cluster("evil\x1b[2J\nrevision 9 by file load\u202e<b>", "127.0.0.1", 7))
    eventually(lambda: daemon.page("/api/history")["total"] == 2)
    for args in (["events"], ["history"], ["history", "-o", "wide"], ["diff", 1, 2], ["diff", 1, 2, "-o", "name"]):
        text = run(*args, "--admin", daemon.admin).stdout
        assert "evil" in text
        assert not {"\x1b", "\u202e"} & set(text)
        assert not [line for line in text.splitlines() if line.startswith("revision 9")]
