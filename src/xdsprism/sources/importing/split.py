"""Decides which resources of a file are served, and what stays in the bootstrap that fetches them.

What Envoy needs before it has a control plane stays: the clusters that its bootstrap names (of xDS servers, statistics,
traces, access logs), the clusters of config sources, and the secrets that these clusters use. A bootstrap that takes
listeners or clusters from another server goes on to do so, and keeps its own listeners or clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...core.model.types import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, TYPES, TypeUrl
from ...errors import show_path
from ...messages.document import Path
from ...messages.json_parts import texts_in
from .bootstrap import ServerAddress, fetching, source_of
from .config_sources import Link, api_clusters_of, links_of, redirect
from .names import free_name, listener_names
from .recognize import BOOTSTRAP
from .resources import Note, Resource, Source
from .route_configs import take_out

LABELS = {spec.url: spec.label for spec in TYPES}
_SHOWN = 5  # names that a note lists


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a file."""

    resources: tuple[Resource, ...]  # to serve
    bootstrap: dict[str, Any]
    staying: tuple[str, ...]  # what stays in the bootstrap, each with its reason
    notes: tuple[Note, ...]


class Mistakes(Exception):
    """What makes an import impossible: places in the file, each with a text and perhaps the place of something else."""

    def __init__(self, found: list[tuple[Path, str, Path | None]]) -> None:
        self.found = found
        super().__init__(str(found))


def split(source: Source, server: ServerAddress) -> Plan:
    """Decide what becomes of everything in a file. Raises Mistakes."""
    return _Split(source, server).plan()


