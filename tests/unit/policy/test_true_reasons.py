"""The facts that a refusal states are true in the state in which it was made."""

from __future__ import annotations

import importlib
import pkgutil
import random
from dataclasses import dataclass, field, replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

import lead
from lead.policy.axes.fill import Protected
from lead.policy.axes.preempt import UrgentByScore
from lead.policy.episode import Episode
from lead.policy.placement_requests import Ask
from lead.policy.preempt.score import Urgency
from lead.policy.sets import PolicyComposition
from lead.policy.verdict import PolicyRefusal, RefusalRule
from lead.policy.view import (
    Backoff,
    CampaignView,
    Candidate,
    Charge,
    Deferral,
    LimitView,
    PostedRun,
    ReservationView,
    View,
)
from lead.pool.rehearsal.ledger import WEIGHT, Ledger
from lead.pool.rehearsal.seats import starts_by_node
from node.model import times
from node.model.classes import SchedulingClass
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, pool_of
from tests.support.refusals import CHECKS, UNREACHED, Moment

POLICIES: dict[str, PolicyComposition] = {
    **COMPOSITIONS,
    "no overtaking": replace(COMPOSITIONS["maui-backfill"], fill=Protected(overtaking=False)),
    "lasting slots": replace(COMPOSITIONS["maui-backfill"], fill=Protected(depth=2, lasting=True)),
    "small budget": replace(
        COMPOSITIONS["gridserver-urgent"],
        preempt=UrgentByScore(Urgency(Fraction(60), times.MINUTE)),
    ),
    "one-seat budget": replace(COMPOSITIONS["gridserver-urgent"], preempt=UrgentByScore()),
    "deferred, without slots": replace(COMPOSITIONS["maui-defer"]),
}

EXAMPLES: dict[str, list[tuple[int, int]]] = {
    "boinc-backoff": [(0, 5), (79766, 17)],
    "boinc-edf": [(1, 12)],
    "boinc-fetch": [(2, 19)],
    "boinc-rrsim": [(3, 26), (38, 21)],
    "boinc-wrr": [(4, 8)],
    "campaign-default": [(5, 15), (31, 25), (17, 25)],
    "deferred, without slots": [(6, 22)],
    "fbsng-dynamic": [(602, 19), (23, 17), (0, 25)],
    "fbsng-partition": [(8, 11), (2712895170, 10)],
    "fbsng-quota": [(10, 25), (0, 20)],
    "gridserver-blacklist": [(431, 22)],
    "gridserver-serial-usage": [(13, 21)],
    "gridserver-sla": [(84, 18), (14, 28), (13, 28), (15, 25), (17, 25), (273, 25), (12, 25)],
    "gridserver-sla-preempt": [(120, 20), (4, 12)],
    "gridserver-time": [(16, 17)],
    "gridserver-urgent": [(17, 24)],
    "maui-defer": [(23, 16)],
    "maui-fairshare": [(24, 23)],
    "maui-priority": [(28, 26)],
    "no overtaking": [(171, 27), (315462465, 17), (3, 25)],
    "small budget": [(699, 23), (209, 18), (0, 25), (66, 25)],
}
"""By set: seeds and numbers of candidates of pools that together reach every rule."""


_BACKOFFS: dict[tuple[str, ...], Backoff] = {
    ("c0", "n0", "exclusive"): Backoff(1, NOW + 9 * times.MINUTE),
}
_DEFERRALS = {
    "t0": Deferral(held=True, count=3),
    "t1": Deferral(count=2, until=NOW + 30 * times.MINUTE),
}


