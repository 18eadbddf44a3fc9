"""What a test, a tool and an archiver must offer. Pure: nothing here starts a program or connects.

A *test* says what is measured: the spec, who takes part, the scheduling class, how the parts of the
participants become one result. A *tool* says how: how long it occupies its participants, the argv
of each participant's part, and how to read what the program printed.

A part goes through these hands::

    spec ─ Tool.command(part) ─▶ Command ─ launcher ─▶ Output ─ Tool.read(part, output) ─▶ dict
    dicts of all participants ── Test.merge(spec, parts) ──▶ Merged

An *archiver* says where results go; it alone of the three does I/O itself. What it delivers to is a
:class:`Destination`, which is opened once and given batches until nothing has come for a while::

    outcome of a run ─▶ document ─ transform ─▶ Delivery ─ Destination.deliver(batch) ─▶ Outcomes

A run that lasts long may tell what it measures while it lasts: its test is a :class:`StreamingTest`
and its tools are :class:`StreamingTool`; each interval goes through these hands::

    record ─ StreamingTool.read_interval(part, record) ─▶ Interval
    Intervals of all participants ── StreamingTest.merge_interval(spec, parts) ──▶ Merged
    all that was merged ── StreamingTest.total(spec, intervals) ──▶ the run's result
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from node.model.classes import SchedulingClass
from node.model.contexts import Context
from node.model.intervals import Interval, Rhythm
from node.model.wire.circumstances import Traffic
from node.model.wire.fields import Document

Result = dict[str, Any]
"""A JSON object. Durations in it are numbers of milliseconds and say so in their name (``_ms``)."""


class Privilege(StrEnum):
    """What a program needs of the host beyond being there; the node knows whether it has it."""

    ECHO = "echo"
    """Raw sockets, or else the kernel's own sockets for echo requests."""
    RAW = "raw"
    """Raw sockets: the capability ``CAP_NET_RAW``."""
    ROOT = "root"
    """To be root, if only to give it up: started by root, or with the set-user-ID bit."""


def _none(spec: Any) -> None:  # noqa: ARG001 - whatever is asked
    return None


@dataclass(frozen=True)
class Requirement:
    """A program that must be on the PATH, and the Debian package that brings it.

    ``version_argv`` makes it print its version, of which the first group of ``version_pattern`` is
    what we call it; both streams are searched, for some print it as an error. ``privilege(spec)``
    is what it needs to measure that; ``privileged`` is the program whose file brings the privilege
    along (a set-user-ID bit, a file capability), where that is another one. ``congestion(spec)`` is
    that of its TCP connections; hosts that lack it are not asked. ``others`` are needed, too.
    """

    program: str
    package: str
    version_argv: tuple[str, ...] = ()
    version_pattern: str = r"(\d+(?:\.\d+)+)"
    privilege: Callable[[Any], Privilege | None] = field(default=_none)
    privileged: str | None = None
    congestion: Callable[[Any], str | None] = field(default=_none)
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Metric:
    """One figure of a result: what charts, metrics and databases make series of.

    ``name`` is the same in every result of a test and ends in its unit where that is no fraction or
    count (``rtt_median_ms``); ``unit`` is ``ms``, ``bit/s``, ``1`` (a fraction or plain number) or
    what is counted (``packets``). ``labels`` tell apart figures of one name, such as
    ``{"direction": "forward"}``.
    """

    name: str
    value: float
    unit: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Party:
    """A participant as a part sees it: its name, its address, what its node gave out (``port``).

    ``device`` is the interface that it was asked to measure from, if it was; a tool that cannot be
    bound to one is not chosen then (:class:`Bindable`).
    """

    name: str
    address: str
    data: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None


@dataclass(frozen=True)
class PartContext:
    """All that a tool is told about one participant's part of one run.

    ``participant`` is this part's index into ``parties``; ``starts`` and ``ends`` are the agreed
    instants in microseconds; ``addresses`` maps every host named in the spec to the address to use
    (of a node that is named, its measurement address; else the host as written); ``context`` is
    from where on its host this part measures, if that was asked: the launcher enters a namespace, a
    tool does the rest.
    """

    spec: Any
    participant: int
    parties: Sequence[Party]
    starts: int
    ends: int
    addresses: Mapping[str, str] = field(default_factory=dict)
    context: Context | None = None


