"""The input of the policies: one immutable snapshot of a pool at an instant. Pure values.

Instants and durations are integer microseconds, ranges are half-open. Seats are counted in whole
seats when they are assigned and in *seat-microseconds* (one seat for one µs) when usage is
accounted. Weights, shares, and targets are exact (:class:`fractions.Fraction`): a weight of 0.1 is
a tenth. The code that builds a view resolves names first: a candidate lists the names of the nodes
that meet its hard match, a pool the names of its members.

The *state* is what the policies remember between episodes. Only events change it, and every change
makes a new one. It consists of plain records under plain keys, so that it can be stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final

from node.model import times
from node.model.byte_quotas import ByteQuota
from node.model.classes import SchedulingClass
from node.model.host_limits.closed import Opening
from node.model.spans import Span
from node.model.timed_weights import weight_at

URGENT: Final = 10
"""The level above 9: served before all others, and the only one that may displace by score."""
SUSPENDED: Final = 0
"""The level of campaigns that take no part in anything."""
Needs = Mapping[str, int | None]
"""Counted resources by name, on each node; None takes all that a node has of a resource."""
Exact = int | Fraction
"""A number without rounding; ints where possible, because their arithmetic is much faster."""
BUCKET: Final = times.HOUR
"""The interval by which seats over time are shared: one hour."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A host that runs the service, as far as a policy needs to know it.

    ``attributes`` are key=value pairs, ``figures`` the numeric ones. ``lanes`` is how many normal
    runs fit side by side. ``resources`` is the configured amount of each counted resource (for
    example ``mbps``); the amount of an unlisted resource is unknown. ``load`` is between 0 and 1.
    ``busy_until`` hints that no exclusive run can start earlier unless other runs are displaced.
    A node that is not ``up`` is ``awaited`` if it may answer again soon: others keep waiting for
    tasks that need it.
    """

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    lanes: int = 1
    up: bool = True
    awaited: bool = False
    resources: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, Exact] = field(default_factory=dict)
    speed: Exact = 1
    load: float = 0.0
    used_at: int = 0
    busy_until: int = 0


@dataclass(frozen=True, slots=True)
class LimitView:
    """A limit that is tight when the pool is busy and generous otherwise; None means unlimited."""

    soft: int | None
    hard: int | None


class FairshareKind(StrEnum):
    """The meaning of a fairshare figure: a target, a lower bound, or an upper bound."""

    TARGET = "target"
    FLOOR = "floor"
    CEILING = "ceiling"


@dataclass(frozen=True, slots=True)
class FairshareView:
    """The part (0 to 1) of the delivered time that a campaign should get."""

    part: Exact
    kind: FairshareKind = FairshareKind.TARGET


@dataclass(frozen=True, slots=True)
class QueueView:
    """The movement of a campaign's priority, and the gap at which it blocks other campaigns.

    ``floor`` and ``ceiling`` bound the priority, which rises by ``gain`` whenever a run is started
    and falls by ``price`` when the run is the campaign's own. While this campaign is stuck,
    campaigns whose priority is ``gap`` or more below its own are blocked. ``passes`` is the same
    gap between tasks of the campaign (None: tasks never block each other).
    """

    floor: Exact = 0
    ceiling: Exact = 100
    gap: Exact = 100
    gain: Exact = 1
    price: Exact = 1
    passes: int | None = None


@dataclass(frozen=True, slots=True)
class SeatBudget:
    """At most ``most`` seat-µs, of all time from ``since``, a full hour, to ``until``."""

    most: int
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class FullHours:
    """Time in which no run that takes more may start; ``used`` is what was taken already."""

    start: int
    end: int
    used: int


@dataclass(frozen=True, slots=True)
class CampaignView:
    """A campaign, for which tasks measure.

    ``level`` is 0 (suspended) to 9, or :data:`URGENT`. ``seats_max`` bounds the seats held at once,
    ``target`` is the promise of an SLA: seats if an int, a part of the pool's if a fraction; beside
    it the campaign may ``borrow`` as many seats (None: any number), and others may have the part
    ``lend`` of it while it does not want them.
    ``limits`` are by the name of the limited figure, ``quotas`` by resource (for example ``mbps``);
    ``byte_quota`` and ``budget`` are for the campaign and those below it together.
    ``timed_weights`` count at times instead of ``weight``.
    """

    name: str
    parent: str | None = None
    weight: Exact = 1
    level: int = 5
    created_at: int = 0
    seats_max: int | None = None
    target: Exact | None = None
    borrow: int | None = None
    lend: Exact = 1
    fairshare: FairshareView | None = None
    preemptor: bool = False
    preemptee: bool = False
    priority: int = 0
    limits: Mapping[str, LimitView] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    byte_quota: ByteQuota | None = None
    budget: SeatBudget | None = None
    queue: QueueView = QueueView()
    timed_weights: Sequence[TimedWeight] = ()


@dataclass(frozen=True, slots=True)
class TimedWeight:
    """A weight that counts at recurring times instead of the campaign's own."""

    weight: Exact
    opening: Opening


