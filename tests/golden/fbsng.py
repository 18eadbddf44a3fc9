"""The cases of queues with dynamic priorities, translated. Times are seconds.

A queue is a campaign, a section a task, a process type a campaign with quotas. The fields of a case
determine the question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from lead.policy.limit_counting import CountedRun, RunDemand, full_at_once
from lead.policy.order import pacing, passes, queues
from lead.policy.select import attributes, placement
from lead.policy.share import start_counts
from lead.policy.throttle import quota
from lead.policy.throttle.active_limits import LimitLevel
from lead.policy.view import CampaignView, Exact, QueueView
from node.model import times
from tests.golden.figures import first_given
from tests.golden.originals.named_placement import as_named
from tests.golden.shapes import shaped

Given = dict[str, Any]

_FEW = 1000
"""Maximum number of starts for which a case asks for the picks; beyond it, for shares."""


def answer(case: Given) -> Any:
    """Return the product's answer to one case."""
    given, shape = case["given"], case.get("answer_shape")
    translate = next((it for required, it in _TRANSLATORS if required <= given.keys()), None)
    if translate is None:
        msg = f"no question is known with the fields {', '.join(sorted(given))}"
        raise ValueError(msg)
    fields, usual = translate(given)
    return shaped({key: fields.get(key) for key in shape or usual}, shape)


def _exact(number: float) -> Exact:
    return number if isinstance(number, int) else Fraction(str(number))


def _number(exact: Exact) -> int | float:
    return exact.numerator if exact.denominator == 1 else float(exact)


# -- queues ----------------------------------------------------------------------------------------


def _queue(given: Given) -> QueueView:
    floor, ceiling, gap, gain, price = (
        _exact(given.get(word, usual))
        for word, usual in (("QPmin", 0), ("QPmax", 100), ("QPG", 100), ("QPI", 1), ("QPD", 1))
    )
    return QueueView(floor, ceiling, gap, gain, price)


