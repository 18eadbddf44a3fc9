"""The contracts of tests, tools and archivers. Pure: nothing here starts a program or connects.

A *test* defines what is measured: the spec, the participants, the scheduling class, and how the
participants' parts become one result. A *tool* defines how: how long a run occupies its
participants, the argv of each participant's part, and how to read what the program printed.

A part passes through these steps::

    spec ─ Tool.command(part) ─▶ Command ─ launcher ─▶ Output ─ Tool.read(part, output) ─▶ dict
    dicts of all participants ── Test.merge(spec, parts) ──▶ Merged

An *archiver* defines where results go; it is the only one of the three that does I/O itself. It
delivers to a :class:`Destination`, which is opened once, receives batches, and is closed when it
has been idle for a while::

    outcome of a run ─▶ document ─ transform ─▶ Delivery ─ Destination.deliver(batch) ─▶ Outcomes

A long run can report results while it lasts: its test is a :class:`StreamingTest` and its tools are
:class:`StreamingTool`; each interval passes through these steps::

    record ─ StreamingTool.read_interval(part, record) ─▶ Interval
    Intervals of all participants ── StreamingTest.merge_interval(spec, parts) ──▶ Merged
    all merged intervals ── StreamingTest.total(spec, intervals) ──▶ the run's result
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from node.model.classes import SchedulingClass
from node.model.contexts import Context
from node.model.intervals import Interval, Rhythm
from node.model.targets import Network, TargetRules
from node.model.useragent import AGENT
from node.model.wire.circumstances import Traffic
from node.model.wire.fields import Document

Result = dict[str, Any]
"""A JSON object. Durations in it are numbers of milliseconds, and their names end in ``_ms``."""


class Privilege(StrEnum):
    """A privilege that a program needs on the host; the node checks whether it is available."""

    ECHO = "echo"
    """Raw sockets, or the kernel's own sockets for echo requests."""
    RAW = "raw"
    """Raw sockets: the capability ``CAP_NET_RAW``."""
    ROOT = "root"
    """Root, if only to give it up: started by root, or with the set-user-ID bit."""


def _none(spec: Any) -> None:  # noqa: ARG001 - the default for every spec
    return None


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a program's version, by which one is older than another."""
    return tuple(int(number) for number in re.findall(r"\d{1,18}", version))


@dataclass(frozen=True)
class Requirement:
    """A program that must be on the PATH, and the Debian package that contains it.

    ``version_argv`` makes the program print its version, and the first group of ``version_pattern``
    extracts it; both streams are searched, because some programs print it to standard error.
    ``least`` is the oldest version that measures what is asked of it; hosts with an older one lack
    the tool.
    ``privilege(spec)`` is the privilege needed to measure ``spec``; ``privileged`` is the program
    whose file carries that privilege (a set-user-ID bit, a file capability), if it is another
    program. ``congestion(spec)`` is the congestion control of its TCP connections; hosts that lack
    it are not chosen. ``others`` are further programs that are needed, with their packages.
    ``connects(spec)`` is whether it makes or takes connections (TCP); others may not.
    """

    program: str
    package: str
    version_argv: tuple[str, ...] = ()
    version_pattern: str = r"(\d+(?:\.\d+)+)"
    least: str | None = None
    privilege: Callable[[Any], Privilege | None] = field(default=_none)
    privileged: str | None = None
    congestion: Callable[[Any], str | None] = field(default=_none)
    others: tuple[tuple[str, str], ...] = ()
    connects: Callable[[Any], bool] = field(default=lambda _: True)


@dataclass(frozen=True)
class Metric:
    """One figure of a result, from which charts, metrics and databases make series.

    ``name`` is the same in every result of a test and ends in its unit unless the figure is a
    fraction or a count (``rtt_median_ms``); ``unit`` is ``ms``, ``bit/s``, ``1`` (a fraction or
    plain number) or what is counted (``packets``). ``labels`` distinguish figures of the same name,
    such as ``{"direction": "forward"}``.
    """

    name: str
    value: float
    unit: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Party:
    """A participant as a part sees it: its name, its address, and its node's data (``port``).

    ``device`` is the interface to measure from, if the task names one; a tool that cannot bind to
    an interface is not chosen then (:class:`Bindable`).
    """

    name: str
    address: str
    data: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None


