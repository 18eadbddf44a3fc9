"""The cases of Maui's iteration and policies, translated. Credentials are holders and campaigns.

The fields of a case determine the question, so that other cases of the same form are answered as
well. The components of a priority and the rounds of scheduling have modules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from lead.policy.feasible.availability import CapacityBasis, available_amount, seats_on
from lead.policy.feasible.deferral import DeferralRule, after_failed_start
from lead.policy.fill.backfill import BackfillChoice, RunWorth, free_windows, runs_to_start
from lead.policy.preempt.flagged import find_preemption_refusal
from lead.policy.select import linear_function, rankings
from lead.policy.throttle.active_limits import (
    Holder,
    LimitLevel,
    find_limit_refusal,
    limit_at,
    outstanding_time,
)
from lead.policy.throttle.delivered_cap import find_amount_refusal, find_part_refusal
from lead.policy.throttle.due_limits import DueTask, tasks_within_limits
from lead.policy.timetable import free_times
from lead.policy.view import Deferral, LimitView
from tests.golden import maui_priority, maui_rounds
from tests.golden.figures import figure, first_given, micros, seconds
from tests.golden.maui_rounds import busy, requests
from tests.golden.shapes import shaped

Given = dict[str, Any]

_KINDS = {
    "MAXJOB": "runs",
    "MAXNODE": "nodes",
    "MAXPROC": "seats",
    "MAXPS": "seat_time",
    "MAXWC": "time",
    "MAXMEM": "memory",
}
_USES = {"jobs": "runs", "nodes": "nodes", "procs": "seats", "ps": "seat_time", "wc": "time"}
_USES |= {"mem": "memory"}
_CREDENTIALS = ("user", "group", "account", "class", "qos")
_PAIR = re.compile(r"(?P<limit>[A-Z]+)\[(?P<other>[A-Za-z]+)(?::(?P<name>\w+))?\]")
_CHOICES = {
    "FIRSTFIT": BackfillChoice.FIRST,
    "BESTFIT": BackfillChoice.BEST,
    "GREEDY": BackfillChoice.COMBINATION,
}
_WORTHS = {"PROCS": RunWorth.SEATS, "SECONDS": RunWorth.TIME, "PROCSECONDS": RunWorth.SEAT_TIME}
_COUNTED = {
    "COMBINED": CapacityBasis.COMBINED,
    "DEDICATED": CapacityBasis.DEDICATED,
    "UTILIZED": CapacityBasis.UTILISED,
}
_NUMBERS = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
_FIRST_ATTEMPTS = 3


def answer(case: Given) -> Any:
    """Return the product's answer to one case."""
    given = case["given"]
    for required, translate in _TRANSLATORS:
        if required <= given.keys() | {f"items/{key}" for key in _item(given)}:
            return shaped(translate(given), case.get("answer_shape"))
    return shaped(maui_priority.answer(given), case.get("answer_shape"))


def _item(given: Given) -> Iterable[str]:
    items = given.get("items")
    return items[0] if items else ()


# -- feasible --------------------------------------------------------------------------------------


def _availability(given: Given) -> Given:
    def available_by(policy: str) -> Any:
        configured, dedicated, utilized = given["configured"], given["dedicated"], given["utilized"]
        counted = _COUNTED[policy]
        if not isinstance(configured, dict):
            return available_amount(configured, dedicated, utilized, counted)
        return {
            name: available_amount(
                configured[name], dedicated.get(name, 0), utilized.get(name, 0), counted
            )
            for name in configured
        }

    if "policies" not in given:
        return {"available": available_by(given.get("policy", "COMBINED"))}
    return {"available": [available_by(policy) for policy in given["policies"]]}


def _atomic_tasks(given: Given) -> Given:
    least = given.get("tasks_per_node", 1)
    fitting = {name: seats_on(room, given["task"], least) for name, room in given["nodes"].items()}
    words = _NUMBERS.split()
    one_more = sum(fitting.values()) + 1
    return {
        "tasks_per_node": fitting,
        "fits": sum(fitting.values()) >= given["tasks"],
        f"{words[one_more] if one_more < len(words) else one_more}_tasks_fit": sum(fitting.values())
        >= one_more,
    }


def _deferral(given: Given) -> Given:
    patience = DeferralRule(
        micros(given["defer_seconds"]), given["defer_count"], given.get("defer_start_count", 1)
    )
    interval = micros(given.get("iteration_seconds", 0))
    now, state = micros(given.get("first_attempt_at", 0)), Deferral()
    attempts = []
    while not state.held:
        attempts.append(now)
        state = after_failed_start(state, now, patience)
        now = max(now + interval, state.until)
    return {
        "attempt_times_first": [seconds(at) for at in attempts[:_FIRST_ATTEMPTS]],
        "deferrals_before_hold": state.count,
        "state_after": "batch hold",
        "hold_at": seconds(state.until),
    }


