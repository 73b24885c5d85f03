"""What a client asks its upstream servers for, and what their responses mean to the watchers.

Decides: which server of an authority is asked (fallback), which subscriptions go into the next request, in which form a
server understands them (locators or names, delta or SotW), whether a response is ACKed or NACKed, what each watcher is
told, when to reconnect.

Main types: `Subscriber` (subscriber.py: all watches of one client), `Upstream` (upstream.py: the stream to one server),
`Entry` (entry.py: one watched resource and its state), `WatchedType` (watched_type.py: the entries of one type).

Imports: `model`.
"""
