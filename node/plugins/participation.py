"""Filling a task's participants into a spec, and judging the parts that came back. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import ValidationError

from node.model.wire.fields import Document
from node.plugins.contracts import Part

Spec = TypeVar("Spec", bound=Document)
Model = TypeVar("Model", bound=Document)

_COUNTS = {1: "one participant", 2: "two participants"}


def fill(spec: Spec, test: str, fields: tuple[str, ...], names: Sequence[str]) -> Spec:
    """``spec`` with ``names`` in ``fields``, one each and in this order; no names, no change.

    :raises ValueError: another number of names than fields, or a field names another host.
    """
    if not names:
        return spec
    if len(names) != len(fields):
        wanted = f"{_COUNTS[len(fields)]} ({', '.join(fields)})"
        raise ValueError(f"{test} takes {wanted}, not {len(names)}")
    for field, name in zip(fields, names, strict=True):
        given = getattr(spec, field)
        if given not in (None, name):
            raise ValueError(f"the task's participants say {field} {name}, its spec says {given}")
    return revalidated(spec, dict(zip(fields, names, strict=True)))


def revalidated(spec: Spec, changes: dict[str, object]) -> Spec:
    """``spec`` with ``changes``, validated again.

    :raises ValueError: what the model says against it, in one sentence.
    """
    try:
        return type(spec).model_validate(spec.model_dump() | changes)
    except ValidationError as fault:
        raise ValueError(first_fault(fault)) from None


def first_fault(fault: ValidationError) -> str:
    """The first thing a model has against a document, in one sentence with the field's name."""
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(step) for step in first["loc"])
    sentence = first["msg"].removeprefix("Value error, ")
    return f"{where}: {sentence}" if where else sentence


def part_of(
    parts: Sequence[Part], participant: int, model: type[Model]
) -> tuple[Model | None, str | None]:
    """A participant's part as ``model``, or the reason why there is none, naming the participant.

    Parts come from other nodes: what does not fit the model is a reason too, never an exception.
    """
    part = next((part for part in parts if part.participant == participant), None)
    if part is None:
        return None, f"participant {participant} sent no part"
    if part.result is None:
        return None, f"{part.name}: {part.reason or 'no result and no reason'}"
    try:
        return model.model_validate(part.result), part.reason and f"{part.name}: {part.reason}"
    except ValidationError as fault:
        return None, f"{part.name}: its part is not a result ({first_fault(fault)})"


def joined(*reasons: str | None) -> str | None:
    """All reasons in one sentence; ``None`` if there is none."""
    return "; ".join(reason for reason in reasons if reason) or None
