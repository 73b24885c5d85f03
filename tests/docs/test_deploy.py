"""deploy/: every option is one that exists, every path and port is the same everywhere, and what can be run is run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.cli.rig import Daemon, environment, run
from tests.support import web
from tests.support.helm import render
from tests.support.programs import Program
from tests.support.waiting import eventually
from xdsprism.cli.main import main
from xdsprism.observe.tracing import FLUSH
from xdsprism.serving import GRACE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs/deploy.md").read_text()
UNIT = (DEPLOY / "systemd/xdsprism.service").read_text()
DOCKERFILE = (DEPLOY / "docker/Dockerfile").read_text()
MANIFEST = [*yaml.safe_load_all((DEPLOY / "kubernetes/xdsprism.yaml").read_text())]
CHART = DEPLOY / "helm/xdsprism"

CONFIG = "/etc/xdsprism/config"
XDS, ADMIN = 18000, 18001


def only(kind: str, objects: list[Any] | None = None) -> Any:
    (found,) = [each for each in (MANIFEST if objects is None else objects) if each["kind"] == kind]
    return found


def pod() -> Any:
    return only("Deployment")["spec"]["template"]["spec"]


def container() -> Any:
    (found,) = pod()["containers"]
    return found


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with what follows them, comments and continued lines apart."""
    lines = [line for line in DOCKERFILE.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in joined.splitlines()]


def commands() -> dict[str, list[str]]:
    """How each of the files starts the program: the words after `xdsprism`."""
    (unit,) = re.findall(r"^ExecStart=\S+/xdsprism (.*)$", UNIT, re.MULTILINE)
    (image,) = [json.loads(rest) for word, rest in instructions() if word == "CMD"]
    (chart,) = only("Deployment", render(CHART, "xdsprism", {}))["spec"]["template"]["spec"]["containers"]
    return {"systemd": unit.split(), "docker": image, "kubernetes": container()["args"], "helm": chart["args"]}


def settings(words: list[str]) -> dict[str, Any]:
    """What click makes of the words: the options by their names. It refuses what it does not know."""
    command = main.commands[words[0]]
    names = ["-h", "--help"]  # as the group has them: click keeps the option that it makes first
    with click.Context(command, resilient_parsing=True, help_option_names=names) as context:
        command.parse_args(context, words[1:])
        return dict(context.params)


@pytest.mark.parametrize("where", ["systemd", "docker", "kubernetes", "helm"])
def test_the_program_knows_each_option_and_serves_the_same_folder_and_ports(where: str):
    words = commands()[where]
    options = {option for each in main.commands["serve"].params for option in each.opts}
    assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in options] == []
    found = settings(words)
    assert words[:2] == ["serve", CONFIG]
    assert found["listen"] == f"0.0.0.0:{XDS}"
    host, _, port = found["admin"].rpartition(":")
    assert int(port) == ADMIN
    assert host == "127.0.0.1" or found["admin_token_file"] is not None


def test_there_is_time_to_drain_before_the_process_is_killed():
    needed = GRACE + FLUSH
    assert pod()["terminationGracePeriodSeconds"] > needed
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[0]) > needed


