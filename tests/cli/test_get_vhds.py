"""`xdsprism get vhds` and `watch vhds`: virtual hosts, by the host that they serve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.cli.elsewhere import Serve
from tests.cli.rig import Daemon, run, write
from tests.cli.watching import Watching, watches
from tests.support.resources import Document, to
from xdsprism import VIRTUAL_HOST

SHOP = {"$match": [{"when": "env=prod", "value": "shop"}, {"when": "env!=prod", "value": "shop-next"}]}


def vhost(name: str, *domains: str, cluster: Any = "shop", **fields: Any) -> Document:
    return {"@type": VIRTUAL_HOST, "name": name, **fields, "domains": [*domains], "routes": [to(cluster)]}


def write_config(folder: Path) -> Path:
    shop = vhost("main/shop", "shop.example.com", "www.example.com")
    write(folder, "shop", shop, vhost("main/any", "*.example.com", cluster=SHOP))
    write(folder, "base", {"$base": "true", **vhost("main/base", "base.example.com")})
    return folder


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("hosts")
    with Daemon(folder, write_config(folder / "config")) as running:
        yield running


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    with ExitStack() as stack:
        yield watches(stack, tmp_path)


def asked(daemon: Daemon, *args: object) -> Result:
    return daemon.get("vhds", *args)


# VHD-3, VHD-22: what is printed can be served again
def test_a_host_gets_the_virtual_host_that_serves_it(hosts: Daemon):
    done = asked(hosts, "main/shop.example.com")
    assert (done.exit_code, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout) == vhost("main/shop", "shop.example.com", "www.example.com")
    assert json.loads(asked(hosts, "main/Shop.example.COM", "-o", "json").stdout) == yaml.safe_load(done.stdout)


# VHD-6
def test_a_wildcard_serves_the_rest(hosts: Daemon):
    assert asked(hosts, "main/other.example.com", "-o", "name").stdout == "vhds/main/any\n"


# VHD-5
def test_a_virtual_host_for_several_hosts_is_printed_once(hosts: Daemon):
    done = asked(hosts, "main/shop.example.com", "main/www.example.com", "main/x.example.com", "-o", "name")
    assert (done.exit_code, sorted(done.stdout.splitlines())) == (0, ["vhds/main/any", "vhds/main/shop"])


# VHD-18
def test_params_choose_the_variant(hosts: Daemon):
    (route,) = yaml.safe_load(asked(hosts, "main/x.example.com", "-p", "env=prod").stdout)["routes"]
    assert route == to("shop")
    document = yaml.safe_load(asked(hosts, "main/x.example.com", "-p", "env=test").stdout)
    assert (document["$when"], document["routes"]) == ("env!=prod", [to("shop-next")])


# VHD-4
def test_wide_shows_the_aliases(hosts: Daemon):
    header, line = asked(hosts, "main/shop.example.com", "-o", "wide").stdout.splitlines()
    assert header.split() == ["RESOURCE", "VARIANT", "VERSION", "BYTES", "ALIASES"]
    assert line.split()[0] == "vhds/main/shop"
    assert line.split()[-1] == "main/shop.example.com,main/www.example.com"


# VHD-7
def test_a_host_that_nothing_serves_is_status_1_at_once(hosts: Daemon):
    done = asked(hosts, "main/nope.test", "main/shop.example.com", "-o", "name", "--timeout", "600")
    assert (done.exit_code, done.stdout) == (1, "vhds/main/shop\n")
    assert done.stderr == "vhds/main/nope.test does not exist\n"


# VHD-13
def test_without_a_name_the_base_set_is_printed(hosts: Daemon):
    done = asked(hosts, "-o", "name")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "vhds/main/base\n", "")


# VHD-1
@pytest.mark.parametrize("word", ["vhds", "envoy.config.route.v3.VirtualHost", "envoy.api.v2.route.VirtualHost"])
@pytest.mark.parametrize("verb", ["get", "watch"])
def test_there_are_none_in_sotw(verb: str, word: str):
    done = run(verb, word, "main/a", "--sotw", "--server", "127.0.0.1:1")
    assert done.exit_code == 2
    assert "leave out --sotw" in done.stderr


# VHD-17
def test_v2_has_them_too(hosts: Daemon):
    assert asked(hosts, "main/shop.example.com", "--transport", "v2", "-o", "name").stdout == "vhds/main/shop\n"


# VHD-7, S14: a server that is not ours
def test_a_name_that_is_not_the_one_inside_is_kept(serve: Serve):
    response = pb.DeltaDiscoveryResponse(type_url=VIRTUAL_HOST, nonce="1")
    found = response.resources.add(name="main/x", version="1", aliases=["main/a"])
    found.resource.Pack(VirtualHost(name="inner", domains=["*"]))
    response.resources.add(name="main/zz", version="2", aliases=["main/b"])
    done = run("get", "vhds", "main/a", "main/b", "--server", serve(response.SerializeToString()).address)
    assert (done.exit_code, done.stderr) == (1, "vhds/main/b does not exist\n")
    document = yaml.safe_load(done.stdout)
    assert (document["name"], document["resource"]["name"]) == ("main/x", "inner")


# VHD-5, VHD-8, VHD-10, VHD-12
def test_watch_prints_what_serves_the_hosts_and_every_change_once(watching: Watching, tmp_path: Path):
    config = write_config(tmp_path / "config")
    with Daemon(tmp_path, config) as daemon:
        names = ["main/shop.example.com", "main/www.example.com", "main/new.test"]
        watch = watching(daemon, "vhds", *names, "-o", "name")
        assert watch.line() == "added vhds/main/shop"
        assert watch.notes(1) == ["vhds/main/new.test does not exist"]
        write(config, "shop", vhost("main/shop", "shop.example.com", "www.example.com", cluster="other"))
        assert watch.line() == "changed vhds/main/shop"
        write(config, "new", vhost("main/new", "new.test"))
        assert watch.line() == "added vhds/main/new"
        write(config, "shop", vhost("main/shop", "shop.example.com"), vhost("main/www", "www.example.com"))
        assert sorted([watch.line(), watch.line()]) == ["added vhds/main/www", "changed vhds/main/shop"]
        write(config, "shop", vhost("main/all", "shop.example.com", "www.example.com"))
        assert sorted([watch.line() for _ in range(3)]) == [
            "added vhds/main/all",
            "removed vhds/main/shop",
            "removed vhds/main/www",
        ]
        (config / "new.yaml").unlink()
        assert watch.line() == "removed vhds/main/new"
        assert watch.stop()[0] == 0


# VHD-4
def test_watch_shows_the_aliases_in_wide(watching: Watching, hosts: Daemon):
    watch = watching(hosts, "vhds", "main/x.example.com", "-o", "wide")
    assert watch.line().split()[-1] == "main/x.example.com"
    assert watch.stop()[0] == 0
