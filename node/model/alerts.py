"""Alerts on what is measured: which rules a task has, and when each is raised and over. Pure.

The rules of a task stand in its reference: its thresholds (each is a rule), and ``alerts``, which
says more about them (:class:`AlertTerms`), or about three other things:

* ``outcome``: nothing arrived, or there is no result;
* ``path``: a trace went another way than the latest ones;
* a figure with ``change``: it is unusual for this hour of the day.

Each run that ends leaves one *mark* per rule: a hit, a calm run, or one between (hysteresis). A
rule is raised by ``count`` hits among the last ``of`` marks, and over after ``count`` calm runs in
a row. A rule that names a figure without a direction is one rule for each direction. The *memory*
of a task keeps the marks; who calls stores it (``node/store/alerts.py``).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from node.model.conditions import UNUSUAL, rule_family
from node.model.outcome import TROUBLE, Figure, Judgement, full_name
from node.model.times import DAY, HOUR, MINUTE
from node.model.wire.alerts import ALERTS, AlertTerms
from node.model.wire.meshes import Threshold, thresholds_of

HIT, CALM, BETWEEN = "x", ".", "-"
OUTCOME, PATH = "outcome", "path"
"""The names of rules that are about no figure."""

SAMPLES_MIN = 8
"""Least number of earlier values by which one is called unusual."""
SAMPLES_MAX = 120
SAMPLE_EVERY = 5 * MINUTE
"""Least time between two values that are kept for an hour of the day: twelve a day, ten days."""
_MAD_OF_NORMAL = 1.4826
_SPREAD_MIN = 0.02
"""Least spread, as a part of the median: a figure that never varies is not unusual by a hair."""
_PATHS = 10
_BAD = frozenset({Judgement.GOOD, Judgement.FAIR, Judgement.BAD})
_TROUBLE = TROUBLE - {Judgement.BAD}


@dataclass(frozen=True)
class AlertRule:
    """A rule of a task: its name, how often it must hold, and its bounds if it has any."""

    name: str
    terms: AlertTerms
    threshold: Threshold | None = None


@dataclass(frozen=True)
class RunEvidence:
    """The facts of an ended run that rules are about.

    ``path`` has the hops of a trace, each as an address with its networks, or is None.
    """

    judgement: Judgement
    reason: str | None = None
    figures: Sequence[Figure] = ()
    path: Sequence[str] | None = None


@dataclass(frozen=True)
class Mark:
    """The mark of a run for one rule, and what it says."""

    name: str
    mark: str
    terms: AlertTerms
    sentence: str
    value: float | None = None


@dataclass(frozen=True)
class AlertChange:
    """A rule that was raised, or is over; ``value`` and ``sentence`` are those of the run."""

    name: str
    became: Literal["raised", "over"]
    sentence: str
    value: float | None = None


@dataclass
class AlertMemory:
    """The marks of a task's rules, the latest last, those that are raised, and its last paths."""

    marks: dict[str, str] = field(default_factory=dict)
    raised: list[str] = field(default_factory=list)
    paths: list[list[str]] = field(default_factory=list)


def rules_of(reference: object) -> tuple[AlertRule, ...]:
    """Return the rules in the reference of a task, which anybody may have written; often none."""
    if not isinstance(reference, Mapping):
        return ()
    thresholds = thresholds_of(reference)
    try:
        terms = ALERTS.validate_python(reference.get("alerts") or {})
    except ValidationError:
        terms = {}
    if not thresholds and not terms:
        return ()
    return tuple(_rules(thresholds, {OUTCOME: AlertTerms(), **terms}))


def _rules(
    thresholds: Mapping[str, Threshold], terms: Mapping[str, AlertTerms]
) -> Iterator[AlertRule]:
    for name in {**thresholds, **terms}:
        own = terms.get(name, AlertTerms())
        if own.count and (name in thresholds or name in {OUTCOME, PATH}):
            yield AlertRule(name, own, thresholds.get(name))
        if own.change is not None:
            yield AlertRule(name + UNUSUAL, own)


