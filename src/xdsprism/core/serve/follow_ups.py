"""Decide what a response of one type makes due in another type of the same stream.

- A changed cluster: Envoy warms it until its endpoints arrive, and a delta Envoy does not ask for them (S11). So the
  endpoints are sent again (ORD-11).
- A changed route configuration with VHDS: its virtual hosts are sent again, after it (VHD-16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..model.steps import Steps
from ..model.table import Table
from ..model.types import CLUSTER, ENDPOINT, ROUTE, VIRTUAL_HOST, Params, TypeUrl, Variant
from ..session.session import Session

Sessions = Mapping[TypeUrl, Session]


def follow_up(sessions: Sessions, session: Session) -> Steps[None]:
    """Make due what follows from the responses that a session has just sent, in steps."""
    type_url = session.context.type_url
    if type_url == CLUSTER:
        warm(sessions, session.news)
    elif type_url == ROUTE:
        hosts = sessions.get(VIRTUAL_HOST)
        configs = {route.name: None for route in session.news if route.is_on_demand}
        if hosts is not None and configs:
            yield from hosts.rules.revisit(configs)


def warm(sessions: Sessions, clusters: Iterable[Variant]) -> bool:
    """Send the endpoints of changed clusters again (ORD-11). Return whether endpoints are due."""
    endpoints = sessions.get(ENDPOINT)
    if endpoints is None:
        return False
    for cluster in clusters:
        if cluster.warms is not None:
            endpoints.holdings.resend(cluster.warms)
    return endpoints.is_pending


def on_demand_configs(
    sessions: Sessions, table_of: Callable[[TypeUrl], Table], plain_params: Callable[[str], Params]
) -> list[str]:
    """Return the route configurations with VHDS that this client may know (VHD-13).

    `table_of`: returns what the client may have of a type.

    They are those that the stream sent it, or, if the client gets its routes elsewhere, all in the store. VHD-27: the
    client may have others in its static configuration, so those that only virtual hosts in the store name are included.
    """
    hosts, routes = table_of(VIRTUAL_HOST), sessions.get(ROUTE)
    if routes is not None:
        sent = {route.name: route.is_on_demand for route in routes.view.everything()}
        return [name for name, on_demand in sent.items() if on_demand] + [
            name for name in hosts.lookup.configs() if name not in sent
        ]
    table = table_of(ROUTE)
    known = (each.select(plain_params(name)) for name, each in table)
    own = [route.name for route in known if route is not None and route.is_on_demand]
    return own + [name for name in hosts.lookup.configs() if table.named(name) is None]
