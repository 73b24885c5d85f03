"""The engine of all three roles, without I/O: no socket, clock, log, thread or environment in here.

What decides never awaits; what awaits never decides. Time is an argument, randomness is an argument, and what happened
is appended to a list of facts (`model/facts.py`) that metrics, logs and pages read.

| room       | decides                                                                                     |
|------------|---------------------------------------------------------------------------------------------|
| `model/`   | what a resource is: params, constraints, variants, the store; values that every room shares |
| `serve/`   | what one downstream client is sent: subscriptions, responses, ACK and NACK, order            |
| `watch/`   | what to ask an upstream server for, and what its responses mean to the watchers              |
| `relay/`   | which upstream subscriptions a caching relay needs so that all of its clients are answered   |
| `provide/` | which Python function makes a resource on demand, and for whom its result holds              |
| `loads/`   | load reports (LRS), as a client collects them and as a server aggregates them                |
| `codec/`   | protobuf bytes to and from the values above; no other room imports protobuf                  |

`codec/` and `relay/` are on top, `serve/`, `watch/` and `provide/` below them, then `loads/`, then `model/`. Rooms
beside each other do not import each other. import-linter checks this.
"""
