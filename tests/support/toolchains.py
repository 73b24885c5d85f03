"""Programs in other languages: how each is built, on first use, and how it is run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
_INTEROP = _REPOSITORY / "interop"


class MissingToolchain(Exception):
    """A program can't be built here; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """One language: where its program is, what builds it, and the command that runs it."""

    folder: Path
    needs: dict[str, str]
    build: Sequence[str]
    product: str
    """What the build leaves behind; up to date where no source is newer."""
    run: Callable[[Path], list[str | Path]]


def _java(folder: Path, program: str) -> list[str]:
    return ["-cp", f"{folder}/target/classes:{folder}/target/lib/*", program]


CLIENTS = {
    "grpc-js": Toolchain(
        folder=_INTEROP / "node",
        needs={"node": "Node.js 18 or newer", "npm": "npm, which comes with Node.js"},
        build=["npm", "ci", "--silent"],
        product="node_modules/.package-lock.json",
        run=lambda folder: ["node", folder / "client.js"],
    ),
    "grpc-go": Toolchain(
        folder=_INTEROP / "go",
        needs={"go": "Go 1.26 or newer"},
        build=["go", "build", "-o", "bin/client", "."],
        product="bin/client",
        run=lambda folder: [folder / "bin/client"],
    ),
    "grpc-java": Toolchain(
        folder=_INTEROP / "java",
        needs={"java": "a JDK, 17 or newer", "mvn": "Apache Maven 3.8 or newer"},
        build=["mvn", "--quiet", "--batch-mode", "--strict-checksums", "compile"],
        product="target/classes/Client.class",
        run=lambda folder: ["java", *_java(folder, "Client")],
    ),
}

# In the same folders: plain calls, as they are told.
STREAMS = {
    "grpc-js": replace(CLIENTS["grpc-js"], run=lambda folder: ["node", folder / "streams.js"]),
    "grpc-go": replace(
        CLIENTS["grpc-go"],
        build=["go", "build", "-o", "bin/streams", "./streams"],
        product="bin/streams",
        run=lambda folder: [folder / "bin/streams"],
    ),
    "grpc-java": replace(
        CLIENTS["grpc-java"],
        product="target/classes/Streams.class",
        # It lives for seconds: what makes it fast later makes it slow now.
        run=lambda folder: ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *_java(folder, "Streams")],
    ),
}

# The last grpcio that speaks v2.
CLIENTS_OF_V2 = {
    "grpcio-v2": Toolchain(
        folder=_INTEROP / "grpcio-v2",
        needs={"python3.11": "Python 3.11"},
        build=["make", "-C", str(_REPOSITORY), "interop/grpcio-v2/target/.installed"],
        product="target/.installed",
        run=lambda folder: [folder / "target/venv/bin/python", Path(__file__).with_name("grpcio_caller.py")],
    ),
}

CONTROL_PLANES = {
    "go-control-plane": Toolchain(
        folder=_INTEROP / "go-control-plane",
        needs=CLIENTS["grpc-go"].needs,
        build=["go", "build", "-o", "bin/control-plane", "."],
        product="bin/control-plane",
        run=lambda folder: [folder / "bin/control-plane", "snapshot"],
    ),
    "java-control-plane": Toolchain(
        folder=_INTEROP / "java-control-plane",
        needs=CLIENTS["grpc-java"].needs,
        build=["mvn", "--quiet", "--batch-mode", "--strict-checksums", "compile"],
        product="target/classes/ControlPlane.class",
        run=lambda folder: ["java", *_java(folder, "ControlPlane")],
    ),
}

# The same program with other caches, and without the delta method.
OTHER_CONTROL_PLANES = {
    name: replace(
        CONTROL_PLANES["go-control-plane"], run=lambda folder, kind=kind: [folder / "bin/control-plane", kind]
    )
    for name, kind in (("go-control-plane-linear", "linear"), ("go-control-plane-sotw", "sotw"), ("watched", "watched"))
}

CHECKERS = {
    "h2spec": Toolchain(
        folder=_INTEROP / "h2spec",
        needs=CLIENTS["grpc-go"].needs,
        build=["go", "build", "-o", "bin/h2spec", "github.com/summerwind/h2spec/cmd/h2spec"],
        product="bin/h2spec",
        run=lambda folder: [folder / "bin/h2spec"],
    ),
    "helm": Toolchain(
        folder=_INTEROP / "helm",
        needs=CLIENTS["grpc-go"].needs,
        build=["go", "build", "-o", "bin/helm", "helm.sh/helm/v3/cmd/helm"],
        product="bin/helm",
        run=lambda folder: [folder / "bin/helm"],
    ),
    "kube-apiserver": Toolchain(
        folder=_INTEROP / "kubernetes",
        needs=CLIENTS["grpc-go"].needs,
        build=["make", "-C", str(_REPOSITORY), "interop/kubernetes/bin/kube-apiserver", "interop/kubernetes/bin/etcd"],
        product="bin/kube-apiserver",
        run=lambda folder: [folder / "bin/kube-apiserver"],
    ),
}
CHECKERS["etcd"] = replace(CHECKERS["kube-apiserver"], run=lambda folder: [folder / "bin/etcd"])


def command(name: str) -> list[str | Path]:
    """The command of a program, which is built first where that is due."""
    streams = {f"{language}-streams": toolchain for language, toolchain in STREAMS.items()}
    toolchain = {**CLIENTS, **streams, **CLIENTS_OF_V2, **CONTROL_PLANES, **OTHER_CONTROL_PLANES, **CHECKERS}[name]
    missing = [f"{tool}: install {what}" for tool, what in toolchain.needs.items() if shutil.which(tool) is None]
    if missing:
        raise MissingToolchain(f"{name} needs what is not on PATH. " + "; ".join(missing))
    with _alone(toolchain.folder):
        if not _up_to_date(toolchain):
            _build(toolchain)
    return toolchain.run(toolchain.folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Tests run in several processes; only one of them builds."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _up_to_date(toolchain: Toolchain) -> bool:
    product = toolchain.folder / toolchain.product
    if not product.exists():
        return False
    made = {"node_modules", "bin", "target"}
    sources = (each for each in toolchain.folder.iterdir() if each.name not in made)
    files = (file for source in sources for file in ([source] if source.is_file() else source.rglob("*")))
    return all(file.stat().st_mtime <= product.stat().st_mtime for file in files)


def _build(toolchain: Toolchain) -> None:
    done = subprocess.run(toolchain.build, cwd=toolchain.folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        command = " ".join(toolchain.build)
        raise AssertionError(f"`{command}` failed in {toolchain.folder}:\n{done.stdout}\n{done.stderr}")
    (toolchain.folder / toolchain.product).touch()
