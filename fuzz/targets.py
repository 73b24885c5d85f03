"""What is fuzzed. Each target takes any bytes, and raises only if something is wrong with us.

None of this needs the fuzzer: `make test` runs the kept inputs through the same functions.
"""

from __future__ import annotations

from collections.abc import Callable

from . import asking, texts, tokens, transport

Target = Callable[[bytes], None]

TRANSPORT: dict[str, Target] = {
    "frames": transport.frames,
    "headers": transport.headers,
    "messages": transport.messages,
}
ASKING: dict[str, Target] = {
    "requests": asking.requests,
    "statuses": asking.statuses,
    "pieces": asking.pieces,
    "trimming": asking.trimming,
    "constraints": asking.constraints,
    "rest": asking.rest,
    "http1": asking.http1,
}
TEXTS: dict[str, Target] = {
    "expressions": texts.expressions,
    "names": texts.names,
    "hosts": texts.hosts,
    "templates": texts.templates,
    "configuration": texts.configuration,
    "importing": texts.importing,
    "json": texts.strict_json,
    "policy": texts.policy,
    "bootstrap": texts.bootstrap,
}
PROOFS: dict[str, Target] = {"tokens": tokens.tokens, "jwks": tokens.jwks}
TARGETS: dict[str, Target] = {**TRANSPORT, **ASKING, **TEXTS, **PROOFS}
