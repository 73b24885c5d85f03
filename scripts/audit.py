"""Say whether a package of the locks has a known vulnerability, and end with 1 if so.

    audit.py [--timeout SECONDS]

Asks the advisory services that pip-audit knows, one after the other, until one answers. If none does within
SECONDS (60), it says that nothing was looked up, and ends with 0: whether a network lets one ask
is not a matter of the packages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# fuzz.txt has all of run.txt and test.txt. grpcio-v2.txt is old on purpose, and speaks in tests alone, to our server.
LOCKS = ("fuzz", "envoy", "tools")
SERVICES = ("pypi", "osv")
USAGE = 2


class Unanswered(Exception):
    """A service did not say anything about any package."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS")
    patience = parser.parse_args().timeout
    unanswered = []
    for service in SERVICES:
        try:
            packages = ask(service, patience)
        except Unanswered as error:
            unanswered.append(f"{service}: {error}")
            continue
        sys.exit(verdict(service, packages))
    print("audit: skipped, no advisory service answered; nothing was looked up")
    for each in unanswered:
        print(f"audit:   {each}")


def ask(service: str, patience: float) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--timeout", "5"]
    command += ["--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"]
    for name in LOCKS:
        command += ["--requirement", f"locks/{name}.txt"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        raise Unanswered(f"nothing within {patience:g} s") from None
    if done.returncode == USAGE or "No module named" in done.stderr:
        sys.exit(f"audit: pip-audit does not run:\n{done.stderr}")
    try:
        packages: list[dict[str, object]] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise Unanswered(last[0].split(":")[0]) from None
    if all("skip_reason" in each for each in packages):
        raise Unanswered("it does not know any of the packages")
    return packages


def verdict(service: str, packages: list[dict[str, object]]) -> int:
    for each in packages:
        for found in each.get("vulns", ()):  # type: ignore[attr-defined]
            fixed = ", ".join(found["fix_versions"]) or "no version yet"
            print(f"audit: {each['name']} {each['version']} has {found['id']}, fixed in {fixed}: run `make lock`")
    skipped = [str(each["name"]) for each in packages if "skip_reason" in each]
    looked_up = len(packages) - len(skipped)
    unknown = f"; unknown there: {', '.join(skipped)}" if skipped else ""
    bad = sum(1 for each in packages if each.get("vulns"))
    print(f"audit: {service} was asked about {looked_up} packages, {bad} of them with known vulnerabilities{unknown}")
    return 1 if bad else 0


if __name__ == "__main__":
    main()