@dataclass
class _Farm:
    """Queues that contend for starts."""

    queues: dict[str, QueueView]
    priorities: dict[str, Exact] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    picks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin at the floors."""
        self.priorities = start_counts.initial_priorities(self.queues.items())

    def step(
        self, find: Callable[[str], bool], contending: Iterable[str] | None = None
    ) -> tuple[str | None, Sequence[str]]:
        """Start one section, if ``find`` allows any; return its queue and the blocked queues."""
        names = list(self.queues if contending is None else contending)
        contenders = [
            queues.Contender(
                name, self.priorities[name], self.queues[name].gap, self.started.get(name, -1)
            )
            for name in names
        ]
        tried = queues.next_campaign(contenders, lambda name: find(name) or None)
        if tried.entry is not None:
            name = tried.entry.name
            contending_now = {each: self.priorities[each] for each in names}
            self.priorities |= start_counts.priorities_after_start(
                name, contending_now, self.queues
            )
            self.started[name] = len(self.picks)
            self.picks.append(name)
        return self.picks[-1] if tried.entry else None, [each.name for each in tried.held]


def _farm(given: Given) -> _Farm:
    shared = given.get("defaults", {})
    return _Farm({name: _queue({**shared, **own}) for name, own in given["queues"].items()})


def _starts(given: Given) -> tuple[Given, Sequence[str]]:
    """Start as long as sections are pending, or as often as the case states."""
    farm, after = _farm(given), []
    pending = Counter(given.get("pending", dict.fromkeys(farm.queues, given["starts"])))
    for _ in range(given["starts"]):
        name, _ = farm.step(lambda _: True, [each for each in farm.queues if pending[each]])
        if name is None:
            break
        pending[name] -= 1
        after.append(_written(farm.priorities) if given["starts"] <= _FEW else {})
    usual = ["picks"] if given["starts"] <= _FEW else ["share"]
    if "section_sizes" in given:
        usual.append("any_10_consecutive")
    return _report(farm) | {"priorities_after": after}, usual


def _bulk(given: Given) -> tuple[Given, Sequence[str]]:
    """Start where the queue named first in the rule fits only after the farm has drained.

    The farm drains while that queue blocks another one.
    """
    farm, bulk = _farm(given), given["rule"].split()[0]
    drained = False
    while len(farm.picks) < given["starts"]:
        name, _ = farm.step(lambda name, drained=drained: name != bulk or drained)  # type: ignore[misc]
        if name is None and drained:
            break
        drained = name is None
    return _report(farm), ["picks_cycle", "share"]


def _slipping_past(given: Given) -> tuple[Given, Sequence[str]]:
    """Count the background sections that start before a stuck queue blocks them."""
    counts = []
    for item in given.get("items", [{}]):
        high = {**given.get("high_common", {}), **item}
        farm = _Farm({"high": _queue(high), "background": _queue(given["background"])})
        fits = given.get("high_fits", False)
        states: set[tuple[Exact, ...]] = set()
        blocked: Sequence[str] = ()
        while not blocked and (state := tuple(farm.priorities.values())) not in states:
            states.add(state)
            _, blocked = farm.step(lambda name, fits=fits: fits or name != "high")  # type: ignore[misc]
        counts.append(farm.picks.count("background") if blocked else None)
    return {"background_starts_before_hold": counts}, ["background_starts_before_hold"]


def _report(farm: _Farm) -> Given:
    picks, counts = farm.picks, Counter(farm.picks)
    return {
        "picks": picks,
        "picks_cycle": _cycle(picks),
        "share": {name: counts[name] / len(picks) for name in farm.queues} if picks else {},
        "any_10_consecutive": {name: _any_ten(picks, name) for name in farm.queues},
        "final_priorities": _written(farm.priorities),
    }


def _any_ten(picks: Sequence[str], name: str) -> list[int]:
    """Return the fewest and the most starts of a queue among any ten in a row."""
    upto = [0, *accumulate(pick == name for pick in picks)]
    among = [upto[at] - upto[at - 10] for at in range(10, len(upto))]
    return [min(among, default=0), max(among, default=0)]


def _written(priorities: Mapping[str, Exact]) -> dict[str, int | float]:
    return {name: _number(priority) for name, priority in priorities.items()}


def _cycle(picks: list[str]) -> list[str]:
    """Return the shortest prefix of which all of the list is a repetition."""
    border = [0] * len(picks)
    for at in range(1, len(picks)):
        length = border[at - 1]
        while length and picks[at] != picks[length]:
            length = border[length - 1]
        border[at] = length + (picks[at] == picks[length])
    return picks[: len(picks) - border[-1]] if picks else picks


# -- sections --------------------------------------------------------------------------------------


def _sections(given: Given) -> tuple[Given, Sequence[str]]:
    """Run one pass after the other with the given free slots."""
    listed = given["submitted"] if "submitted" in given else given["sections"]
    submitted = {each["id"]: place for place, each in enumerate(listed)}
    need = {each["id"]: each["need"] for each in listed}
    counts = {each["id"]: first_given(each, "prio_inc", "PRIO_INC") for each in listed}
    waiting = [each["id"] for each in listed if each.get("ready", True)]
    picks: list[str | None] = []
    answer: Given = {"picks": picks}
    usual = ["picks"]
    for number, slots in enumerate(given["free_slots_at_each_pass"], 1):
        free, begun = slots, len(picks)
        while True:
            tried = passes.next_task(
                sorted(
                    (passes.ReadyTask(name, submitted[name], counts[name]) for name in waiting),
                    key=passes.sort_key,
                ),
                lambda name, free=free: need[name] <= free or None,  # type: ignore[misc]
                given["SPG"],
            )
            answer[f"held_at_pass_{number}"] = [each.name for each in tried.held]
            if tried.entry is None:
                break
            for name in passes.passed_tasks(tried, submitted):
                counts[name] += 1
            waiting.remove(tried.entry.name)
            picks.append(tried.entry.name)
            free -= need[tried.entry.name]
            if given.get("one_start_per_pass"):
                break
        if len(picks) == begun:
            picks.append(None)
            usual.append(f"held_at_pass_{number}")
        for name in waiting:
            answer.setdefault(f"{name.lower()}_priority_after", []).append(counts[name])
    answer["priority"] = counts
    widest = max(listed, key=lambda each: int(each["need"]))["id"]
    return answer, [*usual, f"{widest.lower()}_priority_after"]


def _closed_loop(given: Given) -> tuple[Given, Sequence[str]]:
    """Simulate one bulk section that always waits before light ones; slots free one at a time."""
    averages = []
    for gap in given["N"]:
        lights, counts_before, free, passed = 0, [0], 0, 0
        while len(counts_before) <= given["bulks"]:
            waiting = [passes.ReadyTask("bulk", 0, passed), passes.ReadyTask("light", 1)]
            tried = passes.next_task(
                sorted(waiting, key=passes.sort_key),
                lambda name, free=free: free >= (2 if name == "bulk" else 1) or None,  # type: ignore[misc]
                gap,
            )
            if tried.entry is None:
                free += 1
            elif tried.entry.name == "bulk":
                free, passed = free - 2, 0
                counts_before.append(lights)
            else:
                free, lights = free - 1, lights + 1
                passed += len(passes.passed_tasks(tried, {"bulk": 0, "light": 1}))
        between = [after - before for before, after in pairwise(counts_before)]
        averages.append(_number(Fraction(sum(between), len(between))))
    return {"lights_per_bulk": averages}, ["lights_per_bulk"]


# -- nodes, quotas, passes -------------------------------------------------------------------------


def _partition(given: Given) -> tuple[Given, Sequence[str]]:
    """Return which nodes each type may use, and which remain if some types are idle."""
    eligible = {
        name: attributes.nodes_with(given["nodes"], wanted)
        for name, wanted in given["process_types"].items()
    }
    idle = given.get("idle", [])
    used = {f"used_by_{name}": nodes for name, nodes in eligible.items() if name not in idle}
    used_nodes = {node for nodes in used.values() for node in nodes}
    unused = [node for node in given["nodes"] if node not in used_nodes]
    answer = {"eligible": eligible, **used, "unused": unused}
    return answer, list(answer)


def _quotas(given: Given) -> tuple[Given, Sequence[str]]:
    """Check each request alone against current usage."""
    used = sum(given["in_use"].values())
    answers = []
    for request in given["requests"]:
        kind = request["type"]
        quotas = {"processes": given["quota"][kind]} if kind in given["quota"] else {}
        wanted = {"processes": request["need"]}
        holder = CampaignView(kind, quotas=quotas)
        in_use = CountedRun(kind, 0, 1, 1, 0, {"processes": given["in_use"].get(kind, 0)})
        demand = RunDemand(kind, 1, 1, 0, wanted)
        full = next(full_at_once(holder, demand, [in_use], LimitLevel.HARD), None)
        free = {"processes": (used, given["capacity"])}
        refusal = full.refusal(0, 1) if full else quota.find_capacity_refusal(kind, wanted, free)
        answers.append(refusal.rule.name if refusal else "start")
    return {"answers": answers}, ["answers"]


def _passes(given: Given) -> tuple[Given, Sequence[str]]:
    events = [round(event * times.SECOND) for event in given["events"]]
    apart = round(given["min_interval"] * times.SECOND)
    begun: list[int] = []
    for event in sorted(events):
        if not begun or event > begun[-1]:  # an event before a pass begins is served by it
            begun.append(pacing.next_episode_at(event, begun[-1] if begun else None, apart))
    return {"passes": [_number(Fraction(at, times.SECOND)) for at in begun]}, ["passes"]


def _placement(given: Given) -> tuple[Given, Sequence[str]]:
    """Lay the same processes in each way."""
    free, count = given["free"], given["processes"]
    answer = {
        "round_robin": placement.round_robin(free, count),
        "pack": placement.pack(free, count),
        "spread": placement.spread(free, count),
    }
    if "nodes" in given:
        answer["nodes"] = as_named(free, given["nodes"])
    return answer, list(answer)


_TRANSLATORS: tuple[tuple[set[str], Callable[[Given], tuple[Given, Sequence[str]]]], ...] = (
    ({"background"}, _slipping_past),
    ({"queues", "rule"}, _bulk),
    ({"queues", "starts"}, _starts),
    ({"N", "bulks"}, _closed_loop),
    ({"SPG", "free_slots_at_each_pass"}, _sections),
    ({"nodes", "process_types"}, _partition),
    ({"quota", "requests"}, _quotas),
    ({"events", "min_interval"}, _passes),
    ({"free", "processes"}, _placement),
)
"""The fields that a case must have, its translator, and the usual fields of the answer."""
