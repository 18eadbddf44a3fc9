"""The cases of Maui's iteration and policies, translated. Credentials are holders and campaigns.

What is asked is told by the fields that are given, so that other cases of the same form are
answered as well. What a priority is made of and what rounds come
to have modules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from lead.policy.feasible.availability import CapacityBasis, available, seats_on
from lead.policy.feasible.deferral import DeferralRule, failed
from lead.policy.fill.backfill import BackfillChoice, RunWorth, fill, windows
from lead.policy.preempt.flagged import may_displace
from lead.policy.select import last_available, linear_function, poorest
from lead.policy.throttle.active_limits import (
    Holder,
    LimitLevel,
    limit_at,
    outstanding,
    within_limits,
)
from lead.policy.throttle.delivered_cap import within_amount, within_part
from lead.policy.throttle.due_limits import DueTask, considered
from lead.policy.timetable import free_for
from lead.policy.view import Deferral, LimitView
from tests.golden import maui_priority, maui_rounds
from tests.golden.figures import figure, micros, seconds, told
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
    """The product's answer to one case."""
    given = case["given"]
    for telling, translate in _TRANSLATORS:
        if telling <= given.keys() | {f"items/{key}" for key in _item(given)}:
            return shaped(translate(given), case.get("answer_shape"))
    return shaped(maui_priority.answer(given), case.get("answer_shape"))


def _item(given: Given) -> Iterable[str]:
    items = given.get("items")
    return items[0] if items else ()


# -- feasible --------------------------------------------------------------------------------------


def _availability(given: Given) -> Given:
    def left(policy: str) -> Any:
        has, promised, used = given["configured"], given["dedicated"], given["utilized"]
        counted = _COUNTED[policy]
        if not isinstance(has, dict):
            return available(has, promised, used, counted)
        return {
            name: available(has[name], promised.get(name, 0), used.get(name, 0), counted)
            for name in has
        }

    if "policies" not in given:
        return {"available": left(given.get("policy", "COMBINED"))}
    return {"available": [left(policy) for policy in given["policies"]]}


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
    again = micros(given.get("iteration_seconds", 0))
    now, state = micros(given.get("first_attempt_at", 0)), Deferral()
    attempts = []
    while not state.held:
        attempts.append(now)
        state = failed(state, now, patience)
        now = max(now + again, state.until)
    return {
        "attempt_times_first": [seconds(at) for at in attempts[:_FIRST_ATTEMPTS]],
        "deferrals_before_hold": state.count,
        "state_after": "batch hold",
        "hold_at": seconds(state.until),
    }


# -- throttle --------------------------------------------------------------------------------------


def _limit(written: Any) -> LimitView:
    """``"2,8"`` is soft 2 and hard 8; one number is both."""
    if isinstance(written, list):
        return LimitView(*written)
    if isinstance(written, str) and "," in written:
        soft, hard = written.split(",")
        return LimitView(int(soft), int(hard))
    return LimitView(None, int(written))


def _limits(written: Given) -> dict[str, LimitView]:
    return {_KINDS[key]: _limit(it) for key, it in written.items() if key in _KINDS}


def _of(given: Given, credential: str, item: Given) -> Given:
    """What is configured for the item's credential of one kind: its own line or the default's."""
    name = item.get(credential)
    if name is None:
        return {}
    named: Given = given.get(credential, {})
    for found in (
        named.get(name),
        given.get(f"{credential}_{name}"),
        given.get(f"{credential}_default"),
        named.get("DEFAULT"),
    ):
        if found is not None:
            return dict(found)
    return {}


def _request(item: Given) -> dict[str, int]:
    procs = told(item, "procs", "nodes", default=1)
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
    by: list[str | None] = []
    for item in given["items"]:
        qos = _of(given, "qos", item)
        overrides = _limits({key[1:]: it for key, it in qos.items() if key.startswith("O")})
        level = LimitLevel(told({**given, **item}, "level", default="hard"))
        no = within_limits(_request(item), _holders(given, item), level, overrides)
        admitted.append(no is None)
        by.append(None)
        if no is not None:
            refused = dict(no.figures)
            [limit] = [key for key, kind in _KINDS.items() if kind == refused["kind"]]
            by[-1] = f"{refused['holder']} {limit}"
    return {"admitted": admitted, "by": by}


