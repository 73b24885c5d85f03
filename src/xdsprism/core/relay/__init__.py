"""Decide which upstream subscriptions a caching relay needs so that it can answer all of its clients (DESIGN 7).

Decides: whether a cached variant answers a new downstream subscription, and otherwise with which name and params the
relay subscribes upstream; when it drops an upstream subscription; which client gives way when a server takes no more
subscriptions.

Main types: `Relaying` (relaying.py: says when to act), `Subscribers` (subscribers.py: what sessions want), `Planner`
(planning.py: what one name needs), `UpstreamSubscriptions` (upstream_subscriptions.py: the registry of them all),
`UpstreamSubscription` (upstream_subscription.py: all that is known of one), `CachedSet` and `Finding` (model/cached.py:
the cached answers for one name, each with the constraints that say for which clients it holds). The relay itself
(relay/relay.py) also has a `NackReports` (nack_reports.py) and a `Revisits` (revisiting.py), which decide beside these.

Imports: `watch` and `model`.
"""
