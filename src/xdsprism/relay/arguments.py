"""Decides what the arguments of a relay mean, and refuses wrong ones; a Server checks those that it gets."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from typing import get_args

from ..argument_types import expect_named, expect_strings
from ..client.bootstrap import Bootstrap
from ..client.environment import PARAMS_VARIABLE
from ..core.model.dialect import RequestForm
from ..core.model.settings import Settings, UpstreamForm
from ..errors import UsageError

NONE = type(None)


def check_relay(*, linger: object, max_stale: object, cache: object, group_by: object, **switches: object) -> None:
    """Raise TypeError or UsageError for what a relay can't be made with; `switches` are True or False."""
    for name, seconds in (("linger", linger), ("max_stale", max_stale)):
        expect_named(name, seconds, float)
        if isinstance(seconds, int | float) and not seconds >= 0:
            raise UsageError(f"{name} is a number of seconds, not {seconds!r}")
    expect_named("cache", cache, str, os.PathLike, NONE)
    if group_by is not None:
        expect_strings("group_by", group_by)
    for name, switch in switches.items():
        expect_named(name, switch, bool)


def with_defaults(settings: Settings, bootstrap: Bootstrap) -> Settings:
    """Use the bootstrap's params for clients that send none, key by key (DYN-48, DYN-49)."""
    known = (bootstrap.root, *bootstrap.authorities.values())
    return replace(settings, default_params={each.name: each.params for each in known if each.params})


def request_form(wanted: UpstreamForm, group_by: Collection[str] | None, bootstrap: Bootstrap) -> RequestForm:
    """Return the form of upstream requests: locators, names, or UNKNOWN, which is found out per server (PRX-32).

    Groups are for servers that know names only. DYN-54: the environment may switch locators off. Raises UsageError if
    locators are demanded against either.
    """
    if wanted not in get_args(UpstreamForm):
        raise UsageError(f"upstream_form is {', '.join(get_args(UpstreamForm))}, not {wanted!r}")
    reason = "group_by asks by names" if group_by is not None else ""
    reason = reason or ("" if bootstrap.dynamic_parameters else f"{PARAMS_VARIABLE} switches locators off")
    if reason and wanted == "locators":
        raise UsageError(f"upstream_form 'locators' is not possible: {reason}")
    if reason or wanted == "names":
        return RequestForm.NAMES
    return RequestForm.LOCATORS if wanted == "locators" else RequestForm.UNKNOWN
