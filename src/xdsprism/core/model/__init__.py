"""What a resource is, and the values that all other rooms share.

Decides: which variant matches a client's params, whether two variants overlap (with a witness), whether a transaction
is valid, what changed, which virtual host serves a host, what a client may ask for.

Main types: `Variant` and `Params` (types.py), `Constraint` (constraints.py), `VariantSet` (variants.py: the variants of
one name), `Table` (table.py: one resource type, with its change log) and `Store` (store.py: all tables, changed by
atomic transactions). `events.py` has what goes into a session and comes out of it, `facts.py` what happened.

Imports: nothing but `xdsprism.errors`. No protobuf.
"""
