"""One client as `status NODE` shows it: its streams, its resources, and what is wrong with those in trouble."""

from __future__ import annotations

from typing import Any

from ..core.session.sync_state import SyncState
from . import output as out
from .differences import print_difference
from .fleet import duration, paint

Row = dict[str, Any]


def print_client(page: Row, *, wide: bool) -> None:
    """Print what /api/client says of a client."""
    for stream in page["clients"]:
        _print_stream(stream)
    resources = page["resources"]
    out.say("")
    headers = ["RESOURCE", "STATE", "VARIANT", "HAS", "CURRENT", *(["SENT", "ORIGIN"] if wide else [])]
    out.table(headers, [_cells(each, wide=wide) for each in resources], paint)
    more = page["total"] - len(resources) + page.get("left_out", 0)
    if more:
        out.say(f"and {more:,} more")
    for each in resources:
        if each["state"] in (SyncState.NACKED, SyncState.STALE):
            _print_trouble(each)


def _print_stream(stream: Row) -> None:
    """Print what there is to know of one stream of the client."""
    node = stream["node"] or {"id": "", "user_agent": ""}
    since = f"connected for {duration(stream['age_seconds'])} from {stream['peer']}"
    agent = f", {node['user_agent']}" if node["user_agent"] else ""
    out.say(f"{node['id'] or '-'}: {stream['state']}, {since}{agent}")
    out.say(f"  stream {stream['stream']}: {stream['method'].rpartition('/')[2]}")
    out.say(f"  params: {out.params_text(stream['params'])}")
    if stream["identities"]:
        out.say(f"  identities: {', '.join(stream['identities'])}")
    policy = stream["policy"]
    if policy is not None:
        denied = ", ".join(f"{kind}: {count}" for kind, count in policy["denied"].items())
        out.say(f"  policy: {policy['rule']}" + (f"; denied: {denied}" if denied else ""))
    for label, counts in (("refused", stream["refused"]), ("limited", stream["limited"])):
        if counts:
            out.say(f"  {label}: {', '.join(f'{name}: {count}' for name, count in counts.items())}")
    for each in stream["types"]:
        if each["nack"] is not None:
            out.say(f"  {each['type']} was NACKed at {each['nack']['time']}: {each['nack']['message']}")


def _cells(each: Row, *, wide: bool) -> list[str]:
    current, sent = each["current"], each["sent"]
    stale = f" {duration(each['stale_seconds'])}" if each["stale_seconds"] is not None else ""
    shown = current or sent
    variant = shown["constraint"] if shown is not None else "-"
    cells = [title(each), f"{each['state']}{stale}", variant, _has_text(each), _current_text(each)]
    if wide:
        cells += [sent["version"] if sent is not None else "-", (shown or {}).get("origin") or "-"]
    return cells


def title(each: Row) -> str:
    """Name a resource: `cds/shop`, and with the params of the locator if it was asked for by one."""
    name = f"{each['type']}/{each['name']}"
    return f"{name} [{out.params_text(each['params'])}]" if each["params"] is not None else name


def _has_text(each: Row) -> str:
    has = each["has"]
    if has is None:
        return "nothing"
    return str(has["version"]) if has["version"] is not None else "not kept"


def _current_text(each: Row) -> str:
    if each["current"] is not None:
        return str(each["current"]["version"])
    return "denied" if "denied" in each else "does not exist"


def _print_trouble(each: Row) -> None:
    """Print what is wrong with a resource, where it came from, and how it differs from what the client has."""
    has, sent, current = each["has"], each["sent"], each["current"]
    out.say("")
    what = f"{title(each)} ({(sent or current or {}).get('constraint', 'true')})"
    if each["error"] is not None:
        out.say(f"{what} was rejected: {each['error']['message']}")
    elif each["stale_seconds"] is not None:
        out.say(f"{what} was sent {duration(each['stale_seconds'])} ago, and is not answered")
    else:
        out.say(f"{what} changed, and is not sent yet")
    shown = sent if each["error"] is not None else current
    if shown is not None and shown.get("origin"):
        out.say(f"  from {shown['origin']}")
    _print_difference(each, has, each["unanswered"], current)


def _print_difference(each: Row, has: Row | None, sent: Row | None, current: Row | None) -> None:
    """Print how what the client has differs from what is current, as far as the contents are still there."""
    if has is None:
        out.say("  the client has nothing of it")
        return
    if current is not None and "body" not in current:
        many = "only the first resources in trouble are shown with contents: give --type or --state to see others"
        size = current.get("too_large")
        out.say(f"  ({f'its {size:,} bytes are too many to show how they differ' if size else many})")
        return
    after, label = (current or {}).get("body"), _label(title(each), "is current", current)
    if "body" in has:
        print_difference(has["body"], after, _label(title(each), "the client has", has), label)
        return
    kept = "too large to show" if "too_large" in has else "no longer kept"
    version = f"version {has['version']}" if has["version"] is not None else "an earlier version"
    out.say(f"  the client has {version}, {kept}")
    if sent is not None and "body" in sent:
        print_difference(sent["body"], after, _label(title(each), "was sent, and is not answered", sent), label)


def _label(name: str, what: str, variant: Row | None) -> str:
    return f"{name}: {what}" + (f" (version {variant['version']})" if variant is not None else "")
