"""The document that describes a simulated world: nodes, tasks, arrivals, network, faults.

A scenario is a TOML or JSON file, or one of those that come with the program (``scenarios/``).
Durations are ISO 8601, shares are between 0 and 1, rates are *events per hour in the whole world*.
"""

from __future__ import annotations

import json
import tomllib
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from lead.assembly.with_node import composition_of
from lead.simulation.fleet.promises import promises_seats, pulls, sharing_of
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import InvalidDocument, MalformedRequest, NotFound
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.fields import FROM_OUTSIDE, Document, Duration
from node.model.wire.participants import BATCH_MAX
from node.model.wire.pools import PoolDocument
from node.model.wire.seats import SeatRequest
from node.model.wire.shares import Share as LeadShare
from node.model.wire.tasks import PRIORITY_MAX, TAKES_MAX, Taking
from node.model.wire.validation import faults_of

_SUFFIX = ".toml"
FLEET = "fleet"
"""The scenario without a world of nodes: only seats that policies share."""
POOL = "pool"
"""The pool whose policies are compared."""

Described = TypeVar("Described", bound=Document)

Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(ge=0, le=100_000)]
Few = Annotated[int, Field(ge=1, le=2000)]
Value = str | int | float | bool


class PairingRule(StrEnum):
    """A rule that chooses the participants of the tasks of a group."""

    MESH = "mesh"
    STAR = "star"
    PAIRS = "pairs"
    RANDOM = "random"
    ELSEWHERE = "elsewhere"
    ALONE = "alone"
    IN_TURN = "in-turn"


class ScenarioNodes(Document):
    """The hosts and the settings of their owners."""

    count: Few = 5
    leads: int = Field(
        1, ge=1, le=4, description="Leads of each node; one is in the process of its service."
    )
    apis: int = Field(
        0, ge=0, le=4, description="Further processes of each node's API, which users ask in turns."
    )
    horizon: Duration = times.DAY
    batch: int = Field(BATCH_MAX, ge=1, le=BATCH_MAX)
    workers: int = Field(50, ge=1, le=500)
    hold_life: Duration = 30 * times.SECOND
    lease: Duration = 30 * times.SECOND
    start_margin: Duration = 1500 * times.MILLISECOND
    clock_limit: Duration = times.SECOND
    part_grace: Duration = 15 * times.SECOND
    poll: Duration = Field(
        times.HOUR, description="Interval of polling the tables; a safety net for notifications."
    )
    tend: Duration = Field(
        times.MINUTE, description="Interval of the search for overdue tasks and missing parts."
    )
    compare: Duration = Field(
        10 * times.MINUTE,
        description="Interval at which leads compare runs with participants; PT0S: never.",
    )
    keep: Duration = Field(
        times.DAY, description="How long finished runs stay in the tables; the report keeps them."
    )


