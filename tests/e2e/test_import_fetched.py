"""An Envoy that has its configuration from a control plane: imported from its dump, or taken over in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.cli.rig import run
from tests.e2e.test_import import bare, serve, tcp_listener
from tests.support.envoy import Envoy, bootstrap
from tests.support.lab import Lab
from tests.support.resources import eds_cluster, endpoints, listener, routes, static_cluster, to
from tests.support.waiting import becomes

ADS = {"ads": {}, "resource_api_version": "V3"}
MUTATION = "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"


def scoped_listener() -> dict[str, Any]:
    """A listener that finds its routes by a scope."""
    made = listener("scoped", "unused")
    manager = made["filter_chains"][0]["filters"][0]["typed_config"]
    del manager["rds"]
    fragments = [{"header_value_extractor": {"name": "host", "element_separator": ":", "index": 0}}]
    manager["scoped_routes"] = {
        "name": "scopes",
        "scope_key_builder": {"fragments": fragments},
        "rds_config_source": ADS,
        "scoped_rds": {"scoped_rds_config_source": ADS},
    }
    return made


def filtered_listener() -> dict[str, Any]:
    """A listener with a filter from ECDS."""
    made = listener("filtered", "main")
    manager = made["filter_chains"][0]["filters"][0]["typed_config"]
    fetched = {"config_source": ADS, "type_urls": [MUTATION]}
    manager["http_filters"] = [{"name": "mutation", "config_discovery": fetched}, *manager["http_filters"]]
    return made


def documents(blue: int, green: int) -> list[dict[str, Any]]:
    scope = {
        "@type": "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
        "name": "local",
        "route_configuration_name": "other",
        "key": {"fragments": [{"string_key": "127.0.0.1"}]},
    }
    mutation = {
        "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        "name": "mutation",
        "typed_config": {"@type": MUTATION, "mutations": {}},
    }
    return [
        *(listener("web", "main"), scoped_listener(), filtered_listener(), scope, mutation),
        *(routes("main", to("blue")), routes("other", to("green"))),
        *(eds_cluster("blue"), eds_cluster("green")),
        *(endpoints("blue", blue), endpoints("green", green)),
    ]


def answers(envoy: Envoy) -> dict[str, str]:
    return {name: envoy.get("/", name) for name in ("web", "scoped", "filtered")}


GOOD = {"web": "blue", "scoped": "green", "filtered": "blue"}


def test_all_that_an_envoy_fetched_is_in_its_dump_and_answers_as_before(lab: Lab, tmp_path: Path):
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    first = lab.control_plane()
    first.write("all", *documents(blue.port, green.port))
    first.start()
    before = lab.envoy(first, "delta")
    becomes(lambda: answers(before), GOOD)
    dump = tmp_path / "dump.json"
    dump.write_text(before.admin("/config_dump?include_eds"))
    before.close()
    first.stop()

    done = run("import", dump, "--out", tmp_path / "imported")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.endswith("imported: 3 lds, 1 srds, 2 rds, 2 cds, 2 eds, 1 ecds\n")
    assert "warning" not in done.stderr
    second = serve(lab, tmp_path / "imported/resources")
    done = run("import", dump, "--out", tmp_path / "imported", "--force", "--server", second.address)
    assert done.exit_code == 0, done.stderr
    after = lab.start_envoy(yaml.safe_load((tmp_path / "imported/bootstrap.yaml").read_text()))
    becomes(lambda: answers(after), GOOD)


def test_a_bootstrap_goes_on_to_take_from_another_server_what_it_took_there(lab: Lab, tmp_path: Path):
    blue, green = lab.http_backend("blue"), lab.http_backend("green")
    first = lab.control_plane()
    first.write("clusters", static_cluster("blue", "127.0.0.1", blue.port))
    first.start()
    config = bootstrap("delta", first.port, {"id": "both", "cluster": "lab"})
    del config["dynamic_resources"]["lds_config"]
    config["static_resources"]["clusters"].append(bare(static_cluster("green", "127.0.0.1", green.port)))
    config["static_resources"]["listeners"] = [tcp_listener("web", "blue"), tcp_listener("other", "green")]
    before = lab.start_envoy(config)
    becomes(lambda: (before.get("/", "web"), before.get("/", "other")), ("blue", "green"))
    before.close()

    source, folder = tmp_path / "envoy.conf", tmp_path / "imported"
    source.write_text(yaml.safe_dump(config))
    assert run("import", source, "--out", folder).exit_code == 0
    second = serve(lab, folder / "resources")
    assert run("import", source, "--out", folder, "--force", "--server", second.address).exit_code == 0
    made = yaml.safe_load((folder / "bootstrap.yaml").read_text())
    after = lab.start_envoy(made)
    becomes(lambda: (after.get("/", "web"), after.get("/", "other")), ("blue", "green"))
    assert {*after.clusters()} == {"blue"}  # still of the first server
    assert [client["types"][0]["type"] for client in second.clients("both")] == ["lds"]
    assert [each["name"] for each in made["static_resources"]["clusters"]] == ["control_plane", "green", "xdsprism"]
