"""The facts that refusals of the policies state, computed anew from the state they were made in.

Nothing of the policies' own figures is used here: time lines are swept instant by instant, and
choices of nodes are tried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

from lead.planning import displacement
from lead.policy import ahead_sharing, contested, episode, limit_counting, promised_seats
from lead.policy.axes import feasible, share
from lead.policy.axes.preempt import UrgentByScore
from lead.policy.feasible import availability, backoff, blacklist, deferral
from lead.policy.fill import reservations
from lead.policy.order import passes, queues
from lead.policy.placement_requests import Ask
from lead.policy.preempt import flagged, groups, score
from lead.policy.sets import PolicyComposition
from lead.policy.share import promised, usage
from lead.policy.throttle import (
    active_limits,
    byte_quota,
    delivered_cap,
    due_limits,
    quota,
    seat_budget,
)
from lead.policy.verdict import PolicyRefusal, RefusalRule
from lead.policy.view import URGENT, Candidate, PostedRun, ReservationView, View
from node.model import times
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span

Figures = dict[str, Any]


@dataclass
class Moment:
    """The state of an episode when a refusal was made.

    ``runs`` are booked, with the later runs of terms at their ideal times; ``taken`` is by hour and
    campaign what was given in the episode (seat-µs). ``refused`` are the tasks refused by then,
    ``failures`` by campaign, node, and class how often a node refused in a row in this episode.
    """

    view: View
    policy: PolicyComposition
    runs: list[PostedRun] = field(default_factory=list)
    slots: Sequence[ReservationView] = ()
    taken: dict[tuple[int, str], int] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    passed: dict[str, int] = field(default_factory=dict)
    failures: dict[tuple[str, str, str], int] = field(default_factory=dict)
    ask: Ask | None = None

    @property
    def lanes(self) -> int:
        """Return how many normal runs side by side are a seat."""
        return min(node.lanes for node in self.view.nodes.values())

    def weight(self, of: SchedulingClass) -> Fraction:
        """Return the part of a seat that a run of a class takes."""
        if of is SchedulingClass.EXCLUSIVE:
            return Fraction(1)
        return Fraction(1, self.lanes) if of is SchedulingClass.NORMAL else Fraction(0)

    def line(self, campaign: str | None) -> list[str]:
        """Return a campaign and those above it."""
        found = []
        while campaign is not None and campaign in self.view.campaigns:
            found.append(campaign)
            campaign = self.view.campaigns[campaign].parent
        return found

    def group(self, campaign: str) -> str | None:
        """Return the nearest of a campaign and those above it that has promised seats."""
        campaigns = self.view.campaigns
        return next((it for it in self.line(campaign) if campaigns[it].target is not None), None)

    def up(self, names: Iterable[str]) -> list[str]:
        """Return those of these nodes that are up."""
        return [name for name in names if name in self.view.nodes and self.view.nodes[name].up]

    def held_in(self, hour: int, campaign: str) -> int:
        """Return what a campaign has of an hour: what it was charged for, and what was given."""
        charged = 0
        for it in self.view.ledger:
            inside = min(it.end, hour + times.HOUR) - max(it.start, hour)
            if it.campaign == campaign and inside > 0:
                charged += it.amount * inside // (it.end - it.start)
        return charged + self.taken.get((hour, campaign), 0)

    def promised_to(self, group: str) -> Fraction:
        """Return the seats that a group is promised."""
        target = self.view.campaigns[group].target
        assert target is not None
        seats = len(self.up(self.view.pool.nodes))
        return Fraction(target) if isinstance(target, int) else Fraction(int(seats * target))

    def held_by_group(self, group: str, at: int) -> Fraction:
        """Return the seats that a group holds at an instant."""
        own = (it for it in self.runs if it.start <= at < it.end)
        return sum(
            (len(it.nodes) * self.weight(it.scheduling_class) for it in own
             if self.group(it.campaign) == group),
            Fraction(0),
        )  # fmt: skip


Amount = Callable[[PostedRun], int | Fraction]
Check = Callable[[Moment, Candidate, Figures, PolicyRefusal], bool]


def peak(runs: Iterable[PostedRun], span: Span, amount: Amount) -> int | Fraction:
    """Return the most that runs have together at an instant of a span."""
    inside = [it for it in runs if it.start < span[1] and span[0] < it.end]
    instants = {max(it.start, span[0]) for it in inside}
    return max(
        (sum(amount(it) for it in inside if it.start <= at < it.end) for at in instants), default=0
    )


def _window(moment: Moment, candidate: Candidate) -> Span:
    return (
        max(candidate.next_run_at, moment.view.now),
        candidate.start_by + candidate.duration,
    )


def _starts(moment: Moment, candidate: Candidate, name: str, avoid: Sequence[Span]) -> list[Span]:
    """Return the closed ranges of starts at which a node is free for a candidate."""
    busy = [
        (it.start, it.end)
        for it in moment.runs
        if name in it.nodes and it.scheduling_class in blockers(candidate.scheduling_class)
    ]
    busy += [
        (it.start, it.end)
        for it in moment.view.reservations
        if name in it.nodes and not it.admits(candidate)
    ]
    busy += avoid
    first, end = _window(moment, candidate)
    ranges, at = [], first
    for start, stop in sorted(busy):
        if start - at >= candidate.duration:
            ranges.append((at, min(start, end) - candidate.duration))
        at = max(at, stop)
    ranges.append((at, end - candidate.duration))
    return [(one, last) for one, last in ranges if one <= last]


def _free_nodes(moment: Moment, candidate: Candidate) -> tuple[int, int]:
    """Return how many of the nodes asked have time, and how many at one instant at most."""
    assert moment.ask is not None
    ask = moment.ask
    # A lead gives no seat behind time that is kept for another task.
    kept = {
        name: [(it.start, times.LATEST) for it in ask.avoid.get(name, ())] for name in ask.nodes
    }
    full = [(it.start, it.end) for it in ask.full]
    ranges = {name: _starts(moment, candidate, name, [*kept[name], *full]) for name in ask.nodes}
    instants = {start for spans in ranges.values() for start, _ in spans}
    together = max(
        (sum(any(s <= at <= e for s, e in it) for it in ranges.values()) for at in instants),
        default=0,
    )
    return sum(bool(it) for it in ranges.values()), together


def _no_time(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    assert moment.ask is not None
    asked = it["asked"] == len(moment.ask.nodes) and it["wanted"] == candidate.least
    return asked and _free_nodes(moment, candidate)[0] < candidate.least


def _no_common_time(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    assert moment.ask is not None
    asked = it["asked"] == len(moment.ask.nodes) and it["wanted"] == candidate.least
    return asked and _free_nodes(moment, candidate)[1] < candidate.least


def _spread(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    """Try all sets of nodes; the sentence is about the spread as a whole."""
    names = moment.up(candidate.nodes)
    most = 0
    for size in range(1, len(names) + 1):
        for some in combinations(names, size):
            counts: dict[tuple[str, str], int] = {}
            for name in some:
                for key in candidate.spread:
                    value = key, moment.view.nodes[name].attributes.get(key, name)
                    counts[value] = counts.get(value, 0) + 1
            if all(count <= candidate.spread[key] for (key, _), count in counts.items()):
                most = max(most, size)
    all_usable = it["usable"] == len(names)
    possible = it["possible"] == most if all_usable else it["possible"] <= min(most, it["usable"])
    return bool(possible and it["possible"] < it["wanted"] == candidate.least)


def _too_late(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    late = moment.view.now - candidate.start_by
    said = it["start_by"] == times.to_the_second(candidate.start_by)
    return said and late > 0 and it["late"] == late // times.SECOND


def _too_few(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    there = len(moment.up(candidate.nodes))
    figures = it["there"], it["matching"], it["wanted"]
    return figures == (there, len(candidate.nodes), candidate.least) and there < candidate.least


def _busy(moment: Moment, candidate: Candidate, it: Figures, no: PolicyRefusal) -> bool:
    until = moment.view.nodes[it["node"]].busy_until
    last = candidate.spans[-1][0] + candidate.slip
    said = it["begin"], it["start_by"]
    return no.until == until > last and said == (
        times.to_the_second(until),
        times.to_the_second(last),
    )


def _room(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    """Compute what is left at the fullest instant of each of the candidate's runs."""
    node, resource = moment.view.nodes[it["node"]], it["resource"]
    has = node.resources[resource]
    rules = moment.policy.feasible
    assert isinstance(rules, feasible.FeasibilityRules)

    def amount(run: PostedRun) -> int:
        wanted = run.needs.get(resource, 0)
        return has if wanted is None else wanted

    beside = [
        run
        for run in moment.runs
        if node.name in run.nodes
        and run.scheduling_class not in blockers(candidate.scheduling_class)
    ]
    left = set()
    for span in candidate.spans:
        dedicated, utilised = int(peak(beside, span, amount)), round(has * node.load)
        used = {
            availability.CapacityBasis.DEDICATED: dedicated,
            availability.CapacityBasis.UTILISED: utilised,
            availability.CapacityBasis.COMBINED: max(dedicated, utilised),
        }[rules.counted]
        left.add(max(0, has - used))
    wanted = candidate.needs[resource]
    own = has if wanted is None else wanted
    return it["has"] == has and it["wanted"] == own and it["left"] in left and it["left"] < own