def crowded_pool(seed: int, count: int) -> View:
    """Return a pool with reasons for every refusal: limits, quotas, reservations, what is past."""
    rng = random.Random(seed)
    view = pool_of(rng, count)
    lanes = rng.choice([1, 2])
    nodes = {
        name: replace(
            node,
            lanes=lanes,
            busy_until=rng.choice([0, 0, NOW + 20 * times.MINUTE, NOW + 3 * times.HOUR]),
            resources={"mbps": rng.choice([600, 1000])},
            attributes={**node.attributes, **rng.choice([{}, {}, {"campaigns": "c1,c2"}])},
        )
        for name, node in view.nodes.items()
    }
    nodes = {
        name: replace(it, attributes={**it.attributes, "rack": f"r{number % 2}"})
        for number, (name, it) in enumerate(nodes.items())
    }
    kinds = ["runs", "nodes", "seats", "due_runs", "due_nodes"]
    amounts = {"time": times.HOUR, "seat_time": times.HOUR, "delivered": 2 * times.HOUR}
    campaigns = {
        name: replace(
            it,
            weight=rng.choice([0, it.weight, it.weight]),
            target=rng.choice([it.target, it.target, 1]),
            limits=rng.choice(
                [
                    it.limits,
                    {kind: LimitView(rng.choice([None, 1]), 2) for kind in rng.sample(kinds, 2)},
                    {kind: LimitView(None, amount) for kind, amount in amounts.items()},
                    {"delivered_percent": LimitView(20, 40)},
                ]
            ),
            quotas=rng.choice([{}, {}, {"mbps": rng.choice([800, 10_000])}]),
        )
        for name, it in view.campaigns.items()
    }
    campaigns = _with_bounds(campaigns, random.Random(f"bounds {seed}"))
    if rng.random() < 0.1:
        campaigns = {name: replace(it, target=None) for name, it in campaigns.items()}
    candidates = [_varied(it, rng) for it in view.candidates]
    runs = [_booked(run, rng) for run in view.runs]
    runs += [replace(it, run=f"{it.run}b", start=it.end, end=it.end + times.HOUR) for it in runs]
    return replace(
        view,
        nodes=nodes,
        campaigns=campaigns,
        candidates=candidates,
        runs=runs,
        ledger=[*_ledger(runs, lanes), Charge("c1", NOW - times.DAY, NOW, 20 * times.HOUR)],
        reservations=_reservations(list(nodes), rng),
        state=replace(view.state, backoffs=_BACKOFFS, deferrals=_DEFERRALS),
    )


def _with_bounds(campaigns: dict[str, CampaignView], rng: random.Random) -> dict[str, CampaignView]:
    """Return the campaigns of some pools with bounds of what they borrow and lend."""
    if rng.random() > 0.3:
        return campaigns
    lends = [Fraction(0), Fraction(1, 2), Fraction(1)]
    return {
        name: replace(it, borrow=rng.choice([None, 0, 1]), lend=rng.choice(lends))
        for name, it in campaigns.items()
    }


def _varied(it: Candidate, rng: random.Random) -> Candidate:
    ahead = rng.choice([it.next_run_at] * 4 + [NOW - times.HOUR, NOW + 4 * times.HOUR])
    spread = rng.choice([it.spread, it.spread, {"site": 1, "rack": 1}])
    varied = replace(it, next_run_at=ahead, spread=spread, blocked=rng.random() < 0.1)
    if rng.random() < 0.05 and not it.named:
        return replace(varied, nodes=())
    if rng.random() < 0.2 and ahead >= NOW:
        starts = (ahead, ahead + times.HOUR)
        return replace(varied, runs=tuple((start, start + it.duration) for start in starts))
    if rng.random() < 0.1:
        return replace(it, next_run_at=NOW - 5 * times.MINUTE, slip=20 * times.MINUTE)
    return replace(varied, campaign=rng.choice([it.campaign] * 9 + ["nobody"]))


def _booked(run: PostedRun, rng: random.Random) -> PostedRun:
    kind = rng.choice([SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL, run.scheduling_class])
    needs: dict[str, int | None] = rng.choice([{}, {"mbps": 400}, {"mbps": None}])
    return replace(run, scheduling_class=kind, needs=needs)


