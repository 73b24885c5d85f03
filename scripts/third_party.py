"""Write THIRD_PARTY.md: what comes with xdsprism or is installed with it, and under which licences.

    third_party.py

Takes versions and licences from the metadata of what is installed (`make third-party` sees to that), and the list of
what is installed on any Python and platform from the requirements in it.
"""

from __future__ import annotations

import itertools
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "THIRD_PARTY.md"
GO_MOD = ROOT / "scripts/descriptors/go.mod"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PYTHONS = [word.split()[-1] for word in PROJECT["project"]["classifiers"] if re.search(r"Python :: 3\.\d+$", word)]
ENVIRONMENTS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": platform,
        "platform_system": system,
    }
    | {"platform_python_implementation": "CPython", "implementation_name": "cpython"}
    for python, (platform, system) in itertools.product(
        PYTHONS, [("linux", "Linux"), ("darwin", "Darwin"), ("win32", "Windows")]
    )
]

# How metadata says it without an expression of SPDX.
WORDS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
# Installed only where this does not run.
ELSEWHERE = {"colorama": "BSD-3-Clause", "tzdata": "Apache-2.0"}
# What may be combined with Apache-2.0 and handed on, without terms for the whole.
PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "MIT-0",
    "PSF-2.0",
    "Unlicense",
}

# Whose files are in descriptors.bin, by the beginning of their names; the module of scripts/descriptors/go.mod that has
# them, and the Python package.
ENVOY = "github.com/envoyproxy/go-control-plane/envoy"
GOOGLE = "google.golang.org/genproto/googleapis/"
SOURCES = {
    "cel/": ("the Common Expression Language", "cel.dev/expr", "Apache-2.0"),
    "contrib/envoy/": ("Envoy", "github.com/envoyproxy/go-control-plane/contrib", "Apache-2.0"),
    "envoy/": ("Envoy", ENVOY + " and xds-protos", "Apache-2.0"),
    "google/api/": ("Google APIs", GOOGLE + "api and xds-protos", "Apache-2.0"),
    "google/logging/": ("Google APIs", "xds-protos", "Apache-2.0"),
    "google/longrunning/": ("Google APIs", "xds-protos", "Apache-2.0"),
    "google/protobuf/": ("Protocol Buffers", "google.golang.org/protobuf and protobuf", "BSD-3-Clause"),
    "google/rpc/": ("Google APIs", GOOGLE + "rpc and xds-protos", "Apache-2.0"),
    "google/type/": ("Google APIs", "xds-protos", "Apache-2.0"),
    "grpc/": ("gRPC", "google.golang.org/grpc", "Apache-2.0"),
    "io/prometheus/": ("Prometheus", "github.com/prometheus/client_model", "Apache-2.0"),
    "opencensus/": ("OpenCensus", "xds-protos", "Apache-2.0"),
    "opentelemetry/": ("OpenTelemetry", "go.opentelemetry.io/proto/otlp", "Apache-2.0"),
    "udpa/": ("CNCF xDS", "github.com/cncf/xds/go", "Apache-2.0"),
    "validate/": ("protoc-gen-validate", "github.com/envoyproxy/protoc-gen-validate", "Apache-2.0"),
    "xds/": ("CNCF xDS", "github.com/cncf/xds/go", "Apache-2.0"),
}

HEAD = """# Third-party software

`make third-party` writes this page from the metadata of the packages; `tests/test_third_party.py` compares them.
xdsprism itself is under the [Apache License 2.0](LICENSE).

## Installed with xdsprism

All of this is installed by `pip install`, and nothing of it is in our wheel. The range is what xdsprism or
the packages in the last column ask for.

| package | range | licence | asked for by |
|---|---|---|---|
"""

BUNDLED = """
{verdict}

## In our wheel

`xdsprism/messages/descriptors.bin` has the descriptors (compiled proto files, without comments) of others. Nothing
of it was changed. `scripts/descriptors.py` takes them from these Go modules, and from these Python packages
what the modules lack.

| files | of | taken from | licence |
|---|---|---|---|
"""

