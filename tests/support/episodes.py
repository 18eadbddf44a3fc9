"""Episodes of a pool without a database: cases, nodes with timetables, and a driver."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID, uuid5

from lead.model.records import OpenTerm, PolicyMemory, PoolTask
from lead.planning.pool_view import SeatCase, candidate_of
from lead.planning.reserved import ReservedTime
from lead.policy.view import CampaignView, NodeView, PoolView, PostedRun, View
from lead.pool.assignment import EpisodeRuling
from lead.pool.episode_driver import EpisodeDriver
from lead.pool.membership import Membership
from lead.pool.snapshot import EpisodeInput
from node.model import times
from node.model.classes import SchedulingClass
from node.model.policysets import expanded
from node.model.predicates import Attributes
from node.model.reason import Reason
from node.model.reasons import silent
from node.model.recurrence import Recurrence
from node.model.scheduling import recurrence_of
from node.model.task_terms import TaskTerms
from node.model.terms import NodeRequirements, Term, slots_in
from node.model.timeline import Booking, TimelineQuestion, answer_question
from node.model.wire.participants import Proposal, ProposalRequest
from node.model.wire.seats import SeatRequest
from node.model.wire.tasks import Participant, Schedule
from node.store.pools import StoredPool
from node.store.tasks import StoredTask
from tests.support.clocks import START, ManualClock

HORIZON = times.DAY
_NAMES = UUID(int=0)


@dataclass
class Host:
    """A node with these bookings."""

    name: str
    bookings: list[Booking] = field(default_factory=list)
    lanes: int = 1
    unreachable_since: int | None = None
    busy_until: int | None = None
    shortfall: int | None = None
    facts: Attributes = field(default_factory=dict)
    asked: list[ProposalRequest] = field(default_factory=list)
    identity: str = ""
    url: str | None = None
    address: str = ""

    def __post_init__(self) -> None:
        """Derive its key from its name."""
        self.identity = f"key of {self.name}"

    @property
    def silence(self) -> Reason | None:
        """Stop answering."""
        return None if self.unreachable_since is None else silent(START, None)

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Return what its bookings leave free."""
        self.asked.append(request)
        question = TimelineQuestion(
            windows=request.windows,
            scheduling_class=request.scheduling_class,
            duration=request.duration,
            priority=request.priority,
            earliest=START,
            latest=START + HORIZON,
            yielding=None if request.yielding is None else frozenset(request.yielding),
        )
        found = answer_question(question, self.bookings)
        return Proposal(
            now=START,
            horizon=START + HORIZON,
            free=tuple(found.free),
            free_displacing=tuple(found.free_displacing),
        )


def case_of(
    name: str, campaign: str, able: Sequence[str], k: int = 1, *, hours: int = 1, **task: Any
) -> SeatCase:
    """Return a term of hourly slots of ten minutes that begins at once."""
    schedule = Schedule(start=START, repeat=times.HOUR, slip=10 * times.MINUTE)
    recurrence = recurrence_of(schedule, START)
    usual: dict[str, Any] = {
        "scheduling_class": SchedulingClass.EXCLUSIVE,
        "priority": 0,
        "created_at": START,
    }
    terms = TaskTerms(
        test="idle",
        spec={},
        tools=(),
        duration=10 * times.MINUTE,
        schedule=schedule,
        campaign=campaign,
        reference=None,
        **{**usual, **task},
    )
    pool_task = PoolTask(
        id=uuid5(_NAMES, name),
        terms=terms,
        pool="europe",
        request={},
        next_slot=None,
        due_at=None,
        rounds_left=None,
    )
    return _case(pool_task, recurrence, Term(START, START + hours * times.HOUR), able, k)


def _case(
    pool_task: PoolTask, recurrence: Recurrence, term: Term, able: Sequence[str], k: int
) -> SeatCase:
    return SeatCase(
        pool_task=pool_task,
        request=SeatRequest(pool=pool_task.pool, k=k),
        open=OpenTerm(pool_task.id, term, term.ends_at, k),
        recurrence=recurrence,
        slots=slots_in(recurrence, term),
        empty=list(range(1, k + 1)),
        closed=ReservedTime(pool_task.pool),
        begins=term.starts_at,
        able=able,
    )


def _booking_of(run: PostedRun) -> Booking:
    """Return the same run as its nodes know it."""
    return Booking(
        UUID(run.run), uuid5(_NAMES, run.task), "idle", run.scheduling_class, run.priority,
        run.start, run.end, run.running,
    )  # fmt: skip


def booked(name: str, campaign: str, nodes: Sequence[str], **figures: Any) -> PostedRun:
    """Return a run of twenty minutes that begins at once."""
    usual = {"start": START, "end": START + 20 * times.MINUTE}
    run = str(uuid5(_NAMES, name))
    return PostedRun(run, name, campaign, nodes, **{**usual, **figures})


async def run_episode(
    hosts: Sequence[Host],
    campaigns: Sequence[CampaignView],
    cases: Sequence[SeatCase],
    pool: Mapping[str, Any],
    runs: Sequence[PostedRun] = (),
    coming: Sequence[PostedRun] = (),
    fixed: str | None = None,
) -> EpisodeRuling:
    """Drive one episode of a pool with these policies (``policy_set``, ``overrides``).

    ``runs`` are booked, those ``coming`` are not yet. The node ``fixed`` takes part in every run.
    """
    by_name = {host.name: host for host in hosts}
    for run in runs:
        for name in run.nodes:
            by_name[name].bookings.append(_booking_of(run))
    recipe = expanded(pool["policy_set"], {})
    stored = StoredPool(
        name="europe",
        match={},
        choice="sticky",
        term=times.HOUR,
        patience=times.HOUR,
        description=None,
        **{"overrides": {}, **pool, "policy_set": recipe.set, "options": dict(recipe.options)},
    )
    view = View(
        now=START,
        horizon=HORIZON,
        pool=PoolView("europe", tuple(by_name)),
        nodes={it.name: NodeView(it.name, up=it.unreachable_since is None) for it in hosts},
        campaigns={each.name: each for each in campaigns},
        candidates=[candidate_of(case, HORIZON) for case in cases],
        runs=[*runs, *coming],
    )
    known = {run.run: run for run in runs}
    named = {case.name: case for case in cases}
    found = EpisodeInput(stored, PolicyMemory({}, 0), view, known, coming, named)
    membership = Membership({"europe": stored}, hosts, _nothing_wanted)
    by_key = {host.identity: host for host in hosts}
    driver = EpisodeDriver(
        ManualClock(),
        times.SECOND,
        by_key.__getitem__,
        partial(_seat_task, fixed),
        random.Random(1),
    )
    ruling, _ = await driver.run(found, membership)
    return ruling


def given(ruling: EpisodeRuling) -> dict[str, set[str]]:
    """Return by campaign the nodes that were assigned seats."""
    found: dict[str, set[str]] = {}
    for result in ruling.results:
        found.setdefault(result.case.pool_task.campaign, set()).update(result.taken.values())
    return found


def _nothing_wanted(*_: Any) -> NodeRequirements:
    raise AssertionError("who is able is known of each case")


def _seat_task(
    fixed: str | None,
    pool_task: StoredTask,
    request: SeatRequest,
    names: Sequence[str],
    schedule: Schedule,
) -> StoredTask:
    del request
    participants = tuple(
        Participant(node=name, name=name, url=None, address=name)
        for name in (*names, *([fixed] if fixed else []))
    )
    terms = replace(pool_task.terms, participants=participants, schedule=schedule)
    return replace(pool_task, id=uuid5(pool_task.id, ",".join(names)), terms=terms)