def _ledger(runs: list[PostedRun], lanes: int) -> list[Charge]:
    """Return what the lead would have charged for these runs."""
    ledger = Ledger()
    weights = {SchedulingClass.EXCLUSIVE: WEIGHT, SchedulingClass.NORMAL: WEIGHT // lanes}
    for run in runs:
        ledger.charge(run, weights.get(run.scheduling_class, 0))
    return ledger.read(NOW)


def _reservations(nodes: list[str], rng: random.Random) -> list[ReservationView]:
    start = NOW + rng.randrange(60) * times.MINUTE
    reserved = ReservationView("r", (rng.choice(nodes),), start, start + times.HOUR)
    return rng.choice([[], [], [reserved], [replace(reserved, campaigns=frozenset({"c2"}))]])


@dataclass
class TruthDriver(Driver):
    """A driver that looks at each refusal in the state in which it was made."""

    false: list[str] = field(default_factory=list)
    rules: set[RefusalRule] = field(default_factory=set)
    _seen: dict[int, PolicyRefusal] = field(default_factory=dict)

    def play(self, policy: PolicyComposition) -> None:
        """Drive an episode and check all refusals."""
        episode = Episode(self.view, policy, random.Random(1))
        by_task = {it.task: it for it in self.view.candidates}
        moment = Moment(self.view, policy, list(self.view.runs))
        self.runs = moment.runs
        self._check(episode, moment)
        while True:
            moment.slots = list(episode._filling.slots())
            ask = episode.next_ask()
            moment.slots = [*moment.slots, *episode._filling.slots()]
            self._check(episode, moment)
            if ask is None:
                break
            self._look(ask.candidate, tuple(ask.left_out.values()), moment)
            if ask.fewer is not None:
                self._look(by_task[ask.candidate.task], (ask.fewer,), moment)
            self._answer(episode, ask, moment)
        moment.ask = None
        for task, refusals in episode.outcome().refused.items():
            self._look(by_task[task], refusals, moment)

    def _answer(self, episode: Episode, ask: Ask, moment: Moment) -> None:
        candidate = ask.candidate
        starts = starts_by_node(ask, self._free(ask))
        no_displacement = episode._open[ask.number][1]
        if no_displacement is not None:
            self._look(candidate, (no_displacement,), moment)
        if not starts:
            moment.ask = ask
            for name in ask.nodes:
                key = candidate.campaign, name, candidate.scheduling_class.value
                moment.failures[key] = moment.failures.get(key, 0) + 1
            episode.record_refusal(ask, ask.nodes)
            self._check(episode, moment)
            moment.ask = None
            return
        run = self._run(ask, starts)
        self._passed(moment, candidate)
        episode.record_placement(ask, run)
        for start, end in ((run.start, run.end), *candidate.runs[1:]):
            moment.runs.append(replace(run, start=start, end=end))
        for name in run.nodes:
            moment.failures.pop((candidate.campaign, name, candidate.scheduling_class.value), None)
        self._take(moment, candidate, len(run.nodes))
        moment.placed.add(candidate.task)
        moment.refused.discard(candidate.task)
        self._check(episode, moment)

    def _passed(self, moment: Moment, candidate: Candidate) -> None:
        """Count the older tasks of its campaign that are refused and see it start."""
        for it in self.view.candidates:
            older = it.campaign == candidate.campaign and it.added_at < candidate.added_at
            if older and it.task in moment.refused:
                moment.passed[it.task] = moment.passed.get(it.task, 0) + 1

    def _take(self, moment: Moment, candidate: Candidate, count: int) -> None:
        weight = moment.weight(candidate.scheduling_class) * count
        first = max(candidate.next_run_at, NOW) // times.HOUR * times.HOUR
        amounts = {first: int(candidate.duration * weight)}
        for start, end in candidate.runs:
            if start // times.HOUR * times.HOUR > first:
                amounts[start // times.HOUR * times.HOUR] = int((end - start) * weight)
        for hour, amount in amounts.items():
            key = hour, candidate.campaign
            moment.taken[key] = moment.taken.get(key, 0) + amount

    def _check(self, episode: Episode, moment: Moment) -> None:
        by_task = {it.task: it for it in self.view.candidates}
        moment.refused.update(episode._refused.keys() - moment.placed)
        for task, refusals in list(episode._refused.items()):
            self._look(by_task[task], refusals, moment)

    def _look(
        self, candidate: Candidate, refusals: tuple[PolicyRefusal, ...], moment: Moment
    ) -> None:
        for refusal in refusals:
            if id(refusal) in self._seen:
                continue
            self._seen[id(refusal)] = refusal
            self.rules.add(refusal.rule)
            if not CHECKS[refusal.rule](moment, candidate, dict(refusal.figures), refusal):
                self.false.append(f"{candidate.task}: {refusal.reason}")


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    seed=st.integers(0, 2**32),
    count=st.integers(0, 30),
)
def test_every_refusal_states_the_truth(name: str, seed: int, count: int) -> None:
    """Numbers, names, limits, and instants of each refusal hold when it is made."""
    driver = TruthDriver(crowded_pool(seed, count))
    driver.play(POLICIES[name])
    assert driver.false == []


def _played(name: str, *pools: tuple[int, int]) -> tuple[set[RefusalRule], list[str]]:
    """Play pools (seed, number of candidates); return the rules that refused, and what is false."""
    rules: set[RefusalRule] = set()
    false = []
    for seed, count in pools:
        driver = TruthDriver(crowded_pool(seed, count))
        driver.play(POLICIES[name])
        rules |= driver.rules
        false += driver.false
    return rules, false


def test_every_rule_refuses_in_some_pool() -> None:
    """These pools reach every rule that has a check, and no refusal in them is false."""
    reached: set[RefusalRule] = set()
    for name, pools_of_set in EXAMPLES.items():
        rules, false = _played(name, *pools_of_set)
        assert false == [], name
        reached |= rules
    assert [rule.sentence for rule in CHECKS.keys() - reached] == []


def _rules() -> set[RefusalRule]:
    """Return all rules that modules of ``lead`` declare."""
    names = [it.name for it in pkgutil.walk_packages(lead.__path__, "lead.")]
    modules = [importlib.import_module(it) for it in names if ".simulation" not in it]
    return {each for it in modules for each in vars(it).values() if isinstance(each, RefusalRule)}


def test_every_rule_is_checked_or_has_a_reason_why_not() -> None:
    """Each rule has a check of its facts, or a reason why no episode reaches it."""
    assert CHECKS.keys() | UNREACHED.keys() == _rules()
    assert not CHECKS.keys() & UNREACHED.keys()
