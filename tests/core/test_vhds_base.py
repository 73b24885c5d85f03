"""The base set of virtual hosts: what a client may leave, and what is under a route configuration of its own."""

from __future__ import annotations

import pytest

from tests.core.support import play

# -- a base host that was unsubscribed stays away


@pytest.mark.parametrize("string", ["rc/b", "rc/b.test", "rc/x.b.test"])
def test_a_base_host_that_was_unsubscribed_stays_away_whatever_changes(string: str):
    # VHD-11, VHD-16
    play(
        f"""
        store rds rc<on_demand>=1; vhds rc/b<b.test,*.b.test>^=1 rc/c<c.test>^=1
        > rds +rc
        > vhds
        < rds rc=1
        < vhds rc/b(rc/b.test)=1 rc/c(rc/c.test)=1

        > ack
        > vhds -{string}

        store vhds rc/b<b.test,*.b.test>^=2 rc/c<c.test>^=2
        < vhds rc/c(rc/c.test)=2

        > ack
        store rds rc<on_demand>=2
        < rds rc=2
        < vhds rc/c(rc/c.test)=2

        > ack
        store vhds -rc/b

        store vhds rc/b<b.test,*.b.test>^=3
        """
    )


def test_a_base_host_that_was_unsubscribed_comes_back_when_it_is_asked_for():
    # VHD-11
    play(
        """
        store vhds rc/b<b.test>^=1 rc/c<c.test>^=1
        > vhds
        < vhds rc/b(rc/b.test)=1 rc/c(rc/c.test)=1

        > vhds ack -rc/b -rc/c
        store vhds rc/b<b.test>^=2

        > vhds +rc/b.test
        < vhds rc/b(rc/b.test)=2

        > vhds ack
        store vhds rc/b<b.test>^=3 rc/c<c.test>^=3
        < vhds rc/b(rc/b.test)=3

        > vhds ack -rc/b.test
        store vhds rc/b<b.test>^=4 rc/c<c.test>^=4

        > vhds +*
        < vhds rc/b(rc/b.test)=4 rc/c(rc/c.test)=4

        > vhds ack
        store vhds rc/b<b.test>^=5
        < vhds rc/b(rc/b.test)=5
        """
    )


def test_a_base_host_goes_with_the_last_string_that_the_client_has_for_it():
    # VHD-11
    play(
        """
        store vhds rc/b<b.test,*.b.test>^=1
        > vhds
        < vhds rc/b(rc/b.test)=1

        > vhds ack +rc/b.test +rc/x.b.test
        < vhds rc/b(rc/b.test,rc/x.b.test)=1

        > vhds ack -rc/b.test
        store vhds rc/b<b.test,*.b.test>^=2
        < vhds rc/b(rc/b.test,rc/x.b.test)=2

        > vhds ack -rc/x.b.test
        store vhds rc/b<b.test,*.b.test>^=3
        """
    )


def test_a_base_host_that_is_left_in_the_first_request_is_not_sent_at_all():
    # VHD-11
    play(
        """
        store vhds rc/b<b.test>^=1 rc/c<c.test>^=1
        > vhds +* -rc/b
        < vhds rc/c(rc/c.test)=1
        """
    )


def test_a_new_stream_begins_with_the_whole_base_set():
    # VHD-11, VHD-13
    play(
        """
        store vhds rc/b<b.test>^=1
        > vhds
        < vhds rc/b(rc/b.test)=1

        > vhds ack -rc/b
        z> vhds
        z< vhds rc/b(rc/b.test)=1

        store vhds rc/b<b.test>^=2
        z< vhds rc/b(rc/b.test)=2
        """
    )


def test_the_listener_of_a_route_configuration_is_released_though_its_base_hosts_were_left():
    # VHD-11, VHD-23, V3
    play(
        """
        store rds rc<on_demand>=1; vhds rc/b<b.test>^=1
        > rds +rc
        > vhds
        < rds rc=1
        < vhds rc/b(rc/b.test)=1

        > ack
        > vhds -rc/b
        store rds rc<on_demand>=2
        < rds rc=2
        < vhds -rc/_
        """
    )


def test_a_base_host_of_a_locator_stays_away_from_that_locator():
    # VHD-11, VHD-18
    play(
        """
        store vhds rc/b<b.test>^=1
        > vhds +*{} +*
        < vhds rc/b(rc/b.test)=1
        < vhds rc/b[]=1

        > vhds ack -rc/b{}
        store vhds rc/b<b.test>^=2
        < vhds rc/b(rc/b.test)=2
        """
    )


# -- a route configuration that the client has from elsewhere


def test_virtual_hosts_under_a_static_route_configuration_are_served_beside_others_that_come_by_rds():
    # VHD-27: `own` and `bare` are in the client's own configuration, and never were sent
    play(
        """
        store rds main<on_demand>=1 plain=1; vhds main/a<a.test>=1 plain/p<p.test>=1 own/o<o.test>^=1 bare/x<x.test>=1
        > rds +main +plain
        > vhds
        < rds main=1 plain=1
        < vhds -bare/_ -main/_ own/o(own/o.test)=1

        > ack
        > vhds +bare/x.test +bare/none.test
        < vhds ?bare/none.test bare/x(bare/x.test)=1

        > ack
        store vhds bare/x<x.test>=2 own/o<o.test>^=2 bare/n<none.test>=1
        < vhds bare/n(bare/none.test)=1 bare/x(bare/x.test)=2 own/o(own/o.test)=2

        > ack
        store vhds -bare/x
        < vhds -bare/x
        """
    )


def test_a_static_route_configuration_may_be_called_like_one_that_others_get_by_rds():
    # VHD-27
    play(
        """
        store rds main<on_demand>=1 other<on_demand>=1; vhds main/a<a.test>=1 other/b<b.test>=1
        > rds +other
        > vhds
        < rds other=1
        < vhds -main/_ -other/_
        """
    )
