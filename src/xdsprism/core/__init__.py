"""The engine of all three roles, without I/O: no socket, clock, log, thread or environment in here.

What decides never awaits; what awaits never decides. Time is an argument, randomness is an argument, and what happened
is appended to a list of facts (`model/facts.py`) that metrics, logs and pages read.

| package    | decides                                                                                      |
|------------|----------------------------------------------------------------------------------------------|
| `model/`   | what a resource is: params, constraints, variants, the store; values that all packages share |
| `policy/`  | what a client may have, by who it proved to be                                               |
| `loads/`   | load reports (LRS), as a client collects them and as a server aggregates them                |
| `session/` | what one downstream client is sent of one type: subscriptions, responses, ACK and NACK       |
| `serve/`   | what goes out on one downstream stream, and the order of its types                           |
| `watch/`   | what to ask an upstream server for, and what its responses mean to the watchers              |
| `provide/` | which Python function makes a resource on demand, and for whom its result holds              |
| `relay/`   | which upstream subscriptions a caching relay needs so that all of its clients are answered   |
| `codec/`   | protobuf bytes to and from the values above; no other package imports protobuf               |

`codec/` and `relay/` are on top, `serve/`, `watch/` and `provide/` below them, then `session/`, `loads/`, `policy/` and
`model/`, each above the next. Packages on one level do not import each other. import-linter checks this.
"""
