"""The messages between nodes under ``/v1/participant/``, all of them signed.

Instants and durations are plain integers of microseconds here, and spans are ``[start, end]``:
each message has batches of hundreds of windows, which nobody reads by eye. Of the faults in a long
list only the first is told (``fail_fast``): pydantic keeps a kilobyte for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeVar
from uuid import UUID

from pydantic import AfterValidator, Field, model_validator

from node.model import times
from node.model.classes import SchedulingClass
from node.model.host_limits.caps import rate_text
from node.model.host_limits.closed import LimitedTime
from node.model.host_limits.quotas import (
    Account,
    PeriodQuota,
    Quantity,
    RunAmounts,
    loaded_spans,
)
from node.model.lead_shares import OTHERS, AccountUse, KeptTime, LeadShares, LeadUse
from node.model.reason import Reason
from node.model.reasons import (
    busy,
    campaign_limit,
    host_limit,
    just_taken,
    lead_above_share,
    limit_of_rate_used,
    limit_of_runs_at_once_reached,
    reserved,
    resource_taken,
)
from node.model.reservations import ReservationSpan
from node.model.resources import FullResource
from node.model.wire.circumstances import Circumstances
from node.model.wire.fields import Document, Host, is_absent
from node.model.wire.host_limits import TaskLimit, TaskRoom
from node.model.wire.problems import Problem
from node.model.wire.seats import PARTICIPANTS_MAX
from node.model.wire.tasks import PRIORITY_MAX, Keeper, Participant, Schedule, Takes

BATCH_MAX = 512
"""Maximum number of runs in one exchange."""

YIELDING_MAX = 1000
"""Maximum length of the list of runs that may give way."""

FREED_MAX = 500
"""Maximum number of tasks in one notification of freed time."""

CONFIRMED_MAX = 1000
"""Maximum number of tasks in one question whether they are still open."""

DIGESTS_MAX = 1000
"""Maximum number of tasks in one comparison."""

LACKING_MAX = 100
"""Maximum number of runs in one comparison whose parts are asked for again."""

DIFFERENCES_MAX = 100_000
"""Maximum number of runs in the answer to a comparison; the next comparison has the rest."""

OUTPUT_LENGTH_MAX = 20_000
"""Maximum characters of a program's output that are kept and sent: its beginning and its end."""

RANGES_MAX = 20_000
"""Maximum number of free ranges in an offer, beside one for each window: a lead reads them all."""

BATCH_ITEMS_MAX = 64
"""Maximum number of questions of one kind in one message."""

MESSAGE_WEIGHT_MAX = 2048
"""Maximum number of windows or runs in one message, and in one transaction: it has locks."""

INTRODUCTION_BYTES_MAX = 65_536
"""Maximum length of an introduction; it bounds what no field does, such as the reference."""

TOOLS_MAX = 16
"""Maximum number of tools that an introduction prefers."""

HOSTS_MAX = 64
"""Maximum number of hosts whose addresses an introduction has."""

SIGNATURE_LENGTH_MAX = 8192
"""Maximum length of a participant's signed statement."""

QUOTAS_MAX = 256
"""Maximum number of quotas in a proposal; a node with more for one task tells none."""

PERIODS_MAX = 10_000
"""Maximum number of periods of one quota, or of one limit of loads, in a proposal; and of all hours
that are told of the accounts of a share."""

ACCOUNTS_MAX = 32
"""Maximum number of accounts of shares in a proposal; a node tells none if more want time."""

ACCOUNT_HOURS_MAX = 1000
"""Maximum number of hours of which a proposal tells what an account of shares had or wants."""

INTERVALS_PER_MESSAGE_MAX = 64
"""Maximum number of intervals in one message."""

