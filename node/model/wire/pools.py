"""Pools: named sets of nodes that campaigns share, with the policies for sharing them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from node.model import times
from node.model.policysets import DEFAULT, expanded
from node.model.wire.fields import Document, Duration, Instant, Name, Patch
from node.model.wire.nodes import NodeName

Match = Annotated[
    dict[str, Any],
    Field(
        description="A predicate over the attributes of nodes: values to equal, lists of allowed "
        "values, comparisons ({'>=': 1000}; also <, <=, >, =, !=, in, exists), not, all, any.",
        examples=[{"country": "DE", "cpu_mbps": {">=": 1000}}],
    ),
]
Axis = Literal["order", "share", "select", "preempt", "throttle", "fill", "feasible"]
Text = Annotated[str, StringConstraints(max_length=500)]


def _length(value: int) -> int:
    if not times.SECOND <= value <= _LONGEST:
        msg = f"is {times.duration_text(value)}; give 1 s to 366 d"
        raise ValueError(msg)
    return value


_LONGEST = 366 * times.DAY
Length = Annotated[Duration, AfterValidator(_length)]


class PolicyChoice(Document):
    """A named set of policies, with options and overrides; an alias becomes what it stands for."""

    set: Annotated[str, StringConstraints(max_length=63)] = DEFAULT
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the set by name; `GET /v1/policysets` has those of each.",
        examples=[{"serial": True}],
    )
    overrides: dict[Axis, dict[str, Any]] = Field(
        default_factory=dict,
        description="By axis: another rule, and its parameters.",
        examples=[{"order": {"rule": "next-run"}, "share": {"window": "30m"}}],
    )

    @model_validator(mode="before")
    @classmethod
    def _expanded(cls, written: Any) -> Any:
        if not isinstance(written, dict) or not isinstance(written.get("set"), str):
            return written
        options = written.get("options", {})
        if not isinstance(options, dict):
            return written
        recipe = expanded(written["set"], options)
        return {**written, "set": recipe.set, "options": recipe.options}


class PoolDocument(Document):
    """A pool as posted."""

    name: Name = Field(description="Its name, such as europe.")
    match: Match
    policy: PolicyChoice = PolicyChoice()
    choice: Literal["sticky", "rotating"] = Field(
        "sticky",
        description="sticky: a node that measured a target measures it again; rotating: the nodes "
        "take turns.",
    )
    term: Length = Field(
        6 * times.HOUR,
        description="How long nodes are chosen for at a time. It is a single slot if the next slot "
        "is further away, or if the nodes rotate.",
    )
    patience: Length = Field(
        10 * times.MINUTE, description="A node that does not answer for this long loses its seats."
    )
    lead: NodeName | None = Field(
        None, description="The node that plans the pool: the one that gets this request, no other."
    )
    description: Text | None = None


class PoolPatch(Patch):
    """Changes of a pool, as a JSON merge patch (RFC 7396); a match is replaced as a whole."""

    name: Name | None = Field(None, description="Cannot be changed.")
    match: Match | None = None
    policy: dict[str, Any] | None = None
    choice: Literal["sticky", "rotating"] | None = None
    term: Length | None = None
    patience: Length | None = None
    lead: NodeName | None = Field(None, description="Cannot be changed.")
    description: Text | None = None


class PolicySetAlias(Document):
    """A former name of a set, and what it stands for."""

    name: str
    options: dict[str, Any] = Field(description="The options with which the set is the same.")


class PolicySet(Document):
    """A named set of policies that a pool may be given."""

    name: str
    good_for: str = Field(description="When to choose it.")
    recommended: bool
    options: dict[str, str] = Field(description="By name, what each option changes.")
    aliases: tuple[PolicySetAlias, ...] = Field(description="Former names that stand for it.")


class Outside(Document):
    """A node that does not belong to a pool, and why."""

    node: str
    reason: str


class ExpectedMisses(Document):
    """Runs of a campaign that are expected to start too late, or not at all."""

    campaign: str
    runs: int
    first_at: Instant = Field(description="The first of the latest starts that they miss.")


class Pool(PoolDocument):
    """A pool as the API shows it."""

    lead: str
    revision: int
    created_at: Instant
    changed_at: Instant
    nodes: tuple[str, ...] = Field(description="Names of the nodes that belong to it now.")
    others: tuple[Outside, ...] = Field(description="The other nodes, and why they do not belong.")
    warnings: tuple[str, ...] = Field(
        (),
        description="Settings that are allowed but probably unintended: no node belongs to it, "
        "a node does not answer, it serves promises and there are none, more of its seats "
        "are promised than exist, or its policies do not see all its runs. Also the expected "
        "misses, in a sentence each.",
    )
    expected_misses: tuple[ExpectedMisses, ...] = Field(
        (),
        description="The forecast of the last search for nodes: by campaign, the due runs that "
        "have no nodes yet and will miss their latest start as things are. Only policy sets that "
        "mind deadlines make one.",
    )
