"""Find the rule that decides for a client: the first one whose identity and node id match.

A policy is immutable. A changed file makes another one, and each stream then finds its grant anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...errors import Problem
from ..model.types import Origin, TypeUrl
from .globs import Glob, NameGlobs
from .grant import Grant, ParamRule
from .identity import Identity, IdentityGlob
from .rule_index import RuleIndex
from .tokens import Tokens

KNOWN = 8_192  # clients whose grant is remembered; when there are more, all are forgotten

Default = Literal["deny", "allow"]

NOBODY = "no rule of the policy is for a client with this identity and node id"
DENIED = Grant("default: deny", frozenset(), reason=NOBODY)
ALLOWED = Grant("default: allow")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `types` and `names`: None if the rule leaves them out. `params`: None says `any`."""

    identity: IdentityGlob
    node: Glob | None = None
    types: frozenset[TypeUrl] | None = None
    names: Mapping[str, NameGlobs] | None = None
    params: Mapping[str, ParamRule] | None = field(default_factory=dict)
    origin: Origin | None = None

    def matches(self, identities: Sequence[Identity], node: str) -> bool:
        """Whether it decides for a client with these identities and this node id, unless an earlier rule does."""
        # OPS-1: an identity is bound to the nodes of its rule.
        return self.identity.matches(identities) and (self.node is None or self.node.matches(node))


class Policy:
    """The rules in their order, and what holds for a client that none of them matches."""

    def __init__(self, rules: Sequence[Rule] = (), default: Default = "deny", tokens: Tokens | None = None) -> None:
        """`tokens`: which bearer tokens prove something; None: tokens are ignored."""
        self.rules = tuple(rules)
        self.default = default
        self.tokens = tokens
        # What was found: a stream asks twice, for its table and for its grant, and clients come back.
        self._known: dict[tuple[tuple[Identity, ...], str], Grant] = {}
        self._index = RuleIndex([(rule.identity, rule.node) for rule in self.rules])
        self._grants = [_grant_of(rule, number) for number, rule in enumerate(self.rules, 1)]

    @property
    def needs_certificates(self) -> bool:
        """Whether a rule is for clients that show a certificate."""
        return any(rule.identity.kind in ("spiffe", "dns", "subject") for rule in self.rules)

    def warnings(self) -> list[Problem]:
        """Return what is probably a mistake: rules after one that is for all of their clients."""
        found: list[Problem] = []
        everything: int | None = None
        first: dict[tuple[IdentityGlob, Glob | None], int] = {}
        for number, rule in enumerate(self.rules, 1):
            all_nodes, same_node = first.get((rule.identity, None)), first.get((rule.identity, rule.node))
            earlier = min((each for each in (everything, all_nodes, same_node) if each is not None), default=None)
            first.setdefault((rule.identity, rule.node), number)
            if earlier is not None:
                where = rule.origin or Origin("")
                text = f"rule {number} decides for nobody: rule {earlier} is for all of its clients"
                found.append(Problem(text, where.file, where.line))
            if everything is None and rule.identity.kind == "any" and rule.node is None:
                everything = number
        return found

    def grant(self, identities: Sequence[Identity], node: str) -> Grant:
        """Return what a client with these identities and this node id may have."""
        key = tuple(identities), node
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= KNOWN:
                self._known.clear()
            found = self._known[key] = self._first(identities, node)
        return found

    def _first(self, identities: Sequence[Identity], node: str) -> Grant:
        """Return the grant of the first rule that is for this client."""
        for number in self._index.candidates(identities, node):
            if self.rules[number].matches(identities, node):
                return self._grants[number]
        return ALLOWED if self.default == "allow" else DENIED


def _grant_of(rule: Rule, number: int) -> Grant:
    """Return what a rule allows, with a text that says which rule it is."""
    where = f" ({rule.origin})" if rule.origin is not None else ""
    name = f"rule {number}, {rule.identity.text}{where}"
    return Grant(name, rule.types, rule.names, rule.params, any_node=rule.node is None)
