"""The document that describes a simulated world: nodes, tasks, arrivals, network, faults.

A scenario is a TOML or JSON file, or one of those that come with the program (``scenarios/``).
Durations are ISO 8601, shares are between 0 and 1, rates are *so many an hour in the whole world*.
"""

from __future__ import annotations

import json
import tomllib
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from lead.simulation.fleet.promises import AT_LEAST, PULLED, SHARES
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import InvalidDocument, MalformedRequest, NotFound
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.fields import FROM_OUTSIDE, Document, Duration
from node.model.wire.participants import BATCH_MAX
from node.model.wire.pools import PoolDocument
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import PRIORITY_MAX
from node.model.wire.validation import faults_of

_SUFFIX = ".toml"
FLEET = "fleet"
"""The scenario that is no world of nodes: seats that are shared by policies."""

Described = TypeVar("Described", bound=Document)

Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(ge=0, le=100_000)]
Few = Annotated[int, Field(ge=1, le=2000)]
Value = str | int | float | bool


class PairingRule(StrEnum):
    """Which nodes measure with which."""

    MESH = "mesh"
    STAR = "star"
    PAIRS = "pairs"
    RANDOM = "random"
    ELSEWHERE = "elsewhere"
    ALONE = "alone"


class ScenarioNodes(Document):
    """The hosts, and what their owners have set."""

    count: Few = 5
    horizon: Duration = times.DAY
    batch: int = Field(BATCH_MAX, ge=1, le=BATCH_MAX)
    workers: int = Field(50, ge=1, le=500)
    hold_life: Duration = 30 * times.SECOND
    lease: Duration = 30 * times.SECOND
    start_margin: Duration = 1500 * times.MILLISECOND
    clock_limit: Duration = times.SECOND
    part_grace: Duration = 15 * times.SECOND
    poll: Duration = Field(
        times.HOUR, description="Looks into the tables where no notification came; a safety net."
    )
    tend: Duration = Field(
        times.MINUTE, description="How often tasks that are over and parts missing are looked for."
    )
    compare: Duration = Field(
        10 * times.MINUTE, description="How often leads compare with participants; PT0S: never."
    )
    keep: Duration = Field(
        times.DAY, description="How long finished runs stay in the tables; they stay in the report."
    )


