"""`xdsprism policy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError, Problem, UsageError, XdsError
from . import output as out

if TYPE_CHECKING:
    from ..core.policy.policy import Policy
    from ..messages.document import Document

_CASE_KEYS = ("as", "node", "type", "name", "params", "locator", "allow", "rule", "gets")


@click.group(short_help="Test a policy file.")
def policy() -> None:
    """Test a policy file before a server gets it. `xdsprism check --policy FILE` validates one.

    \b
    Example:
      xdsprism policy test policy.yaml cases.yaml
    """  # noqa: D301


@policy.command("test", short_help="Check what a policy decides in given cases.")
@click.argument("policy_file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.argument("cases_file", metavar="CASES", type=click.Path(exists=True, dir_okay=False))
def test(policy_file: str, cases_file: str) -> None:
    """Check that the policy in FILE decides as CASES says. Exit status 1: a case fails.

    CASES is a YAML list. Each case says who a client is and what it asks for, and what is expected:

    \b
      - as: spiffe://example.com/ns/prod/web   # or dns:HOST, subject:CN=..., jwt:SUB, anonymous
        node: prod-1                           # its node id; left out: empty
        type: cds
        name: shop
        params: {env: prod}                    # of its node's metadata; or `locator: {...}`
        allow: true                            # may it have this resource?
        rule: 1                                # left out: any; 0: the default
        gets: {env: prod}                      # the params that choose its variant; left out: any

    \b
    Example:
      xdsprism policy test policy.yaml cases.yaml
    """  # noqa: D301
    from ..sources.policy_file import load_policy

    decides = load_policy(policy_file)
    document = _cases(cases_file)
    failed = []
    cases = document.root if isinstance(document.root, list) else []
    if not cases:
        raise ConfigError([Problem("there is no list of cases", cases_file, document.line)])
    for number, case in enumerate(cases):
        line = document.line_of((number,))
        try:
            wrong = _judge(decides, case)
        except (UsageError, ValueError) as error:
            raise ConfigError([Problem(str(error), cases_file, line)]) from None
        failed += [f"{cases_file}:{line}: {each}" for each in wrong]
    for each in failed:
        out.note(each)
    if failed:
        raise XdsError(f"{len(failed)} of {len(cases)} cases are decided otherwise")
    out.note(f"{len(cases)} cases are decided as expected")


def _cases(file: str) -> Document:
    from ..file_reading import read_file
    from ..messages.document import MalformedError
    from ..sources import strict_yaml

    try:
        text = read_file(file).decode()
        documents = [document for chunk in strict_yaml.split(text) for document in strict_yaml.load(chunk)]
    except MalformedError as error:
        raise ConfigError([Problem(error.message, file, error.line)]) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem("the file is not UTF-8", file)]) from None
    except OSError as error:
        raise ConfigError([Problem(f"can't be read: {error.strerror}", file)]) from None
    if len(documents) != 1:
        raise ConfigError([Problem(f"the cases are one document, and here are {len(documents)}", file, 1)])
    return documents[0]


def _judge(policy: Policy, case: Any) -> list[str]:
    """Return how the policy decides otherwise than a case says. Raises UsageError for what is no case."""
    from ..core.model.type_names import resolve_type
    from ..core.policy.identity import parse_identity

    if not isinstance(case, dict) or not all(isinstance(key, str) for key in case):
        raise UsageError("a case is a mapping")
    unknown = [key for key in case if key not in _CASE_KEYS]
    missing = [key for key in ("as", "type", "name", "allow") if key not in case]
    if unknown or missing:
        said = f"unknown key {unknown[0]!r}" if unknown else f"{missing[0]} is missing"
        raise UsageError(f"{said}: a case has {', '.join(_CASE_KEYS)}")
    if not isinstance(case["allow"], bool):
        raise UsageError("allow is true or false")
    if "params" in case and "locator" in case:
        raise UsageError("a subscription has params of its node, or those of a locator")
    for key in ("as", "node", "type", "name"):
        if not isinstance(case.get(key, ""), str):
            raise UsageError(f"{key} is a text: quote it")
    identities, node, name = parse_identity(case["as"]), case.get("node", ""), case["name"]
    type_url = resolve_type(case["type"])
    params, gets = _params(case, "locator" if "locator" in case else "params"), _params(case, "gets")
    grant = policy.grant(identities, node)
    claim = grant.claim_locator(params) if "locator" in case else grant.claim_node(params)
    denial = grant.denies(type_url, name) or claim.denial
    found = []
    if (denial is None) != case["allow"]:
        found.append(f"{case['as']} may have {case['type']}/{name}" if denial is None else denial.message)
    elif denial is None and "gets" in case and claim.params != gets:
        found.append(f"the params are {dict(claim.params)}, and not {dict(gets)}")
    number = next((at for at, rule in enumerate(policy.rules, 1) if rule.matches(identities, node)), 0)
    if "rule" in case and case["rule"] != number:
        found.append(f"it is rule {number} that decides, and not rule {case['rule']}")
    where = f" [{grant.rule}]"
    return [each + where for each in found]


def _params(case: Any, key: str) -> Any:
    from ..core.model.types import Params

    given = case.get(key, {})
    texts = isinstance(given, dict) and all(isinstance(each, str) for pair in given.items() for each in pair)
    if not texts:
        raise UsageError(f"{key} is a mapping of texts: quote numbers")
    return Params(given)