@dataclass(frozen=True)
class Command:
    """What to start. ``delay``: microseconds after the agreed start.

    ``waits_itself``: the program is started during the preparation, a moment before the agreed
    start, and itself waits for the instant it is told in its argv (our own Python programs do; a
    foreign program is started at the instant).

    ``streams``: each line of its standard output that begins with the octet RS (RFC 7464) is the
    record of one interval; the rest is its output as ever.
    ``overtime``: microseconds after the booked end for which it may still wait for what is under
    way. Only for classes that overlap everything: the next run of the task has begun by then.
    """

    argv: tuple[str, ...]
    delay: int = 0
    waits_itself: bool = False
    stdin: bytes = b""
    streams: bool = False
    overtime: int = 0


@dataclass(frozen=True)
class Output:
    """What came of a command. ``ended_by`` is ``itself``, or ``end`` when the launcher ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    ended_by: str = "itself"


@dataclass(frozen=True)
class Part:
    """One participant's outcome as the merge sees it: a result, or the reason there is none."""

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
        """Whether the run measured what it was asked to."""
        return self.reason is None


class Test(Protocol):
    """What is measured.

    ``resources`` are those that runs may need, whatever the spec. ``example`` is a spec document to
    start from; hosts in it are ``b.example`` or documentation addresses.

    A test with one-way values has ``clock_error_ms`` in its result: the bound of their error
    (:func:`node.model.clocks.combined_bound_ms`); they are judged by the clocks, too.
    """

    name: str
    title: str
    example: Mapping[str, Any]
    resources: tuple[str, ...]
    spec_model: type[Document]
    result_model: type[Document]

    def scheduling_class(self, spec: Any) -> SchedulingClass:
        """What a run of this spec needs for itself."""
        ...

    def participants(self, spec: Any) -> tuple[str | None, ...]:
        """The hosts that take part, as written in the spec; ``None`` is the lead itself."""
        ...

    def with_participants(self, spec: Any, names: Sequence[str]) -> Any:
        """The spec with the task's ``participants`` filled in where it names none.

        :raises ValueError: too many, too few, or at odds with the spec; says which.
        """
        ...

    def hosts(self, spec: Any) -> tuple[str, ...]:
        """Every host named in the spec, participants and mere targets alike."""
        ...

    def needs(self, spec: Any) -> Mapping[str, int | None]:
        """What a run takes of counted resources, at once and on each of its nodes.

        A resource is what nodes say of themselves in a number (``mbps``: whole Mb/s); only those
        in ``resources`` are named. None is all that a node has of it; what is not named is not
        counted.
        """
        ...

    def merge(self, spec: Any, parts: Sequence[Part]) -> Merged:
        """One result out of all parts, in participant order. Never raises."""
        ...

    def summary(self, result: Result) -> str:
        """The result in one short line, units included, for lists."""
        ...

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """The figures of which series are made; the one that a chart shows first comes first.

        A figure that this result lacks (no packet came back) is left out.
        """
        ...


class Tool(Protocol):
    """The program that measures.

    ``requirement`` is None for our own programs. ``tried`` are the versions it was tried with,
    oldest first; each has recorded outputs.
    """

    name: str
    tests: tuple[str, ...]
    preference: int
    requirement: Requirement | None
    tried: tuple[str, ...]

    def can(self, spec: Any) -> str | None:
        """Why it cannot measure this, in a sentence that begins with its name; None if it can.

        What holds on every host: no TCP, say. A tool that cannot is never chosen.
        """
        ...

    def duration(self, spec: Any) -> int:
        """How long a run occupies its participants, in microseconds, set-up included."""
        ...

    def needs_port(self, spec: Any, participant: int) -> int:
        """How many ports the node of this participant gives out: a number and those after it."""
        ...

    def command(self, part: PartContext) -> Command:
        """The argv of this participant's part."""
        ...

    def read(self, part: PartContext, output: Output) -> Result:
        """The part's result out of what the program printed.

        :raises node.model.errors.ToolOutputError: it is not a result; the cause comes first.
        """
        ...


@runtime_checkable
class Bindable(Protocol):
    """A tool whose parts can be bound; what it cannot is not among ``binds``.

    ``interface``: to :attr:`Party.device`. ``address``: to :attr:`Party.address`, which is then
    one that the part must use. Every tool can be run in another network namespace.
    """

    binds: frozenset[str]


@runtime_checkable
class TrafficReporting(Protocol):
    """A test that moves so much that it is worth telling from other traffic.

    Of one that does not tell, what it ``needs`` is taken for what it moves.
    """

    def moved(self, spec: Any, participant: int, result: Result) -> Traffic | None:
        """All payload that a participant sent and received; None if its part does not know."""
        ...


@runtime_checkable
class QualityReporting(Protocol):
    """A test that can see in its result that it was not measured as asked."""

    def doubts(self, spec: Any, result: Result) -> tuple[str, ...]:
        """One sentence for each thing that was not as asked; none where it was."""
        ...


