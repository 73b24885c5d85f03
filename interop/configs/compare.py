"""Put real configurations to xdsprism and to a real Envoy, and count where the two agree.

    compare.py FOLDER [--envoy PATH]

FOLDER is searched for YAML and JSON: bootstraps (their `static_resources`), config dumps, bare resources with an
`@type`, `discovery.v3.Resource`s, files with `resources:`, and lists of resources without `@type` in files called after
their type, such as `http.listeners.yaml`. Each resource is put to `xdsprism check`, and in a bootstrap around it to
`envoy --mode validate`. Clusters that a route names are added where Envoy misses them. Endpoints are judged as those of
a static cluster, which wants of them what EDS does.

Values are compared by Envoy's own print: a bootstrap with one more cluster, which has no name, is refused with all of
it as text, which is read back. An Envoy that lacks an extension, or a file on this machine, is no judge of a resource.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from google.protobuf import text_format
from google.protobuf.message import Message

from xdsprism.cli.main import main as xdsprism
from xdsprism.messages.protos import find_message
from xdsprism.sources.parse import parse

sys.path.insert(0, str(Path(__file__).parent))

from bootstraps import KINDS, LISTENER, around, found_in, stubs_for

ENVOY = os.environ.get("XDSPRISM_ENVOY", "envoy")
BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"
GOLDEN = {"clusters": "Cluster", "listeners": "Listener", "routes": "RouteConfiguration", "secrets": "Secret"}
GOLDEN["endpoints"] = "ClusterLoadAssignment"
LACKING = re.compile(
    r"could not find @type|Didn't find a registered implementation|missing the API listener extension|Invalid path:"
    r"|[Uu]nable to read file|No such file|Environment variable doesn't exist|not compiled|file .* does not exist"
)


@dataclass
class Resource:
    """One resource of a document."""

    place: str  # file and line
    kind: str  # the full name of its type
    node: yaml.MappingNode  # without `@type`
    ours: str  # the document that xdsprism reads
    extracted: bool = False  # of a larger one: lines in problems are not those of the file


@dataclass
class Verdict:
    """What the two say of a resource."""

    resource: Resource
    problems: list[str]  # xdsprism's
    refusal: str | None  # Envoy's
    able: bool = True  # Envoy could judge it
    values: str = ""  # "equal", "different", or why that was not seen
    outcome: str = field(init=False)

    def __post_init__(self) -> None:
        ours, theirs = not self.problems, self.refusal is None
        self.outcome = (
            "not judged by Envoy"
            if not self.able
            else "accepted by both"
            if ours and theirs
            else "refused by both"
            if not ours and not theirs
            else "refused by xdsprism alone"
            if theirs
            else "accepted by xdsprism alone"
        )


# -- from files to resources


def resources(file: Path) -> Iterator[Resource]:
    """All resources of a file, in whatever form it has them."""
    text = file.read_text()
    for root in yaml.compose_all(text, Loader=yaml.SafeLoader):
        document = "\n" * root.start_mark.line + text[root.start_mark.index : root.end_mark.index]
        yield from _resources_of(root, document, file)


def _resources_of(root: yaml.Node, text: str, file: Path) -> Iterator[Resource]:
    if isinstance(root, yaml.SequenceNode):
        name = GOLDEN.get(file.stem.rpartition(".")[2])
        yield from (_extracted(each, _named(name), file) for each in root.value if name)
        return
    static = _value(root, "static_resources")
    if static is not None:
        for key, name in (("clusters", "Cluster"), ("listeners", "Listener"), ("secrets", "Secret")):
            yield from (_extracted(each, _named(name), file) for each in _listed(_value(static, key)))
    elif _value(root, "configs") is not None:
        yield from (_extracted(each, _type_of(each), file) for each in _typed(root))
    else:
        listed = _listed(_value(root, "resources")) or [root]
        for each in [_value(item, "resource") or item for item in listed]:
            yield Resource(_place(each, file), _type_of(each), _bare(each), text)


def _extracted(node: yaml.MappingNode, kind: str, file: Path) -> Resource:
    bare = _bare(node)
    if kind == LISTENER and _value(bare, "name") is None:  # Envoy names a static one itself; by xDS it must have one
        bare.value.append((_string("name"), _string("nameless")))
    head = (yaml.ScalarNode("tag:yaml.org,2002:str", "@type", style='"'), _string(f"type.googleapis.com/{kind}"))
    whole = yaml.MappingNode(node.tag, [head, *bare.value])
    return Resource(_place(node, file), kind, bare, yaml.serialize(whole), extracted=True)


def _typed(node: yaml.Node) -> Iterator[yaml.MappingNode]:
    """The resources of a config dump: what has the type of one, wherever it stands."""
    if isinstance(node, yaml.MappingNode) and _type_of(node) in KINDS:
        yield node
    elif isinstance(node, yaml.CollectionNode):
        for each in node.value:
            yield from _typed(each[1] if isinstance(each, tuple) else each)


def _named(name: str | None) -> str:
    return next(kind for kind in KINDS if kind.rpartition(".")[2] == name)


def _place(node: yaml.Node, file: Path) -> str:
    return f"{file}:{node.start_mark.line + 1}"


def _type_of(node: yaml.Node) -> str:
    kind = _value(node, "@type")
    return kind.value.rpartition("/")[2] if isinstance(kind, yaml.ScalarNode) else ""


def _value(node: yaml.Node | None, key: str) -> Any:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key and name.tag != "!ignore"), None)


def _listed(node: yaml.Node | None) -> list[Any]:
    return node.value if isinstance(node, yaml.SequenceNode) else [node] if node is not None else []


def _bare(node: Any) -> yaml.MappingNode:
    pairs = [(name, value) for name, value in node.value if name.value != "@type"]
    return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)


def _string(text: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text)


# -- the two judges


def judge(resource: Resource, folder: Path, envoy: str) -> Verdict:
    problems = _ours(resource, folder)
    if resource.kind not in KINDS:
        return Verdict(resource, problems, f"no bootstrap has a place for {resource.kind}", able=False)
    refusal, stubs = _theirs(resource, folder, envoy)
    able = refusal is None or not LACKING.search(refusal)
    verdict = Verdict(resource, problems, refusal, able)
    if verdict.outcome == "accepted by both":
        verdict.values = _compared(resource, folder, envoy, stubs)
    return verdict


def _ours(resource: Resource, folder: Path) -> list[str]:
    file = folder / "resource.yaml"
    file.write_text(resource.ours)
    done = CliRunner().invoke(xdsprism, ["check", str(file)])
    if done.exit_code == 0:
        return []
    said = done.stderr or repr(done.exception)
    if resource.extracted:
        return re.sub(rf"{re.escape(str(file))}(:\d+)?", resource.place, said).splitlines()
    return said.replace(str(file), resource.place.rpartition(":")[0]).splitlines()


def _theirs(resource: Resource, folder: Path, envoy: str) -> tuple[str | None, set[str]]:
    stubs: set[str] = set()
    while True:
        refusal = _validate(around(resource.kind, resource.node, stubs), folder, envoy)
        missing = stubs_for(refusal or "") - stubs
        if not missing:
            return refusal, stubs
        stubs |= missing


def _validate(bootstrap: str, folder: Path, envoy: str) -> str | None:
    file = folder / "bootstrap.yaml"
    file.write_text(bootstrap)
    command = [
        envoy,
        "--mode",
        "validate",
        "--concurrency",
        "1",
        "-l",
        "critical",
        "--log-format",
        "%v",
        "-c",
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).replace(str(file), "bootstrap").strip()
    return None if done.returncode == 0 else said.removeprefix("error initializing configuration 'bootstrap': ")


def _compared(resource: Resource, folder: Path, envoy: str, stubs: set[str]) -> str:
    said = _validate(around(resource.kind, resource.node, stubs, nameless=True), folder, envoy) or ""
    start, end = said.find("\n"), said.find(": Proto constraint validation failed")
    if end < 0 or "[REDACTED]" in said:
        return "Envoy does not print it"
    for name in set(re.findall(r"\[type\.googleapis\.com/([\w.]+)\]", said)):
        find_message(name)
    kind: Any = find_message(BOOTSTRAP)
    bootstrap: Message = kind()
    try:
        text_format.Parse(said[start:end], bootstrap, descriptor_pool=kind.DESCRIPTOR.file.pool)
    except text_format.ParseError as error:
        return f"Envoy's print can't be read: {error}"
    theirs = found_in(resource.kind, bootstrap)
    ours = [type(theirs).FromString(each.body) for each in parse(resource.ours, "resource.yaml").variants]
    return "equal" if theirs in ours else "different"


# -- what is printed


def compare(folder: Path, envoy: str) -> list[Verdict]:
    """The verdicts on all resources below a folder."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in (".yaml", ".yml", ".json"))
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as place:
        for file in files:
            try:
                found = list(resources(file))
            except (yaml.YAMLError, UnicodeDecodeError) as error:
                print(f"{file}: not read: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            verdicts += [judge(each, Path(place), envoy) for each in found]
    return verdicts


def report(verdicts: list[Verdict]) -> None:
    counts = Counter(each.outcome for each in verdicts)
    values = Counter(each.values or "-" for each in verdicts if each.outcome == "accepted by both")
    print(f"{len(verdicts)} resources")
    print(f"  {counts['accepted by both']:5} accepted by both", end="")
    print(f" ({', '.join(f'{count} {what}' for what, count in sorted(values.items()))})" if values else "")
    for outcome in (
        "refused by both",
        "refused by xdsprism alone",
        "accepted by xdsprism alone",
        "not judged by Envoy",
    ):
        print(f"  {counts[outcome]:5} {outcome}")
    for outcome in ("refused by xdsprism alone", "accepted by xdsprism alone", "not judged by Envoy"):
        for each in verdicts:
            if each.outcome == outcome:
                reason = each.problems[0] if outcome == "refused by xdsprism alone" else (each.refusal or "")
                print(f"{outcome}: {each.resource.place}: {_short(reason)}")
    for each in verdicts:
        if each.outcome == "accepted by both" and each.values != "equal":
            print(f"accepted by both, values: {each.resource.place}: {each.values}")


def _short(reason: str) -> str:
    return " ".join(reason.split())[-300:]


def main() -> int:
    parser = argparse.ArgumentParser(description="Put configurations to xdsprism and to a real Envoy.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--envoy", default=ENVOY, help="the binary; XDSPRISM_ENVOY, or the one on PATH")
    options = parser.parse_args()
    report(compare(options.folder, options.envoy))
    return 0


if __name__ == "__main__":
    sys.exit(main())
