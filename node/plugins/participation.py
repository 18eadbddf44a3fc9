"""Filling a task's participants into a spec, and judging the parts that arrived. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import ValidationError

from node.model.wire.fields import Document
from node.model.wire.validation import place_of
from node.plugins.contracts import Part

Spec = TypeVar("Spec", bound=Document)
Model = TypeVar("Model", bound=Document)

_COUNTS = {1: "one participant", 2: "two participants"}


def fill(spec: Spec, test: str, fields: tuple[str, ...], names: Sequence[str]) -> Spec:
    """Return ``spec`` with ``names`` in ``fields``, in this order; unchanged if ``names`` is empty.

    :raises ValueError: another number of names than fields, or a field names another host.
    """
    if not names:
        return spec
    if len(names) != len(fields):
        expected = f"{_COUNTS[len(fields)]} ({', '.join(fields)})"
        raise ValueError(f"{test} takes {expected}, not {len(names)}")
    for field, name in zip(fields, names, strict=True):
        host = getattr(spec, field)
        if host not in (None, name):
            raise ValueError(f"the task's participants say {field} {name}, its spec says {host}")
    return revalidated(spec, dict(zip(fields, names, strict=True)))


def revalidated(spec: Spec, changes: dict[str, object]) -> Spec:
    """Return ``spec`` with ``changes``, validated again.

    :raises ValueError: the model's objection, in one sentence.
    """
    try:
        return type(spec).model_validate(spec.model_dump() | changes)
    except ValidationError as fault:
        raise ValueError(first_fault(fault)) from None


def first_fault(fault: ValidationError) -> str:
    """Return a model's first objection to a document, in one sentence with the field's name."""
    first = dict(fault.errors(include_url=False, include_context=False)[0])
    where = ".".join(str(step) for step in place_of(first))
    sentence = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {sentence}" if where else sentence


def part_of(
    parts: Sequence[Part], participant: int, model: type[Model]
) -> tuple[Model | None, str | None]:
    """Return a participant's part as ``model``, or the reason it is missing, with its name.

    Parts come from other nodes: one that does not fit the model is a reason, not an exception.
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


def joined_reasons(*reasons: str | None) -> str | None:
    """Join all reasons into one sentence; ``None`` if there are none."""
    return "; ".join(reason for reason in reasons if reason) or None
