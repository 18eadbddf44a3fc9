"""The cases of sharing engines among sessions, translated. Times are seconds, or as named.

A session is a campaign, an engine a seat. The fields of a case determine the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from lead.policy.feasible import blacklist
from lead.policy.preempt import groups, score
from lead.policy.seats import CampaignStake, FreeSeats
from lead.policy.share import aggregation, creation, levels, promised, urgent, usage
from lead.policy.view import URGENT, Charge, Exact
from node.model import times
from tests.golden.originals.affinity_wait import starts_at
from tests.golden.originals.failure_record import cleared, failed
from tests.golden.originals.named_seats import NamedSeats
from tests.golden.shapes import shaped

Given = dict[str, Any]

LINEAR = "linear"
UNLIMITED = ("unlimited", None)


def answer(case: Given) -> Any:
    """Return the product's answer to one case."""
    given, shape = {**case["given"], "policy": case["policy"]}, case.get("answer_shape")
    items = given.pop("items", None)
    both = [{**given, **item} for item in items or [{}]]
    translate, only = _translator(both[0])
    results = [translate(each) for each in both]
    if items is None:
        return _chosen(results[0], given, shape)
    if only is not None and "items" not in (shape or {}):
        return {only: [each[only] for each in results]}
    shapes = (shape or {}).get("items") or [None]
    return {"items": [_chosen(it, each, shapes[0]) for it, each in zip(results, both, strict=True)]}


def _translator(given: Given) -> tuple[Callable[[Given], Given], str | None]:
    for required, translate, only in _TRANSLATORS:
        if required <= given.keys():
            return translate, only
    msg = f"no question is known with the fields {', '.join(sorted(given))}"
    raise ValueError(msg)


def _chosen(result: Given, given: Given, shape: Given | None) -> Given:
    """Return the fields of the shape; without a shape, the usual fields of such a case."""
    if shape is None:
        return {key: value for key, value in result.items() if _asked(key, given, result)}
    selected: Given = shaped(result, shape)
    return selected


def _asked(key: str, given: Given, result: Given) -> bool:
    """Return whether a case with these fields asks for this one."""
    enough = result.get("enough") is True
    wanted_fields: dict[str, bool] = {
        "order": "allocated" in given,
        "assigned": "eligible" not in given,
        "assigned_count": "eligible" in given,
        "targets": False,
        "enough": False,
        "numbers": not enough,
        "first_round": enough,
        "remainder": enough,
        "remainder_numbers": enough,
        "victim": "needed" not in given,
        "victims": "needed" in given,
        "extra": "extra" in given,
    }
    return wanted_fields.get(key, True)


def _micros(seconds: float) -> int:
    return round(seconds * times.SECOND)


def _exact(number: float) -> Fraction:
    return Fraction(str(number))


def _number(exact: Fraction | int, digits: int = 6) -> int | float:
    fraction = Fraction(exact)
    if fraction.denominator == 1:
        return fraction.numerator
    return round(float(fraction), digits)


def _seconds(micros: int) -> int | float:
    return _number(Fraction(micros, times.SECOND))


def _amount(amount: Any) -> int | None:
    return None if amount in UNLIMITED else int(amount)


# -- sessions --------------------------------------------------------------------------------------


def _level(level: Any) -> int:
    return URGENT if level == "urgent" else int(level)


def _of(given: Given, field: str, name: str, default: Any) -> Any:
    """Return a field's value for one session: one for each, or one for all."""
    value = given.get(field, default)
    return value.get(name, default) if isinstance(value, Mapping) else value


def _weight(given: Given, name: str, level: int) -> Fraction:
    """Return the session's own weight, the weight of its level, or the level itself."""
    weights = given.get("weights", LINEAR)
    if isinstance(weights, list):
        return _exact(weights[level])
    if isinstance(weights, Mapping):
        return _exact(weights[name] if name in weights else weights[str(level)])
    return Fraction(level)


