"""The outline of Parley's own tests and tools: what they have in common. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from node.model.classes import SchedulingClass
from node.model.intervals import Rhythm
from node.model.times import SECOND, duration_text
from node.model.wire.fields import Document
from node.plugins.contracts import Merged, Part, Requirement
from node.plugins.fields import CountField
from node.plugins.participation import fill, joined_reasons, part_of
from node.plugins.plausibility import find_endless_time

INTERVALS_MAX = 3600
"""Maximum number of intervals of a run."""

AROUND = SECOND
"""The booked time of a client beside its measurement: half because programs that start at once
on a busy host are late, half because what still runs is ended 250 ms before the booked end."""


class OwnTest:
    """The half of a :class:`~node.plugins.contracts.Test` that follows from the spec's fields.

    ``places`` are the fields that name participants, in their order: the first one is the lead if
    it is None, the others are required. ``targets`` are the fields of other hosts.
    """

    name: str
    title: str
    example: Mapping[str, Any]
    resources: tuple[str, ...] = ()
    spec_model: type[Document]
    result_model: type[Document]
    part_models: tuple[type[Document], ...]
    run_class: ClassVar[SchedulingClass] = SchedulingClass.BACKGROUND
    places: ClassVar[tuple[str, ...]] = ("source",)
    targets: ClassVar[tuple[str, ...]] = ()

    def scheduling_class(self, spec: Any) -> SchedulingClass:
        """Return the class of all runs of this test."""
        return self.run_class

    def places_of(self, spec: Any) -> tuple[str, ...]:
        """Return the fields that name participants in this spec; by default all places."""
        return self.places

    def participants(self, spec: Any) -> tuple[str | None, ...]:
        """Return the hosts in the places; targets do not know that they take part."""
        return tuple(getattr(spec, place) for place in self.places_of(spec))

    def with_participants(self, spec: Any, names: Sequence[str]) -> Any:
        """Return the spec with the places filled in.

        :raises ValueError: another number of names, a conflict with the spec, or no dest in either.
        """
        filled = fill(spec, self.name, self.places_of(spec), names)
        if "dest" in self.places and getattr(filled, "dest", None) is None:
            needed = "dest, in the spec or as the second of participants"
            raise ValueError(f"{self.name} needs {needed}")
        return filled

    def hosts(self, spec: Any) -> tuple[str, ...]:
        """Return the hosts in places and targets, without those that are None."""
        hosts = (getattr(spec, field) for field in (*self.places, *self.targets))
        return tuple(host for host in hosts if host is not None)

    def needs(self, spec: Any) -> Mapping[str, int | None]:
        """Return no counted resources."""
        return {}

    def expected_bytes(self, spec: Any, mbps: int | None) -> int | None:
        """Return 0: it sends nothing that is worth counting."""
        return 0


class TargetTest(OwnTest):
    """A test that one participant makes alone, of a host that need not be a node."""

    targets: ClassVar[tuple[str, ...]] = ("dest",)

    def target_port(self, spec: Any) -> int | None:
        """Return the spec's ``port``, if it has one."""
        port: int | None = getattr(spec, "port", None)
        return port

    def telling(self, spec: Any) -> str | None:
        """Return None: results are about a target, and do not tell what it sends."""
        return None

    def merge(self, spec: Any, parts: Sequence[Part]) -> Merged:
        """Make the one part the result; where it falls short of the spec, the run fails."""
        part, reason = part_of(parts, 0, self.result_model)
        if part is None:
            return Merged(None, reason)
        result = part.model_dump(mode="json")
        if (endless := find_endless_time(result)) is not None:
            return Merged(None, joined_reasons(reason, endless))
        return Merged(result, joined_reasons(reason, self.shortfall(spec, part)))

    def shortfall(self, spec: Any, result: Any) -> str | None:
        """Return how a result falls short of the spec; None if it does not."""
        return None


class PairTest(OwnTest):
    """A test of two participants, ``source`` and ``dest``."""

    places = ("source", "dest")


class StreamEnd(Document):
    """The final part of a participant: how many intervals it reported."""

    intervals: CountField


class IntervalTest(OwnTest):
    """A test with a result for each of its intervals, which last ``each``."""

    run_class = SchedulingClass.BACKGROUND_MULTI
    interval_model: type[Document]
    part_models: tuple[type[Document], ...] = (StreamEnd,)

    def rhythm(self, spec: Any) -> Rhythm:
        """Return as many intervals as ``each`` fits into ``duration``."""
        return Rhythm(spec.each, spec.duration // spec.each)

    def merge_interval(self, spec: Any, parts: Sequence[Part]) -> Merged:
        """Make the one part the result."""
        part, reason = part_of(parts, 0, self.interval_model)
        return Merged(part.model_dump(mode="json") if part else None, reason)

    def merge(self, spec: Any, parts: Sequence[Part]) -> Merged:
        """Check that all participants measured to the end; the reason says who did not."""
        reasons = [part_of(parts, at, StreamEnd)[1] for at in range(len(self.places_of(spec)))]
        return Merged(None, joined_reasons(*reasons))


class OwnTool:
    """The half of a :class:`~node.plugins.contracts.Tool` that most tools share.

    ``listener`` is the participant that listens at a port, None if none does.
    """

    name: str
    tests: tuple[str, ...]
    preference: int = 0
    requirement: Requirement | None = None
    tried: tuple[str, ...] = ()
    listener: ClassVar[int | None] = None

    def can(self, spec: Any) -> str | None:
        """Return None: every spec can be measured."""
        return None

    def needs_port(self, spec: Any, participant: int) -> int:
        """Return whether the listener's node must assign a port: if the spec names none."""
        return participant == self.listener and getattr(spec, "port", None) is None


class ClientTool(OwnTool):
    """The tool of a :class:`TargetTest`: a client, for which any port will do."""

    checks_targets = False

    def unchecked(self, spec: Any) -> str | None:
        """Return None: only checked targets are reached."""
        return None


class BetweenTwo(Protocol):
    """A spec with two participants."""

    @property
    def source(self) -> str | None:
        """The participant that begins; None is the lead itself."""
        ...

    @property
    def dest(self) -> str | None:
        """The other participant; None until the task's participants are filled in."""
        ...


def check_two(spec: BetweenTwo) -> None:
    """Refuse a spec in which both participants are the same host.

    :raises ValueError: they are the same.
    """
    if spec.source is not None and spec.source == spec.dest:
        raise ValueError(f"source and dest are the same host, {spec.source}")


def check_multiple(name: str, whole: int, part: str, length: int) -> None:
    """Refuse a duration (microseconds) that is not a multiple of another.

    :raises ValueError: says which; or that a run has too many intervals, if the parts are
        intervals.
    """
    lengths = f"{part} ({duration_text(length)})"
    if whole % length:
        raise ValueError(f"{name} ({duration_text(whole)}) is not a multiple of {lengths}")
    if name == "duration" and whole // length > INTERVALS_MAX:
        raise ValueError(f"{name} is more than {INTERVALS_MAX} times {lengths}")


def gaps_text(intervals: int, gaps: int) -> str:
    """Return ``60 intervals``, ``58 of 60 intervals``."""
    if gaps:
        return f"{intervals} of {intervals + gaps} intervals"
    return "1 interval" if intervals == 1 else f"{intervals} intervals"
