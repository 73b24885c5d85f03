"""Offer a constraint to users of the library, as `xdsprism.parse` returns it.

An expression can be matched against params, printed, and converted to protobuf:

    prod = xdsprism.parse("env=prod and not version exists")
    prod.matches({"env": "prod"})    # True
    prod.keys                        # frozenset({"env", "version"})
    prod.to_proto()                  # DynamicParameterConstraints
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envoy.service.discovery.v3.discovery_pb2 import DynamicParameterConstraints

from ..model import constraints, expr
from .constraints import constraint_from_proto, constraint_to_proto


@dataclass(frozen=True, slots=True)
class Expression:
    """A constraint over params, as users write it: `env=prod and not version exists`."""

    constraint: constraints.Constraint

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Parse an expression. Raise UsageError, which says where in the text and what was expected."""
        return cls(expr.parse(text))

    @classmethod
    def from_proto(cls, proto: DynamicParameterConstraints) -> Expression:
        """Return the expression of a protobuf message. Raise UsageError if it is invalid."""
        return cls(constraint_from_proto(proto))

    def matches(self, params: Mapping[str, str]) -> bool:
        """Whether a client with these params gets a variant with this constraint."""
        return constraints.matches(self.constraint, params)

    @property
    def keys(self) -> frozenset[str]:
        """The keys that the expression mentions: no other param of a client matters to it."""
        return constraints.keys(self.constraint)

    def to_proto(self) -> DynamicParameterConstraints:
        """Return the protobuf message to put into a resource or a removal."""
        return constraint_to_proto(self.constraint)

    def __str__(self) -> str:
        return expr.show(self.constraint)
