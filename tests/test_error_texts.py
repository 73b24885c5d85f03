"""What the library says to programs that call it wrongly. Both builds say it in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.route.v3.route_components_pb2 import VirtualHost

import xdsprism as xp

ANY: Any = xp  # what a type checker would refuse


async def make(name: str, params: xp.Params) -> object:
    raise AssertionError(name, params)


def change(*puts: tuple[Any, dict[str, Any]]) -> None:
    with xp.Store().transaction() as tx:
        for message, options in puts:
            tx.put(message, **options)


def overlapping() -> None:
    change((Cluster(name="a"), {"when": "env=prod"}), (Cluster(name="a"), {"when": "v=1"}))


def same_domain() -> None:
    hosts = [VirtualHost(name=f"main/{name}", domains=["a.test"]) for name in "xy"]
    change(*((host, {}) for host in hosts))


STORE: Any = xp.Store()
CALLS: dict[str, tuple[Callable[[], object], str]] = {
    # how many arguments, and their names
    "too many": (
        lambda: ANY.Store(1, 2, 3),
        "TypeError: Store.__init__() takes from 1 to 2 positional arguments but 4",
    ),
    "unknown setting": (
        lambda: ANY.Settings(nope=1),
        "TypeError: Settings.__init__() got an unexpected keyword argument 'nope'",
    ),
    "unknown limit": (
        lambda: ANY.Limits(nope=1),
        "TypeError: Limits.__init__() got an unexpected keyword argument 'nope'",
    ),
    "missing": (ANY.TypeSpec, "TypeError: TypeSpec.__init__() missing 1 required positional argument: 'url'"),
    "nothing to parse": (ANY.parse, "TypeError: parse() missing 1 required positional argument: 'text'"),
    "nothing to delete": (
        lambda: STORE.transaction().delete(),
        "TypeError: Transaction.delete() missing 2 required positional arguments: 'type_url' and 'name'",
    ),
    # of a wrong type
    "parse": (lambda: ANY.parse(5), "TypeError: str object expected; got int"),
    "when": (lambda: change((Cluster(name="a"), {"when": 5})), "TypeError: str object expected; got int"),
    "ttl": (lambda: change((Cluster(name="a"), {"ttl": "9"})), "TypeError: float or None object expected; got str"),
    "name": (lambda: change((Cluster(), {"name": 5})), "TypeError: str or None object expected; got int"),
    "no message": (lambda: change(("a", {})), "AttributeError: 'str' object has no attribute 'DESCRIPTOR'"),
    "delete": (lambda: STORE.transaction().delete(xp.CLUSTER, 5), "TypeError: str object expected; got int"),
    "delete what": (lambda: STORE.transaction().delete(5, "a"), "TypeError: str object expected; got int"),
    "invalidate": (lambda: STORE.invalidate(5), "TypeError: str object expected; got int"),
    "invalidate name": (lambda: STORE.invalidate("cds", 5), "TypeError: str or None object expected; got int"),
    "provider": (lambda: STORE.provider(5)(make), "TypeError: str object expected; got int"),
    "provider time": (lambda: STORE.provider("cds", timeout="1")(make), "TypeError: float object expected; got str"),
    "provider count": (lambda: STORE.provider("cds", at_once=0.5)(make), "TypeError: int object expected; got float"),
    "types": (lambda: ANY.Store(["a"]), "TypeError: xdsprism.core.model.types.TypeSpec object expected; got str"),
    "setting": (lambda: ANY.Settings(response_bytes="1"), "TypeError: int object expected; got str"),
    "time": (lambda: ANY.Settings(ack_timeout="1"), "TypeError: float object expected; got str"),
    "limits": (
        lambda: ANY.Settings(limits=None),
        "TypeError: xdsprism.core.model.limits.Limits object expected; got None",
    ),
    "limit": (lambda: ANY.Limits(params=0.5), "TypeError: int object expected; got float"),
    "url": (lambda: ANY.TypeSpec(5), "TypeError: str object expected; got int"),
    "words": (lambda: ANY.TypeSpec("t", ["a"]), "TypeError: tuple object expected; got list"),
    "flag": (lambda: ANY.TypeSpec("t", wildcard="yes"), "TypeError: bool object expected; got str"),
    "no params": (lambda: ANY.Params(None), "TypeError: 'NoneType' object is not iterable"),
    "frozen": (lambda: setattr(xp.Settings(), "epoch", "a"), "FrozenInstanceError: cannot assign to field 'epoch'"),
    "absent param": (lambda: xp.Params({"a": "1"})["b"], "KeyError: 'b'"),
    # of a wrong value
    "expression": (
        lambda: xp.parse("env="),
        "UsageError: in expression 'env=', column 5: expected a value, found the end",
    ),
    "word": (lambda: STORE.invalidate("cluser"), "UsageError: unknown resource type 'cluser': use one of cds"),
    "keys": (lambda: STORE.provider("cds", keys="env")(make), "UsageError: provider make: keys is a list of names"),
    "variant": (
        lambda: STORE.transaction().delete(xp.CLUSTER, "a", when="env=prod"),
        "UsageError: envoy.config.cluster.v3.Cluster 'a' has no variant for env=prod",
    ),
    "overlap": (
        overlapping,
        "ConfigError: envoy.config.cluster.v3.Cluster 'a': both match env=prod and v=1: `env=prod` and `v=1`",
    ),
    "domain": (
        same_domain,
        "ConfigError: domain 'a.test' of 'main/y' is also one of 'main/x': both match every client: `true` and `true`",
    ),
}


@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS)
def test_a_wrong_call_is_refused_in_the_same_words_by_both_builds(call: Callable[[], object], said: str) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011 # of any type: that is what is looked at
        call()
    assert f"{type(refused.value).__name__}: {refused.value}".startswith(said)


def test_an_int_where_a_float_is_asked_for_becomes_one() -> None:
    settings = xp.Settings(ack_timeout=5)
    assert (settings.ack_timeout, type(settings.ack_timeout)) == (5.0, float)