class ScenarioTasks(Document):
    """Tasks of one kind, between nodes chosen by a rule; ``random`` and ``alone`` take a count.

    With ``participants`` they are that many pool tasks of the pool's lead instead.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")] = "tasks"
    between: PairingRule = PairingRule.MESH
    participants: SeatRequest | None = None
    campaign: str | None = None
    count: int = Field(10, ge=1, le=100_000, description="How many, for random, alone and pools.")
    size: int = Field(2, ge=1, le=10, description="Participants of each, for random.")
    scheduling_class: SchedulingClass = Field(SchedulingClass.EXCLUSIVE, alias="class")
    length: Duration = Field(20 * times.SECOND, description="How long a run takes.")
    every: Duration | None = Field(None, description="Interval; a single run unless said.")
    slip: Duration | None = None
    slip_random: bool = False
    spread: bool = Field(
        default=True, description="Whether each starts at its own phase of the interval."
    )
    priority: int = Field(0, ge=-PRIORITY_MAX, le=PRIORITY_MAX)
    max_runs: int | None = Field(None, ge=1, le=1_000_000)
    start: Duration = Field(0, description="When the first of them is due, after the beginning.")
    created_over: Duration = Field(
        0, description="They are created one after another during this time."
    )
    endless: bool = Field(default=False, description="Goes on after the simulated days.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.every is not None and self.every < self.length:
            raise ValueError("every is shorter than length: the runs would overlap each other")
        if not times.SECOND <= self.length <= times.DAY:
            raise ValueError("length must be between PT1S and P1D")
        return self


class Arrivals(Document):
    """Single runs that users ask for now and then (a Poisson process)."""

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
    """What goes wrong, so many times an hour in the whole world, and for how long each time."""

    crashes: Rate = 0
    down: tuple[Duration, Duration] = (times.SECOND, 2 * times.MINUTE)
    cuts: Rate = 0
    cut: tuple[Duration, Duration] = (5 * times.SECOND, 5 * times.MINUTE)
    slow: Rate = 0
    clock_steps: Rate = 0
    clock_step_max: Duration = 3 * times.SECOND
    clock_drift_ppm: int = Field(0, ge=0, le=10_000)
    cancelled_runs: Rate = 0
    cancelled_tasks: Rate = 0
    withdrawals: Rate = 0
    forgotten_runs: Rate = Field(0, description="A participant's table loses a run to come.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for low, high in (self.down, self.cut):
            if not 0 < low <= high:
                raise ValueError("down and cut are two durations each, the shorter first")
        return self


class PromiseExpectation(Document):
    """Campaigns that are to be given of a pool what its policies promise them."""

    pool: str
    after: Duration = Field(
        times.DAY, description="What is due later counts: what policies remember is there by then."
    )
    within: Share = 0.02


class Scenario(Document):
    """A whole world."""

    title: str = ""
    days: float = Field(1, gt=0, le=366, description="How long it is simulated.")
    seed: int = Field(1, ge=0, lt=2**63)
    settle: Duration = Field(
        times.HOUR, description="How long after that, without faults, before all is checked."
    )
    nodes: ScenarioNodes = ScenarioNodes()
    attributes: dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]] = Field(
        default_factory=dict, description="By name the values that the nodes have in turn."
    )
    campaigns: tuple[CampaignDocument, ...] = ()
    pools: tuple[PoolDocument, ...] = Field((), description="Each is planned by its lead, or n1.")
    tasks: tuple[ScenarioTasks, ...] = ()
    arrivals: tuple[Arrivals, ...] = ()
    network: ScenarioNetwork = ScenarioNetwork()
    faults: Faults = Faults()
    shares: PromiseExpectation | None = None

    @property
    def duration(self) -> int:
        """How long it is simulated, in microseconds."""
        return round(self.days * times.DAY)

    def pool(self, name: str) -> PoolDocument:
        """The pool of this name."""
        return next(pool for pool in self.pools if pool.name == name)

    @model_validator(mode="after")
    def _has_enough_nodes(self) -> Self:
        sizes = [group.size for group in self.tasks] + [group.size for group in self.arrivals]
        if max(sizes, default=1) > self.nodes.count:
            raise ValueError(f"a size of {max(sizes)} needs as many nodes; nodes.count is too low")
        return self

    @model_validator(mode="after")
    def _has_its_pools(self) -> Self:
        known = {pool.name for pool in self.pools}
        for group in self.tasks:
            if group.participants is not None and group.participants.pool not in known:
                raise ValueError(f"there is no pool {group.participants.pool}; add it to pools")
        names = {f"n{number}" for number in range(1, self.nodes.count + 1)}
        for pool in self.pools:
            if pool.lead not in {None, *names}:
                raise ValueError(f"pool {pool.name} is led by {pool.lead}: there are n1, n2 …")
        return self

    @model_validator(mode="after")
    def _can_promise(self) -> Self:
        if self.shares is None:
            return self
        if self.shares.pool not in {pool.name for pool in self.pools}:
            raise ValueError(f"there is no pool {self.shares.pool}; add it to pools")
        policy = self.pool(self.shares.pool).policy.set
        if policy not in SHARES or policy in AT_LEAST | PULLED:
            raise ValueError(f"{policy} promises no shares that could be looked at")
        return self


def built_in() -> dict[str, Scenario]:
    """The scenarios that come with the program, by name."""
    folder = resources.files("lead.simulation").joinpath("scenarios")
    names = sorted(f.name for f in folder.iterdir() if f.name.endswith(_SUFFIX))
    return {name.removesuffix(_SUFFIX): named(name.removesuffix(_SUFFIX)) for name in names}


def built_in_text(name: str) -> str:
    """The file of a scenario that comes with the program, to start one's own from."""
    below = "fleet" if name == FLEET else "scenarios"
    folder = resources.files("lead.simulation").joinpath(below)
    return folder.joinpath(name + _SUFFIX).read_text("utf-8")


def named(name: str) -> Scenario:
    """The scenario of this name, or in this file.

    :raises NotFound: there is neither.
    :raises MalformedRequest: the file is neither TOML nor JSON.
    :raises InvalidDocument: a field is wrong.
    """
    return checked(Scenario, read(name))


def parsed(text: str, suffix: str) -> Scenario:
    """A scenario from a file's text.

    :raises MalformedRequest: it is neither TOML nor JSON.
    :raises InvalidDocument: a field is wrong.
    """
    return checked(Scenario, _document(text, suffix))


def read(name: str) -> Any:
    """The document of this name, or in this file, whatever it describes.

    :raises NotFound: there is neither.
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
        known = ", ".join([*built_in(), FLEET])
        msg = f"there is no scenario {name!r}, there are {known}; a file ends in .toml or .json"
        raise NotFound(msg) from None


def checked(model: type[Described], document: Any) -> Described:
    """What a document describes.

    :raises InvalidDocument: a field is wrong.
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
