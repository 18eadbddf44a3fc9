"""The newest outcomes of a lead's tasks, summed up: what fails, and what is common to it. Pure.

``common_cause`` finds suspects; this module says what is known of them in a sentence: how many of
their tasks fail, since when, and how; whether the node of a suspected host answers, which says that
not the host but its path or its address is broken; and what the same tasks have in common as well,
so that nobody takes the narrowest suspect for certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from uuid import UUID

from node.model.common_cause import CommonCause, PairOutcome, Suspect, SuspectKind, find_causes
from node.model.outcome import TROUBLE, Judgement
from node.model.reasons import common_cause
from node.model.wire.outcomes import (
    PAIRS_MAX,
    CommonCauseView,
    FailingTask,
    OutcomesStatus,
)

_KINDS = {
    SuspectKind.HOST: ("host", "{}"),
    SuspectKind.FROM_HOST: ("from-host", "from {}"),
    SuspectKind.TO_HOST: ("to-host", "to {}"),
    SuspectKind.TOOL_AT_HOST: ("tool-at-host", "{} at {}"),
    SuspectKind.NETWORK_EDGE: ("network-edge", "into and out of {}"),
    SuspectKind.NETWORK: ("network", "network {}"),
    SuspectKind.ONE_WAY: ("one-way", "from {} to {}"),
    SuspectKind.BETWEEN: ("between", "between {} and {}"),
    SuspectKind.SPLIT: ("split", "between ({}) and ({})"),
    SuspectKind.TOOL: ("tool", "tool {}"),
    SuspectKind.TEST: ("test", "test {}"),
    SuspectKind.LEAD: ("lead", "lead {}"),
    SuspectKind.ALL: ("all", "everything"),
}
"""By kind of suspect: its word in the API, and its words for people."""
_OF_HOST = frozenset({SuspectKind.HOST, SuspectKind.FROM_HOST, SuspectKind.TO_HOST})
_ONE_WAY_CODES = {"all-lost-forward": 0, "all-lost-backward": 1}
"""By code of an outcome: which of the ways there and back it is about."""


@dataclass(frozen=True)
class Newest:
    """The newest outcome of an active task; ``source`` and ``dest`` are empty if there are none.

    ``at`` is the slot (µs) of the run.
    """

    task: FailingTask
    """The task with its outcome, failing or not."""
    source: str
    dest: str
    test: str
    tool: str
    lead: str
    at: int = 0


@dataclass(frozen=True)
class HostFacts:
    """The facts of a known node: its address, and since when it does not answer (None: it does)."""

    address: str
    silent_since: int | None


@dataclass(frozen=True)
class Troubles:
    """The outcomes of a lead's tasks, and all the tasks that each common cause explains."""

    status: OutcomesStatus
    explained: tuple[tuple[CommonCauseView, frozenset[UUID]], ...]


def sum_up(
    newest: Sequence[Newest], hosts: Mapping[str, HostFacts], only: Collection[UUID] | None = None
) -> Troubles:
    """Return the outcomes of a lead's tasks by judgement, and what is common to the failing ones.

    ``hosts`` are the known nodes by name. With ``only``, what concerns one of these tasks alone is
    told, as all tasks together show it.
    """
    networks = {name: networks_of(each.address) for name, each in hosts.items()}
    told = [outcome for each in newest for outcome in _pair_outcomes(each)]
    findings = find_causes(told, networks)
    failing = {str(each.task.task): each.task for each in newest if _is_failing(each)}
    explained = {key for cause in findings.causes for key in cause.failing}
    wanted = {str(each.task.task) for each in newest if only is None or each.task.task in only}
    apart = [task for key, task in failing.items() if key in wanted - explained]
    causes = [cause for cause in findings.causes if wanted & {*cause.failing}]
    views = tuple(_view(cause, failing, hosts, wanted) for cause in causes)
    ids = (frozenset(map(UUID, cause.failing)) for cause in causes)
    counted = (each.task for each in newest if str(each.task.task) in wanted)
    status = OutcomesStatus(
        judgements=dict(Counter(str(each.outcome.judgement) for each in counted)),
        causes=views,
        apart=tuple(apart[:PAIRS_MAX]),
        apart_count=len(apart),
    )
    return Troubles(status, tuple(zip(views, ids, strict=True)))


