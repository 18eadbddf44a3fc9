"""A pool's policies as they are written: the name of a set, its options, and overrides. Pure.

An *option* has a name of its own (``serial``, ``take_back``), and changes what it stands for on one
axis or several. An *override* names the axis:
``{"order": {"rule": "next-run"}, "share": {"window": "PT30M", "together": "level"}}``: for each
axis the rule to use instead of the set's, if it is another one, and its parameters. What is not
mentioned keeps the value of the set, or the default of the rule. Durations are in ISO 8601.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeVar

from lead.policy.axes import feasible, fill, order, preempt, select, share, throttle
from lead.policy.campaign_grouping import CampaignGrouping
from lead.policy.feasible import availability, deferral
from lead.policy.fill import backfill
from lead.policy.order.weighted import COMPONENTS, Weights
from lead.policy.preempt.score import Urgency
from lead.policy.select.linear_function import Linear, parse
from lead.policy.sets import (
    FAIRSHARE_WEIGHTS,
    SETS,
    URGENT_DELAY,
    USUAL_WEIGHTS,
    PolicyComposition,
)
from lead.policy.share.decayed_windows import DecayWindows
from node.model.errors import FieldFault, InvalidDocument
from node.model.policysets import ALIASES, parsed
from node.model.similar import suggestion
from node.model.times import parse_duration

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule's constructor and its parameters, each with a function that parses it or raises."""

    make: Callable[..., Any]
    parameters: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Option:
    """An option: how its value is parsed, and what it makes of a composition."""

    parse: Callable[[Any], Any]
    apply: Callable[[PolicyComposition, Any], PolicyComposition]


