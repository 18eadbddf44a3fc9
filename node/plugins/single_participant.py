"""What tests and tools share that one participant makes alone, in the background. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document
from node.plugins.contracts import Merged, Part
from node.plugins.participation import fill, joined, part_of


class _FromSource(Protocol):
    @property
    def source(self) -> str | None: ...


class _ToDest(_FromSource, Protocol):
    @property
    def dest(self) -> str: ...


Spec = TypeVar("Spec", bound=Document)
Figures = TypeVar("Figures", bound=Document)


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

    def needs(self, spec: Any) -> Mapping[str, int | None]:  # noqa: ARG002 - same for all
        """Nothing that is counted."""
        return {}


class LoneTestOfDest(LoneTest):
    """The same of a test whose spec also has ``dest``, any host."""

    def hosts(self, spec: _ToDest) -> tuple[str, ...]:
        """Source, where given, and dest."""
        return (spec.dest,) if spec.source is None else (spec.source, spec.dest)


def merged(
    parts: Sequence[Part], model: type[Figures], shortfall: Callable[[Figures], str | None]
) -> Merged:
    """The one part is the result; what it falls short of what was asked for fails the run."""
    part, reason = part_of(parts, 0, model)
    if part is None:
        return Merged(None, reason)
    return Merged(part.model_dump(mode="json"), joined(reason, shortfall(part)))


class LoneTool:
    """The half of a :class:`~node.plugins.contracts.Tool` that asks, and does not answer.

    One that cannot measure all that a spec may ask says so in a ``can`` of its own.
    """

    def can(self, spec: Any) -> str | None:  # noqa: ARG002 - contract
        """Whatever the spec asks."""
        return None

    def needs_port(self, spec: Any, participant: int) -> bool:  # noqa: ARG002 - contract
        """Never: it only asks, and any port will do for that."""
        return False
