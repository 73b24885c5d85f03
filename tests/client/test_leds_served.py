"""LEDS from a server's files to a client's endpoints, over real gRPC (CLI-25, XTP-10)."""

from __future__ import annotations

import asyncio
from typing import Any

import xdsprism as xp
from tests.client.config_parts import by_eds, listener, packed, route
from tests.client.rig import bootstrap, both, server
from tests.client.test_leds import LEFT, RIGHT, assignment, collection, endpoint_at, ports
from tests.support.waiting import PATIENCE
from xdsprism.sources.parse import parse

WRITTEN = f"""
"@type": envoy.service.discovery.v3.Resource
name: {LEFT}
resource:
  "@type": envoy.config.endpoint.v3.LbEndpointCollection
  entries:
  - inline_entry:
      name: one
      resource:
        "@type": envoy.config.endpoint.v3.LbEndpoint
        endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 10}}}}}}
  - inline_entry:
      name: two
      resource:
        "@type": envoy.config.endpoint.v3.LbEndpoint
        endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 11}}}}}}
"""


def named(ports_: list[int]) -> Any:
    made = collection(*map(endpoint_at, ports_))
    for port, entry in zip(ports_, made.entries, strict=True):
        entry.inline_entry.name = f"at-{port}"
    return made


# CLI-25, XTP-10
def test_a_list_of_endpoints_is_written_like_any_resource() -> None:
    parsed = parse(WRITTEN, "leds.yaml")
    assert parsed.problems == ()
    (variant,) = parsed.variants
    assert (variant.type_url, variant.name) == (xp.LB_ENDPOINT_COLLECTION, LEFT)
    expected = collection(endpoint_at(10), endpoint_at(11))
    for entry, name in zip(expected.entries, ("one", "two"), strict=True):
        entry.inline_entry.name = name
    assert variant.body == expected.SerializeToString(deterministic=True)
    (problem,) = parse(WRITTEN.replace("port_value: 11", "port_value: 99999"), "leds.yaml").problems
    assert problem.path.startswith("resource.entries[1].inline_entry.resource.endpoint.address")


# CLI-25, XTP-10
@both
async def test_a_server_gives_lists_of_endpoints_to_a_client(delta: bool) -> None:
    store = xp.Store()
    with store.transaction() as tx:
        for each in (listener(), route("a"), by_eds("a"), assignment(LEFT, RIGHT)):
            tx.put(each)
        tx.put(named([10, 11]), name=LEFT)
        tx.put(packed(named([20])), name=RIGHT)
    async with asyncio.timeout(PATIENCE), xp.Server(store, listen="127.0.0.1:0") as running:
        source = bootstrap(server(running.address), authorities={"x": {}})
        async with xp.Client(source, delta=delta) as client, client.watch_config("shop") as configs:
            assert ports(await anext(configs)) == {"left": [10, 11], "right": [20], "own": [2]}
            with store.transaction() as tx:
                tx.put(named([12]), name=LEFT)
            assert ports(await anext(configs)) == {"left": [12], "right": [20], "own": [2]}