StatementText = Annotated[str, Field(max_length=SIGNATURE_LENGTH_MAX)]
Micros = Annotated[int, Field(ge=0, lt=times.LATEST, strict=True)]
Span = tuple[Micros, Micros]
Sentence = Annotated[str, Field(max_length=1000)]
Word = Annotated[str, Field(max_length=100)]
Place = Annotated[int, Field(ge=0, lt=PARTICIPANTS_MAX)]
Length = Annotated[int, Field(gt=0, lt=times.LATEST, strict=True)]
Priority = Annotated[int, Field(ge=-PRIORITY_MAX - 1, le=PRIORITY_MAX, strict=True)]
Rank = Annotated[int, Field(ge=-9, le=9, strict=True)]
Epoch = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Revision = Annotated[int, Field(ge=1, lt=2**31, strict=True)]
Attempt = Annotated[int, Field(ge=1, lt=2**15, strict=True)]


ParticipantData = Annotated[
    dict[Word, Annotated[int, Field(ge=0, le=65_535, strict=True)]], Field(max_length=16)
]
"""Data that a participant adds to a hold for the others: its first port, and how many it has."""


class FreedRuns(Document):
    """The runs that a task has given up.

    They are those of slots from ``slots_from`` on that start at or after ``starting`` and were
    booked under a lease epoch before ``before_epoch``. Because of the epoch, the message may arrive
    twice or late: runs that were booked since are not affected.
    """

    before_epoch: Epoch
    starting: Micros
    slots_from: Micros
    reason: Sentence


class Introduction(Document):
    """A task as introduced to a participant before planning, and again after each change."""

    task: UUID
    test: Word
    spec: dict[str, Any]
    tools: Annotated[tuple[Word, ...], Field(max_length=TOOLS_MAX)]
    tool: Word | None
    scheduling_class: SchedulingClass
    duration: Length
    priority: Priority
    participants: Annotated[tuple[Participant, ...], Field(max_length=PARTICIPANTS_MAX)]
    participant: Place | None = Field(
        description="Its place among them; null if the node only keeps resources."
    )
    addresses: Annotated[dict[Host, Host], Field(max_length=HOSTS_MAX)]
    schedule: Schedule
    campaign: Word | None
    reference: Any
    created_at: Micros
    revision: Revision = 1
    pool_task: UUID | None = Field(None, description="The pool task that it has seats of, if any.")
    paused_at: Micros | None = Field(None, description="When it was paused, if it is paused.")
    freeing: FreedRuns | None = None
    rooms: bool | None = Field(
        None,
        exclude_if=is_absent,
        description="Whether to tell what bounds the number of tasks; only in previews, and to "
        "nodes that have the feature of quotas.",
    )
    keepers: Annotated[tuple[Keeper, ...], Field(max_length=1)] = Field(
        (),
        exclude_if=lambda value: not value,
        description="The node itself, with what runs take of the resources that it keeps; only to "
        "nodes that have the feature.",
    )
    secrets: Annotated[dict[str, str], Field(max_length=100)] | None = Field(
        None,
        exclude_if=is_absent,
        repr=False,
        description="By text that is sealed in the spec, the text itself; only to a participant.",
    )

    @property
    def place(self) -> int:
        """The place of a node that takes part.

        :raises ValueError: it only keeps resources.
        """
        if self.participant is None:
            msg = "the node has no place: it only keeps resources"
            raise ValueError(msg)
        return self.participant


class IntroductionAnswer(Document):
    """The answer of a participant: whether it takes part, and with which tools."""

    accepted: bool
    reason: Sentence | None = None
    tools: tuple[str, ...] = ()
    lacks: dict[str, Sentence] = Field(
        default_factory=dict, description="By tool, why this node lacks it."
    )
    limit: TaskLimit | None = Field(
        None, description="What the limits of this host do not allow, if that is the reason."
    )
    rooms: Annotated[tuple[TaskRoom, ...], Field(max_length=QUOTAS_MAX)] | None = Field(
        None,
        exclude_if=is_absent,
        description="What bounds the number of tasks; only if the lead asks for it in a preview.",
    )


LeavingOut = Annotated[
    UUID | None,
    Field(
        exclude_if=is_absent,
        description="A task of the same lead whose booked runs count as if they were freed; only "
        "in previews, and to nodes that have the feature.",
    ),
]


Yielding = Annotated[
    tuple[UUID, ...] | None,
    Field(
        max_length=YIELDING_MAX,
        description="The runs that may give way if their priority is lower; null means any.",
    ),
]