def _flat(given: Given) -> Given:
    """Return the same case with a map per field instead of a list of sessions."""
    flat = {key: value for key, value in given.items() if key != "sessions"}
    for session in given.get("sessions", ()):
        for key, value in session.items():
            field = "levels" if key == "level" else key
            if key != "id" and not (field in flat and not isinstance(flat[field], dict)):
                flat[field] = {**flat.get(field, {}), session["id"]: value}
    return flat


def _names(given: Given) -> list[str]:
    if "sessions" in given:
        return [session["id"] for session in given["sessions"]]
    return list(given["levels"] if "levels" in given else given["weights"])


def _stakes(given: Given) -> list[CampaignStake]:
    flat = _flat(given)
    stakes = []
    for place, name in enumerate(_names(given)):
        level = _level(_of(flat, "levels", name, 5))
        allocated = int(_of(flat, "allocated", name, 0))
        demand = _amount(_of(flat, "demand", name, None))
        waiting = _amount(_of(flat, "waiting", name, None))
        if demand is not None:
            waiting = max(0, demand - allocated)
        stakes.append(
            CampaignStake(
                name,
                _weight(flat, name, level),
                level,
                allocated,
                waiting,
                _amount(_of(flat, "max_engines", name, None)),
                _micros(_of(flat, "usage", name, 0)),
                _micros(_of(flat, "created", name, place)),
            )
        )
    return stakes


def _free(given: Given, stakes: Iterable[CampaignStake]) -> FreeSeats:
    free = given.get("free", given.get("engines", 0) - sum(stake.allocated for stake in stakes))
    eligible = {name: frozenset(some) for name, some in given.get("eligible", {}).items()}
    if not eligible:
        return FreeSeats(len(free) if isinstance(free, list) else free)
    if isinstance(free, list):
        return NamedSeats.of(free, eligible)
    return NamedSeats.of(sorted(frozenset().union(*eligible.values()))[:free], eligible)


# -- sharing ---------------------------------------------------------------------------------------


def _ideals(seats: int, stakes: list[CampaignStake], *, aggregate: bool) -> dict[str, int]:
    if not aggregate:
        return usage.ideals(seats, stakes)
    return aggregation.ideals(seats, stakes, _groups(stakes))


def _groups(stakes: list[CampaignStake]) -> list[aggregation.WeightGroup]:
    """Group sessions of one level and weight."""
    members: dict[tuple[int, Exact], set[str]] = {}
    for stake in stakes:
        members.setdefault((stake.level, stake.weight), set()).add(stake.name)
    return [
        aggregation.WeightGroup(f"{level} {weight}", weight, frozenset(names))
        for (level, weight), names in members.items()
    ]


def _entitled(stakes: list[CampaignStake], given: Given) -> Mapping[str, Exact]:
    """Return the weight of each active session, or its part of that of its level."""
    if given.get("aggregate", "aggregate" in given["policy"]):
        return aggregation.entitlements(stakes, _groups(stakes))
    return {stake.name: stake.weight for stake in stakes}


def _sharing(given: Given) -> Given:
    """Return the ideals, the serving order, and what each session gets."""
    stakes, policy = _stakes(given), given["policy"]
    aggregate = given.get("aggregate", "aggregate" in policy)
    if isinstance(aggregate, list):
        plain, together = (
            _ideals(given["engines"], stakes, aggregate=each) for each in (False, True)
        )
        return {"aggregated": together, "plain": plain}
    ideals = _ideals(given["engines"], stakes, aggregate=aggregate)
    answer: Given = {"ideal": ideals}
    seats = _free(given, stakes)
    first, others = urgent.serve(stakes, seats)
    remaining = urgent.left_to_share(given["engines"], stakes, first)
    ideals = _ideals(remaining, others, aggregate=aggregate) if first else ideals
    order = usage.serving_order(others)
    served = [*first, *usage.allot(order, ideals, seats)]
    answer["order"] = [name for name, _ in served]
    if "free" in given or "allocated" in given or first:
        assigned = {stake.name: 0 for stake in stakes} | dict(served)
        answer |= {"assigned": assigned, "assigned_count": assigned}
    return answer