# -- throttle --------------------------------------------------------------------------------------


def _limit(written: Any) -> LimitView:
    """Parse a limit: ``"2,8"`` is soft 2 and hard 8; one number is both."""
    if isinstance(written, list):
        return LimitView(*written)
    if isinstance(written, str) and "," in written:
        soft, hard = written.split(",")
        return LimitView(int(soft), int(hard))
    return LimitView(None, int(written))


def _limits(written: Given) -> dict[str, LimitView]:
    return {_KINDS[key]: _limit(it) for key, it in written.items() if key in _KINDS}


def _of(given: Given, credential: str, item: Given) -> Given:
    """Return the settings of the item's credential of one kind: its own line or the default's."""
    name = item.get(credential)
    if name is None:
        return {}
    named: Given = given.get(credential, {})
    for settings in (
        named.get(name),
        given.get(f"{credential}_{name}"),
        given.get(f"{credential}_default"),
        named.get("DEFAULT"),
    ):
        if settings is not None:
            return dict(settings)
    return {}


def _request(item: Given) -> dict[str, int]:
    procs = first_given(item, "procs", "nodes", default=1)
    time = item.get("duration", 0)
    return {
        "runs": 1,
        "nodes": item.get("nodes", 1),
        "seats": procs,
        "seat_time": procs * time,
        "time": time,
        "memory": item.get("mem", 0),
    }


def _holders(given: Given, item: Given) -> list[Holder]:
    used = item["in_use"]
    holders = []
    for credential in _CREDENTIALS:
        configured = _of(given, credential, item)
        limits = _limits(configured)
        if credential == "qos" and "OMAXJOB" in configured:
            limits.setdefault("runs", _limit(configured["OMAXJOB"]))
        holders.append(Holder(credential, limits, _in_use(used, credential)))
        for key, it in configured.items():
            pair = _PAIR.fullmatch(key)
            if pair and pair["name"] in {None, item.get(pair["other"].lower())}:
                name = f"{credential}_{pair['other'].lower()}"
                pairs = {_KINDS[pair["limit"]]: _limit(it)}
                holders.append(Holder(name, pairs, _in_use(used, name)))
    return holders


def _in_use(used: Given, holder: str) -> dict[str, int]:
    return {kind: used.get(f"{holder}_{word}", 0) for word, kind in _USES.items()}


def _credentials(given: Given) -> Given:
    admitted: list[bool] = []
    reasons: list[str | None] = []
    for item in given["items"]:
        qos = _of(given, "qos", item)
        overrides = _limits({key[1:]: it for key, it in qos.items() if key.startswith("O")})
        level = LimitLevel(first_given({**given, **item}, "level", default="hard"))
        refusal = find_limit_refusal(_request(item), _holders(given, item), level, overrides)
        admitted.append(refusal is None)
        reasons.append(None)
        if refusal is not None:
            figures = dict(refusal.figures)
            [limit] = [key for key, kind in _KINDS.items() if kind == figures["kind"]]
            reasons[-1] = f"{figures['holder']} {limit}"
    return {"admitted": admitted, "by": reasons}


def _soft_then_hard(given: Given) -> Given:
    shared = {key: it for key, it in given.items() if key != "items"}
    answers = [_both_passes({**shared, **item}) for item in given.get("items", [{}])]
    return {"items": answers} if "items" in given else answers[0]


def _both_passes(given: Given) -> Given:
    """Pass down the whole list twice; whatever is within its limits starts if nodes are free."""
    free, limits = given["nodes"], _limits(given)
    used: dict[str, dict[str, int]] = {}
    started: dict[str, list[str]] = {}
    started_names: set[str] = set()
    for level in LimitLevel:
        started[level.value] = []
        for name, user, nodes, *_ in given["queue"]:
            request = _request({"nodes": nodes})
            usage = used.setdefault(user, dict.fromkeys(request, 0))
            refusal = find_limit_refusal(request, [Holder(user, limits, usage)], level)
            if name not in started_names and nodes <= free and refusal is None:
                free -= nodes
                started_names.add(name)
                started[level.value].append(name)
                used[user] = {kind: usage[kind] + amount for kind, amount in request.items()}
    return started


def _outstanding(given: Given) -> Given:
    runs = [(job["procs"], job["remaining"]) for job in given["jobs"]]
    amounts = [outstanding_time(runs, after) for after in given["after_seconds"]]
    if "MAXPS" not in given:
        return {"outstanding": amounts}
    most = limit_at(_limit(given["MAXPS"]), LimitLevel.HARD)
    return {"outstanding": amounts, "within": [most is None or it <= most for it in amounts]}


