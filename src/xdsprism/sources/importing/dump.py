"""Says what each part of a config dump becomes: its bootstrap, resources, or nothing, with a note that says why.

| part of a dump | becomes |
|---|---|
| bootstrap | the bootstrap, without what Envoy itself adds to its node |
| static listeners, clusters and secrets | part of the bootstrap, where they are too, unless the dump has no bootstrap |
| static route configurations | nothing: the listeners have them |
| endpoints | resources if a cluster takes them from EDS, or else nothing: the clusters have them (split.py) |
| dynamic resources in use: `active_state`, `dynamic_active_clusters` and the like | resources |
| dynamic resources that are warming | resources if no version of them is in use yet |
| errors | a note: Envoy goes on with the version before, which is in the dump |
| listeners that are draining, secrets that did not arrive | nothing |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...core.codec.resources import NAME_FIELDS
from ...core.model.concealment import without_secrets
from ...core.model.truncation import NAME_BYTES, TEXT_BYTES, bounded
from ...core.model.types import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, PREFIX, ROUTE, SCOPED_ROUTE, SECRET
from ...messages.document import Path
from ...messages.protos import type_name
from .recognize import ADMIN
from .resources import Note, Resource, Source

_V3 = f"{ADMIN}v3."

# Parts that `/config_dump?resource=FIELD` lists without their wrapper, and the wrapper and field that they belong to.
_BARE = {
    "ListenersConfigDump.StaticListener": ("ListenersConfigDump", "static_listeners"),
    "ListenersConfigDump.DynamicListener": ("ListenersConfigDump", "dynamic_listeners"),
    "ClustersConfigDump.StaticCluster": ("ClustersConfigDump", "static_clusters"),
    "ClustersConfigDump.DynamicCluster": ("ClustersConfigDump", "dynamic_active_clusters"),
    "RoutesConfigDump.StaticRouteConfig": ("RoutesConfigDump", "static_route_configs"),
    "RoutesConfigDump.DynamicRouteConfig": ("RoutesConfigDump", "dynamic_route_configs"),
    "ScopedRoutesConfigDump.DynamicScopedRouteConfigs": ("ScopedRoutesConfigDump", "dynamic_scoped_route_configs"),
    "EndpointsConfigDump.StaticEndpointConfig": ("EndpointsConfigDump", "static_endpoint_configs"),
    "EndpointsConfigDump.DynamicEndpointConfig": ("EndpointsConfigDump", "dynamic_endpoint_configs"),
    "SecretsConfigDump.StaticSecret": ("SecretsConfigDump", "static_secrets"),
    "SecretsConfigDump.DynamicSecret": ("SecretsConfigDump", "dynamic_active_secrets"),
    "EcdsConfigDump.EcdsFilterConfig": ("EcdsConfigDump", "ecds_filters"),
}
# What Envoy adds to its node when it starts, and would add again.
_OF_ENVOY = ("user_agent_name", "user_agent_version", "user_agent_build_version", "extensions")
_FEATURES = ("envoy.lb.does_not_support_overprovisioning", "envoy.lrs.supports_send_all_clusters")


def read_dump(dump: dict[str, Any]) -> Source:
    """Read a dump, as JSON with the field names of the protos."""
    reader = _Reader()
    for index, part in enumerate(dump.get("configs", ())):
        reader.read(part, ("configs", index))
    return reader.source()


class _Reader:
    """Collects what the parts of one dump become."""

    def __init__(self) -> None:
        self._bootstrap: dict[str, Any] | None = None
        self._path: Path = ()
        self._static: dict[str, list[Any]] = {"listeners": [], "clusters": [], "secrets": []}
        self._in_use: dict[tuple[str, str], Resource] = {}
        self._warming: list[Resource] = []
        self._notes: list[Note] = []
        self._parts: dict[str, Callable[[dict[str, Any], Path], None]] = {
            "BootstrapConfigDump": self._read_bootstrap,
            "ListenersConfigDump": self._listeners,
            "ClustersConfigDump": self._clusters,
            "RoutesConfigDump": self._routes,
            "ScopedRoutesConfigDump": self._scoped_routes,
            "EndpointsConfigDump": self._endpoints,
            "SecretsConfigDump": self._secrets,
            "EcdsConfigDump": self._extensions,
        }

    def read(self, part: dict[str, Any], path: Path) -> None:
        """Read one part."""
        name = type_name(part.get("type_url", "") or part.get("@type", ""))  # one of an unknown type is wrapped
        wrapper, field = _BARE.get(name.removeprefix(_V3), (name.removeprefix(_V3), ""))
        read = self._parts.get(wrapper)
        if read is None:
            self._notes.append(Note(path, f"{bounded(name, NAME_BYTES) or 'a part without @type'} is left out"))
        elif field:
            read({field: _Bare(part)}, path)
        else:
            read(part, path)

    def source(self) -> Source:
        """Return what was read."""
        for each in self._warming:
            if each.key in self._in_use:
                self._notes.append(Note(each.path, f"{each.name}: a newer version is warming; the one in use is taken"))
            else:
                self._in_use[each.key] = each
        bootstrap = self._bootstrap
        if bootstrap is None:
            static = {kind: found for kind, found in self._static.items() if found}
            bootstrap = {"static_resources": static} if static else {}
            self._notes.append(Note((), "the dump has no bootstrap: add what is missing, such as `node` and `admin`"))
        return Source(bootstrap, self._path, True, [*self._in_use.values()], self._notes)  # noqa: FBT003 # it is a dump

    # -- parts

    def _read_bootstrap(self, part: dict[str, Any], path: Path) -> None:
        bootstrap = part.get("bootstrap", {})
        node = {key: value for key, value in bootstrap.get("node", {}).items() if key not in _OF_ENVOY}
        features = [each for each in node.pop("client_features", ()) if each not in _FEATURES]
        if features:
            node["client_features"] = features
        self._bootstrap = {**({"node": node} if node else {}), **_without(bootstrap, "node")}
        self._path = (*path, "bootstrap")

    def _listeners(self, part: dict[str, Any], path: Path) -> None:
        for _, each, _ in _each(part, "static_listeners", path):
            self._add_static("listeners", each.get("listener"))
        for at, each, name in _each(part, "dynamic_listeners", path):
            active, warming = each.get("active_state", {}), each.get("warming_state", {})
            self._take(LISTENER, active.get("listener"), (*at, "active_state", "listener"))
            self._take_warming(LISTENER, warming.get("listener"), (*at, "warming_state", "listener"))
            self._note_error(each, at, f"listener {name}", exists=bool(active or warming))

    def _clusters(self, part: dict[str, Any], path: Path) -> None:
        for _, each, _ in _each(part, "static_clusters", path):
            self._add_static("clusters", each.get("cluster"))
        self._in_state(part, "dynamic_active_clusters", path, CLUSTER, "cluster", self._take)
        self._in_state(part, "dynamic_warming_clusters", path, CLUSTER, "cluster", self._take_warming)

    def _routes(self, part: dict[str, Any], path: Path) -> None:
        self._in_state(part, "dynamic_route_configs", path, ROUTE, "route_config", self._take)

    def _scoped_routes(self, part: dict[str, Any], path: Path) -> None:
        for at, each, name in _each(part, "dynamic_scoped_route_configs", path):
            scopes = each.get("scoped_route_configs", ())
            for index, scope in enumerate(scopes):
                self._take(SCOPED_ROUTE, scope, (*at, "scoped_route_configs", index))
            self._note_error(each, at, f"scoped routes {name}", exists=bool(scopes))

    def _endpoints(self, part: dict[str, Any], path: Path) -> None:
        for field in ("static_endpoint_configs", "dynamic_endpoint_configs"):
            for at, each, _ in _each(part, field, path):
                found = each.get("endpoint_config")
                self._take(ENDPOINT, _as_written(found) if found else None, (*at, "endpoint_config"))

    def _secrets(self, part: dict[str, Any], path: Path) -> None:
        for _, each, _ in _each(part, "static_secrets", path):
            self._add_static("secrets", each.get("secret"))
        self._in_state(part, "dynamic_active_secrets", path, SECRET, "secret", self._take)
        for at, _, name in _each(part, "dynamic_warming_secrets", path):
            self._notes.append(Note(at, f"secret {name} did not arrive yet, so the dump has nothing of it"))

    def _extensions(self, part: dict[str, Any], path: Path) -> None:
        self._in_state(part, "ecds_filters", path, EXTENSION_CONFIG, "ecds_filter", self._take)

    # -- resources

    def _in_state(
        self, part: dict[str, Any], field: str, path: Path, type_url: str, inner: str, take: Callable[..., None]
    ) -> None:
        """Take the resources of a field whose entries hold one each."""
        for at, each, name in _each(part, field, path):
            take(type_url, each.get(inner), (*at, inner))
            self._note_error(each, at, f"{inner} {name}", exists=bool(each.get(inner)))

    def _add_static(self, kind: str, packed: dict[str, Any] | None) -> None:
        if packed:
            self._static[kind].append(_without(packed, "@type"))

    def _take(self, type_url: str, packed: dict[str, Any] | None, path: Path) -> None:
        found = self._resource(type_url, packed, path)
        if found is not None:
            self._in_use.setdefault(found.key, found)

    def _take_warming(self, type_url: str, packed: dict[str, Any] | None, path: Path) -> None:
        found = self._resource(type_url, packed, path, "warming when the dump was made")
        if found is not None:
            self._warming.append(found)

    def _resource(self, type_url: str, packed: dict[str, Any] | None, path: Path, *remarks: str) -> Resource | None:
        if not packed:
            return None
        written = PREFIX + type_name(packed.get("@type", ""))
        if written != type_url:
            self._notes.append(Note(path, f"{bounded(written, NAME_BYTES)} is left out: {type_url} belongs here"))
            return None
        body = _without(packed, "@type")
        name = next((body[field] for field in NAME_FIELDS if body.get(field)), "")
        if not name:
            self._notes.append(Note(path, "a resource without a name is left out"))
            return None
        return Resource(type_url, name, body, path, remarks)

    def _note_error(self, entry: dict[str, Any], path: Path, what: str, *, exists: bool) -> None:
        """Note that Envoy refused the newest version of a resource."""
        error = entry.get("error_state")
        if error:
            details = without_secrets(" ".join(bounded(error.get("details", ""), TEXT_BYTES).split()))
            details = bounded(details, NAME_BYTES) or "no reason given"
            kept = "the version before is taken" if exists else "there is no other version, so it is left out"
            self._notes.append(Note((*path, "error_state"), f"Envoy refused the newest {what} ({details}): {kept}"))


class _Bare(dict[str, Any]):
    """A part without its wrapper: its path is that of the part itself."""


def _each(part: dict[str, Any], field: str, path: Path) -> Iterator[tuple[Path, dict[str, Any], str]]:
    """Yield the entries of a field, each with its path and the name that the entry gives."""
    entries = part.get(field, ())
    bare = isinstance(entries, _Bare)
    for index, each in enumerate([entries] if bare else entries):
        inner = next((value for value in each.values() if isinstance(value, dict) and "@type" in value), {})
        name = each.get("name") or next((inner[key] for key in NAME_FIELDS if inner.get(key)), "")
        yield path if bare else (*path, field, index), each, bounded(name, NAME_BYTES)


def _without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name != key}


def _as_written(packed: dict[str, Any]) -> dict[str, Any]:
    """Return endpoints without what Envoy adds: how healthy it found each one, and 0 as the weight of a locality."""
    localities = []
    for each in packed.get("endpoints", ()):
        locality = _without(each, "load_balancing_weight") if not each.get("load_balancing_weight") else dict(each)
        if "lb_endpoints" in each:
            locality["lb_endpoints"] = [_without(endpoint, "health_status") for endpoint in each["lb_endpoints"]]
        localities.append(locality)
    return {**packed, "endpoints": localities} if localities else packed
