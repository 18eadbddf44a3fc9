"""Pool tasks: what they ask for instead of naming their nodes, and who has their seats."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from node.model.wire.fields import Document, Instant, Name

SEATS_MAX = 500
"""Most nodes of one pool task."""

PARTICIPANTS_MAX = 32
"""Most nodes in one run."""

WORTH = 10
"""What it is worth that a node has a preferred value, unless said."""

_Attribute = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.:-]{0,62}$")]


def _preferred(value: object) -> tuple[str | int | float | bool, ...]:
    listed = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not listed or not all(isinstance(one, str | int | float | bool) for one in listed):
        msg = "must be a text, a number, true or false, or a list of these"
        raise ValueError(msg)
    return listed


_Preferred = Annotated[
    tuple[str | int | float | bool, ...],
    BeforeValidator(_preferred),
    WithJsonSchema({"examples": ["DE", ["DE", "FR"]]}),
]
_Alike = Annotated[int, Field(ge=1, le=SEATS_MAX, strict=True)]

Choice = Literal["sticky", "rotating"]


class SeatRequest(Document):
    """So many nodes of a pool, chosen by its lead, instead of nodes by name."""

    pool: Name
    k: int = Field(ge=1, le=SEATS_MAX, strict=True, description="So many nodes.")
    min_k: int | None = Field(
        None,
        ge=1,
        le=SEATS_MAX,
        strict=True,
        description="So many suffice: for fewer no node is chosen, and what is missing beyond is "
        "tried again. Where seats are lost later, the others measure on. Unless said 1, with "
        "together k.",
    )
    match: dict[str, Any] = Field(
        default_factory=dict,
        description="What a node must be like beside belonging to the pool; a predicate as a "
        "pool's own.",
        examples=[{"cpu_mbps": {">=": 1000}}],
    )
    prefer: dict[_Attribute, _Preferred] = Field(
        default_factory=dict,
        max_length=20,
        description="What a node should be like: by attribute the value, or values, that are "
        "preferred.",
        examples=[{"country": ["DE", "FR"]}],
    )
    spread: dict[_Attribute, _Alike] = Field(
        default_factory=dict,
        max_length=20,
        description="At most so many nodes that are alike in an attribute.",
        examples=[{"site": 1}],
    )
    together: bool = Field(
        default=False,
        strict=True,
        description="All in one interval and each run on all k or on none; else each node "
        "anywhere in the slip.",
    )
    choice: Choice | None = Field(
        None,
        description="sticky: who had a seat keeps it; rotating: others take their turn. "
        "The pool's unless said.",
    )
    field: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None,
        description="The field of the test's spec that names the chosen node (with together: "
        "nodes); source or participants, whichever the test has, unless said.",
    )

    @property
    def suffices(self) -> int:
        """For fewer nodes than this, together with those that have seats, none is chosen."""
        return self.min_k or (self.k if self.together else 1)

    @field_validator("min_k")
    @classmethod
    def _is_no_more_than_k(cls, value: int | None, info: ValidationInfo) -> int | None:
        k = info.data.get("k", SEATS_MAX)
        if value is not None and value > k:
            msg = f"is more than k, {k}; lower it, or raise k"
            raise ValueError(msg)
        return value

    @field_validator("together")
    @classmethod
    def _is_all_or_nothing(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - a value
        k = info.data.get("k", 1)
        if value and (info.data.get("min_k") or k) < k:
            msg = "means all k nodes or none: leave out min_k, or this"
            raise ValueError(msg)
        if value and k > PARTICIPANTS_MAX:
            msg = f"is possible for at most {PARTICIPANTS_MAX} nodes, and k is {k}"
            raise ValueError(msg)
        return value


class SeatCount(Document):
    """How the seats of a pool task stand, in the term that is on, or else in the next one."""

    wanted: int
    taken: int
    reason: str | None = Field(description="Why some are empty.")
    term: Instant = Field(description="The first slot of the term.")
    until: Instant = Field(description="No slot of the term lies then or later.")


SeatState = Literal["taken", "empty", "lost", "over"]


class Seat(Document):
    """One seat of a pool task in one term."""

    term: Instant = Field(description="The first slot of the term.")
    until: Instant = Field(description="No slot of the term lies then or later.")
    number: int = Field(description="From 1 to k.")
    state: SeatState = Field(
        description="lost: another node was chosen in its place, or is about to be."
    )
    node: str | None = Field(description="Who has it, or had it, by name.")
    task: UUID | None = Field(description="The ordinary task that books and measures its runs.")
    reason: str | None = Field(description="Why it is empty, or was lost.")
    runs: dict[str, int] = Field(description="How many runs it has, by state.")