@dataclass(frozen=True)
class PartContext:
    """Everything a tool knows about one participant's part of one run.

    ``participant`` is this part's index into ``parties``; ``starts`` and ``ends`` are the agreed
    instants in microseconds; ``addresses`` maps every host named in the spec to the address to use
    (a node's measurement address; otherwise the host as written); ``context`` is the place on the
    host to measure from, if the task names one: the launcher enters a namespace, the tool does the
    rest. ``rules`` are the rules for the targets of a task that another node leads, None for a task
    of this node; only a :class:`TargetChecking` tool needs them. ``not_asked`` are the networks
    that are not asked by DNS whether they object, None if nobody is. ``agent`` is the name for a
    tool that tells targets one, with whom they can ask.
    """

    spec: Any
    participant: int
    parties: Sequence[Party]
    starts: int
    ends: int
    addresses: Mapping[str, str] = field(default_factory=dict)
    context: Context | None = None
    rules: TargetRules | None = None
    not_asked: tuple[Network, ...] | None = None
    agent: str = AGENT


@dataclass(frozen=True)
class Command:
    """A program to start. ``delay``: microseconds after the agreed start, unless it waits itself.

    ``waits_itself``: the program is started during the preparation, a moment before the agreed
    start, and itself waits for the instant given in its argv (our own Python programs do; a
    foreign program is started at the instant).

    ``streams``: each line of its standard output that begins with the octet RS (RFC 7464) is the
    record of one interval; the rest is ordinary output.
    ``overtime``: microseconds after the booked end for which it may still wait for what is under
    way. Only for classes that overlap everything: the next run of the task has begun by then.
    ``foreign_stdout``: its standard output is what a target sent; it is read, but never kept.
    """

    argv: tuple[str, ...]
    delay: int = 0
    waits_itself: bool = False
    stdin: bytes = b""
    streams: bool = False
    overtime: int = 0
    foreign_stdout: bool = False


@dataclass(frozen=True)
class Output:
    """The output of a command. ``ended_by``: ``itself``, or ``end`` if the launcher ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    ended_by: str = "itself"


@dataclass(frozen=True)
class Part:
    """One participant's outcome as ``merge`` gets it: a result, or the reason it is missing."""

    participant: int
    name: str
    result: Result | None
    reason: str | None = None


@dataclass(frozen=True)
class Merged:
    """The outcome of a run: the result (perhaps partial), and the reason if it failed."""

    result: Result | None
    reason: str | None = None

    @property
    def succeeded(self) -> bool:
        """Return whether the run measured what the spec asks for."""
        return self.reason is None


class Test(Protocol):
    """A kind of measurement.

    ``resources`` are all that its runs can need, over every spec. ``example`` is a spec document to
    start from; hosts in it are ``b.example`` or documentation addresses.

    The result of a test with one-way values has ``clock_error_ms``, the bound of their error
    (:func:`node.model.clocks.combined_bound_ms`); they are also judged by the clocks.
    """

    name: str
    title: str
    example: Mapping[str, Any]
    resources: tuple[str, ...]
    spec_model: type[Document]
    result_model: type[Document]

    def scheduling_class(self, spec: Any) -> SchedulingClass:
        """Return the scheduling class of a run of this spec."""
        ...

    def participants(self, spec: Any) -> tuple[str | None, ...]:
        """Return the participating hosts, as written in the spec; ``None`` is the lead itself."""
        ...

    def with_participants(self, spec: Any, names: Sequence[str]) -> Any:
        """Return the spec with the task's ``participants`` filled in where the spec names none.

        :raises ValueError: too many, too few, or in conflict with the spec; says which.
        """
        ...

    def hosts(self, spec: Any) -> tuple[str, ...]:
        """Return every host named in the spec, participants as well as mere targets."""
        ...

    def needs(self, spec: Any) -> Mapping[str, int | None]:
        """Return the counted resources that a run uses, per node and throughout the run.

        A resource is a number that nodes publish about themselves (``mbps``: whole Mb/s); only
        those in ``resources`` are named. None means all that a node has; a resource that is absent
        is not counted.
        """
        ...

    def expected_bytes(self, spec: Any, mbps: int | None) -> int | None:
        """Return the payload that a run moves on each participant, both directions together.

        ``mbps`` is the rate that its slowest participant states (whole Mb/s), None if no one does.
        Where the spec leaves the amount open, an assumption that is documented counts; None means
        that it is unknown.
        """
        ...

    def merge(self, spec: Any, parts: Sequence[Part]) -> Merged:
        """Merge all parts, in participant order, into one result. Never raises."""
        ...

    def summary(self, result: Result) -> str:
        """Return the result in one short line, units included, for lists."""
        ...

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the figures from which series are made; a chart shows the first one by default.

        A figure that this result lacks (no packet came back) is left out.
        """
        ...


class Tool(Protocol):
    """A program that measures.

    ``requirement`` is None for our own programs. ``tried`` are the versions it was tested with,
    oldest first; each has recorded outputs.
    """

    name: str
    tests: tuple[str, ...]
    preference: int
    requirement: Requirement | None
    tried: tuple[str, ...]

    def can(self, spec: Any) -> str | None:
        """Return why it cannot measure this spec, beginning with its name; None if it can.

        This covers what holds on every host: no TCP, say. A tool with a reason is never chosen.
        """
        ...

    def duration(self, spec: Any) -> int:
        """Return how long a run occupies its participants, in microseconds, set-up included."""
        ...

    def needs_port(self, spec: Any, participant: int) -> int:
        """Return how many consecutive ports this participant's node must provide."""
        ...

    def command(self, part: PartContext) -> Command:
        """Return the command of this participant's part."""
        ...

    def read(self, part: PartContext, output: Output) -> Result:
        """Read the part's result from what the program printed.

        :raises node.model.errors.ToolOutputError: it is not a result; the cause comes first.
        """
        ...


