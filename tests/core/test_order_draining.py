"""Connections that an Envoy accepted before its listener changed are served as before, until that is drained.

So what their requests need stays for a while after the client has accepted the change.
"""

from __future__ import annotations

from tests.core.modes import both
from tests.core.support import play
from xdsprism.core.model.settings import Settings

SETTINGS = Settings(ack_timeout=5, drain_time=2)


def gone(mode: str, kept: str) -> str:
    return "cds -old" if mode == "delta" else f"cds {kept}=1"


@both
def test_a_cluster_goes_when_the_listener_that_led_to_it_is_drained(mode: str):
    # ORD-2
    play(
        f"""
        store cds old=1 new=1; lds l=1>cds.old
        > cds +*
        > lds +*
        < cds new=1 old=1
        < lds l=1>cds.old

        > ack
        wait 60

        store cds -old; lds l=2>cds.new
        < lds l=2>cds.new

        wait 1
        > lds ack

        wait 1.5

        wait 0.5
        < {gone(mode, "new")}
        """,
        mode=mode,
        settings=SETTINGS,
    )


@both
def test_draining_of_a_listener_begins_when_the_client_has_the_routes_of_the_new_one(mode: str):
    # ORD-2
    play(
        f"""
        store cds old=1 new=1; lds l=1>cds.old
        > cds +*
        > lds +*
        < cds new=1 old=1
        < lds l=1>cds.old

        > ack
        wait 60

        store cds -old; lds l=2>rds.r; rds r=1>cds.new
        < lds l=2>rds.r

        > lds ack

        wait 4
        > rds +r
        < rds r=1>cds.new

        > rds ack

        wait 1.5

        wait 0.5
        < {gone(mode, "new")}
        """,
        mode=mode,
        settings=SETTINGS,
    )


@both
def test_also_where_the_cluster_goes_in_a_later_change(mode: str):
    # ORD-2
    play(
        f"""
        store cds old=1 new=1; lds l=1>cds.old
        > cds +*
        > lds +*
        < cds new=1 old=1
        < lds l=1>cds.old

        > ack
        wait 60

        store lds l=2>cds.new
        < lds l=2>cds.new

        > lds ack

        wait 1
        store cds -old

        wait 1
        < {gone(mode, "new")}
        """,
        mode=mode,
        settings=SETTINGS,
    )


@both
def test_routes_that_change_while_their_listener_stays_need_no_time(mode: str):
    # ORD-2: a connection that is open goes by the new ones
    play(
        f"""
        store cds old=1 new=1; lds l=1>rds.r; rds r=1>cds.old
        > cds +*
        > lds +*
        > rds +r
        < cds new=1 old=1
        < lds l=1>rds.r
        < rds r=1>cds.old

        > ack
        wait 60

        store cds -old; rds r=2>cds.new
        < rds r=2>cds.new

        > rds ack
        < {gone(mode, "new")}
        """,
        mode=mode,
        settings=SETTINGS,
    )


def test_a_cluster_goes_when_a_listener_that_is_gone_is_drained():
    # ORD-2
    play(
        """
        store cds old=1 new=1; lds l=1>cds.old
        > cds +*
        > lds +*
        < cds new=1 old=1
        < lds l=1>cds.old

        > ack
        wait 60

        store cds -old; lds -l
        < lds -l

        > lds ack

        wait 1.5

        wait 0.5
        < cds -old
        """,
        settings=SETTINGS,
    )


def test_the_configuration_of_a_filter_goes_when_the_listener_that_used_it_is_drained():
    # ORD-12
    play(
        """
        store ecds f=1; lds l=1>ecds.f
        > lds +*
        > ecds +f
        < lds l=1>ecds.f
        < ecds f=1

        > ack
        wait 60

        store ecds -f; lds l=2
        < lds l=2

        > lds ack

        wait 1.5

        wait 0.5
        < ecds -f
        """,
        settings=SETTINGS,
    )
