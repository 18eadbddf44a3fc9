"""Pool tasks: their request for nodes of a pool instead of named nodes, and their seats."""

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
"""Maximum number of nodes of one pool task."""

PARTICIPANTS_MAX = 32
"""Maximum number of nodes in one run."""

WORTH = 10
"""Default weight of a preferred value of an attribute."""

_Attribute = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.:-]{0,62}$")]


def _preferred_values(value: object) -> tuple[str | int | float | bool, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not values or not all(isinstance(each, str | int | float | bool) for each in values):
        msg = "must be a text, a number, true or false, or a list of these"
        raise ValueError(msg)
    return values


_Preferred = Annotated[
    tuple[str | int | float | bool, ...],
    BeforeValidator(_preferred_values),
    WithJsonSchema({"examples": ["DE", ["DE", "FR"]]}),
]
_Alike = Annotated[int, Field(ge=1, le=SEATS_MAX, strict=True)]

Choice = Literal["sticky", "rotating"]


class SeatRequest(Document):
    """A request for a number of nodes of a pool, chosen by its lead, instead of named nodes."""

    pool: Name
    k: int = Field(ge=1, le=SEATS_MAX, strict=True, description="Number of nodes.")
    min_k: int | None = Field(
        None,
        ge=1,
        le=SEATS_MAX,
        strict=True,
        description="Minimum number of nodes: if fewer are found, none is chosen; if more are "
        "missing, they are tried again later. When seats are lost later, the other nodes "
        "continue. The default is 1, or k with together.",
    )
    match: dict[str, Any] = Field(
        default_factory=dict,
        description="A predicate that a node must meet in addition to the pool's own, in the "
        "same form.",
        examples=[{"cpu_mbps": {">=": 1000}}],
    )
    prefer: dict[_Attribute, _Preferred] = Field(
        default_factory=dict,
        max_length=20,
        description="Preferred values by attribute: one value, or a list.",
        examples=[{"country": ["DE", "FR"]}],
    )
    spread: dict[_Attribute, _Alike] = Field(
        default_factory=dict,
        max_length=20,
        description="Maximum number of nodes with the same value, by attribute.",
        examples=[{"site": 1}],
    )
    together: bool = Field(
        default=False,
        strict=True,
        description="All nodes measure in one interval, and each run takes place on all k or on "
        "none. Otherwise each node measures anywhere in the slip.",
    )
    choice: Choice | None = Field(
        None,
        description="sticky: a node with a seat keeps it; rotating: the nodes take turns. "
        "By default as the pool.",
    )
    field: Annotated[str, StringConstraints(max_length=64)] | None = Field(
        None,
        description="The field of the test's spec that names the chosen node (with together: "
        "nodes). By default source or participants, whichever the test has.",
    )

    @property
    def suffices(self) -> int:
        """The minimum number of nodes, including those with seats, below which none is chosen."""
        return self.min_k or (self.k if self.together else 1)

    @field_validator("min_k")
    @classmethod
    def _check_at_most_k(cls, value: int | None, info: ValidationInfo) -> int | None:
        k = info.data.get("k", SEATS_MAX)
        if value is not None and value > k:
            msg = f"is more than k, {k}; lower it, or raise k"
            raise ValueError(msg)
        return value

    @field_validator("together")
    @classmethod
    def _check_all_or_nothing(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - a value
        k = info.data.get("k", 1)
        if value and (info.data.get("min_k") or k) < k:
            msg = "requires all k nodes; leave out min_k, or together"
            raise ValueError(msg)
        if value and k > PARTICIPANTS_MAX:
            msg = f"allows at most {PARTICIPANTS_MAX} nodes, and k is {k}; lower k"
            raise ValueError(msg)
        return value


NOT_SEARCHED = "the search for nodes is in progress"
"""The reason of an empty seat for which no node was sought yet."""


class SeatCount(Document):
    """The seats of a pool task in the current term, or else in the next one."""

    wanted: int
    taken: int
    reason: str | None = Field(description="Why some seats are empty.")
    term: Instant = Field(description="The first slot of the term.")
    until: Instant = Field(description="End of the term, excluded.")


SeatState = Literal["taken", "empty", "lost", "over"]


class Seat(Document):
    """One seat of a pool task in one term."""

    term: Instant = Field(description="The first slot of the term.")
    until: Instant = Field(description="End of the term, excluded.")
    number: int = Field(description="From 1 to k.")
    state: SeatState = Field(
        description="lost: another node was chosen instead, or is about to be."
    )
    node: str | None = Field(description="Name of the node that has or had it.")
    task: UUID | None = Field(description="The ordinary task that books and measures its runs.")
    reason: str | None = Field(description="Why it is empty, or was lost.")
    runs: dict[str, int] = Field(description="Number of its runs by state.")