@runtime_checkable
class Bindable(Protocol):
    """A tool whose parts can be bound, to whatever is listed in ``binds``.

    ``interface``: to :attr:`Party.device`. ``address``: to :attr:`Party.address`, which the part
    must then use. Every tool can be run in another network namespace.
    """

    binds: frozenset[str]


@runtime_checkable
class Targeting(Protocol):
    """A test of hosts that do not know that they take part.

    Any host named in the spec that is no participant is a target, also of a test without this.
    """

    def target_port(self, spec: Any) -> int | None:
        """Return the port at which targets are measured; None if there is none."""
        ...

    def telling(self, spec: Any) -> str | None:
        """Return the field of the spec because of which results tell what targets send, or None."""
        ...


@runtime_checkable
class Inward(Protocol):
    """A test whose results may tell what only its host sees: its resolvers, its interfaces."""

    def inward(self, spec: Any) -> str | None:
        """Return what of the host results tell, in words; None if nothing."""
        ...


@runtime_checkable
class Unprompted(Protocol):
    """A test of several participants whose sender sends whether or not the receiver answers."""

    unprompted: bool


@runtime_checkable
class TargetChecking(Protocol):
    """A tool whose program keeps to :attr:`PartContext.rules`.

    If ``checks_targets``, the program looks names up itself, and checks each address before it
    sends. Every other tool gets addresses that the launcher has looked up and checked.
    """

    checks_targets: bool

    def unchecked(self, spec: Any) -> str | None:
        """Return what it would reach without a check, beginning with its name; None if nothing.

        Such a spec is refused if another node leads the task.
        """
        ...


def unchecked(tool: Tool, spec: Any) -> str | None:
    """Return why a tool cannot measure ``spec`` for a task that another node leads, or None."""
    return tool.unchecked(spec) if isinstance(tool, TargetChecking) else None


@runtime_checkable
class TrafficReporting(Protocol):
    """A test that moves enough traffic to be distinguished from other traffic on the host.

    For other tests, the resources that they ``need`` count as what they move.
    """

    def moved(self, spec: Any, participant: int, result: Result) -> Traffic | None:
        """Return all payload a participant sent and received; None if its part lacks it."""
        ...


@runtime_checkable
class Stalling(Protocol):
    """A test whose parts get nothing through if long packets get lost on the path."""

    def stalls_towards(self, spec: Any, participant: int, result: Result | None) -> int | None:
        """Return the participant the path to whom tells why nothing arrived; None if it does not.

        ``result`` is that of the part, None while nothing is known.
        """
        ...


@runtime_checkable
class PartModelling(Protocol):
    """A test that says what a part is: other nodes keep little of what is none.

    ``part_models`` are in participant order; the last one is that of all further participants.
    """

    part_models: tuple[type[Document], ...]


@runtime_checkable
class LargeParts(Protocol):
    """A test whose parts may be larger than others: ``part_bytes_max``, as JSON."""

    part_bytes_max: int


@runtime_checkable
class ShareModelling(Protocol):
    """A test that says what a participant's share of an interval is: no others are kept.

    ``share_models`` are in participant order; the last one is that of all further participants.
    """

    share_models: tuple[type[Document], ...]


@runtime_checkable
class QualityReporting(Protocol):
    """A test whose result can show that the run did not measure as the spec asks."""

    def doubts(self, spec: Any, result: Result) -> tuple[str, ...]:
        """Return one sentence for each deviation from the spec; empty if there is none."""
        ...