def _serial(given: Given) -> Given:
    """Serve level by level, each with the named policy."""

    def by_usage(seats: int, level: list[CampaignStake], free: FreeSeats) -> list[tuple[str, int]]:
        return usage.allot(usage.serving_order(level), usage.ideals(seats, level), free)

    def rank_by_free_time(
        seats: int, level: list[CampaignStake], free: FreeSeats
    ) -> list[tuple[str, int]]:
        return creation.allot(level, free)

    inner = rank_by_free_time if "time" in given["policy"] else by_usage
    answer: Given = {}
    for key, cases in (("assigned", [given]), ("extra", given.get("extra", []))):
        answers = []
        for each in cases:
            both = {**_flat(given), **each} if each is not given else _flat(given)
            stakes = _stakes({"weights": LINEAR, **both})
            served = levels.allot(stakes, _free(both, stakes), inner)
            answers.append({stake.name: 0 for stake in stakes} | dict(served))
        answer[key] = answers[0] if key == "assigned" else answers
    return answer


def _creation(given: Given) -> Given:
    """Serve step by step from the same free engines, in the order of creation."""
    flat = _flat({"levels": dict.fromkeys(_names(given), 5), **given})
    steps = given.get("steps", [{}])
    answers = []
    for step in steps:
        stakes = _stakes({**flat, **step})
        served = creation.allot(stakes, _free({**flat, **step}, stakes))
        answers.append({stake.name: 0 for stake in stakes} | dict(served))
    return {"steps": answers} if "steps" in given else {"assigned": answers[0]}


def _newcomers(given: Given) -> Given:
    """Return the usage that sessions begin with, created one after the other."""
    window, engines = _micros(given["window_seconds"]), given["engines"]
    stakes: dict[str, CampaignStake] = {}
    charges: list[Charge] = []
    created: dict[str, Charge] = {}
    now = 0
    for event in given["events"]:
        now = _micros(event.get("at", 0))
        name, level = event["create"], _level(event.get("level", 5))
        weight = _exact(event["weight"]) if "weight" in event else _weight(given, name, level)
        stakes[name] = CampaignStake(name, weight, level)
        active = _entitled([stakes[each] for each in (*event["active_before"], name)], given)
        ideal = engines * Fraction(active[name]) / sum(active.values(), Fraction(0))
        created[name] = usage.newcomer_charge(name, ideal, now, window)
        charges.append(created[name])
    used = usage.usage_within(charges, now, window)
    served = usage.serving_order(
        CampaignStake(name, stake.weight, usage=used[name], created_at=place)
        for place, (name, stake) in enumerate(stakes.items())
    )
    return {
        "initial_usage": {name: _seconds(charge.amount) for name, charge in created.items()},
        "normalized": {
            name: _number(Fraction(used[name], times.SECOND) / stakes[name].weight)
            for name in stakes
        },
        "first_served": served[0].name,
        "order": [stake.name for stake in served],
    }


def _long_run(given: Given) -> Given:
    """Run one-second rounds; all begin together, as if they had run ideally before."""
    length, window = (_micros(given.get(key, 1)) for key in ("task_length", "window_rounds"))
    stakes, engines = _stakes(given), given["engines"]
    weights = sum((stake.weight for stake in stakes), Fraction(0))
    ledger = [
        usage.newcomer_charge(stake.name, engines * stake.weight / weights, 0, window)
        for stake in stakes
    ]
    total = dict.fromkeys((stake.name for stake in stakes), 0)
    for now in range(0, _micros(given["rounds"]), times.SECOND):
        ledger = [charge for charge in ledger if charge.end > now - window]
        standing = _standing(stakes, ledger, now, window, length)
        free = FreeSeats(engines - sum(stake.allocated for stake in standing))
        ideals = _ideals(engines, standing, aggregate="aggregate" in given["policy"])
        for name, count in usage.allot(usage.serving_order(standing), ideals, free):
            ledger.append(Charge(name, now, now + length, count * length))
            total[name] += count
    delivered = sum(total.values())
    return {"share": {name: _number(Fraction(count, delivered)) for name, count in total.items()}}


