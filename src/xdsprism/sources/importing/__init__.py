"""Turns what Envoy users have, a bootstrap or a config dump, into resources to serve. No I/O.

    text ─▶ reading.py ─▶ a bootstrap, and the resources that a dump has beside it ─▶ split.py ─▶ files

- `recognize.py` tells a bootstrap and a dump from other documents.
- `reading.py` reads a text into a `Source`; of a dump, `dump.py` says what each part becomes.
- `split.py` decides what is served and what stays in the bootstrap.
- `config_sources.py` has resources ask the new server for the resources that they refer to.
- `route_configs.py` takes route configurations out of listeners; `names.py` names what had no name of its own.
- `bootstrap.py` makes the bootstrap; `importer.py` puts all together, as files of documents with comments.
"""
