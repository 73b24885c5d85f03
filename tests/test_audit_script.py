"""scripts/audit.py: a known vulnerability is an error, and a network without an advisory service is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/audit.py"

FINE = {"name": "anyio", "version": "4.0", "vulns": []}
BAD = {"name": "h11", "version": "0.1", "vulns": [{"id": "CVE-1", "fix_versions": ["0.2"], "aliases": []}]}
SKIPPED = {"name": "click", "skip_reason": "not found"}


def _says(*packages: object) -> str:
    return f"print({json.dumps(json.dumps({'dependencies': packages}))})"


def _audit(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """With a pip-audit that is this program."""
    (folder / "pip_audit.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_known_vulnerability_is_named_and_an_error(tmp_path: Path) -> None:
    done = _audit(tmp_path, _says(FINE, BAD, SKIPPED) + "\nraise SystemExit(1)")
    assert done.returncode == 1
    assert "h11 0.1 has CVE-1, fixed in 0.2" in done.stdout
    assert "asked about 2 packages, 1 of them with known vulnerabilities; unknown there: click" in done.stdout


def test_without_one_it_says_how_much_was_looked_up(tmp_path: Path) -> None:
    done = _audit(tmp_path, _says(FINE, FINE))
    assert done.returncode == 0
    assert "pypi was asked about 2 packages, 0 of them with known vulnerabilities" in done.stdout


@pytest.mark.parametrize(
    ("program", "word"),
    [
        ("import sys\nsys.exit('requests.ConnectionError: no such host')", "requests.ConnectionError"),
        ("import signal\nsignal.pause()", "nothing within 0.3 s"),
        # An index that has the packages and no advisories: pip-audit itself calls that "no known vulnerabilities".
        (_says(SKIPPED, SKIPPED), "it does not know any of the packages"),
    ],
)
def test_where_no_service_answers_it_says_that_nothing_was_looked_up(tmp_path: Path, program: str, word: str) -> None:
    done = _audit(tmp_path, program, "--timeout", "0.3" if "pause" in program else "60")
    assert done.returncode == 0
    assert "skipped, no advisory service answered; nothing was looked up" in done.stdout
    assert [line.split(":")[1].strip() for line in done.stdout.splitlines()[1:]] == ["pypi", "osv"]
    assert word in done.stdout


def test_the_next_service_is_asked_where_one_does_not_answer(tmp_path: Path) -> None:
    program = f"import sys\nif 'pypi' in sys.argv: sys.exit('down')\n{_says(BAD)}\nsys.exit(1)"
    done = _audit(tmp_path, program)
    assert done.returncode == 1
    assert "osv was asked about 1 packages" in done.stdout


def test_a_pip_audit_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    done = _audit(tmp_path, "import sys\nprint('unrecognized arguments', file=sys.stderr)\nsys.exit(2)")
    assert done.returncode == 1
    assert "unrecognized arguments" in done.stderr