def mean_weight(campaign: CampaignView, until: int, window: int) -> Exact:
    """Return the mean weight of a campaign in the hours of a window (µs) before an instant."""
    if not campaign.timed_weights:
        return campaign.weight
    last = until // BUCKET * BUCKET
    hours = range(last, last - max(window, BUCKET), -BUCKET)
    weights = (weight_at(campaign.weight, campaign.timed_weights, hour) for hour in hours)
    return Fraction(sum(map(Fraction, weights), Fraction(0)), len(hours))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A due task, one run of which is to be placed.

    ``nodes`` are the names of those that meet the hard match, or the named participants (``named``:
    all of them take part, nothing is selected). ``k`` nodes are wanted, ``k_min`` suffice,
    ``spare`` more may be asked. ``spread`` is the maximum per value of each attribute (for example
    one per ``site``); ``prefer`` lists attributes that a node should have, with the worth of each.
    ``needs`` are counted resources per node, and ``moves`` is what each of its runs moves there, in
    bytes (None: unknown). ``series`` names the runs of which it is one, and ``target`` what they
    measure, to find nodes that measured them before. ``waits_since`` is when this run became due.

    A ``blocked`` candidate found no time in an earlier episode and is not tried in this one: it
    only has what it is guaranteed, such as a slot, or that others wait for it. One that merely had
    to wait for others is tried once these are gone.

    A candidate that represents several runs lists all their ideal times in ``runs``, in order, its
    own first; ``duration`` is then what they take of the first hour.
    """

    task: str
    campaign: str
    next_run_at: int
    duration: int
    nodes: Sequence[str]
    slip: int = 0
    added_at: int = 0
    scheduling_class: SchedulingClass = SchedulingClass.EXCLUSIVE
    priority: int = 0
    k: int = 1
    k_min: int = 1
    spare: int = 0
    together: bool = False
    named: bool = False
    spread: Mapping[str, int] = field(default_factory=dict)
    prefer: Mapping[tuple[str, str], int] = field(default_factory=dict)
    needs: Needs = field(default_factory=dict)
    moves: int | None = 0
    series: str = ""
    target: str = ""
    waits_since: int = 0
    runs: Sequence[Span] = ()
    blocked: bool = False

    @property
    def start_by(self) -> int:
        """Return the latest instant at which the run may start."""
        return self.next_run_at + self.slip

    @property
    def spans(self) -> Sequence[Span]:
        """Return the ideal time of each run."""
        return self.runs or ((self.next_run_at, self.next_run_at + self.duration),)

    @property
    def apart(self) -> bool:
        """Return whether each node has runs of its own."""
        return not (self.together or self.named)

    @property
    def over_at(self) -> int:
        """Return the instant by which all of its runs have ended."""
        return self.spans[-1][1] + self.slip

    @property
    def least(self) -> int:
        """Return the minimum number of nodes: all if they are named or act together."""
        if self.named:
            return len(self.nodes)
        return self.k if self.together else min(self.k_min, self.k)


@dataclass(frozen=True, slots=True)
class PostedRun:
    """A run that is booked or running, on all its nodes."""

    run: str
    task: str
    campaign: str
    nodes: Sequence[str]
    start: int
    end: int
    scheduling_class: SchedulingClass = SchedulingClass.EXCLUSIVE
    priority: int = 0
    running: bool = False
    needs: Needs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Charge:
    """An amount in seat-µs that a campaign was charged, spread evenly over ``[start, end)``.

    A row of the ledger, a correction (a negative amount), and the sum of an hour look the same.
    """

    campaign: str
    start: int
    end: int
    amount: int
    node: str | None = None


@dataclass(frozen=True, slots=True)
class ReservationView:
    """Time on nodes that is reserved for the runs that its access list admits.

    Meeting one criterion suffices, but every reservation that lies on a node must admit the run. A
    reservation made for a blocked task during an episode lists that task alone.
    """

    name: str
    nodes: Sequence[str]
    start: int
    end: int
    campaigns: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    classes: frozenset[SchedulingClass] = frozenset()

    @property
    def span(self) -> Span:
        """Return its beginning and its end."""
        return self.start, self.end

    def admits(self, candidate: Candidate) -> bool:
        """Return whether the candidate meets one criterion of the access list."""
        return (
            candidate.campaign in self.campaigns
            or candidate.task in self.tasks
            or candidate.scheduling_class in self.classes
        )


@dataclass(frozen=True, slots=True)
class PoolView:
    """A named set of nodes that one lead plans."""

    name: str
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class QueueState:
    """A campaign's current priority, and the number of its last start."""

    priority: Exact
    started: int = -1


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause until an instant (µs) after ``failures`` in a row."""

    failures: int
    until: int


@dataclass(frozen=True, slots=True)
class Deferral:
    """A task's failed starts since its last deferral, and how often it was deferred."""

    failed: int = 0
    count: int = 0
    until: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True)