IfIntroduced = Annotated[
    Introduction | None,
    Field(
        exclude_if=is_absent,
        description="The task, if it was not introduced: the limits are those that would bind it.",
    ),
]


class ProposalRequest(Document):
    """A request for free ranges; windows are sorted by start and at least ``duration`` long.

    ``quotas``, ``introduction``, ``preview``, and ``partly`` are only for nodes that have the
    feature.
    """

    task: UUID
    lease_epoch: Epoch
    scheduling_class: SchedulingClass
    duration: Length
    priority: Priority
    yielding: Yielding = None
    windows: Annotated[tuple[Span, ...], Field(fail_fast=True, min_length=1, max_length=BATCH_MAX)]
    test: Word | None = None
    campaign: Word | None = None
    pool_task: UUID | None = None
    leaving_out: LeavingOut = None
    quotas: bool | None = Field(
        None, exclude_if=is_absent, description="Whether to tell the quotas, too."
    )
    introduction: IfIntroduced = None
    preview: bool | None = Field(
        None,
        exclude_if=is_absent,
        description="Whether nothing will be booked: it waits for nothing, and wants no time.",
    )
    partly: bool | None = Field(
        None,
        exclude_if=is_absent,
        description="Whether to tell the longest obstacle of windows that are free for a part, "
        "too; only in previews of several tasks.",
    )
    takes: Takes | None = Field(
        None,
        exclude_if=is_absent,
        description="What each run takes of the resources that the node keeps; only to keepers.",
    )
    keeps_only: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="Whether the node takes no part beside, so that no time of its host is asked.",
    )


class Obstacle(Document):
    """A run that blocks a window, or would give way.

    A node learns of another node's run its class and its time, and nothing else.
    """

    window: int = Field(description="Index of the requested window.")
    run: UUID | None = None
    task: UUID | None = None
    test: str | None = None
    scheduling_class: SchedulingClass
    priority: Priority | None = None
    starts_at: Micros
    ends_at: Micros
    spared: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="Whether its task may lose no further run, by its budget of displacements.",
    )

    def anonymous(self) -> Obstacle:
        """Return what a node may know of the run of another node's task."""
        update = {"run": None, "task": None, "test": None, "priority": None, "spared": False}
        return self.model_copy(update=update)

    def why(self) -> Reason:
        """Return the reason: ``busy with an exclusive throughput run …``."""
        known = self.test, self.priority
        return busy(self.scheduling_class, self.starts_at, self.ends_at, *known, spared=self.spared)

    def why_not_held(self) -> Reason:
        """Return the reason where its time was offered before."""
        known = self.test, self.priority
        return just_taken(self.scheduling_class, self.starts_at, self.ends_at, *known)


class Closure(Document):
    """Reserved time that blocks a window, because the reservation does not admit the task."""

    window: int = Field(description="Index of the requested window.")
    reservation: UUID
    kind: str
    name: str
    owner: str
    starts_at: Micros
    ends_at: Micros

    @classmethod
    def of(cls, window: int, each: ReservationSpan) -> Self:
        """Return the closure of that window by this span."""
        return cls(
            window=window,
            reservation=each.reservation,
            kind=each.kind,
            name=each.name,
            owner=each.owner,
            starts_at=each.starts_at,
            ends_at=each.ends_at,
        )

    def why(self) -> Reason:
        """Return the reason: ``reserved for demo 'SC26' by alice until 2026-…Z, reservation …``."""
        return reserved(self.kind, self.name, self.owner, self.reservation, self.ends_at)


class AboveShare(Document):
    """Time that is kept for other leads, because the one that asks is above its share here."""

    window: int = Field(description="Index of the requested window.")
    percent: float = Field(description="The lead's share among those that want this time.")
    later: Micros = Field(description="From when on it may be offered; ask then.")
    starts_at: Micros
    ends_at: Micros

    @classmethod
    def of(cls, window: int, each: KeptTime, start: int, now: int) -> Self:
        """Return what keeps a window that begins at ``start`` from the lead."""
        return cls(
            window=window,
            percent=round(each.percent, 1),
            later=each.later(start, now),
            starts_at=each.starts_at,
            ends_at=each.ends_at,
        )

    def why(self) -> Reason:
        """Return the reason: ``this lead is above its share of 25 % here; later, from 2026-…Z``."""
        return lead_above_share(self.percent, self.later)


