"""What `xdsprism.parse` gives: an EXPR that can be asked, printed and turned into the proto."""

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
        """Raises UsageError, which says where in the text and what was expected."""
        return cls(expr.parse(text))

    @classmethod
    def from_proto(cls, proto: DynamicParameterConstraints) -> Expression:
        return cls(constraint_from_proto(proto))

    def matches(self, params: Mapping[str, str]) -> bool:
        return constraints.matches(self.constraint, params)

    @property
    def keys(self) -> frozenset[str]:
        return constraints.keys(self.constraint)

    def to_proto(self) -> DynamicParameterConstraints:
        return constraint_to_proto(self.constraint)

    def __str__(self) -> str:
        return expr.show(self.constraint)
