"""Make resources on demand by calling Python functions (`Store.provider`).

Decides: which provider to call, for which name and params, and for which clients its result holds. The params that a
provider gets record everything that it reads; the record becomes the constraints of the variant.

Main types: `Providing` (providing.py: decides which calls are needed), `Provider` (provider.py: one function),
`Topics` (made.py: what was made, and who wants it), `RecordedParams` (recorded.py: params that record what is read).

Imports: `model`.
"""