def evaluated(
    rules: Iterable[AlertRule],
    memory: AlertMemory,
    run: RunEvidence,
    usual: Mapping[str, Sequence[float]],
) -> tuple[AlertMemory, list[AlertChange]]:
    """Return the memory after a run, and the rules that were raised by it, or are over.

    ``usual`` has, by full name of a figure, its values at this hour of the last days.
    """
    known = list(rules)
    marks = [mark for rule in known for mark in _marks(rule, memory, run, usual)]
    after = AlertMemory(dict(memory.marks), list(memory.raised), list(memory.paths))
    done: list[AlertChange] = []
    for mark in marks:
        kept = (memory.marks.get(mark.name, "") + mark.mark)[-mark.terms.of :]
        after.marks[mark.name] = kept
        raised = mark.name in memory.raised
        if not raised and mark.mark == HIT and kept.count(HIT) >= mark.terms.count:
            after.raised.append(mark.name)
            done.append(AlertChange(mark.name, "raised", mark.sentence, mark.value))
        elif raised and kept.endswith(CALM * mark.terms.count):
            after.raised.remove(mark.name)
            done.append(AlertChange(mark.name, "over", mark.sentence, mark.value))
    if run.path is not None:
        after.paths = [*memory.paths, _filled_path(run.path, memory.paths)][-_PATHS:]
    return after, [*done, *_forget(after, known)]


def _forget(memory: AlertMemory, rules: Sequence[AlertRule]) -> list[AlertChange]:
    """Forget the rules that the task has no more; return those of them that were raised."""
    names = {rule.name for rule in rules}
    gone = [it for it in memory.marks if it not in names and rule_family(it) not in names]
    for name in gone:
        del memory.marks[name]
    over = [name for name in gone if name in memory.raised]
    memory.raised = [name for name in memory.raised if name not in over]
    return [AlertChange(name, "over", "the task has this rule no more") for name in over]


def _marks(
    rule: AlertRule,
    memory: AlertMemory,
    run: RunEvidence,
    usual: Mapping[str, Sequence[float]],
) -> Iterator[Mark]:
    if rule.name == OUTCOME:
        if run.judgement in _TROUBLE | _BAD:
            hit = run.judgement in _TROUBLE
            why = run.reason or run.judgement.value
            yield Mark(OUTCOME, HIT if hit else CALM, rule.terms, why if hit else "it answers")
    elif rule.name == PATH:
        if run.path is not None and memory.paths:
            yield _path_mark(rule, memory.paths, run.path)
    else:
        wanted = rule.name.removesuffix(UNUSUAL)
        for figure in run.figures:
            if wanted in {name := full_name(figure), figure.name}:
                mark = _figure_mark(rule, name, figure.value, usual.get(name, ()))
                yield from () if mark is None else (mark,)


def _figure_mark(rule: AlertRule, name: str, value: float, values: Sequence[float]) -> Mark | None:
    """Return the mark of one figure; None while too little is known of what is usual."""
    if rule.threshold is not None and not rule.name.endswith(UNUSUAL):
        return _threshold_mark(rule, rule.threshold, name, value)
    return _unusual_mark(rule, name, value, values) if len(values) >= SAMPLES_MIN else None


def _threshold_mark(rule: AlertRule, threshold: Threshold, name: str, value: float) -> Mark:
    bound = threshold.fair if rule.terms.at == "fair" else threshold.bad
    less = threshold.bad < threshold.fair
    clear = bound if rule.terms.clear is None else rule.terms.clear
    hit = value <= bound if less else value >= bound
    calm = (value >= clear if less else value <= clear) and not hit
    mark = HIT if hit else CALM if calm else BETWEEN
    words = "or less" if less else "or more"
    sentence = f"{name} is {value:g}" + (
        f", {rule.terms.at} from {bound:g} {words} on" if hit else ""
    )
    return Mark(name, mark, rule.terms, sentence, value)