@dataclass(frozen=True)
class DeliveryItem:
    """One document to be delivered: of a run that is over, or of an interval of one.

    ``key`` is the same whenever the same outcome is delivered to the same archive: a destination
    that has seen it may drop it. ``series`` is the task; ``at`` is when it was over (µs);
    ``body`` is the document as JSON, without a line break in it.
    """

    key: str
    series: str
    at: int
    succeeded: bool
    body: bytes


class DeliveryStatus(StrEnum):
    """What came of one delivery."""

    ACCEPTED = "accepted"
    AGAIN = "again"
    REFUSED = "refused"


@dataclass(frozen=True)
class DeliveryOutcome:
    """What came of one delivery, and why; ``pause`` (µs): how long the destination asks to wait."""

    fate: DeliveryStatus
    reason: str | None = None
    pause: int = 0


@dataclass(frozen=True)
class Batches:
    """How much one call of ``deliver`` takes: documents, bytes, and how long it may last (µs)."""

    items: int
    size: int
    timeout: int


@dataclass(frozen=True)
class ArchivingHost:
    """What an archiver is told of the host it works on.

    ``directories``: those of which the host's owner says that files may be written there. ``now``
    is the clock, in microseconds.
    """

    name: str
    directories: tuple[Path, ...]
    now: Callable[[], int]


class Destination(Protocol):
    """What one archiver with one spec delivers to; used by one batch at a time."""

    async def deliver(self, batch: Sequence[DeliveryItem]) -> Sequence[DeliveryOutcome]:
        """What came of each document, in the same order.

        Nothing is accepted that the destination has not taken. Where the archiver is ordered, no
        document is accepted after one of its series that is to be tried again. What it raises
        counts as ``again`` for all.
        """
        ...

    async def test(self) -> str:
        """Try whether results can be delivered, without delivering any; says what was tried.

        :raises node.model.errors.ArchiverFailed: they cannot, and why.
        """
        ...

    async def close(self) -> None:
        """Give back what it holds; it is not used again."""
        ...


class Archiver(Protocol):
    """Where results go.

    Fields of ``spec_model`` marked with :data:`node.plugins.fields.SECRET` are shown to nobody.
    ``ordered``: the results of a task must be delivered in their order, one that waits keeps those
    behind it waiting.
    """

    name: str
    title: str
    ordered: bool
    spec_model: type[Document]

    def label(self, spec: Any) -> str:
        """Where this is, in a few words for lists and logs; without secrets."""
        ...

    def batches(self, spec: Any) -> Batches:
        """How much is delivered at once."""
        ...

    def refusal(self, spec: Any, host: ArchivingHost) -> tuple[str, str] | None:
        """The field and the sentence, if this host's owner does not allow it."""
        ...

    def open(self, spec: Any, host: ArchivingHost) -> Destination:
        """The destination; connects when it is first used."""
        ...


@runtime_checkable
class Extra(Protocol):
    """An archiver whose client comes with an extra of this package: ``parley-scheduler[kafka]``.

    ``modules`` are those that must be there; they are imported when a destination is first used.
    """

    extra: str
    modules: tuple[str, ...]


@runtime_checkable
class StreamingTest(Test, Protocol):
    """A test whose runs give a result again and again while they last.

    Its ``merge`` judges the parts that come at the end: it has no result, and a reason if one of
    them failed.
    """

    interval_model: type[Document]

    def rhythm(self, spec: Any) -> Rhythm:
        """Which intervals a run has."""
        ...

    def merge_interval(self, spec: Any, parts: Sequence[Part]) -> Merged:
        """One result out of what all participants saw in one interval. Never raises."""
        ...

    def interval_summary(self, result: Result) -> str:
        """The result of an interval in one short line, units included."""
        ...

    def interval_metrics(self, result: Result) -> tuple[Metric, ...]:
        """The figures of an interval, by the names and labels that those of a run have."""
        ...

    def total(self, spec: Any, intervals: Sequence[Interval]) -> Result:
        """The result of the run, over all its intervals in their order, gaps included."""
        ...


@runtime_checkable
class StreamingTool(Tool, Protocol):
    """A tool whose program prints a record for each interval, in their order.

    What :meth:`read` gives at the end has the number of the records, ``intervals``: the lead waits
    for those that are still under way.
    """

    def read_interval(self, part: PartContext, record: bytes) -> Interval:
        """What this participant saw in one interval, out of one record (without its RS).

        :raises node.model.errors.ToolOutputError: it is not a record; the cause comes first.
        """
        ...
