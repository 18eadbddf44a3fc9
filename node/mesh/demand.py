"""Compute how full a mesh makes the nodes, and what would fit. Pure.

A node's share is the part of its time that its tasks take, run after run: duration over interval.
Exclusive runs take all of it; normal runs are concurrent, as many as the node has lanes; background
runs do not block others. Bookings of others are added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from node.mesh.expansion import MeasurementPair
from node.mesh.findings import Finding, FindingKind
from node.mesh.spreading import is_spread, longest_wait
from node.model import times
from node.model.classes import SchedulingClass
from node.model.recurrence import nominal_starts, slip_of
from node.model.scheduling import default_slip, recurrence_of
from node.model.wire.tasks import ScheduleTerms

FULL = 1.0
_COMFORTABLE = 0.9
"""Target load of recommendations: runs of two nodes cannot fill both completely."""

_SPARE_SLIP = 1.25
_ABREAST = 2
"""By Vizing's theorem for pairs with two runs, so many rounds beyond those of a node suffice."""

_LOOKED_AT = 7 * times.DAY
_FIRINGS = 20_000
_NICE = tuple(
    unit * count
    for unit, counts in (
        (times.SECOND, (1, 2, 5, 10, 15, 20, 30)),
        (times.MINUTE, (1, 2, 5, 10, 15, 20, 30)),
        (times.HOUR, (1, 2, 3, 4, 6, 8, 12)),
        (times.DAY, (1, 2, 3, 4, 5, 6, 7, 14, 28)),
    )
    for count in counts
)
"""Round intervals, as people write them."""


@dataclass(frozen=True)
class EntryDemand:
    """The demand of a run of an entry: duration, class, and whether it uses source and dest."""

    duration: int
    scheduling_class: SchedulingClass
    source: bool = True
    dest: bool = True


@dataclass(frozen=True)
class Load:
    """The shares of a node's time; 1 is all of it."""

    exclusive: float = 0.0
    normal: float = 0.0
    """Already divided by the node's lanes."""
    background: float = 0.0
    others: float | None = None
    """``None`` if it is not known how full the node is."""
    by_measure: Mapping[int, float] = field(default_factory=dict)
    """The exclusive and normal share of each entry."""

    @property
    def booked_share(self) -> float:
        """Return the known share without room for exclusive runs; more than 1 cannot be kept."""
        return self.exclusive + self.normal + (self.others or 0.0)


def interval_of(schedule: ScheduleTerms, now: int) -> int | None:
    """Return the time from run to run, the average for cron; ``None`` for a single run."""
    recurrence = recurrence_of(schedule.at(now), now)
    if recurrence.cron is None:
        return recurrence.repeat
    starts = nominal_starts(recurrence, now, now + _LOOKED_AT, _FIRINGS)
    return _LOOKED_AT // len(starts) if starts else None


def count_tasks(
    pairs: Iterable[MeasurementPair], shapes: Mapping[int, EntryDemand]
) -> dict[str, dict[int, int]]:
    """Return, by node and entry, the number of tasks in which the node takes part."""
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for measure, source, dest in pairs:
        shape = shapes.get(measure)
        if shape is not None:
            if shape.source:
                counts[source][measure] += 1
            if shape.dest:
                counts[dest][measure] += 1
    return counts


def loads(
    tasks: Mapping[str, Mapping[int, int]],
    shapes: Mapping[int, EntryDemand],
    intervals: Mapping[int, int | None],
    lanes: Mapping[str, int],
    others: Mapping[str, float],
) -> dict[str, Load]:
    """Return, by node, how full it would be; ``tasks`` as of :func:`count_tasks`."""
    by_node = {}
    for node, counts in tasks.items():
        shares = dict.fromkeys(SchedulingClass, 0.0)
        by_measure = {}
        for measure, count in counts.items():
            shape, interval = shapes[measure], intervals.get(measure)
            if interval:
                share = count * shape.duration / interval
                if shape.scheduling_class is SchedulingClass.NORMAL:
                    share /= lanes.get(node, 1)
                shares[shape.scheduling_class] += share
                if shape.scheduling_class in {SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL}:
                    by_measure[measure] = share
        by_node[node] = Load(
            shares[SchedulingClass.EXCLUSIVE],
            shares[SchedulingClass.NORMAL],
            shares[SchedulingClass.BACKGROUND] + shares[SchedulingClass.BACKGROUND_MULTI],
            others.get(node),
            by_measure,
        )
    return by_node