def _tied(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    serves = moment.view.nodes[it["node"]].attributes["campaigns"].split(",")
    own = moment.line(candidate.campaign)
    return it["campaigns"] == ", ".join(serves) and not set(own) & set(serves)


def _blacklisted(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    failed = moment.view.state.failures[it["node"], candidate.campaign]
    return bool(it["failures"] == failed >= it["most"])


def _in_backoff(moment: Moment, candidate: Candidate, it: Figures, no: PolicyRefusal) -> bool:
    key = it["campaign"], it["node"], candidate.scheduling_class.value
    before = moment.view.state.backoffs.get(key)
    most = moment.failures.get(key, 0) + (before.failures if before else 0)
    return no.until is not None and no.until > moment.view.now and 1 <= it["failures"] <= most


def _deferrals(moment: Moment, candidate: Candidate) -> int:
    before = moment.view.state.deferrals.get(candidate.task)
    tried = moment.ask is not None and moment.ask.candidate.task == candidate.task
    return (before.count if before else 0) + tried


def _deferred(moment: Moment, candidate: Candidate, it: Figures, no: PolicyRefusal) -> bool:
    if no.until is None or no.until <= moment.view.now:
        return False
    return (it["count"], it["again"]) == (
        _deferrals(moment, candidate),
        times.to_the_second(no.until),
    )


def _on_hold(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    return bool(it["count"] == moment.view.state.deferrals[candidate.task].count)


def _hour_is_full(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    hour = max(candidate.next_run_at, moment.view.now) // times.HOUR * times.HOUR
    members = moment.up(moment.view.pool.nodes)
    seats = len(members) * times.HOUR
    for each in moment.view.reservations:
        inside = min(each.end, hour + times.HOUR) - max(each.start, hour)
        seats -= max(0, inside) * len(set(members) & set(each.nodes))
    names = {charge.campaign for charge in moment.view.ledger} | {it[1] for it in moment.taken}
    held = {name: moment.held_in(hour, name) for name in names}
    said = _same(it["seats"], Fraction(max(0, seats), times.HOUR))
    if not said or it["hour"] != times.to_the_second(hour) or sum(held.values()) < seats:
        return False
    listed = [part for part in it["holders"].split(", ") if "(" in part]
    return all(
        part == f"{name} ({f'{held[name] / times.HOUR:.2f}'.rstrip('0').rstrip('.')})"
        for part in listed
        for name in [part.split(" ", 1)[0]]
    )


def _share_used(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    hour = max(candidate.next_run_at, moment.view.now) // times.HOUR * times.HOUR
    held = moment.held_in(hour, candidate.campaign) / times.HOUR
    return bool(it["allocated"] == held >= it["ideal"] and it["hour"] == times.to_the_second(hour))


def _no_group(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    campaigns = moment.view.campaigns
    promises = {n for n, c in campaigns.items() if c.target is not None and c.level}
    said = set(str(it["groups"]).split(", "))
    return moment.group(candidate.campaign) not in promises and said == promises


def _no_promises(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    return all(c.target is None or not c.level for c in moment.view.campaigns.values())


def _promise_kept(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    """Find the instant: there one group has less than it is promised and wants more."""
    group, other = str(it["group"]), str(it["other"])
    if moment.group(candidate.campaign) != other:
        return False
    for at in _instants(moment, it["at"]):
        wants = any(
            start <= at < end
            for c in moment.view.candidates
            if moment.group(c.campaign) == group
            and c.task not in moment.placed
            and c.task != candidate.task
            for start, end in c.spans
        )
        figures = (it["target"], it["held"], it["others"], it["theirs"])
        expected = (
            moment.promised_to(group),
            moment.held_by_group(group, at),
            moment.held_by_group(other, at),
            moment.promised_to(other),
        )
        if wants and expected[1] < expected[0] and all(map(_same, figures, expected)):
            return True
    return False


def _instants(moment: Moment, at: str) -> list[int]:
    """Return the instants at which something changes, of those that are told as ``at``."""
    changes = {i for run in moment.runs for i in (run.start, run.end)}
    changes |= {i for c in moment.view.candidates for span in c.spans for i in span}
    return [each for each in changes if times.to_the_second(each) == at]


def _borrowed(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    """Find the instant: there its group would have more than its promise and what it borrows."""
    group = str(it["group"])
    own = candidate.k * moment.weight(candidate.scheduling_class)
    target, borrow = moment.promised_to(group), moment.view.campaigns[group].borrow
    return moment.group(candidate.campaign) == group and any(
        held + own > target + (borrow or 0)
        and it["borrow"] == borrow
        and all(map(_same, (it["target"], it["held"]), (target, held)))
        for held in (moment.held_by_group(group, at) for at in _instants(moment, it["at"]))
    )


def _not_lent(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    """Find the instant: there another group has less than the part of its promise that it keeps."""
    group = str(it["group"])
    target, lend = moment.promised_to(group), moment.view.campaigns[group].lend
    lent = Fraction(int(target * moment.lanes * lend), moment.lanes)
    return moment.group(candidate.campaign) == it["other"] != group and any(
        held < target - lent
        and all(map(_same, (it["target"], it["lent"], it["held"]), (target, lent, held)))
        for held in (moment.held_by_group(group, at) for at in _instants(moment, it["at"]))
    )


def _same(one: float, other: float | Fraction) -> bool:
    return abs(one - float(other)) < 1e-9


def _part_kept(moment: Moment, candidate: Candidate, it: Figures, no: PolicyRefusal) -> bool:
    first, end = times.parse_instant(it["since"]), times.parse_instant(it["to"])
    own = {str(it["whose"])}
    if moment.view.campaigns[next(iter(own))].target is not None:
        own |= {n for n in moment.view.campaigns if moment.group(n) == next(iter(own))}
    held = sum(moment.held_in(h, n) for h in range(first, end, times.HOUR) for n in own)
    begins = max(candidate.next_run_at, moment.view.now) // times.HOUR * times.HOUR
    if no.until is None or not _same(it["held"], held / times.HOUR) or it["held"] < it["part"]:
        return False
    near_then = no.until // times.HOUR * times.HOUR + 2 * times.HOUR
    return it["given"] == times.to_the_second(no.until) and begins < near_then


def _is_full(
    runs: Sequence[PostedRun],
    candidate: Candidate,
    amount: Amount,
    limit: tuple[int | Fraction, int],
    said: tuple[float, PolicyRefusal],
) -> bool:
    """Return whether a run wants as much as is said in a window, and has room when that is said.

    ``limit`` is what the run has itself, and the most that all may have.
    """
    (own, most), (wanted, refusal) = limit, said
    windows = [(start, end + candidate.slip) for start, end in candidate.spans]
    instants = {
        max(run.start, first)
        for run in runs
        for first, last in windows
        if run.start < last and first < run.end
    }
    amounts = [peak(runs, (at, at + 1), amount) + own for at in instants]
    if wanted <= most or not any(_same(wanted, it) for it in amounts):
        return _same(wanted, own) and own > most and refusal.room_at is None
    at = refusal.room_at
    return at is None or (
        peak(runs, (at, at + 1), amount) + own <= most < peak(runs, (at - 1, at), amount) + own
    )


def _seats_max(moment: Moment, candidate: Candidate, it: Figures, refusal: PolicyRefusal) -> bool:
    own = candidate.k * moment.weight(candidate.scheduling_class)
    runs = [run for run in moment.runs if run.campaign == candidate.campaign]
    most = moment.view.campaigns[candidate.campaign].seats_max
    return it["most"] == most and _is_full(
        runs,
        candidate,
        lambda run: len(run.nodes) * moment.weight(run.scheduling_class),
        (own, it["most"]),
        (it["wanted"], refusal),
    )


def _quota(moment: Moment, candidate: Candidate, it: Figures, refusal: PolicyRefusal) -> bool:
    resource, members = it["resource"], set(moment.view.pool.nodes)
    runs = [run for run in moment.runs if run.campaign == candidate.campaign]

    def amount(run: PostedRun) -> int:
        wanted = run.needs.get(resource, 0)
        return sum(
            moment.view.nodes[name].resources.get(resource, 0) if wanted is None else wanted
            for name in run.nodes
            if name in members
        )

    most = moment.view.campaigns[candidate.campaign].quotas[resource]
    said = it["used"] + it["wanted"], refusal
    return it["quota"] == most and _is_full(runs, candidate, amount, (it["wanted"], most), said)


def _capacity(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    resource = it["resource"]
    nodes = [moment.view.nodes[name] for name in moment.up(moment.view.pool.nodes)]
    has = sum(node.resources[resource] for node in nodes)

    def amount(run: PostedRun) -> int:
        wanted = run.needs.get(resource, 0)
        return sum(
            moment.view.nodes[name].resources.get(resource, 0) if wanted is None else wanted
            for name in run.nodes
        )

    excluded = blockers(candidate.scheduling_class)
    runs = [run for run in moment.runs if run.scheduling_class not in excluded]
    used = {peak(runs, span, amount) for span in candidate.spans}
    return it["capacity"] == has and it["used"] in used and it["used"] + it["wanted"] > has


def _limit(moment: Moment, it: Figures) -> int | None:
    limit = moment.view.campaigns[it["holder"]].limits[it["kind"]]
    values = [
        x for x in (limit.hard, limit.soft if it["level"] == "soft" else None) if x is not None
    ]
    return min(values, default=None)


def _active(moment: Moment, candidate: Candidate, it: Figures, refusal: PolicyRefusal) -> bool:
    holder, kind = str(it["holder"]), it["kind"]
    runs = [run for run in moment.runs if holder in moment.line(run.campaign)]
    if it["level"] not in {"soft", "hard"} or holder not in moment.line(candidate.campaign):
        return False
    apart = {c.task for c in moment.view.candidates if c.apart}

    def amount(run: PostedRun) -> int:
        if kind != "runs":
            return len(run.nodes)
        return len(run.nodes) if run.task in apart else 1

    own = candidate.k if kind != "runs" or candidate.apart else 1
    limit = _limit(moment, it)
    said = it["wanted"], refusal
    return it["limit"] == limit and _is_full(runs, candidate, amount, (own, it["limit"]), said)


def _active_time(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    holder, kind, now = str(it["holder"]), it["kind"], moment.view.now
    runs = [run for run in moment.runs if holder in moment.line(run.campaign) and run.end > now]
    apart = {c.task for c in moment.view.candidates if c.apart}
    total = 0
    for run in runs:
        times_over = len(run.nodes) if kind == "seat_time" or run.task in apart else 1
        total += (run.end - max(run.start, now)) * times_over
    own = sum(end - start for start, end in candidate.spans)
    own *= candidate.k if kind == "seat_time" or candidate.apart else 1
    return bool(it["limit"] == _limit(moment, it) < it["wanted"] == total + own)


def _due(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    holder = str(it["holder"])
    limit = moment.view.campaigns[holder].limits[f"due_{it['kind']}"].hard
    of = [c for c in moment.view.candidates if holder in moment.line(c.campaign)]
    wanted = sum(c.k if it["kind"] != "runs" or c.apart else 1 for c in of)
    return it["limit"] == limit < it["wanted"] <= wanted and candidate in of


def _delivered_part(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    limit = moment.view.campaigns[it["campaign"]].limits["delivered_percent"]
    caps = {Fraction(x, 100) for x in (limit.soft, limit.hard) if x is not None}
    return it["cap"] in caps and it["part"] > it["cap"]


def _delivered_amount(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    limit = moment.view.campaigns[it["campaign"]].limits["delivered"]
    return it["cap"] in {limit.soft, limit.hard} and it["amount"] > it["cap"]


def _protected(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    """Look whether the run would overlap the slot wherever it begins."""
    begin, end = _window(moment, candidate)
    ends = begin + candidate.duration
    slots = [s for s in moment.slots if it["holder"] in s.tasks and it["node"] in s.nodes]
    return any(
        slot.start < ends
        and end - candidate.duration < slot.end
        and it["start"] == times.to_the_second(slot.start)
        and it["free"] == times.to_the_second(slot.end)
        and it["end"] == times.to_the_second(ends)
        for slot in slots
    )


def _no_overtaking(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    return it["holder"] in moment.refused and it["holder"] != candidate.task == it["task"]


def _passes(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    stuck, gap = str(it["stuck"]), moment.view.campaigns[candidate.campaign].queue.passes
    count = moment.view.state.passes.get(stuck, 0) + moment.passed.get(stuck, 0)
    own = moment.view.state.passes.get(candidate.task, 0)
    waits = stuck in moment.refused and gap is not None and count >= own + gap
    return waits and (it["passes"], it["gap"]) == (count, gap) and own == 0


def _queue_gap(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    stuck = str(it["stuck"])
    of = {c.task for c in moment.view.candidates if c.campaign == stuck}
    gap = moment.view.campaigns[stuck].queue.gap
    blocked = bool(of - moment.placed) and it["high"] - it["priority"] >= gap == it["gap"]
    return blocked and it["campaign"] == candidate.campaign != stuck


def _too_early(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    waited = Fraction(moment.view.now - candidate.waits_since, times.SECOND)
    return moment.view.campaigns[candidate.campaign].level >= URGENT and (
        it["waited"] == waited < it["delay"]
    )


def _percent(moment: Moment) -> Fraction:
    assert isinstance(moment.policy.preempt, UrgentByScore)
    return moment.policy.preempt.urgency.percent


def _budget_spent(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    begin, end = candidate.next_run_at, candidate.start_by + candidate.duration
    urgent = {
        name
        for run in moment.runs
        if moment.view.campaigns[run.campaign].level >= URGENT
        and run.start < end
        and begin < run.end
        for name in run.nodes
    }
    seats = len(moment.up(moment.view.pool.nodes))
    budget = int(_percent(moment) * seats / 100)
    said = it["running"], it["seats"], it["percent"]
    return said == (len(urgent), seats, _percent(moment)) and len(urgent) >= budget


def _no_seat(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    seats = len(moment.up(moment.view.pool.nodes))
    fewest = next(percent for percent in range(1, 101) if percent * seats >= 100)
    small = 0 < _percent(moment) * seats < 100
    return small and (it["seats"], it["percent"], it["enough"]) == (seats, _percent(moment), fewest)


def _nothing_lent(moment: Moment, candidate: Candidate, it: Figures, _: PolicyRefusal) -> bool:
    span, group = candidate.spans[0], str(it["group"])
    campaigns = moment.view.campaigns

    def held(name: str | None) -> int | Fraction:
        runs = [run for run in moment.runs if moment.group(run.campaign) == name]
        return peak(runs, span, lambda run: len(run.nodes) * moment.weight(run.scheduling_class))

    others = [name for name, it in campaigns.items() if it.target is not None and name != group]
    own = _same(it["held"], held(group)) and _same(it["target"], moment.promised_to(group))
    nobody_more = not held(None) and all(held(name) <= moment.promised_to(name) for name in others)
    return bool(own and it["held"] < it["target"] and nobody_more)


CHECKS: dict[RefusalRule, Check] = {
    feasible.NO_CAMPAIGN: lambda m, c, it, _: it["campaign"] == c.campaign not in m.view.campaigns,
    feasible.SUSPENDED_CAMPAIGN: lambda m, c, _it, _: not m.view.campaigns[c.campaign].level,
    feasible.MISSED: _too_late,
    feasible.TOO_FEW: _too_few,
    feasible.NOBODY: lambda _m, c, it, _: not c.nodes and it["wanted"] == c.least,
    feasible.BUSY: _busy,
    feasible.FULL: _room,
    feasible.TIED: _tied,
    blacklist.BLACKLISTED: _blacklisted,
    backoff.IN_BACKOFF: _in_backoff,
    deferral.DEFERRED: _deferred,
    deferral.ON_HOLD: _on_hold,
    share.FULL: _hour_is_full,
    share.ONLY_IF_IDLE: lambda m, c, _it, _: not m.view.campaigns[c.campaign].weight,
    usage.SHARE_USED: _share_used,
    promised.NO_GROUP: _no_group,
    promised.NO_PROMISES: _no_promises,
    promised_seats.KEPT: _promise_kept,
    promised_seats.BORROWED: _borrowed,
    promised_seats.NOT_LENT: _not_lent,
    ahead_sharing.KEPT: _part_kept,
    limit_counting.SEATS_MAX: _seats_max,
    quota.QUOTA: _quota,
    quota.CAPACITY: _capacity,
    active_limits.OVER: _active,
    active_limits.OVER_TIME: _active_time,
    due_limits.DUE: _due,
    delivered_cap.PART: _delivered_part,
    delivered_cap.AMOUNT: _delivered_amount,
    reservations.PROTECTED: _protected,
    reservations.NO_OVERTAKING: _no_overtaking,
    passes.HELD: _passes,
    queues.HELD: _queue_gap,
    score.TOO_EARLY: _too_early,
    score.BUDGET_SPENT: _budget_spent,
    score.NO_SEAT: _no_seat,
    groups.NOTHING_LENT: _nothing_lent,
    flagged.NO_PREEMPTOR: lambda m, c, _it, _: not m.view.campaigns[c.campaign].preemptor,
    episode.NO_TIME: _no_time,
    episode.NO_COMMON_TIME: _no_common_time,
    episode.NOT_TRIED: lambda _m, c, it, _: c.blocked and it["task"] == c.task,
    episode.SPREAD: _spread,
    episode.SPREAD_IN_ORDER: lambda _m, c, it, _: it["possible"] < it["wanted"] == c.least,
}
"""By rule: whether what a refusal states is true of the moment and candidate."""

UNREACHED: dict[RefusalRule, str] = {
    flagged.NO_PREEMPTEE: "decides which runs may be displaced, and is told to nobody",
    flagged.NOT_HIGHER: "decides which runs may be displaced, and is told to nobody",
    contested.GIVEN_BACK: "needs seats that are given back: test_contested.py",
    displacement.BUDGET: "for named participants: test_campaign_displacement.py",
    seat_budget.SPENT: "these pools have no budgets: test_seat_budget.py",
    byte_quota.OVER: "these pools have no quotas of bytes: test_byte_quota.py",
    byte_quota.TOO_MUCH: "these pools have no quotas of bytes: test_byte_quota.py",
    byte_quota.UNKNOWN: "these pools have no quotas of bytes: test_byte_quota.py",
}
"""Rules that no refusal in an episode over these pools comes from, and why not."""