def _standing(
    stakes: list[CampaignStake], ledger: list[Charge], now: int, window: int, length: int
) -> list[CampaignStake]:
    used = usage.usage_within(ledger, now, window)
    allocated = dict.fromkeys(used, 0)
    for charge in ledger:
        if charge.start <= now < charge.end:
            allocated[charge.campaign] += charge.amount // length
    return [
        replace(each, allocated=allocated.get(each.name, 0), usage=used.get(each.name, 0))
        for each in stakes
    ]


# -- promised seats --------------------------------------------------------------------------------


def _promises(given: Given) -> dict[str, promised.Promise]:
    return {
        name: _exact(promise) if isinstance(promise, float) else promise
        for name, promise in given["sla"].items()
    }


def _sla(given: Given) -> Given:
    """Divide the engines among the groups."""
    promises = _promises(given)
    if "sessions" in given:
        refused = {
            session["id"]: promised.find_promise_refusal(
                session["id"], session.get("group"), promises
            )
            for session in given["sessions"]
        }
        return {
            "rejected": [name for name, refusal in refused.items() if refusal],
            "accepted": [name for name, refusal in refused.items() if not refusal],
        }
    demand = {name: _amount(_of(given, "demand", name, None)) for name in promises}
    order = given.get("usage_order") or sorted(
        promises, key=lambda name: Fraction(_of(given, "usage", name, 0))
    )
    settlement = promised.settlement_of(given["engines"], promises, demand, order)
    fields = {
        "targets": settlement.targets,
        "first_round": settlement.first_round,
        "remainder_numbers": settlement.numbers,
        "numbers": settlement.numbers,
        "total": settlement.total,
    }
    listed = {key: {name: each[name] for name in promises} for key, each in fields.items()}
    return {**listed, "remainder": settlement.remainder, "enough": settlement.enough}


def _lending(given: Given) -> Given:
    """Lend step by step: engines stay held unless their run ends or they are taken back.

    A step that differs from the previous one only in preemption is an alternative to it: both begin
    from the same state.
    """
    promises, engines = _promises(given), given["engines"]
    engines_held = engines_before = dict.fromkeys(promises, 0)
    steps: list[Given] = []
    circumstances: Given | None = None
    for step in given["steps"]:
        both = {**given, **step}
        told_before, circumstances = circumstances, {**both, "preemption": None}
        engines_before = engines_before if circumstances == told_before else engines_held
        demand = {name: _amount(_of(both, "demand", name, None)) for name in promises}
        settlement = promised.settlement_of(both["engines"], promises, demand, both["usage_order"])
        engines_held = {
            name: count if (most := demand[name]) is None else min(count, most)
            for name, count in engines_before.items()
        }
        if both.get("preemption", "preempt" in given["policy"]):
            short = sum(
                max(0, _need(settlement, demand, name) - engines_held[name]) for name in promises
            ) - (engines - sum(engines_held.values()))
            for name, count in groups.seats_to_return(
                short, engines_held, settlement.targets
            ).items():
                engines_held[name] -= count
        free = FreeSeats(engines - sum(engines_held.values()))
        for wanted in (
            {name: _need(settlement, demand, name) for name in promises},
            settlement.total,
        ):
            for name in both["usage_order"]:
                engines_held[name] += free.take(name, max(0, wanted[name] - engines_held[name]))
        steps.append({"total": dict(engines_held)})
    return {"steps": steps}


