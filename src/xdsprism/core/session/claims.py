"""Apply a policy to one subscription: the params that it has, what it lists, and whether it asks for resources.

A claim is what the policy makes of the params of a subscription (core/policy/grant.py). Without a policy there is none:
the subscription then has the params of its locator, or those of the node.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.cached import CachedSet, Finding
from ..model.constraints import TRUE
from ..model.events import Key
from ..model.listing import Listing
from ..model.staged_changes import SpecialCounts
from ..model.table import Table
from ..model.types import Params, Variant
from ..policy.grant import Claim
from .context import SessionContext
from .subscription import NameSubscription, WildcardSubscription


def params_of(context: SessionContext, key: Key, claim: Claim | None) -> Params:
    """Return the params of a subscription. DYN-13: a locator without params matches like a plain name."""
    return claim.params if claim is not None else key.tag or context.plain_params(key.name)


def demand(context: SessionContext, want: NameSubscription) -> None:
    """Ask for the resource where it has to be fetched or made, unless the client can't have it."""
    if context.complaint(want.name) is None and not want.is_denied:
        context.interest.demand.want(context.type_url, want.name, want.params, context.stream)


def undemand(context: SessionContext, want: NameSubscription) -> None:
    """Undo `demand`."""
    if context.complaint(want.name) is None and not want.is_denied:
        context.interest.demand.unwant(context.type_url, want.name, want.params)


def demand_members(context: SessionContext, wild: WildcardSubscription) -> None:
    """Ask for the members of a wildcard, unless the policy denies it."""
    if not wild.is_denied:
        context.interest.demand.want(context.type_url, wild.name, wild.params, context.stream)


def undemand_members(context: SessionContext, wild: WildcardSubscription) -> None:
    """Undo `demand_members`."""
    if not wild.is_denied:
        context.interest.demand.unwant(context.type_url, wild.name, wild.params)


def listing_of(context: SessionContext, name: str, claim: Claim | None) -> Listing:
    """Return what a wildcard is about: nothing, where the policy denies it."""
    denied = claim is not None and claim.denial is not None
    return Listing({}, SpecialCounts()) if denied else context.table.listing(name)


def note_denied(context: SessionContext, wild: WildcardSubscription) -> None:
    """Report a wildcard that can list nothing. Its answer says no more than that it is empty."""
    denial = wild.claim.denial if wild.claim is not None else None
    if denial is not None:
        context.note_denied(denial, wild.name)
        context.report_denied()


def regrant_wildcard(context: SessionContext, wild: WildcardSubscription, before: Table) -> None:
    """Take what another policy makes of a wildcard. `before`: the table that the session has read until now."""
    claim = context.claim(wild.key)
    if claim == wild.claim and before is context.table:
        return
    undemand_members(context, wild)
    params = params_of(context, wild.key, claim)
    denied = claim is not None and claim.denial is not None
    # PRX-11: a relay may have to ask first what these params see. Until it knows, the client keeps what it may have.
    kept: dict[str, Variant] = {}
    if wild.started and not denied and not context.table.authoritative:
        kept = {name: each for name, each in wild.members(before).items() if context.shows(name)}
    sure = bool(kept) and (wild.is_held_over or params != wild.params)
    is_known = denied or not wild.started or context.table.knowledge.lists(params, wild.name, sure=sure)
    listing = listing_of(context, wild.name, claim) if is_known else kept_listing(kept)
    wild.is_held_over = not is_known
    wild.show(claim, params, listing, before)
    demand_members(context, wild)
    note_denied(context, wild)


def end_holding_over(context: SessionContext, wild: WildcardSubscription) -> None:
    """Show what the policy in force lets a wildcard see, if the relay knows it by now."""
    if context.table.knowledge.lists(wild.params, wild.name, sure=bool(wild.listing.names)):
        wild.is_held_over = False
        wild.show(wild.claim, wild.params, listing_of(context, wild.name, wild.claim), context.table)


def kept_listing(members: Mapping[str, Variant]) -> Listing:
    """Return a listing that has these members, and does not change."""
    return Listing({name: CachedSet([Finding(TRUE, each)]) for name, each in members.items()}, SpecialCounts())