def _soft_then_hard(given: Given) -> Given:
    shared = {key: it for key, it in given.items() if key != "items"}
    answered = [_both_passes({**shared, **item}) for item in given.get("items", [{}])]
    return {"items": answered} if "items" in given else answered[0]


def _both_passes(given: Given) -> Given:
    """Each pass down the whole list: whoever is within its limits starts if there are nodes."""
    free, limits = given["nodes"], _limits(given)
    used: dict[str, dict[str, int]] = {}
    started: dict[str, list[str]] = {}
    gone: set[str] = set()
    for level in LimitLevel:
        started[level.value] = []
        for name, user, nodes, *_ in given["queue"]:
            request = _request({"nodes": nodes})
            mine = used.setdefault(user, dict.fromkeys(request, 0))
            refused = within_limits(request, [Holder(user, limits, mine)], level)
            if name not in gone and nodes <= free and refused is None:
                free -= nodes
                gone.add(name)
                started[level.value].append(name)
                used[user] = {kind: mine[kind] + amount for kind, amount in request.items()}
    return started


def _outstanding(given: Given) -> Given:
    runs = [(job["procs"], job["remaining"]) for job in given["jobs"]]
    found = [outstanding(runs, after) for after in given["after_seconds"]]
    if "MAXPS" not in given:
        return {"outstanding": found}
    most = limit_at(_limit(given["MAXPS"]), LimitLevel.HARD)
    return {"outstanding": found, "within": [most is None or it <= most for it in found]}


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
    eligible, refused = considered(due, {it.holders[0]: limits for it in due})
    return {"eligible": eligible, "not_ageing": list(refused)}


def _cap(given: Given) -> Given:
    used, requests = Fraction(given["usage"]), [Fraction(it) for it in given["requests"]]
    if "cap_percent" not in given:
        cap = Fraction(given["cap"])
        return {"allowed": [within_amount("", used, it, cap) is None for it in requests]}
    cap, total = Fraction(str(given["cap_percent"])) / 100, Fraction(given["total"])
    return {"allowed": [within_part("", used, it, total, cap) is None for it in requests]}


# -- fill ------------------------------------------------------------------------------------------


def _windows(given: Given) -> Given:
    found = windows(free_for(busy(given), 0))
    return {
        "windows": [
            {
                "nodes": list(window.nodes),
                "seconds": None if window.length is None else seconds(window.length),
            }
            for window in found
        ]
    }


def _backfill(given: Given) -> Given:
    free = {
        name: None if until is None else micros(until)
        for name, until in given["free_until"].items()
    }
    queue = requests(given["queue"], list(free))
    answered: Given = {"started": []}
    for policy, metric in given["cases"]:
        found: Mapping[str, tuple[str, ...]] = {}
        if policy != "NONE":
            depth = given.get("depth", 0)
            found = fill(queue, free, _CHOICES[policy], _WORTHS[metric], depth)
        answered["started"].append(list(found))
        placement = {name: list(nodes) for name, nodes in found.items()}
        answered.setdefault(f"placement_{policy.lower()}", placement)
    return answered


# -- select and preempt ----------------------------------------------------------------------------


def _nodes(given: Given) -> Given:
    answered: Given = {}
    if "priority_function" in given:
        function = linear_function.parse(given["priority_function"])
        nodes = {
            name: {key: Fraction(str(it)) for key, it in figures.items()}
            for name, figures in given["nodes"].items()
        }
        ranked = linear_function.rank(function, nodes)
        values = dict(ranked)
        answered["values"] = {name: figure(values[name]) for name in nodes}
        answered["chosen"] = [name for name, _ in ranked][: given["k"]]
    if "lastavailable" in given:
        asked = given["lastavailable"]
        free = {name: None if it is None else micros(it) for name, it in asked["free_for"].items()}
        ranking = last_available.rank(free, micros(asked["duration"]))
        answered["lastavailable"] = ranking[: asked["k"]] if len(ranking) >= asked["k"] else None
    if "minresource" in given:
        asked = given["minresource"]
        answered["minresource"] = poorest.rank(asked["nodes"], asked["needs"])[: asked["k"]]
    return answered


def _preemption(given: Given) -> Given:
    allowed = [
        may_displace(
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
"""What a case must give, and what then answers it."""