def _need(settlement: promised.Settlement, demand: Mapping[str, int | None], name: str) -> int:
    most = demand[name]
    return settlement.targets[name] if most is None else min(settlement.targets[name], most)


# -- preemption, affinity, engines that fail -------------------------------------------------------


def _scores(given: Given) -> Given:
    """Return the scores of runs, and which are displaced first."""
    threshold = _duration(given, "preempt_threshold")
    occupants = [
        score.Occupant(each["id"], _level(each["priority"]), _duration(each, "running"))
        for each in given["engines"]
    ]
    most = min(given.get("needed", 1), given.get("budget", len(occupants)))
    chosen = [victim.run for victim in score.victims(occupants, threshold, most)]
    return {
        "scores": {
            occupant.run: _number(score.score(occupant, threshold))
            for occupant in occupants
            if occupant.level < URGENT
        },
        "victim": chosen[0] if chosen else None,
        "victims": chosen,
    }


def _duration(given: Given, name: str) -> int:
    """Return a duration in the unit that the field's name ends in."""
    units = {"ms": times.SECOND // 1000, "seconds": times.SECOND, "minutes": times.MINUTE}
    [unit] = [unit for unit in units if f"{name}_{unit}" in given]
    return round(float(given[f"{name}_{unit}"]) * units[unit])


def _allowance(given: Given) -> Given:
    """Return how many engines may be taken from others."""
    urgency = score.Urgency(
        _exact(given["preemptable_percent"]), _micros(given.get("delay_seconds", 0))
    )
    waited = _micros(given.get("waited_seconds", 0))
    return {"max_preemptions": urgency.allowance(waited, given["engines"], given["urgent_running"])}


def _affinity(given: Given) -> Given:
    """Return whether the affine engine is chosen, and when."""
    instants = {
        key: None if given[key] is None else _micros(given[key])
        for key in ("affine_engine_free_at", "other_engine_free_at", "affinity_wait")
    }
    choice = starts_at(
        _micros(given.get("submit_at", 0)),
        instants["affine_engine_free_at"],
        instants["other_engine_free_at"],
        instants["affinity_wait"],
    )
    if choice is None:
        return {"engine": None, "at": None}
    return {"engine": "affine" if choice[0] else "other", "at": _seconds(choice[1])}


def _blacklist(given: Given) -> Given:
    """Return which engines a session may still use."""
    failures: dict[tuple[str, str], int] = {}
    for engine, session in given["failures"]:
        failures = failed(failures, engine, session)
    for engine, session in given.get("cleared", ()):
        failures = cleared(failures, engine, session)
    most = given.get("failures_before_blacklist", blacklist.FAILURES_MAX)
    refused = [
        blacklist.find_blacklist_refusal(failures, engine, name, most)
        for engine, name in given["ask"]
    ]
    return {"allowed": [not refusal for refusal in refused]}


_TRANSLATORS: tuple[tuple[set[str], Callable[[Given], Given], str | None], ...] = (
    ({"failures", "ask"}, _blacklist, None),
    ({"affine_engine_free_at"}, _affinity, None),
    ({"preemptable_percent"}, _allowance, "max_preemptions"),
    ({"preempt_threshold_minutes"}, _scores, None),
    ({"preempt_threshold_ms"}, _scores, None),
    ({"preempt_threshold_seconds"}, _scores, None),
    ({"sla", "steps"}, _lending, None),
    ({"sla"}, _sla, None),
    ({"events", "window_seconds"}, _newcomers, None),
    ({"rounds"}, _long_run, None),
    ({"sessions", "steps"}, _creation, None),
    ({"sessions", "free"}, _serial, None),
    ({"engines", "levels"}, _sharing, None),
    ({"engines", "weights"}, _sharing, None),
)
"""The fields that a case must have, its translator, and the one field that items ask for."""