# -- systemd


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path):
    unit = tmp_path / "xdsprism.service"
    unit.write_text(UNIT.replace("/opt/xdsprism/bin/xdsprism", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_reloads_by_sighup_stops_by_sigterm_and_is_not_root():
    lines = dict(line.split("=", 1) for line in UNIT.splitlines() if re.match(r"[A-Z]\w+=", line))
    assert lines["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert lines["KillSignal"] == "SIGTERM"
    assert lines["DynamicUser"] == lines["NoNewPrivileges"] == "yes"
    assert lines["ProtectSystem"] == "strict"
    assert lines["CapabilityBoundingSet"] == ""


def allowed_calls() -> set[str]:
    """The system calls that the unit allows, by the groups of systemd."""
    text = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True, timeout=60)
    groups: dict[str, list[str]] = {}
    for line in text.stdout.splitlines():
        word = line.strip()
        if line.startswith("@"):
            groups[word] = []
        elif word and not word.startswith("#"):
            [*groups.values()][-1].append(word)

    def calls(group: str) -> set[str]:
        return set().union(*(calls(each) if each.startswith("@") else {each} for each in groups[group]))

    found: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT, re.MULTILINE):
        named = set().union(*map(calls, line.removeprefix("~").split()))
        found = found - named if line.startswith("~") else found | named
    return found


@pytest.mark.skipif(
    None in (shutil.which("systemd-analyze"), shutil.which("strace")), reason="there is no systemd-analyze or no strace"
)
def test_the_unit_allows_the_system_calls_that_the_program_makes(tmp_path: Path):
    log, calls = tmp_path / "serve.log", tmp_path / "calls"
    strace = ["strace", "--follow-forks", "--quiet=all", f"--output={calls}"]
    serve = [sys.executable, "-m", "xdsprism", "serve", str(ROOT / "examples/config")]
    ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    program = Program("serve", [*strace, *serve, *ports], log, env=environment())
    try:
        found = eventually(lambda: re.search(r"listen=(\S+) admin=(\S+)", program.text()))
        assert found is not None
        assert run("get", "rds", "main", "--server", found[1], "--param", "env=prod").exit_code == 0
        assert web.get(*web.split(found[2]), "/metrics").status == 200
    finally:
        program.kill()
    made = {name[1] for name in re.finditer(r"^\d+ +(?:<\.\.\. )?([a-z]\w*)[( ]", calls.read_text(), re.MULTILINE)}
    assert {"execve", "openat", "epoll_create1", "accept4"} <= made
    assert made - allowed_calls() == set()


# -- the image


def test_the_image_is_built_in_stages_from_files_that_exist_and_runs_as_a_number():
    found = instructions()
    words = [word for word, _ in found]
    stages = [rest.split() for word, rest in found if word == "FROM"]
    assert [stage[0] for stage in stages] == ["python:3.13-slim"] * 2
    assert all(re.search(r":\d", stage[0]) for stage in stages)  # a version
    assert words[-2:] == ["ENTRYPOINT", "CMD"]
    (user,) = [rest for word, rest in found if word == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert words.index("USER") > len(words) - 1 - words[::-1].index("FROM")  # in the last stage
    copied = [rest.split()[:-1] for word, rest in found if word == "COPY" and "--from=" not in rest]
    ignored = (DEPLOY / "docker/Dockerfile.dockerignore").read_text().splitlines()
    for path in [each for line in copied for each in line]:
        assert (ROOT / path).exists(), path
        assert f"!{path.split('/')[0]}" in ignored, path
    assert [rest for word, rest in found if word == "EXPOSE"] == [str(XDS)]
    assert str(pod()["securityContext"]["runAsUser"]) == user.split(":")[0]
    assert not [rest for word, rest in found if word == "ADD" or (word == "RUN" and "curl" in rest)]


def test_a_wheel_can_be_built_from_what_the_image_copies(tmp_path: Path):
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    for words in [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and "--from=" not in rest]:
        for path in words:
            target = source / path if (ROOT / path).is_dir() else source / Path(path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / path).is_dir():
                shutil.copytree(ROOT / path, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / path, target)
    (build,) = re.findall(r"/build/bin/(pip wheel .*?) +&&", " ".join(rest for _, rest in instructions()))
    words = [str(wheels) if word == "/wheels" else word for word in build.split()]
    pure = {**os.environ, "XDSPRISM_BUILD": "pure"}  # the same files; `make wheel` compiles them
    subprocess.run([sys.executable, "-m", *words], cwd=source, env=pure, check=True, capture_output=True, timeout=100)
    (wheel,) = wheels.iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert "xdsprism/app.py" in names
    assert [name for name in names if name.endswith("licenses/THIRD_PARTY.md")]


def test_pip_installs_nothing_without_a_hash_in_the_image():
    installs = [rest for word, rest in instructions() if word == "RUN" and "pip " in rest]
    for command in re.split(r"&&", " && ".join(installs)):
        if "pip install" in command or "pip wheel" in command:
            assert "--require-hashes" in command or "--no-index" in command, command


def test_the_health_check_of_the_image_tells_ready_from_not_ready(tmp_path: Path):
    (check,) = [rest.partition("CMD ")[2] for word, rest in instructions() if word == "HEALTHCHECK"]
    python, *words = json.loads(check)
    assert python == "/opt/xdsprism/bin/python"
    assert f"127.0.0.1:{ADMIN}" in check

    def code(address: str) -> int:
        given = [word.replace(f"127.0.0.1:{ADMIN}", address) for word in words]
        return subprocess.run([sys.executable, *given], capture_output=True, check=False, timeout=60).returncode

    with Daemon(tmp_path, ROOT / "examples/config") as daemon:
        assert code(daemon.admin) == 0
        address = daemon.admin
    assert code(address) != 0


# -- Kubernetes


def mounted(folder: Path, files: dict[str, str]) -> Path:
    """As the kubelet mounts a ConfigMap: symlinks to `..data`, which is one to the files."""
    for name in files:
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(Path("..data") / name)
    number = len([*folder.glob("..20*")])
    contents = folder / f"..20_{number}"
    contents.mkdir()
    for name, text in files.items():
        (contents / name).write_text(text)
    (folder / "..data_tmp").symlink_to(contents.name)
    (folder / "..data_tmp").rename(folder / "..data")
    return folder


def test_the_probes_of_kubernetes_and_prometheus_get_through_and_others_need_the_token(tmp_path: Path):
    folder, token = tmp_path / "config", tmp_path / "token"
    folder.mkdir()
    files = only("ConfigMap")["data"]
    mounted(folder, files)
    token.write_text("t" * 32)
    token.chmod(0o440)
    words = [word.replace(CONFIG, str(folder)) for word in container()["args"][2:]]
    words = [word.replace("/etc/xdsprism/admin/token", str(token)) for word in words]
    words = [word for word in words if not word.startswith(("--listen", "--admin=", "--log-format"))]
    with Daemon(tmp_path, folder, *words, admin="0.0.0.0:0") as daemon:
        address = daemon.admin.replace("0.0.0.0", "127.0.0.1")
        probes = [container()[name]["httpGet"]["path"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
        assert probes == ["/readyz", "/readyz", "/healthz"]
        for path in [*probes, "/metrics"]:
            assert web.get(*web.split(address), path).status == 200
        assert web.get(*web.split(address), "/api/clients").status == 401
        by_name = urllib.request.Request(f"http://{address}/readyz", headers={"host": f"xdsprism:{ADMIN}"})
        assert urllib.request.urlopen(by_name, timeout=30).status == 200
        (curl,) = re.findall(r"^curl .*$", PAGE, re.MULTILINE)
        assert f"localhost:{ADMIN}" in curl
        command = ["sh", "-c", curl.replace(f"localhost:{ADMIN}", address)]
        asked = subprocess.run(
            command, env={**os.environ, "TOKEN": "t" * 32}, capture_output=True, check=True, timeout=60
        )
        assert json.loads(asked.stdout)["clients"] == []
        # The kubelet swaps the symlink, and the server sees it.
        changed = {name: text.replace("name: backend", "name: changed") for name, text in files.items()}
        mounted(folder, changed)
        got = lambda: run("get", "cds", "-o", "name", "--server", daemon.listen).stdout  # noqa: E731
        eventually(lambda: got() == "cds/changed\n")


def test_ports_volumes_and_labels_of_the_manifest_agree():
    found = container()
    ports = {each["name"]: each["containerPort"] for each in found["ports"]}
    assert ports == {"grpc-xds": XDS, "http-admin": ADMIN}
    service = only("Service")["spec"]
    assert {each["targetPort"]: each["port"] for each in service["ports"]} == ports
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert found[name]["httpGet"]["port"] in ports
    volumes = {each["name"]: each for each in pod()["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in found["volumeMounts"]}
    assert set(volumes) == set(mounts)
    assert mounts == {"config": CONFIG, "admin": "/etc/xdsprism/admin"}
    assert not any("subPath" in each for each in found["volumeMounts"])
    assert volumes["config"]["configMap"]["name"] == only("ConfigMap")["metadata"]["name"]
    assert volumes["admin"]["secret"]["defaultMode"] == 0o440
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        only("Deployment")["spec"]["selector"]["matchLabels"],
        service["selector"],
        only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert f"kubectl create secret generic {volumes['admin']['secret']['secretName']} --from-literal=token=" in PAGE


def test_the_container_may_write_nowhere_and_become_nobody_else():
    own = container()["securityContext"]
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["automountServiceAccountToken"] is False


def test_the_configuration_of_the_examples_is_valid(tmp_path: Path):
    for number, files in enumerate(
        (only("ConfigMap")["data"], yaml.safe_load((CHART / "values.yaml").read_text())["config"])
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = run("check", mounted(folder, files))
        assert done.exit_code == 0, done.stderr


# -- Helm


def test_the_chart_makes_what_the_manifest_has():
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in MANIFEST}
    made = render(CHART, "xdsprism", {})
    assert {(each["kind"], each["metadata"]["name"]): each for each in made} == by_name


def test_the_values_of_the_chart_do_what_their_comments_say():
    made = render(
        CHART,
        "two",
        {
            "existingConfigMap": "mine",
            "adminSecret": "token",
            "replicas": 5,
            "image": "other:1",
            "args": ["--rest=off"],
        },
    )
    assert "ConfigMap" not in [each["kind"] for each in made]
    deployment = only("Deployment", made)
    inside = deployment["spec"]["template"]["spec"]
    assert deployment["metadata"]["name"] == "two"
    assert deployment["spec"]["replicas"] == 5
    assert [each.get("configMap", each.get("secret")) for each in inside["volumes"]] == [
        {"name": "mine"},
        {"secretName": "token", "defaultMode": 0o440},
    ]
    assert inside["containers"][0]["image"] == "other:1"
    assert inside["containers"][0]["args"][-1] == "--rest=off"
    assert only("Service", made)["spec"]["selector"]["app.kubernetes.io/instance"] == "two"


def test_each_value_of_the_chart_is_used():
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(re.findall(r"\.Values\.(\w+)", templates)) == set(values)
