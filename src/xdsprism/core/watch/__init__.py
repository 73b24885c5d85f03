"""Decide what a client asks its upstream servers for, and what their responses mean to its watchers.

Decides: which server of an authority the client asks (fallback), which subscriptions go into the next request, in which
form (locators or plain names, delta or SotW), whether a response is ACKed or NACKed, what each watcher hears, and when
the client reconnects.

The way of a subscription through these modules, and of the response to it:

    watch ─▶ Subscriber ─▶ Authority ─▶ Upstream ─▶ StreamRequests ─▶ RequestBuilder ─▶ request
    watch ◀─ Entry ◀─ ResourceCache ◀─ Reading (apply_response.py) ◀─ FormDetection ◀─ response

Main types: `Subscriber` (subscriber.py: all watches of one client), `Upstream` (upstream.py: one server), `Entry`
(entry.py: one watched resource; the table of its states), `StreamLifecycle` (stream_lifecycle.py: the table of the
states of a stream), `ResourceCache` (resource_cache.py: all entries). `Dependencies` (dependencies.py) decides which
further resources a listener needs, for `Client.watch_config`.

Imports: `model`.
"""
