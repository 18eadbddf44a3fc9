"""What tests share that one participant makes alone, of any host, in the background. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document
from node.plugins.participation import fill


class _FromSource(Protocol):
    @property
    def source(self) -> str | None: ...


Spec = TypeVar("Spec", bound=Document)


class LoneTest:
    """The half of a :class:`~node.plugins.contracts.Test` that does not hang on what is measured.

    Its spec has ``source``, the one participant.
    """

    name: str
    resources: tuple[str, ...] = ()

    def scheduling_class(self, spec: Document) -> SchedulingClass:  # noqa: ARG002 - same for all
        """Background: a few packets disturb nobody."""
        return SchedulingClass.BACKGROUND

    def participants(self, spec: _FromSource) -> tuple[str | None, ...]:
        """Source alone; the target does not know that it takes part."""
        return (spec.source,)

    def with_participants(self, spec: Spec, names: Sequence[str]) -> Spec:
        """The spec with source filled in.

        :raises ValueError: more than one, or at odds with the spec.
        """
        return fill(spec, self.name, ("source",), names)

    def needs(self, spec: Document) -> Mapping[str, int | None]:  # noqa: ARG002 - same for all
        """Nothing that is counted."""
        return {}
