"""Documents that several tests use."""

from __future__ import annotations

from textwrap import dedent

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ROUTE = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"


def cluster(name: str, *more: str, seconds: int = 5) -> str:
    lines = [f'"@type": {CLUSTER}', f"name: {name}", f"connect_timeout: {seconds}s", *more]
    return "---\n" + "\n".join(lines) + "\n"


def text(indented: str) -> str:
    return dedent(indented).lstrip("\n")


# TP2, Problem: one route for env=prod, one for version=v1
FOUR = text(
    """
    "@type": type.googleapis.com/envoy.config.route.v3.RouteConfiguration
    name: main
    virtual_hosts:
    - name: shop
      domains: ["*"]
      routes:
      - $when: env=prod
        match: {prefix: /checkout}
        route: {cluster: checkout}
      - $when: version=v1
        match: {prefix: /legacy}
        route: {cluster: legacy}
      - match: {prefix: /}
        route: {cluster: shop}
    """
)
