"""Resources that a Python function makes on demand (`Store.provider`).

Decides: which provider is asked, for which params, and for whom its result holds: every look at the params is recorded,
and the constraints of the variant are what was looked at.

Main types: `Providing` (providing.py), `RecordedParams` (recorded.py).

Imports: `model`.
"""
