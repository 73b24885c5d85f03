"""Define resources, variants and params, and decide which variant each client gets.

Everything here is a plain value or a pure decision about values; the other packages of the core build on it. It decides
which variant matches a client's params, whether two variants overlap (with a witness), whether a transaction is valid,
what a transaction changed, which virtual host serves a host, and which subscriptions are within the limits.

Main types: `Variant` and `Params` (types.py), `Constraint` (constraints.py), `VariantSet` (variants.py: the variants of
one name), `Table` (table.py: one resource type, with its listings) and `Store` (store.py: all tables, changed by
atomic transactions). events.py defines what goes into a session and comes out of it, facts.py what the core reports.

Imports: nothing but `xdsprism.errors`. No protobuf.
"""
