"""The cases of the BOINC client's scheduling, translated: projects are campaigns, hosts nodes.

The fields of a case determine the question, so that other cases of the same form are answered as
well.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from lead.policy.feasible.backoff import FIRST, JITTER, MOST, Key, after_answer, pause
from lead.policy.feasible.work_fetch import Buffer, amount_to_ask
from lead.policy.order.deadline_first import run_list, sorted_by_deadline
from lead.policy.share.recent_work import (
    RecentWorkSelector,
    WorkItem,
    choose,
    sorted_by_standing,
    standings,
)
from lead.policy.view import Backoff
from node.model import times
from node.model.spare_capacity import SpareCapacity, spare_capacity
from tests.golden.figures import figure, first_given, micros, seconds
from tests.golden.originals.busy_time import busy_for
from tests.golden.originals.decay import decayed
from tests.golden.originals.lead_choice import adjusted, seats_to_ask, whom_to_ask
from tests.golden.originals.round_robin_simulation import (
    SimulatedSeats,
    late,
    simulate,
    turns_taken,
)
from tests.golden.shapes import shaped

Given = dict[str, Any]

_HALF_LIFE = 10 * times.DAY
_ALONE = "P"
_FEW = 100
_IN_FLIGHT = re.compile(r"(\w+) is backed off")


def answer(case: Given) -> Any:
    """Return the product's answer to one case."""
    given = case["given"]
    items = given.get("items")
    fields = given.keys() | {f"items/{key}" for key in (items[0] if items else ())}
    for required, translate in _TRANSLATORS:
        if required <= fields:
            return shaped(translate(given), case.get("answer_shape"))
    msg = f"no question is known with the fields {', '.join(sorted(given))}"
    raise ValueError(msg)


def _each(translate: Callable[[Given], Given]) -> Callable[[Given], Given]:
    """Return a translator that asks the same question about every item, with the shared fields."""

    def every(given: Given) -> Given:
        shared = {key: it for key, it in given.items() if key != "items"}
        return {"items": [translate({**shared, **item}) for item in given["items"]]}

    return every


# -- simulation ------------------------------------------------------------------------------------


def _work(tasks: Iterable[Given]) -> list[WorkItem]:
    return [
        WorkItem(
            task=it["id"],
            campaign=it.get("project", _ALONE),
            duration=_time(it, "duration", "hours") or 0,
            seats=it.get("need", 1),
            deadline=_time(it, "deadline", "deadline_h"),
        )
        for it in tasks
    ]


def _time(given: Given, in_seconds: str, in_hours: str) -> int | None:
    if in_hours in given:
        return micros(3600 * given[in_hours])
    found = given.get(in_seconds)
    return None if found is None else micros(found)


def _seats(given: Given, work: Iterable[WorkItem]) -> SimulatedSeats:
    """Return the host's seats; its full load keeps the recent work at its present sum."""
    names = {it.campaign for it in work}
    shares = first_given(given, "shares", "share", default=dict.fromkeys(names, 1))
    recent = given.get("rec", {})
    rate = (sum(recent.values()) or 1) / given["instances"]
    return SimulatedSeats(given["instances"], shares, recent, rate, _HALF_LIFE)


def _simulation(given: Given) -> Given:
    work = _work(given["tasks"])
    seats = _seats(given, work)
    course = simulate(work, seats, 0)
    capacity = spare_capacity(course.stretches, seats.count, 0, micros(given["max_buffer"]))
    answer: Given = {
        "shortfall": seconds(capacity.shortfall),
        "saturated": seconds(capacity.saturated),
        "idle_now": figure(capacity.idle_now),
    }
    if any(course.begun.values()):
        answer["finish"] = {it.task: seconds(course.ended[it.task]) for it in work}
    if any(it.deadline is not None for it in work):
        ahead = micros(given.get("min_buffer", 0))
        answer["misses"] = [it.task for it in late(work, course, ahead)]
    return answer