TAIL = """
Envoy is copyright of the Envoy Project Authors; the other projects under the Apache License 2.0 are copyright of
their authors. Its text is in [LICENSE](LICENSE). Protocol Buffers has these terms:

```
Copyright 2008 Google Inc.  All rights reserved.

Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions are
met:

    * Redistributions of source code must retain the above copyright
notice, this list of conditions and the following disclaimer.
    * Redistributions in binary form must reproduce the above
copyright notice, this list of conditions and the following disclaimer
in the documentation and/or other materials provided with the
distribution.
    * Neither the name of Google Inc. nor the names of its
contributors may be used to endorse or promote products derived from
this software without specific prior written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS
"AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT
LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR
A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT
OWNER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT
LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE,
DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY
THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
(INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
```
"""


def main() -> None:
    if sys.argv[1:]:
        sys.exit(__doc__)
    PAGE.write_text(page())


def page() -> str:
    rows = []
    for name, asking in sorted(packages(PROJECT["project"]["dependencies"]).items()):
        ranges = ", ".join(sorted({str(each.specifier) or "any" for each in asking.values()}))
        rows.append(f"| {name} | {ranges} | {licence(name)} | {', '.join(sorted(asking))} |\n")
    versions = dict(re.findall(r"^\s*(?:require )?(\S+) (v\S+)", GO_MOD.read_text(), re.MULTILINE))
    bundled = [
        f"| `{start}` | {what} | {', '.join(_named(each, versions) for each in sources.split(' and '))} | {terms} |\n"
        for start, (what, sources, terms) in SOURCES.items()
    ]
    return "".join([HEAD, *rows, BUNDLED.format(verdict=verdict()), *bundled, TAIL])


def _named(source: str, versions: dict[str, str]) -> str:
    return f"`{source}` {versions[source]}" if source in versions else f"`{source}`"


def packages(texts: list[str], extras: tuple[str, ...] = ("",)) -> dict[str, dict[str, Requirement]]:
    """What these requirements lead to on any Python and platform, and by whom each package is asked for."""
    found: dict[str, dict[str, Requirement]] = {}
    waiting = [("xdsprism", text, extras) for text in texts]
    while waiting:
        asking, text, wanted_by = waiting.pop()
        requirement = Requirement(text)
        if not _applies(requirement, wanted_by):
            continue
        name = str(canonicalize_name(requirement.name))
        known = found.setdefault(name, {})
        if asking not in known:
            known[asking] = requirement
            waiting += [(name, further, ("", *requirement.extras)) for further in _requires(name)]
    return found


def _applies(requirement: Requirement, extras: tuple[str, ...]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate(each | {"extra": extra}) for each in ENVIRONMENTS for extra in extras)


def _requires(name: str) -> list[str]:
    return [] if name in ELSEWHERE else metadata.requires(name) or []


def licence(name: str) -> str:
    """The licence of an installed package as an expression, by what its metadata says best."""
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    about = metadata.metadata(name)
    if "License-Expression" in about:
        return str(about["License-Expression"])
    told = [each.split(" :: ")[-1] for each in about.get_all("Classifier") or [] if each.startswith("License :: OSI")]
    told = told or [str(about["License"] or "").strip()]
    told = [WORDS.get(each, each) for each in told]
    unknown = [each for each in told if not re.fullmatch(r"[A-Za-z0-9.-]+", each)]
    if unknown:
        sys.exit(f"third_party: {name} has the licence {unknown[0]!r}: say in WORDS what it is called in short")
    return " OR ".join(sorted(set(told)))


def is_permissive(terms: str) -> bool:
    """One of what may be chosen from, and of that every part."""
    return any(
        all(part.strip("() ") in PERMISSIVE for part in re.split(r" AND ", each)) for each in re.split(r" OR ", terms)
    )


def verdict() -> str:
    shipped = packages(PROJECT["project"]["dependencies"])
    copyleft = [f"{name} ({licence(name)})" for name in sorted(shipped) if not is_permissive(licence(name))]
    around = [f"{name} ({licence(name)})" for name in sorted(tools()) if not is_permissive(licence(name))]
    first = (
        f"**Not compatible with handing it on under the Apache License alone: {', '.join(copyleft)}.**"
        if copyleft
        else "None of it is under a copyleft licence."
    )
    return f"{first} Of what builds and tests xdsprism, and is not installed with it, these are: {', '.join(around)}."


def tools() -> set[str]:
    project = PROJECT["project"]
    texts = [*PROJECT["build-system"]["requires"], *project["optional-dependencies"]["test"]]
    return set(packages([*texts, *PROJECT["dependency-groups"]["build"]]))


if __name__ == "__main__":
    main()
