"""Say what one client may have: which types, which names, and what becomes of the params that it claims.

A `Claim` is what the grant makes of the params of one subscription. The params come from the node, or from a locator:

| the rule says       | the client says nothing | it says what is allowed | it says something else |
|---------------------|-------------------------|-------------------------|------------------------|
| `key: {pin: v}`     | it is v                 | it is v                 | denied                 |
| `key: {allow: [v]}` | the key is absent       | it is v                 | denied                 |
| `key: any`          | the key is absent       | it is what it says      |                        |
| nothing of the key  | the key is absent       | the key is absent       |                        |

The last row holds for node metadata, of which every Envoy has some. In a locator a key that the rule does not list is
denied where the variants of the resource mention it: the client asks for a variant that it may not choose. What denies
it is found when the resource is looked up (`Claim.unlisted`). For wildcards the key is absent.

Grants are equal if they allow the same, whichever rules they are from. Streams with equal grants share what the server
computes and encodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..model.constraints import TRUE, Constraint
from ..model.limits import DenialKind
from ..model.types import NO_PARAMS, SECRET, TYPES, Params, TypeUrl
from ..model.variants import pins
from .globs import NO_NAMES, STAR, NameGlobs

PERMISSION_DENIED = 7
_MOST = 4096  # claims of locators that one grant remembers


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a subscription is denied. The message is for the client: it says nothing of what others may have."""

    kind: DenialKind
    message: str
    absence: Constraint = TRUE  # for which params of its locator the client is told that there is nothing


@dataclass(frozen=True, slots=True)
class Claim:
    """What a grant makes of the params of a subscription."""

    params: Params
    denial: Denial | None = None
    unlisted: Mapping[str, str] | None = None  # of a locator: keys that the rule does not list, and that were left out


@dataclass(frozen=True, slots=True)
class ParamRule:
    """What a rule says of one key: it is pinned to a value, or one of some values, or any."""

    pin: str | None = None
    allow: frozenset[str] | None = None

    def allows(self, value: str) -> bool:
        """Whether a client may claim this value."""
        if self.pin is not None:
            return value == self.pin
        return self.allow is None or value in self.allow


UNCLAIMED = Claim(NO_PARAMS)


class Grant:
    """What the clients of one rule may have.

    rule     which rule it is, for people
    types    None: all but secrets
    names    patterns by type, those of all other types under `*`; None: all names
    params   what may be claimed; None: everything
    reason   why there is nothing at all, if no rule is for the client
    any_node whether the rule is for clients with any node id
    """

    __slots__ = ("_claims", "_content", "_params", "_pins", "_types", "is_unlimited", "names", "reason", "rule")

    def __init__(
        self,
        rule: str,
        types: frozenset[TypeUrl] | None = None,
        names: Mapping[str, NameGlobs] | None = None,
        params: Mapping[str, ParamRule] | None = None,
        reason: str = "",
        *,
        any_node: bool = False,
    ) -> None:
        self.rule = rule
        self.reason = reason
        self.names = names
        self._types = types
        self._params = params
        self._pins = {key: each.pin for key, each in (params or {}).items() if each.pin is not None}
        self._content = (
            types,
            frozenset(names.items()) if names is not None else None,
            frozenset(params.items()) if params is not None else None,
            reason,
        )
        self._claims: dict[Params, Claim] = {}
        # Whether it allows everything: all types, secrets too, all names and params, on any node.
        self.is_unlimited = any_node and params is None and all(self._allows_all(spec.url) for spec in TYPES)

    def _allows_all(self, type_url: TypeUrl) -> bool:
        return self.allows_type(type_url) and self.visible(type_url) is None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grant) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    # -- types and names

    def allows_type(self, type_url: TypeUrl) -> bool:
        """Whether a client may have anything of this type."""
        return type_url in self._types if self._types is not None else type_url != SECRET

    def visible(self, type_url: TypeUrl) -> NameGlobs | None:
        """Return which names of a type a client may have; None: all of them."""
        if self.names is None:
            return None if self.allows_type(type_url) else NO_NAMES
        if not self.allows_type(type_url):
            return NO_NAMES
        globs = self.names.get(type_url) or self.names.get(STAR) or NO_NAMES
        return None if STAR in globs.texts else globs

    def denies_type(self, type_url: TypeUrl) -> Denial | None:
        """Return why a client may have nothing of a type; None: it may."""
        if self.reason:
            return Denial("client", self.reason)
        if not self.allows_type(type_url):
            return Denial("type", "the policy does not let this client have resources of this type")
        return None

    def denies(self, type_url: TypeUrl, name: str) -> Denial | None:
        """Return why a client may not have a resource of this name, whether or not there is one; None: it may."""
        denial = self.denies_type(type_url)
        if denial is not None:
            return denial
        globs = self.visible(type_url)
        if globs is None or globs.allows(name):
            return None
        return Denial("name", "the policy does not let this client have a resource of this name")

    def denies_wildcard(self, type_url: TypeUrl, prefix: str) -> Denial | None:
        """Return why a wildcard can list nothing, whatever there is; None: it may. Its members begin with `prefix`."""
        denial = self.denies_type(type_url)
        if denial is not None:
            return denial
        globs = self.visible(type_url)
        if globs is None or globs.may_allow(prefix):
            return None
        return Denial("name", "the policy does not let this client have a resource of such a name")

    # -- params

    def claim_node(self, params: Params) -> Claim:
        """Take the params of the client's node, which its plain subscriptions have."""
        if self._params is None and not params:
            return UNCLAIMED
        return self._judged(params, "the node's metadata", of_locator=False)

    def claim_locator(self, params: Params) -> Claim:
        """Take the params of a locator."""
        found = self._claims.get(params)
        if found is None:
            found = self._judged(params, "the locator", of_locator=True)
            if len(self._claims) >= _MOST:
                del self._claims[next(iter(self._claims))]
            self._claims[params] = found
        return found

    def _judged(self, params: Params, where: str, *, of_locator: bool) -> Claim:
        rules = self._params
        if rules is None:
            return Claim(params)
        kept: dict[str, str] = {}
        for key, value in params.items():
            rule = rules.get(key)
            if rule is None:
                continue
            if not rule.allows(value):
                return Claim(NO_PARAMS, denial_of(key, value, where))
            kept[key] = value
        kept.update(self._pins)
        unlisted = {key: value for key, value in params.items() if key not in rules} if of_locator else {}
        return Claim(Params(kept) if kept else NO_PARAMS, None, unlisted or None)

    def unlisted_denial(self, unlisted: Mapping[str, str], mentioned: Iterable[str]) -> Denial | None:
        """Return why a locator is denied that has keys which its rule does not list, if the variants mention one."""
        for key in mentioned:
            if key in unlisted:
                return denial_of(key, unlisted[key], "the locator")
        return None


def denial_of(key: str, value: str, where: str) -> Denial:
    """Return the denial of a claim. It names the key, and not the values that would be allowed."""
    message = f"the policy does not let this client claim what {where} says for {key!r}"
    return Denial("param", message, pins({key: value}))
