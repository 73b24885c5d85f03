"""Constraints between protobuf and the core, both ways."""

from __future__ import annotations

from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb

from ..errors import UsageError
from .constraints import MAX_DEPTH, TRUE, All, AnyOf, Constraint, Eq, Exists, Not, check_limits


def constraint_to_proto(constraint: Constraint) -> pb.DynamicParameterConstraints:
    proto = pb.DynamicParameterConstraints()
    match constraint:
        case Eq(key, value):
            proto.constraint.key = key
            proto.constraint.value = value
        case Exists(key):
            proto.constraint.key = key
            proto.constraint.exists.SetInParent()
        case Not(item):
            proto.not_constraints.CopyFrom(constraint_to_proto(item))
        case All(items):
            if items:  # DYN-9: no constraints at all is how true is said
                proto.and_constraints.constraints.extend(constraint_to_proto(item) for item in items)
        case AnyOf(items):
            proto.or_constraints.SetInParent()
            proto.or_constraints.constraints.extend(constraint_to_proto(item) for item in items)
    return proto


def constraint_from_proto(proto: pb.DynamicParameterConstraints) -> Constraint:
    """Raises UsageError for what can't be a constraint (DYN-8, DYN-9)."""
    constraint = _from_proto(proto, MAX_DEPTH)
    check_limits(constraint)
    return constraint


def _from_proto(proto: pb.DynamicParameterConstraints, depth: int) -> Constraint:
    if not depth:
        raise UsageError(f"constraints are nested more than {MAX_DEPTH} deep")
    kind = proto.WhichOneof("type")
    if kind == "constraint":
        return _single_from_proto(proto.constraint)
    if kind == "not_constraints":
        return Not(_from_proto(proto.not_constraints, depth - 1))
    if kind == "and_constraints":
        return All(tuple(_from_proto(item, depth - 1) for item in proto.and_constraints.constraints))
    if kind == "or_constraints":
        return AnyOf(tuple(_from_proto(item, depth - 1) for item in proto.or_constraints.constraints))
    return TRUE


def _single_from_proto(proto: Any) -> Constraint:
    kind = proto.WhichOneof("constraint_type")
    if not proto.key:
        raise UsageError("a constraint has no key: give the key that it is about")
    if kind is None:
        raise UsageError(f"the constraint on {proto.key!r} says neither value nor exists: give one of them")
    return Eq(proto.key, proto.value) if kind == "value" else Exists(proto.key)