class KeptSlot:
    """Time on nodes that was reserved for a blocked task beyond one episode."""

    nodes: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RememberedState:
    """The memory of the policies.

    ``queues`` by campaign; ``passes`` by task, how often later ones were started ahead of it;
    ``failures`` by (node, campaign), how many runs failed; ``backoffs`` by what was refused;
    ``deferrals`` by task; ``measured`` by (campaign, node, series or target), when it was last
    measured there; ``newcomers`` by campaign, the usage it began with; ``eligible_since`` by task,
    since when its waiting counts; ``starts`` numbers the starts; ``slots`` by task, the
    reservations that outlive an episode; ``held`` are the tasks that only waited for others, and
    found no lack of time themselves. ``favoured`` are the tasks to which seats were given back.
    """

    queues: Mapping[str, QueueState] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    backoffs: Mapping[tuple[str, ...], Backoff] = field(default_factory=dict)
    deferrals: Mapping[str, Deferral] = field(default_factory=dict)
    measured: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    newcomers: Mapping[str, Charge] = field(default_factory=dict)
    eligible_since: Mapping[str, int] = field(default_factory=dict)
    starts: int = 0
    slots: Mapping[str, KeptSlot] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    favoured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The whole input of an episode; ``workers`` is the maximum number of candidates to try.

    ``runs`` are those on the pool's nodes, and on others those that count toward a limit of their
    campaign. ``moved`` has the bytes of campaigns, past, booked, and about to be booked, by the
    hours in which runs start, if any campaign has a quota of bytes; ``spent`` is what campaigns
    with a budget, and those below each, have used or booked of it, in seat-µs. ``returnable`` are
    tasks whose runs may be given back as a whole, the youngest first.
    """

    now: int
    horizon: int
    pool: PoolView
    nodes: Mapping[str, NodeView]
    campaigns: Mapping[str, CampaignView]
    candidates: Sequence[Candidate]
    runs: Sequence[PostedRun] = ()
    ledger: Sequence[Charge] = ()
    reservations: Sequence[ReservationView] = ()
    state: RememberedState = RememberedState()
    workers: int = 50
    returnable: Sequence[str] = ()
    moved: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    spent: Mapping[str, int] = field(default_factory=dict)
