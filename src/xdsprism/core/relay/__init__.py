"""Which upstream subscriptions a caching relay needs so that all of its clients are answered (DESIGN 7).

Decides: whether a cached variant answers a new subscription, and otherwise with which name and params the relay
subscribes upstream; when a subscription is no longer needed; who gives way when an upstream takes no more.

Main types: `Relaying` (relaying.py: from what sessions want to what is asked upstream), `Questions` (questions.py: the
upstream subscriptions), `CachedSet` and `Finding` (model/cached.py: what is known of one name, and for whom).

Imports: `watch` and `model`.
"""