class ScenarioTasks(Document):
    """Tasks of one kind between nodes chosen by a rule.

    ``random`` and ``alone`` use ``count``, and so does ``in-turn``: nodes take turns, each alone.

    With ``participants`` the group consists of ``count`` pool tasks of the pool's lead instead.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")] = "tasks"
    between: PairingRule = PairingRule.MESH
    participants: SeatRequest | None = None
    lead: str | None = Field(None, description="The node that leads them; else a participant.")
    campaign: str | None = None
    count: int = Field(
        10, ge=1, le=100_000, description="Number of tasks, for random, alone and pools."
    )
    size: int = Field(2, ge=1, le=10, description="Participants of each task, for random.")
    scheduling_class: SchedulingClass = Field(SchedulingClass.EXCLUSIVE, alias="class")
    length: Duration = Field(20 * times.SECOND, description="Duration of a run.")
    every: Duration | None = Field(None, description="Interval; omit it for a single run.")
    slip: Duration | None = None
    slip_random: bool = False
    spread: bool = Field(
        default=True, description="Whether each task starts at a random phase of the interval."
    )
    priority: int = Field(0, ge=-PRIORITY_MAX, le=PRIORITY_MAX)
    max_runs: int | None = Field(None, ge=1, le=1_000_000)
    start: Duration = Field(0, description="First due time, from the beginning.")
    created_over: Duration = Field(
        0, description="Time over which the tasks are created one after another."
    )
    endless: bool = Field(default=False, description="Continues after the simulated days.")
    takes: tuple[Taking, ...] = Field(
        (), max_length=TAKES_MAX, description="Counted resources that each run takes."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.every is not None and self.every < self.length:
            raise ValueError(
                "every is shorter than length, so runs would overlap; use a longer every"
            )
        if not times.SECOND <= self.length <= times.DAY:
            raise ValueError("length must be between PT1S and P1D")
        return self


class Arrivals(Document):
    """Single runs that users request at random times (a Poisson process)."""

    per_hour: Rate = 0
    scheduling_class: SchedulingClass = Field(SchedulingClass.NORMAL, alias="class")
    length: Duration = 20 * times.SECOND
    slip: Duration = 5 * times.MINUTE
    size: int = Field(2, ge=1, le=10)
    priority: int = Field(0, ge=-PRIORITY_MAX, le=PRIORITY_MAX)


class ScenarioNetwork(Document):
    """The network between the nodes."""

    delay: tuple[Duration, Duration] = (5 * times.MILLISECOND, 60 * times.MILLISECOND)
    loss: Share = 0
    duplicates: Share = 0
    time_limit: Duration = 5 * times.SECOND

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0 < self.delay[0] <= self.delay[1]:
            raise ValueError("delay must be two durations, the shorter first, above zero")
        return self


class Faults(Document):
    """The faults: their rates per hour in the whole world, and the range of their durations."""

    crashes: Rate = 0
    down: tuple[Duration, Duration] = (times.SECOND, 2 * times.MINUTE)
    cuts: Rate = 0
    cut: tuple[Duration, Duration] = (5 * times.SECOND, 5 * times.MINUTE)
    slow: Rate = 0
    clock_steps: Rate = 0
    clock_step_max: Duration = 3 * times.SECOND
    wrong_boots: Rate = Field(
        0, description="A node starts while its clock is ahead, until it is set right."
    )
    clock_boot_max: Duration = times.DAY
    clock_jumps: Rate = Field(
        0,
        description="A clock is an hour or a day wrong, of a node that runs or while it is down.",
    )
    outages: Rate = Field(
        0,
        description="A database breaks all connections, maybe within a statement, and is away.",
    )
    outage: tuple[Duration, Duration] = (100 * times.MILLISECOND, times.MINUTE)
    clock_drift_ppm: int = Field(0, ge=0, le=10_000)
    cancelled_runs: Rate = 0
    cancelled_tasks: Rate = 0
    withdrawals: Rate = 0
    forgotten_runs: Rate = Field(0, description="A participant loses a future run from its table.")
    late_notices: Share = Field(
        0, description="Share of commits of which a process hears up to five seconds late."
    )
    lost_notices: Share = Field(
        0, description="Share of commits of which a process never hears; nodes.poll finds them."
    )
    conflicts: Share = Field(
        0, description="Share of transactions that fail at their end and are tried again."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for low, high in (self.down, self.cut, self.outage):
            if not 0 < low <= high:
                raise ValueError(
                    "down, cut and outage must be two durations each, the shorter first, above zero"
                )
        return self


class PromiseExpectation(Document):
    """The expectation that campaigns get the share of a pool that its policies promise.

    Without a pool: that leads get the shares that the owners of all nodes give them.
    """

    pool: str | None = None
    after: Duration = Field(
        times.DAY, description="Runs due later count; by then the policies have a usage history."
    )
    within: Share = 0.02


class Scenario(Document):
    """A simulated world."""

    title: str = ""
    days: float = Field(1, gt=0, le=366, description="Simulated days.")
    seed: int = Field(1, ge=0, lt=2**63)
    settle: Duration = Field(
        times.HOUR, description="Time without faults after that, before the final checks."
    )
    nodes: ScenarioNodes = ScenarioNodes()
    attributes: dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]] = Field(
        default_factory=dict, description="By name: the values that the nodes take in turn."
    )
    resources: dict[str, int] = Field(
        default_factory=dict, description="By name: the number that every node keeps of it."
    )
    lead_shares: dict[str, LeadShare] = Field(
        default_factory=dict, description="By lead, its share in the time of every node."
    )
    campaigns: tuple[CampaignDocument, ...] = ()
    pools: tuple[PoolDocument, ...] = Field(
        (), description="Each is planned by its lead; n1 if it names none."
    )
    tasks: tuple[ScenarioTasks, ...] = ()
    arrivals: tuple[Arrivals, ...] = ()
    network: ScenarioNetwork = ScenarioNetwork()
    faults: Faults = Faults()
    shares: PromiseExpectation | None = None

    @property
    def duration(self) -> int:
        """Return the simulated time in microseconds."""
        return round(self.days * times.DAY)

    def pool(self, name: str) -> PoolDocument:
        """Return the pool of this name."""
        return next(pool for pool in self.pools if pool.name == name)

    @model_validator(mode="after")
    def _require_enough_nodes(self) -> Self:
        sizes = [group.size for group in self.tasks] + [group.size for group in self.arrivals]
        if max(sizes, default=1) > self.nodes.count:
            raise ValueError(f"a size of {max(sizes)} exceeds nodes.count; add nodes")
        return self

    @model_validator(mode="after")
    def _require_its_pools(self) -> Self:
        known = {pool.name for pool in self.pools}
        for group in self.tasks:
            if group.participants is not None and group.participants.pool not in known:
                raise ValueError(f"there is no pool {group.participants.pool}; add it to pools")
        names = {f"n{number}" for number in range(1, self.nodes.count + 1)}
        for pool in self.pools:
            if pool.lead not in {None, *names}:
                raise ValueError(f"pool {pool.name} has no valid lead ({pool.lead}); use n1, n2 …")
        for group in self.tasks:
            if group.lead not in {None, *names}:
                raise ValueError(f"{group.name} have no valid lead ({group.lead}); use n1, n2 …")
        return self

    @model_validator(mode="after")
    def _require_promising_set(self) -> Self:
        if self.shares is None:
            return self
        if self.shares.pool is None:
            if not self.lead_shares:
                raise ValueError("shares without a pool are those of leads; add lead_shares")
            return self
        if self.shares.pool not in {pool.name for pool in self.pools}:
            raise ValueError(f"there is no pool {self.shares.pool}; add it to pools")
        chosen = self.pool(self.shares.pool).policy
        policy = composition_of(chosen)
        if sharing_of(policy) is None or promises_seats(policy) or pulls(policy):
            raise ValueError(f"{chosen.set} promises no shares that can be checked; remove shares")
        return self


def built_in() -> dict[str, Scenario]:
    """Return the scenarios that come with the program, by name."""
    folder = resources.files("lead.simulation").joinpath("scenarios")
    names = sorted(f.name for f in folder.iterdir() if f.name.endswith(_SUFFIX))
    return {
        name.removesuffix(_SUFFIX): named_scenario(name.removesuffix(_SUFFIX)) for name in names
    }


def built_in_text(name: str) -> str:
    """Return the file of a built-in scenario, as a template for other scenarios."""
    below = "fleet" if name in (FLEET, POOL) else "scenarios"
    folder = resources.files("lead.simulation").joinpath(below)
    return folder.joinpath(name + _SUFFIX).read_text("utf-8")


def named_scenario(name: str) -> Scenario:
    """Return the built-in scenario of this name, or the one in this file.

    :raises NotFound: neither exists.
    :raises MalformedRequest: the file is neither TOML nor JSON.
    :raises InvalidDocument: a field is invalid.
    """
    return validated(Scenario, read(name))


def parsed_scenario(text: str, suffix: str) -> Scenario:
    """Parse a scenario from the text of a file.

    :raises MalformedRequest: it is neither TOML nor JSON.
    :raises InvalidDocument: a field is invalid.
    """
    return validated(Scenario, _document(text, suffix))


def read(name: str) -> Any:
    """Return the built-in document of this name, or the one in this file, unchecked.

    :raises NotFound: neither exists.
    :raises MalformedRequest: the file is neither TOML nor JSON.
    """
    path = Path(name)
    if path.suffix in {_SUFFIX, ".json"} or "/" in name:
        try:
            return _document(path.read_text("utf-8"), path.suffix)
        except OSError as error:
            raise NotFound(f"{name} cannot be read: {error.strerror}") from None
    try:
        return _document(built_in_text(name), _SUFFIX)
    except FileNotFoundError:
        names = ", ".join([*built_in(), FLEET, POOL])
        message = f"there is no scenario {name!r}; use one of {names}, or a .toml or .json file"
        raise NotFound(message) from None


def validated(model: type[Described], document: Any) -> Described:
    """Validate a document against its model.

    :raises InvalidDocument: a field is invalid.
    """
    try:
        return model.model_validate(document, context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, model)) from None


def _document(text: str, suffix: str) -> Any:
    try:
        return json.loads(text) if suffix == ".json" else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        kind = suffix.removeprefix(".").upper()
        raise MalformedRequest(f"the scenario is not {kind}: {error}") from None
