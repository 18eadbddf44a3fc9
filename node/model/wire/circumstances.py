"""The circumstances under which a participant measured its part: what its host did meanwhile.

The node records them right before and right after the program runs and sends them to the lead with
the part; the lead keeps them. What could not be determined is null. :mod:`node.model.verdict`
judges them.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document

NEIGHBOURS_MAX = 20
"""Maximum number of overlapping runs listed by id; all others are only counted."""

_Name = Annotated[str, Field(max_length=64)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Milliseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
_Moved = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]


class ClockCondition(Document):
    """The host's clock."""

    synchronised: bool | None = Field(
        description="Whether the kernel considers it synchronised; null if unknown."
    )
    source: _Name | None = Field(
        description="The program that synchronises it, if this host shows it: chrony, ntpd, …"
    )
    error_bound_ms: _Milliseconds | None = Field(
        description="The kernel's bound on its error in milliseconds, if synchronised."
    )
    stepped_ms: _Moved = Field(
        description="How far it was set during the run, in milliseconds; slewing does not count."
    )
    identity: _Name = Field(
        description="A text that is equal on two participants that share one clock."
    )


class ProcessorLoad(Document):
    """The load of the host's processors, all together."""

    count: Annotated[int, Field(ge=0, le=1_000_000)]
    busy: _Share | None = Field(description="The fraction of time that they were busy.")
    own: _Share | None = Field(description="The fraction of time that this part's program used.")
    waiting: _Share | None = Field(
        description="The fraction of time that a task waited for one (pressure), if known."
    )


class InterfaceLoad(Document):
    """The traffic of the measured interface, this run's own packets included."""

    name: _Name
    loopback: bool = Field(description="Whether both directions count the same packets.")
    speed_mbps: Annotated[int, Field(gt=0, lt=2**31)] | None = Field(
        description="The speed that the interface reports, Mb/s; null if it reports none."
    )
    sent_bytes: _Count
    received_bytes: _Count
    sent_packets: _Count
    received_packets: _Count
    errors: _Count = Field(description="Packets with errors, both directions.")
    dropped: _Count = Field(description="Packets dropped, both directions.")


class Traffic(Document):
    """The payload that the run itself moved, as the participant saw it."""

    sent_bytes: _Count
    received_bytes: _Count


class Neighbour(Document):
    """Another run of the same node that was being measured at the same time."""

    run: UUID
    task: UUID
    test: Annotated[str, Field(max_length=100)]
    scheduling_class: SchedulingClass
    overlap_ms: _Milliseconds


class Circumstances(Document):
    """All circumstances of one participant's part."""

    tool: Annotated[str, Field(max_length=100)]
    tool_version: _Name | None = Field(description="As its program prints it; null if unknown.")
    context: Annotated[str, Field(max_length=100)] | None = Field(
        description="The namespace, interface, or address it was measured from, if one was given."
    )
    observed_ms: _Milliseconds = Field(description="Duration of the observation.")
    clock: ClockCondition
    processors: ProcessorLoad
    interface: InterfaceLoad | None = Field(description="The measured interface; null if unknown.")
    own_traffic: Traffic | None = Field(description="Null if the test does not report it.")
    neighbours: Annotated[tuple[Neighbour, ...], Field(max_length=NEIGHBOURS_MAX)] = ()
    neighbours_count: _Count = Field(0, description="Number of overlapping runs, listed or not.")
