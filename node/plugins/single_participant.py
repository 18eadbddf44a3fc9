"""The common parts of tests and tools with a single participant, in the background. Pure."""

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


class SingleParticipantTest:
    """The half of a :class:`~node.plugins.contracts.Test` that is the same for all measurements.

    Its spec has ``source``, the one participant.
    """

    name: str
    resources: tuple[str, ...] = ()

    def scheduling_class(self, spec: Document) -> SchedulingClass:  # noqa: ARG002 - same for all
        """Return background: a few packets disturb nobody."""
        return SchedulingClass.BACKGROUND

    def participants(self, spec: _FromSource) -> tuple[str | None, ...]:
        """Return source alone; the target does not know that it takes part."""
        return (spec.source,)

    def with_participants(self, spec: Spec, names: Sequence[str]) -> Spec:
        """Return the spec with source filled in.

        :raises ValueError: more than one participant, or one in conflict with the spec.
        """
        return fill(spec, self.name, ("source",), names)

    def needs(self, spec: Any) -> Mapping[str, int | None]:  # noqa: ARG002 - same for all
        """Return no counted resources."""
        return {}

    def target_port(self, spec: Any) -> int | None:
        """Return the spec's ``port``, if it has one."""
        port: int | None = getattr(spec, "port", None)
        return port

    def telling(self, spec: Any) -> str | None:  # noqa: ARG002 - contract
        """Return None: results are about a target, and do not tell what it sends."""
        return None


class SingleParticipantTestWithDest(SingleParticipantTest):
    """A single-participant test whose spec also has ``dest``, any host."""

    def hosts(self, spec: _ToDest) -> tuple[str, ...]:
        """Return source, if set, and dest."""
        return (spec.dest,) if spec.source is None else (spec.source, spec.dest)


def merged(
    parts: Sequence[Part], model: type[Figures], shortfall: Callable[[Figures], str | None]
) -> Merged:
    """Make the one part the result; where it falls short of the spec, the run fails."""
    part, reason = part_of(parts, 0, model)
    if part is None:
        return Merged(None, reason)
    return Merged(part.model_dump(mode="json"), joined(reason, shortfall(part)))


class SingleParticipantTool:
    """The half of a :class:`~node.plugins.contracts.Tool` that is the same for all clients.

    A tool that cannot measure every spec overrides ``can``.
    """

    checks_targets = False

    def can(self, spec: Any) -> str | None:  # noqa: ARG002 - contract
        """Return None: every spec can be measured."""
        return None

    def needs_port(self, spec: Any, participant: int) -> bool:  # noqa: ARG002 - contract
        """Return False: a client can use any port."""
        return False

    def unchecked(self, spec: Any) -> str | None:  # noqa: ARG002 - contract
        """Return None: only checked targets are reached."""
        return None