def configured_set(
    name: str,
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> PolicyComposition:
    """Return a set with its options, and then its overrides.

    :raises InvalidDocument: with every wrong field.
    """
    policy = SETS.get(name)
    if policy is None:
        known = [*SETS, *ALIASES]
        raise InvalidDocument([FieldFault("/policy", _unknown("policy set", name, known))])
    faults: list[FieldFault] = []
    policy = _with_options(name, policy, options or {}, faults)
    for axis, wanted in (overrides or {}).items():
        pointer = f"/overrides/{axis}"
        if axis not in RULES:
            faults.append(FieldFault(pointer, _unknown("axis", axis, RULES)))
        elif not isinstance(wanted, Mapping):
            faults.append(FieldFault(pointer, "write the rule and its parameters as an object"))
        else:
            rule = _rule(axis, wanted, getattr(policy, axis), pointer, faults)
            if rule is not None:
                policy = replace(policy, **{axis: rule})
    if faults:
        raise InvalidDocument(faults)
    return policy


def _with_options(
    name: str, policy: PolicyComposition, wanted: Mapping[str, Any], faults: list[FieldFault]
) -> PolicyComposition:
    """Return the composition with these options, in the order of the table, not as written."""
    known = {**OPTIONS[name], **COMMON_OPTIONS}
    for option in wanted.keys() - known.keys():
        sentence = f"{name} has no option {option!r}; {suggestion(option, known)}"
        faults.append(FieldFault(f"/options/{option}", sentence))
    for option, rule in known.items():
        if option in wanted:
            try:
                policy = rule.apply(policy, rule.parse(wanted[option]))
            except (ValueError, TypeError, ArithmeticError) as error:
                faults.append(FieldFault(f"/options/{option}", str(error)))
    return policy


def _rule(
    axis: str, wanted: Mapping[str, Any], present: Any, pointer: str, faults: list[FieldFault]
) -> Any:
    """Return the rule of one axis: another one, or the set's with other parameters."""
    usual = next(name for name, it in RULES[axis].items() if it.make is type(present))
    name = wanted.get("rule", usual)
    if not isinstance(name, str) or name not in RULES[axis]:
        faults.append(FieldFault(f"{pointer}/rule", _unknown("rule", str(name), RULES[axis])))
        return None
    rule = RULES[axis][name]
    values: dict[str, Any] = {}
    faults_before = len(faults)
    for key, value in wanted.items():
        if key == "rule":
            continue
        if key not in rule.parameters:
            parameters = ", ".join(rule.parameters) or "none"
            faults.append(
                FieldFault(f"{pointer}/{key}", f"{name} has these parameters: {parameters}")
            )
            continue
        try:
            values[key] = rule.parameters[key](value)
        except (ValueError, TypeError, ArithmeticError) as error:
            faults.append(FieldFault(f"{pointer}/{key}", str(error)))
    if len(faults) > faults_before:
        return None
    return dataclasses.replace(present, **values) if name == usual else rule.make(**values)


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return f"there is no {kind} {name!r}; {suggestion(name, known)}"


# -- parameters ------------------------------------------------------------------------------------


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("write true or false")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("write a whole number of at least 0")
    return value


def _count_or_none(value: Any) -> int | None:
    return None if value is None else _count(value)


def _exact(value: Any) -> Fraction:
    try:
        return Fraction(str(value))
    except (ValueError, ArithmeticError):
        raise ValueError(f"{value} is not a number; write a number") from None


def _length(value: Any) -> int:
    if not isinstance(value, str):
        raise TypeError("write a duration: PT30S, PT5M, PT1H or P1D")
    return parse_duration(value)


def _duration(value: Any) -> int:
    duration = _length(value)
    if duration <= 0:
        raise ValueError("write a duration of more than 0")
    return duration


def _one_of(kind: type[Choice], value: Any) -> Choice:
    if not isinstance(value, str) or value not in list(kind):
        raise ValueError(f"write one of {', '.join(kind)}")
    return kind(value)


def _numbers(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise TypeError("write an object of numbers by name")
    return {str(name): float(_exact(number)) for name, number in value.items()}


def _weights(value: Any) -> Weights:
    """Parse terms by component, ``{"service": {"waiting": 1, "expansion": 10}}``, or ``usual``."""
    if value == "usual":
        return USUAL_WEIGHTS
    if not isinstance(value, Mapping) or value.keys() - COMPONENTS:
        raise ValueError(f"write an object of weights by component: {', '.join(COMPONENTS)}")
    weights = {name: _numbers(terms) for name, terms in value.items()}
    for name, terms in weights.items():
        if not terms.keys() <= set(COMPONENTS[name]):
            raise ValueError(f"the terms of {name} are {', '.join(COMPONENTS[name])}")
    return Weights(weights)


def _fields(value: Any, read: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    if not isinstance(value, Mapping) or value.keys() - read.keys():
        raise ValueError(f"write an object with some of: {', '.join(read)}")
    return {name: read[name](each) for name, each in value.items()}


def _windows(value: Any) -> DecayWindows:
    """Parse ``{"interval": "P1D", "depth": 7, "decay": 0.8}``."""
    return DecayWindows(**_fields(value, {"interval": _duration, "depth": _count, "decay": _exact}))


def _urgency(value: Any) -> Urgency:
    """Parse ``{"percent": 10, "delay": "PT10S"}``, or the percentage alone."""
    if not isinstance(value, Mapping):
        return Urgency(_exact(value), URGENT_DELAY)
    values = _fields(value, {"percent": _exact, "delay": _length})
    return Urgency(**{"percent": Fraction(0), **values})


def _patience(value: Any) -> deferral.DeferralRule | None:
    """Parse ``{"pause": "PT1H", "deferrals": 24, "starts": 1}``, the pause alone, or null."""
    if value is None:
        return None
    if isinstance(value, str):
        return deferral.DeferralRule(_duration(value))
    read = {"pause": _duration, "deferrals": _count, "starts": _count}
    return deferral.DeferralRule(**_fields(value, read))


def _others(value: Any) -> Any:
    """Return the rule for campaigns that are not urgent."""
    rules = {"never": preempt.Never(), "lower-priority": preempt.LowerPriority()}
    if not isinstance(value, str) or value not in rules:
        raise ValueError(f"write one of {', '.join(rules)}")
    return rules[value]


def _node_order(value: Any) -> Any:
    rules = {
        "last-available": select.LastAvailable(),
        "least-loaded": select.LeastLoaded(),
        "poorest": select.Poorest(),
    }
    if not isinstance(value, str) or value not in rules:
        raise ValueError(f"write one of {', '.join(rules)}")
    return rules[value]


def _function(value: Any) -> Linear:
    if not isinstance(value, str):
        raise TypeError("write a sum of figures with coefficients, such as speed + 0.01*mbps")
    return parse(value)


_PRIORITY: Final = {
    "weights": _weights,
    "windows": _windows,
    "targets": _numbers,
    "classes": _numbers,
    "duration_min": _duration,
    "relative": _flag,
    "longest": _flag,
}
RULES: Final[Mapping[str, Mapping[str, _Rule]]] = {
    "order": {
        "next-run": _Rule(order.NextRun),
        "by-campaign": _Rule(order.ByCampaign, {"in_turn": _flag}),
        "weighted": _Rule(order.Weighted, _PRIORITY),
        "recent-work": _Rule(order.ByRecentWorkOrder, {"deadlines": _flag, "half_life": _duration}),
        "late-first": _Rule(
            order.LateFirst,
            {
                "others": lambda value: order.Weighted(_weights(value), longest=True),
                "half_life": _duration,
            },
        ),
        "backfilled": _Rule(
            order.BackfillOrder,
            {
                "choice": partial(_one_of, backfill.BackfillChoice),
                "worth": partial(_one_of, backfill.RunWorth),
                "considered": _count,
                "depth": _count,
                "others": lambda value: order.Weighted(_weights(value)),
            },
        ),
        "by-starts": _Rule(order.ByStarts),
    },
    "share": {
        "none": _Rule(share.Unshared),
        "usage": _Rule(
            share.ByUsage,
            {
                "window": _duration,
                "together": partial(_one_of, CampaignGrouping),
                "serial": _flag,
                "entitled": _flag,
                "near": _duration,
            },
        ),
        "creation": _Rule(share.ByCreation, {"serial": _flag}),
        "promised": _Rule(share.ByPromise, {"window": _duration, "near": _duration}),
        "starts": _Rule(share.ByStartCounts),
        "recent-work": _Rule(
            share.ByRecentWorkShare,
            {"half_life": _duration, "near": _duration},
        ),
        "fairshare": _Rule(share.ByFairshare, {"near": _duration}),
    },
    "select": {
        "least-loaded": _Rule(select.LeastLoaded),
        "affinity": _Rule(select.Affinity, {"least_loaded": _flag}),
        "last-available": _Rule(select.LastAvailable),
        "poorest": _Rule(select.Poorest),
        "function": _Rule(select.ByFunction, {"function": _function}),
        "fetching": _Rule(select.NeediestNodes, {"low": _duration, "more": _duration}),
        "laid": _Rule(select.NodeLayout, {"way": partial(_one_of, select.LayoutKind)}),
    },
    "preempt": {
        "never": _Rule(preempt.Never),
        "lower-priority": _Rule(preempt.LowerPriority),
        "flagged": _Rule(preempt.Flagged),
        "urgent": _Rule(
            preempt.UrgentByScore,
            {"urgency": _urgency, "others": _others},
        ),
        "taken-back": _Rule(preempt.GroupReclaim),
    },
    "throttle": {
        "limits": _Rule(throttle.LimitRules, {"windows": _windows}),
    },
    "fill": {
        "earliest-gap": _Rule(fill.EarliestGap),
        "protected": _Rule(
            fill.Protected,
            {"depth": _count, "passes": _count_or_none, "overtaking": _flag, "lasting": _flag},
        ),
    },
    "feasible": {
        "judged": _Rule(
            feasible.FeasibilityRules,
            {
                "failures_max": _count_or_none,
                "alone": _flag,
                "patience": _patience,
                "partition": _flag,
                "counted": partial(_one_of, availability.CapacityBasis),
            },
        ),
    },
}
"""The rules of each axis, by the names that overrides use."""


# -- options ---------------------------------------------------------------------------------------


def _changed(axis: str, parameter: str) -> Callable[[PolicyComposition, Any], PolicyComposition]:
    """Return what changes one parameter of the rule that a composition has on an axis."""

    def apply(policy: PolicyComposition, value: Any) -> PolicyComposition:
        rule: Any = getattr(policy, axis)
        return replace(policy, **{axis: replace(rule, **{parameter: value})})

    return apply


def _chosen(axis: str, rule: Any) -> _Option:
    """Return the option whose truth puts another rule on an axis."""

    def apply(policy: PolicyComposition, value: bool) -> PolicyComposition:  # noqa: FBT001
        return replace(policy, **{axis: rule}) if value else policy

    return _Option(_flag, apply)


def _grouped(policy: PolicyComposition, together: CampaignGrouping) -> PolicyComposition:
    entitled = together is not CampaignGrouping.NONE
    by_usage: Any = policy.share
    return replace(policy, share=replace(by_usage, together=together, entitled=entitled))


def _with_fairshare(policy: PolicyComposition, wanted: bool) -> PolicyComposition:  # noqa: FBT001
    weighted: Any = policy.order
    if not wanted:
        return policy
    terms = {"fairshare": FAIRSHARE_WEIGHTS, **weighted.weights.terms}
    return replace(
        policy, order=replace(weighted, weights=Weights(terms)), share=share.ByFairshare()
    )


def _with_depth(policy: PolicyComposition, depth: int) -> PolicyComposition:
    return _changed("fill", "depth")(_changed("order", "depth")(policy, depth), depth)


def _with_half_life(policy: PolicyComposition, length: int) -> PolicyComposition:
    return _changed("share", "half_life")(_changed("order", "half_life")(policy, length), length)


def _with_slots(policy: PolicyComposition, depth: int) -> PolicyComposition:
    return replace(policy, fill=fill.Protected(depth) if depth else fill.EarliestGap())


def _with_urgency(policy: PolicyComposition, urgency: Urgency) -> PolicyComposition:
    rule = policy.preempt
    others = rule.others if isinstance(rule, preempt.UrgentByScore) else preempt.Never()
    return replace(policy, preempt=preempt.UrgentByScore(urgency, others=others))


def _laid(policy: PolicyComposition, way: select.LayoutKind) -> PolicyComposition:
    return replace(policy, select=select.NodeLayout(way))


_TOGETHER = _Option(partial(_one_of, CampaignGrouping), _grouped)
_WINDOW = _Option(_duration, _changed("share", "window"))
_URGENT = _Option(_urgency, _with_urgency)
_SERIAL = _Option(_flag, _changed("share", "serial"))

OPTIONS: Final[Mapping[str, Mapping[str, _Option]]] = {
    "campaign-default": {
        "together": _TOGETHER,
        "window": _WINDOW,
        "urgent": _URGENT,
        "passes": _Option(_count_or_none, _changed("fill", "passes")),
    },
    "pscheduler": {},
    "shares": {
        "together": _TOGETHER,
        "serial": _SERIAL,
        "window": _WINDOW,
        "urgent": _URGENT,
    },
    "in-order": {"serial": _SERIAL},
    "promised": {"take_back": _chosen("preempt", preempt.GroupReclaim()), "window": _WINDOW},
    "turns": {"laid": _Option(partial(_one_of, select.LayoutKind), _laid)},
    "priority": {
        "weights": _Option(_weights, _changed("order", "weights")),
        "fairshare": _Option(_flag, _with_fairshare),
        "flags": _chosen("preempt", preempt.Flagged()),
        "slots": _Option(_count, _with_slots),
        "nodes": _Option(_node_order, lambda policy, it: replace(policy, select=it)),
        "function": _Option(
            _function, lambda policy, it: replace(policy, select=select.ByFunction(it))
        ),
    },
    "backfill": {
        "depth": _Option(_count, _with_depth),
        "lasting": _Option(_flag, _changed("fill", "lasting")),
        "fits": _Option(partial(_one_of, backfill.BackfillChoice), _changed("order", "choice")),
    },
    "long-term": {
        "deadlines": _Option(_flag, _changed("order", "deadlines")),
        "fetching": _chosen("select", select.NeediestNodes()),
        "half_life": _Option(_duration, _with_half_life),
    },
}
"""The options of each set, by name; ``node/model/policysets.py`` describes them."""

COMMON_OPTIONS: Final[Mapping[str, _Option]] = {
    name: _Option(parse, _changed("feasible", name))
    for name, parse in RULES["feasible"]["judged"].parameters.items()
}
"""The options of all sets: which nodes and tasks are left alone."""


def configured_recipe(written: str) -> PolicyComposition:
    """Return the composition that one line names: ``shares serial=true``, or an alias.

    :raises ValueError: it cannot be read.
    :raises InvalidDocument: with every wrong field.
    """
    recipe = parsed(written)
    return configured_set(recipe.set, options=recipe.options)