def _deadlines(given: Given) -> Given:
    work = _work(given["tasks"])
    seats = _seats(given, work)
    ahead = _time(given, "min_buffer", "min_buffer_h") or 0
    late_work = late(work, simulate(work, seats, 0), ahead)
    course = simulate(work, seats, 0, [it.task for it in sorted_by_deadline(late_work)])
    in_hours = any("hours" in it for it in given["tasks"])
    unit = times.HOUR if in_hours else times.SECOND
    ends = {task: figure(end / unit) for task, end in course.ended.items()}
    return {
        "misses": [it.task for it in late_work],
        "run_order": list(course.begun),
        "finish_h" if in_hours else "finish": ends,
        "all_met": not late(work, course, ahead),
    }


def _busy(given: Given) -> Given:
    shared = {key: it for key, it in given.items() if key != "items"}
    busy = []
    for item in given["items"]:
        case = {**shared, **item}
        needs = case.get("needs", [1] * len(case["edf_durations"]))
        first = [
            WorkItem(str(number), _ALONE, micros(duration), need)
            for number, (duration, need) in enumerate(
                zip(case["edf_durations"], needs, strict=True)
            )
        ]
        busy.append(seconds(busy_for(first, case["instances"])))
    return {"busy": busy}


# -- shares ----------------------------------------------------------------------------------------


def _slices(given: Given) -> Given:
    count = given["instances"]
    rate = (sum(given.get("rec", {}).values()) or 1) / count
    half_life = round(given.get("half_life_days", 10) * times.DAY)
    seats = SimulatedSeats(count, given["shares"], given.get("rec", {}), rate, half_life)
    served = turns_taken(seats, given["slices"])
    counts = Counter(dict.fromkeys(seats.shares, 0))
    shared, lag, so_far = sum(seats.shares.values()), 0.0, 0
    for names in served:
        counts.update(names)
        so_far += len(names)
        behind = (abs(counts[name] - so_far * it / shared) for name, it in seats.shares.items())
        lag = max(lag, *behind)
    if given["slices"] < _FEW:
        return {"slices": dict(counts)}
    return {
        "share": {name: figure(it / so_far) for name, it in counts.items()},
        "max_lag_slices": math.ceil(lag),
    }


def _priorities(given: Given) -> Given:
    priorities = standings(given["rec"], given["share"])
    return {
        "priority": {name: figure(it) for name, it in priorities.items()},
        "order": sorted_by_standing(priorities),
    }


def _recent(given: Given) -> Given:
    half_life = round(given["half_life_days"] * times.DAY)
    recent = [
        decayed(item["rec"], item["rate"], round(item["days"] * times.DAY), half_life)
        for item in given["items"]
    ]
    return {"rec": [figure(it) for it in recent]}


# -- what to run -----------------------------------------------------------------------------------


def _run_list(given: Given) -> Given:
    projects = given["projects"]
    work = [
        WorkItem(
            task=job["id"],
            campaign=job["project"],
            duration=micros(first_given(job, "remaining", "duration")),
            seats=job.get("need", 1),
            deadline=None if job.get("deadline") is None else micros(job["deadline"]),
        )
        for job in given["jobs"]
    ]
    shares = {name: it["share"] for name, it in projects.items()}
    recent = {name: it["rec"] for name, it in projects.items()}
    missed = {job["id"] for job in given["jobs"] if job.get("miss")}
    turns = RecentWorkSelector(recent, shares, given["instances"])
    run = run_list(work, missed, turns, given["instances"])
    return {"run": [it.task for it in run]}


def _mixed(given: Given) -> Given:
    campaigns = []
    for item in given["items"]:
        case = {**given, **item}
        waiting = {
            name: [
                WorkItem(f"{name}{number}", name, times.HOUR) for number in range(case["jobs_each"])
            ]
            for name in case["share"]
        }
        turns = RecentWorkSelector(case["rec"], case["share"], case["instances"])
        campaigns.append([it.campaign for it in choose(waiting, turns, case["instances"])])
    return {"items": campaigns}


# -- work fetch and backoff ------------------------------------------------------------------------


def _ask(given: Given) -> Given:
    amount = amount_to_ask(
        SpareCapacity(micros(given["shortfall"]), micros(given["saturated"]), given["idle_now"]),
        Buffer(micros(given["min_buffer"]), micros(given["max_buffer"])),
        on_contact=given["scheduled_contact"],
        stands_highest=given.get("highest_priority", True),
    )
    return {"ask": True, "seconds": seconds(amount)} if amount else {"ask": False}