def round_up_interval(duration: float) -> int:
    """Round up to an interval that people write, or to whole weeks."""
    week = 7 * times.DAY
    return next((each for each in _NICE if each >= duration), int(-(-duration // week) * week))


def overbooking_findings(
    loads_by_node: Mapping[str, Load], intervals: Mapping[int, int | None], labels: Sequence[str]
) -> list[Finding]:
    """Return a finding for each entry with overbooked nodes to which it contributes most."""
    worst: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for node, load in loads_by_node.items():
        if load.booked_share > FULL and load.by_measure:
            most = max(load.by_measure, key=lambda measure: load.by_measure[measure])
            worst[most].append((load.booked_share, node))
    return [
        _overbooked_finding(
            measure, sorted(nodes, key=_fullness_key), loads_by_node, intervals, labels
        )
        for measure, nodes in sorted(worst.items())
    ]


def _fullness_key(node: tuple[float, str]) -> tuple[float, str]:
    return -node[0], node[1]


def _overbooked_finding(
    measure: int,
    nodes: Sequence[tuple[float, str]],
    loads_by_node: Mapping[str, Load],
    intervals: Mapping[int, int | None],
    labels: Sequence[str],
) -> Finding:
    booked, node = nodes[0]
    load = loads_by_node[node]
    parts = [
        f"{share:.0%} by measure {number + 1} ({labels[number]})"
        for number, share in sorted(load.by_measure.items(), key=lambda item: -item[1])
    ]
    parts += [f"{load.others:.0%} by others"] if load.others else []
    detail = f"{node} is {booked:.0%} booked: {', '.join(parts)}"
    if more := len(nodes) - 1:
        others = f"so are {more} others" if more > 1 else "so is 1 other"
        detail += f"; {others} ({nodes[-1][0]:.0%} and more)"
    return Finding(
        FindingKind.NO_TIME,
        f"/measure/{measure}/schedule",
        detail,
        _fitting_interval_text(measure, load, intervals),
    )


def _fitting_interval_text(measure: int, load: Load, intervals: Mapping[int, int | None]) -> str:
    """Return the interval at which the node would be full but not overbooked."""
    own = load.by_measure[measure]
    rest = load.booked_share - own
    if rest < _COMFORTABLE:
        fitting = round_up_interval((intervals[measure] or 0) * own / (_COMFORTABLE - rest))
        return f"an interval of {times.duration_text(fitting)} would fit, or fewer pairs"
    free = _COMFORTABLE - (load.others or 0.0)
    if free <= 0:
        return "others have booked all its time; remove it from the mesh, or ask them"
    return (
        f"all its entries {load.booked_share / free:.1f} times less often would fit, or fewer pairs"
    )


def short_slips(
    tasks: Mapping[str, Mapping[int, int]],
    shapes: Mapping[int, EntryDemand],
    schedules: Mapping[int, tuple[str, ScheduleTerms]],
    now: int,
) -> list[Finding]:
    """Return schedules whose slip is too short for the exclusive runs of one node at one start.

    They share their nominal start and run one at a time, so the last waits for all others; those
    whose starts are spread do not (:func:`meeting_starts`). A
    schedule whose interval itself is too short is left to :func:`overbooking_findings`.
    """
    worst: dict[str, tuple[int, str, int, int]] = {}
    for node, counts in tasks.items():
        by_schedule: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for measure, count in counts.items():
            shape = shapes[measure]
            if (
                measure in schedules
                and not is_spread(schedules[measure][1])
                and shape.scheduling_class is SchedulingClass.EXCLUSIVE
            ):
                by_schedule[schedules[measure][0]].append((count, shape.duration))
        for name, runs in by_schedule.items():
            number, longest = sum(count for count, _ in runs), max(each for _, each in runs)
            needed = sum(count * each for count, each in runs) - longest
            worst[name] = max(worst.get(name, (0, "", 0, 0)), (needed, node, number, longest))
    documents = dict(schedules.values())
    findings = (
        _short_slip_finding(name, documents[name], *of, now) for name, of in sorted(worst.items())
    )
    return [finding for finding in findings if finding is not None]


def meeting_starts(
    pairs: Mapping[str, MeasurementPair],
    shapes: Mapping[int, EntryDemand],
    schedules: Mapping[int, tuple[str, ScheduleTerms]],
    phases: Mapping[str, int],
) -> list[Finding]:
    """Return schedules whose slip is too short where spread exclusive runs of a node meet.

    ``phases`` are where in the interval tasks start, by key. The waits are the same in each
    interval, so a run that finds no time now never finds any. An
    interval that is too short for all runs is left to :func:`overbooking_findings`.
    """
    by_node: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for key, pair in pairs.items():
        shape = shapes.get(pair.measure)
        name, schedule = schedules.get(pair.measure, ("", ScheduleTerms()))
        if shape is None or schedule.repeat is None or not is_spread(schedule):
            continue
        if shape.scheduling_class is SchedulingClass.EXCLUSIVE:
            run = phases[key], shape.duration
            for node, takes_part in ((pair.source, shape.source), (pair.dest, shape.dest)):
                if takes_part:
                    by_node[name, node].append(run)
    worst: dict[str, tuple[int, str, int]] = {}
    documents = dict(schedules.values())
    for (name, node), runs in by_node.items():
        interval = documents[name].repeat or 0
        taken, longest = sum(each for _, each in runs), max(each for _, each in runs)
        if taken <= interval:
            waited = longest_wait(runs, interval), node, taken + _ABREAST * longest
            worst[name] = max(worst.get(name, (0, "", 0)), waited)
    return [
        _meeting_finding(name, documents[name], *of)
        for name, of in sorted(worst.items())
        if of[0] > default_slip(documents[name].at(0))
    ]


def _meeting_finding(
    name: str, schedule: ScheduleTerms, wait: int, node: str, fitting: int
) -> Finding:
    """Return a finding; in an interval of ``fitting`` each run would have a start of its own."""
    slip = times.duration_text(default_slip(schedule.at(0)))
    remedy = f'slip = "{times.format_duration(round_up_interval(wait * _SPARE_SLIP))}"'
    if fitting > (schedule.repeat or 0):
        remedy += f', or repeat = "{times.format_duration(round_up_interval(fitting))}"'
    return Finding(
        FindingKind.NO_TIME,
        f"/schedules/{name}/slip",
        f"exclusive runs of {node} meet, although their starts are spread: one begins "
        f"{times.duration_text(wait)} later than its start, and the slip is {slip}",
        remedy,
    )


def _short_slip_finding(  # noqa: PLR0913, PLR0917 - one row of figures
    name: str,
    schedule: ScheduleTerms,
    needed: int,
    node: str,
    number: int,
    longest: int,
    now: int,
) -> Finding | None:
    recurrence = recurrence_of(schedule.at(now), now)
    first = nominal_starts(recurrence, now, times.LATEST, 1)
    slip = slip_of(recurrence, longest, first[0]) if first else recurrence.slip
    interval = interval_of(schedule, now)
    if slip >= needed or (interval is not None and needed + longest > interval):
        return None
    wanted = round_up_interval(needed * _SPARE_SLIP)
    if interval is not None:
        wanted = min(wanted, interval - longest)
    return Finding(
        FindingKind.NO_TIME,
        f"/schedules/{name}/slip",
        f"{node} has {number} exclusive runs at each start, one after the other: the last begins "
        f"{times.duration_text(needed)} later, and the slip is {times.duration_text(slip)}",
        f'slip = "{times.format_duration(wanted)}"',
    )
