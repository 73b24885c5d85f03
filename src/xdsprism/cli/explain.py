"""`xdsprism explain`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..core.model.type_names import resolve_type
from ..errors import UsageError
from ..similar import similar
from . import output as out
from .admin_port import AdminClient, admin_options, admin_or_files
from .asking import missing, note_unmentioned, title
from .completion import complete_known_name, complete_type
from .options import descriptors_option, params_option, policy_option, validate_option

if TYPE_CHECKING:
    from ..messages.validation import Validate


OTHERS = 20  # variants that do not match, shown on a terminal


class Client(NamedTuple):
    """A client, and the policy that decides for it."""

    policy: str
    identity: str
    node: str


@click.command(short_help="Say which variant a client gets, and why.")
@click.argument("type_word", metavar="TYPE", shell_complete=complete_type)
@click.argument("name", shell_complete=complete_known_name)
@click.argument("config", nargs=-1, type=click.Path(exists=True, allow_dash=True))
@admin_options(None, "Ask a running server or relay instead of reading CONFIG.")
@params_option
@policy_option("A policy file: explain what the client of --as gets by it. Needs CONFIG.")
@click.option(
    "--as",
    "identity",
    metavar="IDENTITY",
    help="Who the client is: spiffe://..., dns:HOST, subject:CN=..., jwt:SUB, or anonymous.",
)
@click.option("--node", default="", metavar="ID", help="Which node it says it is, for the rules of --policy.")
@click.option("--client", metavar="NODE", help="Explain it for this connected client, by its node id. Needs --admin.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The output format.  [default: a table]")
@validate_option("envoy", "How to check CONFIG, as for `serve`.")
@descriptors_option
def explain(  # noqa: PLR0913, PLR0917 # click passes each option
    type_word: str,
    name: str,
    config: tuple[str, ...],
    admin: AdminClient | None,
    params: dict[str, str],
    output: str | None,
    validate: Validate,
    policy: str | None,
    identity: str | None,
    node: str,
    client: str | None,
) -> None:
    """Say which variant of a resource a client gets, and why the others do not match.

    Reads CONFIG (files, directories of them, or - for the standard input), or asks the admin port of a running server
    or relay. A relay also shows which server a variant came from, and how old it is. Exit status 1: the resource does
    not exist, or has no variant for this client.

    With --policy and --as it says which rule decides, what is denied, and which params are left to choose a variant.
    With --admin and --client it says the same of a client that is connected, with the params of its node, or those of
    the locator that it sent; --param gives those of a locator that it might send.

    \b
    Example:
      xdsprism explain rds main examples/config --param env=prod
      xdsprism explain rds main --admin 127.0.0.1:18001 --param env=prod
      xdsprism explain rds main --admin 127.0.0.1:18001 --client envoy-1
      xdsprism explain rds main examples/config --policy policy.yaml --as spiffe://example.com/envoy
    """  # noqa: D301
    admin = admin_or_files(config, admin)
    if client is not None and admin is None:
        raise UsageError("--client needs --admin: it is a client that is connected to a running server")
    _check_policy(policy, identity, node, is_asked=admin is not None)
    type_url = resolve_type(type_word)
    if policy is not None and identity is not None:
        answer = _by_policy(config, validate, type_url, name, params, Client(policy, identity, node))
    elif admin is not None:
        answer = admin.ask_about("explain", type_url, name, params, client)
    else:
        answer = _from_files(config, validate, type_url, name, params)
    if answer["variant"] is not None or answer["keys"]:
        note_unmentioned(title(type_url, name), params, answer["keys"])
    if output == "json":
        out.as_json(answer)
    elif output == "yaml":
        out.as_yaml(answer)
    else:
        _print(answer)
    if answer["variant"] is None:
        click.get_current_context().exit(1)


def _check_policy(policy: str | None, identity: str | None, node: str, *, is_asked: bool) -> None:
    """Raise UsageError if the options about a policy do not go together; `is_asked`: a server is asked."""
    if (policy is None) != (identity is None) or (node and policy is None):
        raise UsageError("--policy and --as go together, and --node with them")
    if policy is not None and is_asked:
        raise UsageError("--policy needs CONFIG: of a running server, ask with --client what it decides for a client")


def _from_files(
    config: tuple[str, ...], validate: Validate, type_url: str, name: str, params: dict[str, str]
) -> dict[str, Any]:
    from ..admin import read_model
    from .loading import load

    store, _ = load(config, validate)
    table = store.table(type_url)
    found = read_model.explain(table, name, params)
    if found is None:
        raise missing(type_url, name, similar(name, read_model.names_to_compare(table)))
    return found


def _by_policy(  # what is explained, and to whom
    config: tuple[str, ...], validate: Validate, type_url: str, name: str, params: dict[str, str], client: Client
) -> dict[str, Any]:
    from ..admin import read_model
    from ..core.model.types import Params
    from ..core.policy.identity import parse_identity
    from ..sources.policy_file import load_policy
    from .loading import load

    grant = load_policy(client.policy).grant(parse_identity(client.identity), client.node)
    claim = grant.claim_node(Params(params))
    denial = grant.denies(type_url, name) or claim.denial
    store, _ = load(config, validate)
    table = store.allowed(type_url, grant.visible(type_url))
    found = read_model.explain(table, name, claim.params) if denial is None else None
    nothing = {"type": table.spec.label, "type_url": type_url, "name": name, "params": params, "keys": [], "others": []}
    if found is None and denial is None:
        whom = f" for {client.identity}, by {grant.rule}"
        raise missing(type_url, name, similar(name, read_model.names_to_compare(table)), whom)
    return (found or nothing | {"variant": None, "absent": None}) | {
        "policy": {
            "identity": client.identity,
            "node": client.node,
            "rule": grant.rule,
            "denied": denial.message if denial is not None else None,
            "params": dict(claim.params),
            "ignored": sorted(key for key in params if key not in claim.params) if denial is None else [],
        }
    }


def _print(answer: dict[str, Any]) -> None:
    client = answer.get("client")
    if client is not None:
        out.say(f"{client['node']}, which is connected from {client['peer']}:")
    decided = answer.get("policy")
    if decided is not None:
        out.say(f"By {decided['rule']}:")
        if decided["denied"] is not None:
            out.say(f"{answer['type']}/{answer['name']} is denied to {decided['identity']}: {decided['denied']}.")
            return
        if decided["ignored"]:
            keys = ", ".join(decided["ignored"])
            out.say(f"Ignored of its node, and denied in a locator where variants mention it: {keys}")
    what, who = f"{answer['type']}/{answer['name']}", out.params_text(answer["params"])
    chosen = answer["variant"]
    if chosen is not None:
        out.say(f"{what} for a client with {who} is")
    elif answer["absent"] is None:
        out.say(f"{what} for a client with {who} is not in the cache: the relay would ask its server for it.")
    else:
        out.say(f"{what} does not exist for a client with {who}.")
        out.say(f"Caches may remember this for all clients that match {answer['absent']}.")
    rows = [["=>", chosen["constraint"], "", _origin(chosen)]] if chosen is not None else []
    others, fit = answer["others"], sys.stdout.isatty()
    shown = others[:OTHERS] if fit else others
    rows += [["", _what(other), _because(other), _origin(other)] for other in shown]
    if len(shown) < len(others):
        rows.append(["", f"... and {len(others) - len(shown)} more: -o yaml lists all", "", ""])
    click.echo()
    out.table(["", "VARIANT", "WHY NOT", "ORIGIN"], rows, fit=fit)


def _what(other: dict[str, Any]) -> str:
    constraint = str(other["constraint"])
    return constraint if other.get("exists", True) else f"nothing for {constraint}"


def _origin(variant: dict[str, Any]) -> str:
    """Where the variant is written, or which server sent it."""
    if "age_seconds" not in variant:
        return variant["origin"] or "-"
    parts = [variant["upstream"] or "an earlier answer", f"{variant['age_seconds']:.0f} s ago"]
    if variant["stale"]:
        parts.append(f"stale since {variant['stale_since']}")
    return ", ".join(parts)


def _because(other: dict[str, Any]) -> str:
    if other["fails"] is None:
        return "a newer variant matches these params too"
    has = ", ".join(
        f"{key} is {value}" if value is not None else f"there is no {key}" for key, value in other["has"].items()
    )
    return f"needs {other['fails']}, but {has}" if has else str(other["fails"])