class HostLimit(Document):
    """Time in which the limits of the host admit no run of the task."""

    window: int = Field(description="Index of the requested window.")
    rule: str | None = Field(description="The rule of the limits; null if none admits the task.")
    sentence: Sentence = Field(description="The limit, and from when on it leaves time.")
    starts_at: Micros
    ends_at: Micros

    @classmethod
    def of(cls, window: int, each: LimitedTime) -> Self:
        """Return what limits close of that window."""
        return cls(
            window=window,
            rule=each.rule,
            sentence=each.why[:1000],
            starts_at=each.starts_at,
            ends_at=each.ends_at,
        )

    def why(self) -> Reason:
        """Return the reason: ``limit 'lab': 24 of 24 runs per day, free again at 2026-…Z``."""
        return host_limit(self.sentence, self.rule)


class ResourceTaken(Document):
    """Time in which too little is left of a resource that the node keeps."""

    window: int = Field(description="Index of the requested window.")
    resource: str
    used: int = Field(description="How much is taken at most.")
    number: int = Field(description="How much there is.")
    amount: int = Field(description="How much of it a run takes.")
    run: UUID | None = Field(description="Who takes most of that time, if the asker leads it.")
    test: str | None
    starts_at: Micros
    ends_at: Micros

    @classmethod
    def of(cls, window: int, each: FullResource, lead: str) -> Self:
        """Return why that window is closed, as this lead may know it."""
        by = each.by if each.by is not None and each.by.lead == lead else None
        return cls(
            window=window,
            resource=each.resource,
            used=each.used,
            number=each.number,
            amount=each.amount,
            run=None if by is None else by.run,
            test=None if by is None else by.test,
            starts_at=each.starts_at,
            ends_at=each.ends_at,
        )

    def why(self) -> Reason:
        """Return the reason: ``resource 'link-x': 1 of 1 taken until 2026-…Z, by …``."""
        taken = self.resource, self.used, self.number, self.ends_at, self.amount
        return resource_taken(*taken, self.test, self.run)


def limit_obstacle(window: int, each: LimitedTime, lead: str = "") -> HostLimit | ResourceTaken:
    """Return what limits or resources close of a window, as this lead may know it."""
    if isinstance(each, FullResource):
        return ResourceTaken.of(window, each, lead)
    return HostLimit.of(window, each)


Amount = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class HostQuota(Document):
    """A quota of the host's limits, for which each run counts in the period in which it starts."""

    name: Word = Field(description="The rule or the cap that has the quota.")
    holder: Annotated[str, Field(max_length=200)] = Field(
        description="For whom it counts: the lead, or the network of a target."
    )
    quantity: Quantity
    most: Amount = Field(description="How much each period allows: runs, microseconds, bytes.")
    period: Annotated[int, Field(ge=times.HOUR, lt=times.LATEST, strict=True)]
    amount: Amount = Field(description="How much of it each run of the task takes.")
    used: Annotated[tuple[tuple[Micros, Amount], ...], Field(max_length=PERIODS_MAX)] = Field(
        (), description="What is used already: the begin of each period, and the amount."
    )

    @classmethod
    def of(
        cls,
        account: Account,
        quota: PeriodQuota,
        amounts: RunAmounts,
        used: tuple[tuple[int, int], ...],
    ) -> Self:
        """Return a quota of an account, with what a run takes and what is used already."""
        return cls(
            name=account.name,
            holder=account.holder,
            quantity=quota.quantity,
            most=quota.most,
            period=quota.period,
            amount=amounts.of(quota.quantity),
            used=used,
        )

    @property
    def quota(self) -> PeriodQuota:
        """Return the quota without its use."""
        return PeriodQuota(self.quantity, self.most, self.period)

    def closed(self, taken: Mapping[int, int] | None = None) -> Iterator[LimitedTime]:
        """Yield the periods without room for a run; ``taken`` is used of them (by begin), too."""
        used, quota = Counter(dict(self.used)), self.quota
        used.update(taken or {})
        for begin, amount in sorted(used.items()):
            if quota.exceeded(amount, self.amount):
                why = quota.used_up(self.name, amount, begin)
                yield LimitedTime(begin, begin + self.period, self.name, why, reached=True)