def _idle(given: Given) -> Given:
    limits = {
        _KINDS[key.replace("MAXI", "MAX")]: _limit(it).hard or 0
        for key, it in given.items()
        if key.startswith("MAXI")
    }
    due = [
        DueTask(name, (user,), _request({"nodes": more[0]} if more else {}))
        for name, user, *more in given["queue"]
    ]
    eligible, refused = tasks_within_limits(due, {it.holders[0]: limits for it in due})
    return {"eligible": eligible, "not_ageing": list(refused)}


def _cap(given: Given) -> Given:
    used, requests = Fraction(given["usage"]), [Fraction(it) for it in given["requests"]]
    if "cap_percent" not in given:
        cap = Fraction(given["cap"])
        return {"allowed": [find_amount_refusal("", used, it, cap) is None for it in requests]}
    cap, total = Fraction(str(given["cap_percent"])) / 100, Fraction(given["total"])
    return {"allowed": [find_part_refusal("", used, it, total, cap) is None for it in requests]}


# -- fill ------------------------------------------------------------------------------------------


def _windows(given: Given) -> Given:
    all_windows = free_windows(free_times(busy(given), 0))
    return {
        "windows": [
            {
                "nodes": list(window.nodes),
                "seconds": None if window.length is None else seconds(window.length),
            }
            for window in all_windows
        ]
    }


def _backfill(given: Given) -> Given:
    free = {
        name: None if until is None else micros(until)
        for name, until in given["free_until"].items()
    }
    queue = requests(given["queue"], list(free))
    answer: Given = {"started": []}
    for policy, metric in given["cases"]:
        started: Mapping[str, tuple[str, ...]] = {}
        if policy != "NONE":
            depth = given.get("depth", 0)
            started = runs_to_start(queue, free, _CHOICES[policy], _WORTHS[metric], depth)
        answer["started"].append(list(started))
        placement = {name: list(nodes) for name, nodes in started.items()}
        answer.setdefault(f"placement_{policy.lower()}", placement)
    return answer


# -- select and preempt ----------------------------------------------------------------------------


def _nodes(given: Given) -> Given:
    answer: Given = {}
    if "priority_function" in given:
        function = linear_function.parse(given["priority_function"])
        nodes = {
            name: {key: Fraction(str(it)) for key, it in figures.items()}
            for name, figures in given["nodes"].items()
        }
        ranked = linear_function.ranking(function, nodes)
        values = dict(ranked)
        answer["values"] = {name: figure(values[name]) for name in nodes}
        answer["chosen"] = [name for name, _ in ranked][: given["k"]]
    if "lastavailable" in given:
        question = given["lastavailable"]
        free = {
            name: None if it is None else micros(it) for name, it in question["free_for"].items()
        }
        ranking = rankings.by_time_left(free, micros(question["duration"]))
        answer["lastavailable"] = (
            ranking[: question["k"]] if len(ranking) >= question["k"] else None
        )
    if "minresource" in given:
        question = given["minresource"]
        answer["minresource"] = rankings.by_wealth(question["nodes"], question["needs"])[
            : question["k"]
        ]
    return answer


def _preemption(given: Given) -> Given:
    allowed = [
        find_preemption_refusal(
            ("new", item["new"]["priority"]),
            ("old", item["old"]["priority"]),
            preemptor="PREEMPTOR" in item["new"]["flags"],
            preemptee="PREEMPTEE" in item["old"]["flags"],
        )
        is None
        for item in given["items"]
    ]
    return {"allowed": allowed}


_TRANSLATORS: tuple[tuple[set[str], Callable[[Given], Given]], ...] = (
    ({"configured", "dedicated", "utilized"}, _availability),
    ({"task", "nodes", "tasks"}, _atomic_tasks),
    ({"defer_seconds", "defer_count"}, _deferral),
    ({"items/in_use"}, _credentials),
    ({"jobs", "after_seconds"}, _outstanding),
    ({"requests", "usage"}, _cap),
    ({"MAXIJOB", "queue"}, _idle),
    ({"MAXIPROC", "queue"}, _idle),
    ({"MAXINODE", "queue"}, _idle),
    ({"nodes", "items/queue"}, _soft_then_hard),
    ({"free_until", "queue"}, _backfill),
    ({"queue", "depths"}, maui_rounds.depths),
    ({"queue", "event"}, maui_rounds.early_end),
    ({"running", "reservation"}, _windows),
    ({"running", "reservations"}, _windows),
    ({"priority_function"}, _nodes),
    ({"lastavailable"}, _nodes),
    ({"minresource"}, _nodes),
    ({"items/new", "items/old"}, _preemption),
)
"""The fields that a case must have, and its translator."""