class _Split:
    """The decisions about one file."""

    def __init__(self, source: Source, server: ServerAddress) -> None:
        self._source = source
        self._server = server
        self._notes = list(source.notes)
        self._rest = {key: value for key, value in source.bootstrap.items() if key != "static_resources"}
        self._static = _static_resources(source)
        self._dynamic = self._fetched_before()
        self._clusters = {each.name for each in self._static if each.type_url == CLUSTER}
        fetched = {each.name for each in self._dynamic if each.type_url == CLUSTER}
        self._cluster = free_name("xdsprism", self._clusters | fetched)
        dynamic = {} if source.is_dump else self._rest.get("dynamic_resources", {})
        self._others = {  # types that another server has, and goes on to have
            type_url for type_url, fields in _COLLECTIONS.items() if any(field in dynamic for field in fields)
        }
        self._new_source = source_of(self._cluster, by_ads="ads_config" not in dynamic)
        self._reasons: dict[tuple[TypeUrl, str], str] = {}  # of what stays

    def plan(self) -> Plan:
        forms = self._served_forms()
        self._find_staying(forms)
        served = [each for key, each in forms.items() if key not in self._reasons]
        listeners = [each for each in served if each.type_url == LISTENER]
        taken = {each.name for each in self._dynamic if each.type_url == ROUTE}
        routes = take_out(listeners, self._new_source, taken)
        resources = [*served, *self._served_secrets(served), *routes, *self._dynamic]
        if not resources:
            raise Mistakes([((), self._nothing(), None)])
        self._note_missing(resources)
        staying = [each for each in self._static if each.key in self._reasons]
        bootstrap = fetching(self._rest, staying, self._new_source, self._cluster, self._server, self._source.is_dump)
        self._note_bootstrap(bootstrap)
        reasons = [f"{_title(each)} stays: {self._reasons[each.key]}" for each in staying]
        return Plan(tuple(resources), bootstrap, tuple(reasons), tuple(self._notes))

    def _nothing(self) -> str:
        if self._source.is_dump:
            return "the dump has no resources that a server could serve"
        if self._others:
            return (
                "nothing is left to serve: its listeners and clusters come from another server; import the "
                "/config_dump of an Envoy that runs with it"
            )
        return "nothing is left to serve: it has no listeners, clusters or secrets but those that have to stay"

    def _fetched_before(self) -> list[Resource]:
        """Return what Envoy had from control planes, except what is static too: Envoy uses the static one."""
        static = {each.key for each in self._static}
        for each in self._source.resources:
            if each.key in static:
                self._notes.append(Note(each.path, f"{_title(each)} is static too: Envoy uses the static one"))
        fetched = [each for each in self._source.resources if each.key not in static]
        clusters = [each for each in (*self._static, *fetched) if each.type_url == CLUSTER]
        asked = {link.name for link, _ in _links(clusters) if link.type_url == ENDPOINT}
        # A dump has the endpoints of all clusters: those that are in the clusters themselves, too.
        return [each.copy() for each in fetched if each.type_url != ENDPOINT or each.name in asked]

    # -- what is served

    def _served_forms(self) -> dict[tuple[TypeUrl, str], Resource]:
        """Return each static listener and cluster as it would be served."""
        known = {each.key for each in self._dynamic}
        types = {each.type_url for each in self._dynamic}
        secrets = {each.name for each in self._static if each.type_url == SECRET}
        forms = {each.key: each.copy() for each in self._static if each.type_url != SECRET}
        for each in (*forms.values(), *self._dynamic):
            for link in links_of(each.body, each.type_name):
                is_known = (link.type_url, link.name) in known or (not link.name and link.type_url in types)
                if link.source is None:
                    is_known = link.type_url == SECRET and link.name in secrets
                if is_known and not (link.is_over_ads and self._source.is_dump):
                    redirect(link, self._new_source)
        return forms

    def _served_secrets(self, served: Iterable[Resource]) -> list[Resource]:
        """Return the secrets that served resources ask for, and those that nothing asks for yet."""
        asked = {
            link.name
            for each in (*served, *self._dynamic)
            for link in links_of(each.body, each.type_name)
            if link.type_url == SECRET
        }
        if self._others >= {LISTENER, CLUSTER}:
            return []
        secrets = [each for each in self._static if each.type_url == SECRET]
        return [each for each in secrets if each.name in asked or each.key not in self._reasons]

    # -- what stays

    def _find_staying(self, forms: dict[tuple[TypeUrl, str], Resource]) -> None:
        """Find the resources that have to stay, with a reason for each."""
        for each in self._static:
            self._keep_by_kind(each)
        bootstrap = {key: value for key, value in self._rest.items() if key != "node"}
        self._keep_named(bootstrap, BOOTSTRAP, "the bootstrap of the dump" if self._source.is_dump else "the bootstrap")
        for each in self._dynamic:
            self._keep_sources(each)
        looked_at = -1
        done: set[tuple[TypeUrl, str]] = set()
        while looked_at != len(self._reasons):  # what stays may name more
            looked_at = len(self._reasons)
            for each in self._static:
                if each.key not in self._reasons:
                    served = forms.get(each.key)
                    if served is not None:
                        self._keep_sources(served)
                elif each.key not in done:
                    done.add(each.key)
                    self._keep_named(each.body, each.type_name, f"{_title(each)}, which stays,")

    def _keep_by_kind(self, each: Resource) -> None:
        """Keep a resource that no server may have, or that another server has."""
        if each.type_url in self._others:
            self._keep(each.type_url, each.name, f"the bootstrap has {_COLLECTIONS[each.type_url][0]}")
        elif "api_listener" in each.body:
            self._keep(each.type_url, each.name, "Envoy takes an api_listener from its bootstrap only")
        elif each.type_url == SECRET and self._others >= {LISTENER, CLUSTER}:
            self._keep(each.type_url, each.name, "what uses it stays")

    def _keep(self, type_url: TypeUrl, name: str, reason: str) -> None:
        self._reasons.setdefault((type_url, name), reason)

    def _keep_named(self, body: dict[str, Any], full_name: str, who: str) -> None:
        """Keep the clusters and secrets that a part of the bootstrap names."""
        for path, text in texts_in(body):
            field = next((step for step in reversed(path) if isinstance(step, str)), "")
            if "cluster" in field.lower() and text in self._clusters and path[-2:] != _OWN_NAME:
                self._keep(CLUSTER, text, f"{who} names it in {show_path(path)}")
        for link in links_of(body, full_name):
            if link.type_url == SECRET and link.source is None:
                self._keep(SECRET, link.name, f"{who} names it in {show_path(link.path)}")

    def _keep_sources(self, resource: Resource) -> None:
        """Keep the clusters of config sources: Envoy refuses config sources with clusters that it fetched."""
        for path, name in api_clusters_of(resource.body, resource.type_name):
            self._keep(CLUSTER, name, f"{_title(resource)} has a config source with it in {show_path(path)}")

    # -- notes

    def _note_missing(self, resources: list[Resource]) -> None:
        """Note what the resources of a dump ask the server for that the dump does not have."""
        if not self._source.is_dump:
            return
        known = {each.key for each in resources}
        missing: dict[TypeUrl, dict[str, Path]] = {}
        for link, path in _links(resources):
            if link.name and link.is_over_ads and (link.type_url, link.name) not in known:
                missing.setdefault(link.type_url, {}).setdefault(link.name, path)
        for type_url, found in missing.items():
            names = ", ".join([*found][:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
            hint = _HINTS.get(type_url, "add them to resources/")
            text = f"resources ask for {LABELS[type_url]} {names}, which the dump does not have: {hint}"
            self._notes.append(Note(next(iter(found.values())), text))
        for each in resources:
            if each.type_url == ROUTE and "vhds" in each.body:
                text = f"{_title(each)} has vhds: a dump does not have the virtual hosts that Envoy fetched"
                self._notes.append(Note(each.path, text))

    def _note_bootstrap(self, bootstrap: dict[str, Any]) -> None:
        node = self._rest.get("node", {})
        lacking = [key for key in ("id", "cluster") if not node.get(key)]
        if lacking:
            text = (
                f"the node has no {' and no '.join(lacking)}, which Envoy needs to fetch anything: set it in "
                "bootstrap.yaml, or start Envoy with --service-node and --service-cluster"
            )
            self._notes.append(Note((*self._source.path, "node"), text))
        for index, layer in enumerate(bootstrap.get("layered_runtime", {}).get("layers", ())):
            runtime = layer.get("rtds_layer", {})
            if self._source.is_dump and "ads" in runtime.get("rtds_config", {}):
                text = f"Envoy asks for rtds {runtime.get('name', '')}, which no dump has: write it"
                self._notes.append(Note((*self._source.path, "layered_runtime", "layers", index), text))


_HINTS = {
    ENDPOINT: "take the dump from /config_dump?include_eds",
}


def _links(resources: Iterable[Resource]) -> Iterator[tuple[Link, Path]]:
    for each in resources:
        for link in links_of(each.body, each.type_name):
            yield link, (*each.path, *link.path)


def _title(resource: Resource) -> str:
    return f"{LABELS[resource.type_url]}/{resource.name}"


def _static_resources(source: Source) -> list[Resource]:
    """Return the static resources. Raises Mistakes for what has no name, and what is there twice."""
    static = source.bootstrap.get("static_resources", {})
    at = (*source.path, "static_resources")
    found: list[Resource] = []
    mistakes: list[tuple[Path, str, Path | None]] = []
    seen: dict[tuple[TypeUrl, str], Path] = {}
    for type_url, field in _STATIC.items():
        bodies = static.get(field, ())
        names = listener_names(bodies) if type_url == LISTENER else [each.get("name", "") for each in bodies]
        for index, (name, body) in enumerate(zip(names, bodies, strict=True)):
            path: Path = (*at, field, index)
            each = Resource(type_url, name, {"name": name, **body}, path)
            if not name:
                mistakes.append((path, "needs a name, by which Envoy can fetch it", None))
            elif each.key in seen:
                mistakes.append((path, f"{_title(each)} is there twice", seen[each.key]))
            seen.setdefault(each.key, path)
            found.append(each)
    if mistakes:
        raise Mistakes(mistakes)
    return found


_OWN_NAME = ("load_assignment", "cluster_name")  # in a cluster, and no reference to another one
_STATIC = {LISTENER: "listeners", CLUSTER: "clusters", SECRET: "secrets"}
# The fields of dynamic_resources by which a bootstrap takes all resources of a type from a server.
_COLLECTIONS = {LISTENER: ("lds_config", "lds_resources_locator"), CLUSTER: ("cds_config", "cds_resources_locator")}