@dataclass(frozen=True)
class DeliveryItem:
    """One document to deliver: of a run that is over, or of one of its intervals.

    ``key`` is the same whenever the same outcome is delivered to the same archive, so that a
    destination may drop duplicates. ``series`` is the task; ``at`` is when the run or interval
    was over (µs); ``body`` is the document as JSON, without line breaks, or the text that a
    transform made of it, if ``raw``.
    """

    key: str
    series: str
    at: int
    succeeded: bool
    body: bytes
    raw: bool = False


class DeliveryStatus(StrEnum):
    """The status of one delivery."""

    ACCEPTED = "accepted"
    AGAIN = "again"
    REFUSED = "refused"


@dataclass(frozen=True)
class DeliveryOutcome:
    """A delivery's status, its reason, and the ``pause`` (µs) the destination asks for."""

    status: DeliveryStatus
    reason: str | None = None
    pause: int = 0


@dataclass(frozen=True)
class Batches:
    """The limits of one call of ``deliver``: documents, bytes, and its timeout (µs)."""

    items: int
    size: int
    timeout: int


@dataclass(frozen=True)
class ArchivingHost:
    """The properties of its host that an archiver may use.

    ``directories`` are those in which the host's owner allows files to be written. ``now`` is the
    clock, in microseconds. ``agent`` is the name of this program with a contact, for servers of
    HTTP.
    """

    name: str
    directories: tuple[Path, ...]
    now: Callable[[], int]
    agent: str = AGENT


class Destination(Protocol):
    """The target of one archiver with one spec; it handles one batch at a time."""

    async def deliver(self, batch: Sequence[DeliveryItem]) -> Sequence[DeliveryOutcome]:
        """Deliver the documents and return the outcome of each, in the same order.

        A document is accepted only once the destination has taken it. If the archiver is ordered,
        no document is accepted after one of its series that has to be retried. An exception counts
        as ``again`` for the whole batch.
        """
        ...

    async def test(self) -> str:
        """Check that results can be delivered, without delivering any; return what was checked.

        :raises node.model.errors.ArchiverFailed: they cannot, and why.
        """
        ...

    async def close(self) -> None:
        """Release its connections and files; it is not used again."""
        ...


class Archiver(Protocol):
    """A kind of place that results are delivered to.

    Fields of ``spec_model`` marked with :data:`node.plugins.fields.SECRET` are never shown.
    ``ordered``: the results of a task must be delivered in order; one that waits delays those
    behind it.
    """

    name: str
    title: str
    ordered: bool
    spec_model: type[Document]

    def label(self, spec: Any) -> str:
        """Return a short name of the destination for lists and logs, without secrets."""
        ...

    def batches(self, spec: Any) -> Batches:
        """Return the limits of one batch."""
        ...

    def refusal(self, spec: Any, host: ArchivingHost) -> tuple[str, str] | None:
        """Return the field and the reason, if this host's owner does not allow the spec."""
        ...

    def open(self, spec: Any, host: ArchivingHost) -> Destination:
        """Return the destination; it connects on first use."""
        ...


@runtime_checkable
class Extra(Protocol):
    """An archiver whose client is an extra of this program, such as ``kafka``.

    ``modules`` are the modules it imports when a destination is opened.
    """

    extra: str
    modules: tuple[str, ...]


@runtime_checkable
class StreamingTest(Test, Protocol):
    """A test whose runs produce results repeatedly while they last.

    Its ``merge`` judges the parts that arrive at the end: it gives no result, and a reason if one
    of them failed.
    """

    interval_model: type[Document]

    def rhythm(self, spec: Any) -> Rhythm:
        """Return the number of a run's intervals, and their length (µs)."""
        ...

    def merge_interval(self, spec: Any, parts: Sequence[Part]) -> Merged:
        """Merge what all participants saw in one interval. Never raises."""
        ...

    def interval_summary(self, result: Result) -> str:
        """Return the result of an interval in one short line, units included."""
        ...

    def interval_metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return the figures of an interval, with the names and labels of the run's figures."""
        ...

    def total(self, spec: Any, intervals: Sequence[Interval]) -> Result:
        """Return the result of the run, over all its intervals in order, gaps included."""
        ...


@runtime_checkable
class StreamingTool(Tool, Protocol):
    """A tool whose program prints a record for each interval, in their order.

    The result of :meth:`read` has the number of records, ``intervals``: the lead waits for those
    that are still under way.
    """

    def read_interval(self, part: PartContext, record: bytes) -> Interval:
        """Read what this participant saw in one interval from one record (without its RS).

        :raises node.model.errors.ToolOutputError: it is not a record; the cause comes first.
        """
        ...
