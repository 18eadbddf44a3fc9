"""Under which circumstances a participant measured its part: what its host was doing meanwhile.

Taken by the node itself right before and right after the program, sent to the lead with the part
and kept with it. What could not be found out is null; nothing here says what to think of it, that
is :mod:`node.model.verdict`.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from node.model.classes import SchedulingClass
from node.model.wire.fields import Document

NEIGHBOURS_MAX = 20
"""Most runs that are named because they overlapped; the others are only counted."""

_Name = Annotated[str, Field(max_length=64)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Milliseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
_Moved = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]


class ClockCondition(Document):
    """The host's clock."""

    synchronised: bool | None = Field(
        description="Whether the kernel holds its clock for synchronised; null if it does not tell."
    )
    source: _Name | None = Field(
        description="What synchronises it, as far as this host shows: chrony, ntpd, …"
    )
    error_bound_ms: _Milliseconds | None = Field(
        description="The kernel's bound of its error in milliseconds, if synchronised."
    )
    stepped_ms: _Moved = Field(
        description="By how much it was set during the run, in milliseconds; being slewed is none."
    )
    identity: _Name = Field(
        description="Equal on two participants that share one and the same clock."
    )


class ProcessorLoad(Document):
    """The host's processors, all together."""

    count: Annotated[int, Field(ge=0, le=1_000_000)]
    busy: _Share | None = Field(description="Which part of their time they were busy.")
    own: _Share | None = Field(description="Which part of their time this part's program took.")
    waiting: _Share | None = Field(
        description="In which part of the time somebody waited for one (pressure), if known."
    )


class InterfaceLoad(Document):
    """What passed the interface that was measured over, this run's own packets included."""

    name: _Name
    loopback: bool = Field(description="Whether both directions are one and the same packets.")
    speed_mbps: Annotated[int, Field(gt=0, lt=2**31)] | None = Field(
        description="What the interface says of its speed, Mb/s; null where it says nothing true."
    )
    sent_bytes: _Count
    received_bytes: _Count
    sent_packets: _Count
    received_packets: _Count
    errors: _Count = Field(description="Packets with errors, both directions.")
    dropped: _Count = Field(description="Packets dropped, both directions.")


class Traffic(Document):
    """Payload that the run itself moved, as the participant saw it."""

    sent_bytes: _Count
    received_bytes: _Count


class Neighbour(Document):
    """Another run of the same node whose part was being measured meanwhile."""

    run: UUID
    task: UUID
    test: Annotated[str, Field(max_length=100)]
    scheduling_class: SchedulingClass
    overlap_ms: _Milliseconds


class Circumstances(Document):
    """All of it, for one participant's part."""

    tool: Annotated[str, Field(max_length=100)]
    tool_version: _Name | None = Field(description="As its program tells it; null if it does not.")
    context: Annotated[str, Field(max_length=100)] | None = Field(
        description="The namespace, interface or address it was measured from, if one was asked."
    )
    observed_ms: _Milliseconds = Field(description="How long the host was observed.")
    clock: ClockCondition
    processors: ProcessorLoad
    interface: InterfaceLoad | None = Field(
        description="The one measured over; null if it is not known."
    )
    own_traffic: Traffic | None = Field(description="Null if the test cannot tell.")
    neighbours: Annotated[tuple[Neighbour, ...], Field(max_length=NEIGHBOURS_MAX)] = ()
    neighbours_count: _Count = Field(0, description="How many there were; not all are named.")