def networks_of(address: str) -> Collection[str]:
    """Return the network of an address, as far as it can be guessed: a /24, or a /48 of IPv6.

    >>> networks_of("192.0.2.7")
    ('192.0.2.0/24',)
    """
    try:
        found = ip_address(address)
    except ValueError:  # a name
        return ()
    length = 24 if found.version == 4 else 48  # noqa: PLR2004 - the two versions there are
    return (str(ip_network((found, length), strict=False)),)


def _is_failing(newest: Newest) -> bool:
    return newest.task.outcome.judgement in TROUBLE


def _pair_outcomes(newest: Newest) -> Iterable[PairOutcome]:
    """Return the outcome of a pair, or of both its directions if only one of them is lost.

    Nothing is told of what is not planned, stale, or unknown: that is no fault of the pair.
    """
    outcome = newest.task.outcome
    known = _is_failing(newest) or outcome.judgement in {Judgement.GOOD, Judgement.FAIR}
    if not known or not newest.dest:
        return
    there, back = (newest.source, newest.dest), (newest.dest, newest.source)
    lost = _ONE_WAY_CODES.get(outcome.code or "")
    pieces: Sequence[tuple[tuple[tuple[str, str], ...], bool]] = [
        ((there, back), _is_failing(newest))
    ]
    if lost is not None:
        pieces = [((way,), number == lost) for number, way in enumerate((there, back))]
    key, since = str(newest.task.task), newest.task.since
    for ways, failing in pieces:
        at = since if failing and since is not None else newest.at
        yield PairOutcome(key, ways, newest.test, newest.tool, newest.lead, failing, at)


def _view(
    cause: CommonCause,
    failing: Mapping[str, FailingTask],
    hosts: Mapping[str, HostFacts],
    wanted: Collection[str],
) -> CommonCauseView:
    tasks = [failing[key] for key in cause.failing]
    counts = Counter(str(each.outcome.judgement) for each in tasks)
    since = min((each.since for each in tasks if each.since is not None), default=None)
    known = [_effect(cause.suspect, tasks), *_host_words(cause.suspect, hosts)]
    alternatives = _alternatives(cause)
    sentence = common_cause(
        _words(cause.suspect), len(tasks), cause.crossing, since, known, alternatives
    )
    return CommonCauseView(
        kind=_KINDS[cause.suspect.kind][0],
        names=cause.suspect.names,
        sentence=sentence,
        since=since,
        failing=len(tasks),
        crossing=cause.crossing,
        judgements=dict(counts),
        alternatives=tuple(alternatives),
        tasks=tuple([each for each in tasks if str(each.task) in wanted][:PAIRS_MAX]),
    )


def _words(suspect: Suspect) -> str:
    return _KINDS[suspect.kind][1].format(*suspect.names)


def _alternatives(cause: CommonCause) -> list[str]:
    """Return the other suspects in words; a host covers its directions, and all covers nothing."""
    others = [each for each in cause.suspects[1:] if each.kind is not SuspectKind.ALL]
    if cause.suspect.kind is SuspectKind.HOST:
        own = cause.suspect.names
        others = [each for each in others if each.kind not in _OF_HOST or each.names != own]
        if any(each.kind in _OF_HOST and each.names == own for each in cause.suspects[1:]):
            return ["only one of its directions", *map(_words, others)]
    return [_words(each) for each in others]


def _effect(suspect: Suspect, tasks: Sequence[FailingTask]) -> str:
    """Return in words what most of the failing tasks suffer."""
    judgement = Counter(each.outcome.judgement for each in tasks).most_common(1)[0][0]
    if judgement is Judgement.NO_ANSWER:
        if suspect.kind is SuspectKind.HOST:
            return "its measurement address answers nobody"
        return "nothing arrives"
    newest = max(
        (each for each in tasks if each.outcome.judgement is judgement),
        key=lambda each: each.since or 0,
    )
    return f"{judgement}: {newest.outcome.reason}"


def _host_words(suspect: Suspect, hosts: Mapping[str, HostFacts]) -> list[str]:
    """Return whether the node of a suspected host answers; nothing of what is no known node."""
    facts = hosts.get(suspect.names[-1]) if suspect.kind <= SuspectKind.TOOL_AT_HOST else None
    if facts is None:
        return []
    return ["its node answers" if facts.silent_since is None else "its node does not answer either"]
