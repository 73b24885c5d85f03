"""Translate constraints between DynamicParameterConstraints and the core.

    protobuf                        core
    ------------------------------  --------------------------------------------
    constraint {key, value}         Eq(key, value)
    constraint {key, exists}        Exists(key)
    not_constraints                 Not(...)
    and_constraints                 All(...); no items: true
    or_constraints                  AnyOf(...); no items: false
    nothing set                     All(()), which is true (DYN-9)

A constraint of an unknown kind is an error, and never "no constraint": otherwise a variant that a newer server
restricts would go to every client (PRX-37).
"""

from __future__ import annotations

from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from ...errors import UsageError
from ..model.constraints import MAX_DEPTH, TRUE, All, AnyOf, Constraint, Eq, Exists, Not, check_limits


def constraint_to_proto(constraint: Constraint) -> pb.DynamicParameterConstraints:
    """Return the protobuf message of a constraint."""
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
            if items:  # DYN-9: a message with nothing set means true
                proto.and_constraints.constraints.extend(constraint_to_proto(item) for item in items)
        case AnyOf(items):
            proto.or_constraints.SetInParent()
            proto.or_constraints.constraints.extend(constraint_to_proto(item) for item in items)
    return proto


def constraint_from_proto(proto: pb.DynamicParameterConstraints) -> Constraint:
    """Return the constraint of a message.

    Raise UsageError if it is too deep or too large (DYN-8), incomplete (DYN-9), or of an unknown kind (PRX-37).
    """
    constraint = _from_proto(proto, MAX_DEPTH)
    check_limits(constraint)
    return constraint


def _from_proto(proto: pb.DynamicParameterConstraints, depth: int) -> Constraint:
    """Translate a message, nested `depth` levels deep at most."""
    if not depth:
        raise UsageError(f"constraints are nested more than {MAX_DEPTH} deep")
    _check_known(proto)
    kind = proto.WhichOneof("type")
    if kind == "constraint":
        return _single_from_proto(proto.constraint)
    if kind == "not_constraints":
        return Not(_from_proto(proto.not_constraints, depth - 1))
    if kind == "and_constraints":
        _check_known(proto.and_constraints)
        return All(tuple(_from_proto(item, depth - 1) for item in proto.and_constraints.constraints))
    if kind == "or_constraints":
        _check_known(proto.or_constraints)
        return AnyOf(tuple(_from_proto(item, depth - 1) for item in proto.or_constraints.constraints))
    return TRUE


def _single_from_proto(proto: Any) -> Constraint:
    """Translate a single constraint on a key, which needs a key and one of value and exists (DYN-9)."""
    _check_known(proto)
    kind = proto.WhichOneof("constraint_type")
    if not proto.key:
        raise UsageError("a constraint has no key: give the key that it is about")
    if kind is None:
        raise UsageError(f"the constraint on {proto.key!r} has neither value nor exists: give one of them")
    if kind == "value":
        return Eq(proto.key, proto.value)
    _check_known(proto.exists)
    return Exists(proto.key)


def _check_known(proto: Message) -> None:
    """Raise UsageError if a message has unknown fields.

    A newer peer may restrict a variant in a way that this release can't read, which is not the same as no restriction
    (PRX-37).
    """
    unknown = UnknownFieldSet(proto)
    if len(unknown):
        numbers = sorted({unknown[each].field_number for each in range(len(unknown))})
        raise UsageError(
            f"{proto.DESCRIPTOR.name} has a kind of constraint that this release does not know "
            f"(field {', '.join(map(str, numbers))}): update xdsprism, or send constraints of the kinds that it knows"
        )