def _unusual_mark(rule: AlertRule, name: str, value: float, values: Sequence[float]) -> Mark:
    assert rule.terms.change is not None  # noqa: S101 - the rule is made of it
    middle, spread = usual_range(values)
    hit = abs(value - middle) > rule.terms.change * spread
    sentence = f"{name} is {value:g}; usual at this hour: {middle:g} ± {spread:.3g}"
    return Mark(name + UNUSUAL, HIT if hit else CALM, rule.terms, sentence, value)


def usual_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the median of some values, and how far one usually is from it.

    That is the median absolute deviation, scaled so that it is the standard deviation of values
    that are distributed normally. Up to half of the values may be outliers.
    """
    middle = statistics.median(values)
    spread = _MAD_OF_NORMAL * statistics.median(abs(value - middle) for value in values)
    return middle, max(spread, abs(middle) * _SPREAD_MIN)


def _path_mark(rule: AlertRule, known: Sequence[Sequence[str]], path: Sequence[str]) -> Mark:
    if any(_same_path(path, each) for each in known):
        return Mark(PATH, CALM, rule.terms, "the path is one of the latest ones")
    return Mark(PATH, HIT, rule.terms, _path_change(known[-1], path))


def _same_path(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two paths may be the same: a hop that is silent (empty) may be any."""
    return len(one) == len(other) and all(
        a == b or not a or not b for a, b in zip(one, other, strict=True)
    )


def _filled_path(path: Sequence[str], known: Sequence[Sequence[str]]) -> list[str]:
    """Return a path with its silent hops as they were on the latest path that may be the same."""
    before = next((each for each in reversed(known) if _same_path(path, each)), path)
    return [hop or earlier for hop, earlier in zip(path, before, strict=True)]


def _path_change(before: Sequence[str], after: Sequence[str]) -> str:
    """Return where two paths part, and which networks they cross."""
    at = next(
        (
            place
            for place, (old, new) in enumerate(zip(before, after, strict=False))
            if old and new and old != new
        ),
        min(len(before), len(after)),
    )
    old, new = (path[at] if at < len(path) and path[at] else "nothing" for path in (before, after))
    return f"the path changed at hop {at + 1}: {old} → {new}; {len(before)} → {len(after)} hops"


@dataclass(frozen=True)
class UsualValues:
    """The values of a figure at one hour of the day, the latest last, and when that one was."""

    values: tuple[float, ...] = ()
    last_at: int = 0


def hour_of_day(instant: int) -> int:
    """Return the hour of the day (UTC) of an instant (µs)."""
    return instant % DAY // HOUR


def with_value(usual: UsualValues, value: float, at: int) -> UsualValues | None:
    """Return the values with one more; None if it comes too soon after the last one."""
    if at < usual.last_at + SAMPLE_EVERY:
        return None
    return UsualValues((*usual.values, value)[-SAMPLES_MAX:], at)


def watched_figures(rules: Iterable[AlertRule], figures: Iterable[Figure]) -> dict[str, float]:
    """Return the figures of a run, by full name, of which some rule asks what is usual."""
    wanted = {rule.name.removesuffix(UNUSUAL) for rule in rules if rule.name.endswith(UNUSUAL)}
    return {
        name: figure.value
        for figure in figures
        if wanted & {name := full_name(figure), figure.name}
    }


def path_of(result: Mapping[str, Any] | None) -> list[str] | None:
    """Return the hops of the result of a trace, each with its networks; None of other results.

    A hop that did not answer is empty.
    """
    if result is None or not isinstance(path := result.get("path"), list):
        return None
    networks = {
        each["address"]: each.get("as_numbers") or ()
        for hop in result.get("hops", ())
        for each in hop.get("addresses", ())
    }
    return [_hop_text(address, networks.get(address, ())) for address in path]


def _hop_text(address: str | None, networks: Sequence[int]) -> str:
    if address is None:
        return ""
    return f"{address} (AS{' AS'.join(map(str, networks))})" if networks else address