def _whom(given: Given) -> Given:
    buffer = Buffer(0, micros(given["max_buffer"]))
    standings = {
        name: adjusted(standing, micros(given["queued"].get(name, 0)), buffer, given["instances"])
        for name, standing in given["priority"].items()
    }
    candidates = set(given["fetchable"]) - set(given.get("backed_off", ()))
    return {
        "adjusted": {name: figure(it) for name, it in standings.items()},
        "ask": whom_to_ask(standings, candidates),
    }


def _instances(given: Given) -> Given:
    counts = [
        seats_to_ask(
            item["idle_now"],
            first_given({**given, **item}, "instances"),
            item["fetchable_share"],
            item["queued_instances"],
        )
        for item in given["items"]
    ]
    return {"instances_asked": [figure(it) for it in counts]}


def _intervals(given: Given) -> Given:
    first, most = micros(given["min"]), micros(given["max"])
    replies = given["consecutive_empty_replies"]
    key = (_ALONE, "", "")
    long_ago: dict[Key, Backoff] = {key: Backoff(replies, 0)}
    cleared = after_answer(long_ago, [key], [key], 1, random.Random(0))
    return {
        "intervals": [seconds(pause(at + 1, first, most)) for at in range(replies)],
        "jitter_factor_range": list(JITTER),
        "after_success": seconds(pause(cleared[key].failures if key in cleared else 0)),
    }


def _events(given: Given) -> Given:
    failures = {name: _failures(interval) for name, interval in given["state"].items()}
    after_each: Given = {}
    for at, event in enumerate(given["events"], 1):
        waiting = _still_waiting(event, failures)
        before = {
            _key(name): Backoff(count, 2 if name in waiting else 0)
            for name, count in failures.items()
            if count
        }
        asked = event["asked"] if event.get("automatic", True) else event["got"]
        after = after_answer(
            before,
            [_key(f"{event['project']}/{kind}") for kind in asked],
            [_key(f"{event['project']}/{kind}") for kind in event["got"]],
            1,
            random.Random(0),
        )
        failures = {name: after.get(_key(name), Backoff(0, 0)).failures for name in failures}
        after_each[f"after_{at}"] = {name: seconds(pause(it)) for name, it in failures.items()}
    return after_each


def _still_waiting(event: Given, failures: dict[str, int]) -> set[str]:
    """Return the names asked although their pause is not over: in flight, or with others.

    A single name is asked because its pause is over.
    """
    kinds = event.get("backed_off")
    if kinds is None:
        kinds = _IN_FLIGHT.findall(event.get("note", ""))
    if not kinds and len(event["asked"]) > 1:
        kinds = event["asked"]
    names = {f"{event['project']}/{kind}" for kind in kinds}
    return {name for name in names if failures.get(name)}


def _key(name: str) -> Key:
    project, _, kind = name.partition("/")
    return project, "", kind


def _failures(interval: float) -> int:
    """Return after how many empty replies in a row the pause has this length."""
    if not interval:
        return 0
    most = range(1, 99)
    return next((at for at in most if pause(at, FIRST, MOST) >= micros(interval)), most.stop)


_TRANSLATORS: tuple[tuple[set[str], Callable[[Given], Given]], ...] = (
    ({"tasks", "max_buffer", "instances"}, _simulation),
    ({"items/tasks", "items/max_buffer"}, _each(_simulation)),
    ({"items/tasks", "max_buffer"}, _each(_simulation)),
    ({"tasks", "instances"}, _deadlines),
    ({"items/tasks"}, _each(_deadlines)),
    ({"shares", "slices"}, _slices),
    ({"rec", "share"}, _priorities),
    ({"projects", "jobs"}, _run_list),
    ({"items/rec", "jobs_each"}, _mixed),
    ({"items/saturated", "min_buffer"}, _each(_ask)),
    ({"priority", "queued", "fetchable"}, _whom),
    ({"min", "max", "consecutive_empty_replies"}, _intervals),
    ({"state", "events"}, _events),
    ({"items/edf_durations"}, _busy),
    ({"half_life_days", "items"}, _recent),
    ({"items/idle_now", "items/fetchable_share"}, _instances),
)
"""The fields that a case must have, and its translator."""