class HostLoad(Document):
    """A limit of what runs take of the host at one time: their number, or their rates added up."""

    name: Word = Field(description="The rule or the cap that has the limit.")
    holder: Annotated[str, Field(max_length=200)] = Field(
        description="For whom it counts: the lead, or the network of a target."
    )
    load: Literal["runs", "bps", "resource"]
    most: Amount = Field(description="How much there may be: runs, bits per second, or pieces.")
    amount: Amount = Field(description="How much of it each run of the task takes.")
    used: Annotated[tuple[tuple[Micros, Micros, Amount], ...], Field(max_length=PERIODS_MAX)] = (
        Field((), description="How much there is already, from when to when.")
    )

    def closed(self, taken: Mapping[Span, int] | None = None) -> Iterator[LimitedTime]:
        """Yield the time without room for a run; ``taken`` is used (by span), too."""
        loads = [*self.used, *((*span, amount) for span, amount in (taken or {}).items())]
        for start, end in loaded_spans(loads, self.most - self.amount + 1):
            yield LimitedTime(start, end, self.name, self._why(end), reached=True)

    def _why(self, end: int) -> Reason:
        if self.load == "resource":
            return resource_taken(self.name, self.most, self.most, end, self.amount)
        if self.load == "runs":
            return limit_of_runs_at_once_reached(self.name, self.most, end)
        return limit_of_rate_used(self.name, rate_text(self.most), end)


Hour = Annotated[int, Field(ge=0, lt=times.LATEST // times.HOUR, strict=True)]
SeatTime = Annotated[float, Field(ge=0, lt=times.LATEST, allow_inf_nan=False)]


class ShareAccount(Document):
    """An account of shares: what a lead, or all without a share of their own, had and wants.

    Hours are numbered from the epoch, and an amount is seat-time in microseconds.
    """

    name: Word = Field(description="A number, or `others`; no lead learns who the others are.")
    share: Annotated[int, Field(ge=0, strict=True)]
    wants: Annotated[tuple[tuple[Hour, Micros], ...], Field(max_length=ACCOUNT_HOURS_MAX)] = Field(
        (), description="For which hours it asked, and when."
    )
    used: Annotated[tuple[tuple[Hour, SeatTime], ...], Field(max_length=ACCOUNT_HOURS_MAX)] = Field(
        (), description="What its runs take that begin in these hours."
    )


class HostShare(Document):
    """The share of the lead that asks, beside those of the others that want the same time."""

    account: Word = Field(description="The account of the lead.")
    amount: SeatTime = Field(description="How much each run of the task takes.")
    accounts: Annotated[tuple[ShareAccount, ...], Field(max_length=ACCOUNTS_MAX)]

    @model_validator(mode="after")
    def _check_length(self) -> Self:
        if sum(len(it.wants) + len(it.used) for it in self.accounts) > PERIODS_MAX:
            msg = f"accounts have more than {PERIODS_MAX} hours together"
            raise ValueError(msg)
        return self

    @classmethod
    def of(cls, own: str, amount: float, accounts: Sequence[AccountUse]) -> Self | None:
        """Return the share of the account ``own``; None if there is too much to tell."""
        names = {each.account: str(number) for number, each in enumerate(accounts)}
        names = {account: account if account == OTHERS else n for account, n in names.items()}
        hours = [len(each) for it in accounts for each in (it.used, it.claims)]
        if len(accounts) > ACCOUNTS_MAX or max(hours) > ACCOUNT_HOURS_MAX:
            return None
        if sum(hours) > PERIODS_MAX:
            return None
        told = (
            ShareAccount(
                name=names[it.account],
                share=it.share,
                wants=tuple(sorted(it.claims.items())),
                used=tuple(sorted(it.used.items())),
            )
            for it in accounts
        )
        return cls(account=names[own], amount=amount, accounts=tuple(told))

    def use(self) -> tuple[LeadShares, LeadUse, dict[str, dict[int, int]]]:
        """Return the shares, what accounts have had, and when they asked for which hours."""
        by_lead = {it.name: it.share for it in self.accounts}
        shares = LeadShares(by_lead, by_lead.pop(OTHERS, 0))
        used = ((it.name, hour, amount) for it in self.accounts for hour, amount in it.used)
        return shares, LeadUse(shares, used), {it.name: dict(it.wants) for it in self.accounts}


ToldLimit = HostQuota | HostLoad | HostShare


def _require_one_share(told: tuple[ToldLimit, ...]) -> tuple[ToldLimit, ...]:
    """Return what a host tells unchanged; a lead has one share there.

    :raises ValueError: it has more.
    """
    if sum(isinstance(each, HostShare) for each in told) > 1:
        msg = "has more than one share"
        raise ValueError(msg)
    return told


class LimitReached(Document):
    """A limit of the task's campaign, or of one above it, that is reached in a window.

    Only the lead knows it: it stands in its traces, and no node sends it to another.
    """

    window: int = Field(description="Index of the requested window.")
    campaign: str
    sentence: str = Field(description="The limit, and when there is room again.")
    starts_at: Micros
    ends_at: Micros

    def why(self) -> Reason:
        """Return the reason: ``ops would have 2 runs at once, of at most 1 (hard), until …``."""
        return campaign_limit(self.sentence, self.campaign)


AnyObstacle = Obstacle | Closure | AboveShare | HostLimit | LimitReached | ResourceTaken

Ranges = Annotated[tuple[Span, ...], Field(max_length=RANGES_MAX + BATCH_MAX)]


class Proposal(Document):
    """The ranges inside the windows in which this node could run.

    ``free`` displaces nothing (pass 1). ``free_displacing`` is what would be free if runs of lower
    priority gave way (pass 2); null if it is the same. Each range lies inside one window.
    """

    now: Micros
    horizon: Micros = Field(description="No run may end later than this.")
    free: Ranges
    free_displacing: Ranges | None = None
    obstacles: Annotated[tuple[AnyObstacle, ...], Field(max_length=BATCH_MAX)] = ()
    reason: Sentence | None = Field(None, description="Why nothing is offered, if so.")
    particular: bool = Field(
        default=False,
        description="Whether reservations for particular tasks exist, or limits bind this one; "
        "other tasks may get another answer.",
    )
    quotas: (
        Annotated[
            tuple[ToldLimit, ...], Field(max_length=QUOTAS_MAX), AfterValidator(_require_one_share)
        ]
        | None
    ) = Field(
        None,
        exclude_if=is_absent,
        description="The quotas and shares for which the runs count, and in a preview the limits "
        "of what there may be at one time; null if the node does not tell them.",
    )
    precedence: tuple[Rank, Priority] | None = Field(
        None,
        exclude_if=is_absent,
        description="The rank and the priority as which the runs would count here: what has lower "
        "ones gives way to them. Only in previews.",
    )


class RunRequest(Document):
    """A run to book."""

    run: UUID
    slot: Micros
    attempt: Attempt
    starts_at: Micros
    ends_at: Micros
    displacing: bool = Field(
        default=False, description="Whether runs of lower priority may be set aside for it."
    )
    again: bool = Field(
        default=False,
        exclude_if=lambda value: not value,
        description="Whether the lead knows that an earlier attempt of the slot came to nothing, "
        "so that one which is over here is no obstacle; only to nodes that have the feature.",
    )

    @model_validator(mode="after")
    def _check_duration(self) -> Self:
        if self.ends_at <= self.starts_at:
            msg = "ends before it starts"
            raise ValueError(msg)
        return self


class HoldRequest(Document):
    """A request to hold runs until the lead decides."""

    task: UUID
    generation: UUID = Field(description="The generation of the lead's database.")
    lease_epoch: Epoch
    revision: Revision = 1
    tool: Annotated[str, Field(pattern=r"^[!-~]{0,100}$")]
    priority: Priority
    yielding: Yielding = None
    life: Micros = Field(description="How long the hold lasts if the lead stays silent.")
    runs: Annotated[
        tuple[RunRequest, ...], Field(fail_fast=True, min_length=1, max_length=BATCH_MAX)
    ]


class Refusal(Document):
    """A run that could not be held, and why."""

    run: UUID
    reason: Sentence
    obstacle: Obstacle | Closure | AboveShare | HostLimit | ResourceTaken | None = None


class HoldAnswer(Document):
    """The runs held; ``data`` is what this participant adds, such as its port."""

    held: Annotated[tuple[UUID, ...], Field(max_length=BATCH_MAX)]
    refused: Annotated[tuple[Refusal, ...], Field(max_length=BATCH_MAX)] = ()
    data: ParticipantData = {}
    set_aside: int = 0


class CommitRequest(Document):
    """The decision on an exchange: keep these runs and drop the others."""

    runs: Annotated[tuple[UUID, ...], Field(fail_fast=True, max_length=BATCH_MAX)]
    data: Annotated[dict[Word, ParticipantData], Field(max_length=PARTICIPANTS_MAX)] = Field(
        description="Participant data by place (as text)."
    )


class CommitAnswer(Document):
    """The answer to a commit; ``late``: the hold had already expired and nothing is booked."""

    late: bool = False


class Release(Document):
    """The release of an exchange: its task, and the lease epoch of the claim that opened it.

    It may arrive before the hold, and is remembered.
    """

    task: UUID
    lease_epoch: Epoch


class ExchangeHold(Document):
    """A hold request with the id of its exchange."""

    exchange: UUID
    hold: HoldRequest


class Ruling(Document):
    """The lead's decision on one exchange: commit these runs, or release all of them."""

    exchange: UUID
    commit: CommitRequest | None = None
    release: Release | None = None

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if (self.commit is None) == (self.release is None):
            msg = "needs either a commit or a release; give exactly one of them"
            raise ValueError(msg)
        return self


One = TypeVar("One", bound=Document)


class Batch(Document, Generic[One]):
    """Several questions of one kind in one message, each answered independently, in order."""

    items: Annotated[
        tuple[One, ...], Field(fail_fast=True, min_length=1, max_length=BATCH_ITEMS_MAX)
    ]


class BatchReply(Document, Generic[One]):
    """The answer to one question of a batch, or the problem that prevented it."""

    answer: One | None = None
    problem: Problem | None = None


class BatchReplies(Document, Generic[One]):
    """The answers to the questions of a batch, in their order."""

    items: tuple[BatchReply[One], ...]


class DecisionAnswer(Document):
    """The lead's decision on an exchange; exchanges it does not know count as aborted."""

    state: str = Field(pattern="^(open|committed|aborted)$")
    commit: CommitRequest | None = None


class FreedTime(Document):
    """A notification that time refused to these tasks has become free; their lead may plan them."""

    tasks: Annotated[tuple[UUID, ...], Field(fail_fast=True, min_length=1, max_length=FREED_MAX)]


class RunEnd(Document):
    """The end of a run without, or in the middle of, its measurement."""

    run: UUID
    state: str = Field(pattern="^(cancelled|displaced)$")
    reason: Sentence
    displaced_by: UUID | None = None


class TaskEnd(Document):
    """The end of a task: for all nodes if sent by its lead, else for the sender only."""

    task: UUID
    state: str = Field(pattern="^(cancelled|refused|finished)$")
    reason: Sentence


class ConfirmationRequest(Document):
    """A participant's question which of these tasks, open there, are still open at their lead."""

    tasks: Annotated[tuple[UUID, ...], Field(fail_fast=True, max_length=CONFIRMED_MAX)]
    marked_at: Micros | None = Field(None, description="The mark of the sender's database.")
    announcement: StatementText | None = Field(
        None,
        exclude_if=is_absent,
        description="Where the sender is, signed with its key (a JWS); only to nodes that have "
        "the feature.",
    )
    process: StatementText | None = Field(
        None,
        exclude_if=is_absent,
        description="The sender's process, signed with its key (a JWS): a number that it drew at "
        "its start, when that was, the instant of the statement, and the generation of the data; "
        "only to nodes that have the feature.",
    )


class ConfirmationAnswer(Document):
    """The tasks that are over, or that their lead does not know, each with the reason."""

    over: dict[UUID, Sentence] = {}
    marked_at: Micros | None = Field(
        None, description="A later mark of the asking node's database, if it has told one."
    )
    shortfall: Micros | None = Field(
        None, description="The time up to this node's horizon that is free for exclusive runs."
    )
    busy_until: Micros | None = Field(
        None, description="No exclusive run can begin here before, unless it displaces others."
    )
    successor: StatementText | None = Field(
        None,
        exclude_if=is_absent,
        description="A later announcement of the asking node: another host has its key, and this "
        "node follows that one.",
    )
    not_followed: Sentence | None = Field(
        None,
        exclude_if=is_absent,
        description="Why this node does not reach the asking one where it says that it is.",
    )
    rival: StatementText | None = Field(
        None,
        exclude_if=is_absent,
        description="The last statement of another process with the asking one's key, which has "
        "asked since the asking one did first: both live.",
    )
    other_heard: Micros | None = Field(
        None,
        exclude_if=is_absent,
        description="The time since another process with the asking one's key has asked.",
    )


class BookedRun(Document):
    """A run as one participant has booked it, for another one that is to send something to it."""

    task: UUID
    lead: str
    starts_at: Micros
    data: ParticipantData | None = Field(
        None,
        exclude_if=is_absent,
        description="What the node told in its own hold, such as its port; only to nodes that "
        "have the feature.",
    )
    measured: Word | None = Field(
        None, exclude_if=is_absent, description="The digest of its test and spec there, likewise."
    )


class PartMessage(Document):
    """One participant's part for the lead, with the output of its program, limited in size."""

    run: UUID
    result: dict[str, Any] | None
    reason: Sentence | None
    started_at: Micros | None
    finished_at: Micros | None
    command: tuple[str, ...] | None
    output: Annotated[str, Field(max_length=OUTPUT_LENGTH_MAX)] | None = None
    circumstances: Circumstances | None = None
    signature: StatementText | None = Field(
        None, description="The participant's signed statement about its part: a JWS."
    )


class IntervalShare(Document):
    """One participant's part of one interval, or why it has none."""

    number: Annotated[int, Field(ge=0, lt=2**31, strict=True)]
    result: dict[str, Any] | None
    reason: Sentence | None
    signature: StatementText | None = Field(
        None, description="The participant's signed statement about its share: a JWS."
    )


class IntervalsMessage(Document):
    """One participant's parts of some intervals of a run in progress, for the lead."""

    run: UUID
    intervals: Annotated[
        tuple[IntervalShare, ...],
        Field(fail_fast=True, min_length=1, max_length=INTERVALS_PER_MESSAGE_MAX),
    ]

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        numbers = [each.number for each in self.intervals]
        if sorted(set(numbers)) != numbers:
            msg = "the intervals are out of order, or one of them is repeated"
            raise ValueError(msg)
        return self


class Digest(Document):
    """A digest of one open task and its future runs as its lead has them, for comparison."""

    task: UUID
    state: str
    revision: Revision
    terms: str = Field(description="SHA-256 over what participants are told of the task.")
    fingerprint: str | None = Field(
        description="SHA-256 over the runs, sorted, and their starts; null while a decision about "
        "them may be on its way, so that they are not compared."
    )


class DigestRequest(Document):
    """A request to compare these tasks; the answer lists those that differ.

    ``lacking`` has runs that ended without a part of the node that is asked: if it has one, it
    sends it again.
    """

    now: Micros
    until: Micros
    tasks: Annotated[tuple[Digest, ...], Field(fail_fast=True, max_length=DIGESTS_MAX)]
    lacking: Annotated[tuple[UUID, ...], Field(fail_fast=True, max_length=LACKING_MAX)] = ()


class Differences(Document):
    """The other node's view of each differing task: its state, or its future runs and starts.

    ``revisions`` has those that are known there in another revision, or paused on one side only,
    ``terms`` those of the same revision with other terms, if their runs are compared.
    """

    tasks: dict[UUID, dict[UUID, Micros]] = {}
    ended: dict[UUID, str] = {}
    revisions: dict[UUID, Revision] = {}
    terms: tuple[UUID, ...] = ()
