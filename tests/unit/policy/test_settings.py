"""The named sets, overrides of them, and refusals of wrong overrides."""

from __future__ import annotations

from typing import Any

import pytest

from lead.policy.axes import fill, order, preempt, select, share
from lead.policy.campaign_grouping import CampaignGrouping
from lead.policy.feasible.deferral import DeferralRule
from lead.policy.placement_requests import AllocationRound, Ask
from lead.policy.sets import DEFAULT, SETS
from lead.policy.settings import (
    COMMON_OPTIONS,
    OPTIONS,
    RULES,
    configured_recipe,
    configured_set,
)
from lead.policy.verdict import Axis, RefusalRule
from lead.policy.view import ReservationView
from lead.pool.rehearsal.seats import starts_by_node
from node.model import policysets, times
from node.model.errors import InvalidDocument
from tests.golden.former_sets import FORMER_SETS
from tests.support.policy_pools import NOW, due, nodes_of

MINUTE = times.MINUTE


def test_every_set_exists() -> None:
    """The nine sets exist, a recommended one among them, and the names that there were before."""
    assert DEFAULT == "campaign-default"
    assert list(SETS) == list(policysets.SETS)
    assert {DEFAULT, "pscheduler", *policysets.ALIASES} == {
        "campaign-default",
        "pscheduler",
        *(f"gridserver-{it}" for it in ("usage", "usage-aggregated", "time", "serial-usage")),
        *(f"gridserver-{it}" for it in ("serial-time", "urgent", "sla", "sla-preempt")),
        "gridserver-blacklist",
        *(f"fbsng-{it}" for it in ("dynamic", "quota", "partition", "placement")),
        *(f"maui-{it}" for it in ("fifo", "priority", "fairshare", "throttle", "backfill")),
        *(f"maui-{it}" for it in ("nodes", "availability", "preempt", "defer", "reservations")),
        *(f"boinc-{it}" for it in ("rrsim", "wrr", "edf", "fetch", "backoff")),
    }


@pytest.mark.parametrize("name", SETS)
def test_every_rule_of_a_set_can_be_written(name: str) -> None:
    """Naming no parameter on every axis leaves a set as it is."""
    assert configured_set(name) == SETS[name]
    assert configured_set(name, {axis: {} for axis in RULES}) == SETS[name]


def test_overrides_change_what_they_name() -> None:
    """Parameters change the set's own rule, another rule replaces it, and the rest stays."""
    policy = configured_set(
        "campaign-default",
        {
            "order": {"rule": "weighted", "weights": {"size": {"nodes": 2}}},
            "share": {"window": "PT30M", "together": "level"},
            "select": {"rule": "function", "function": "speed - 2*load"},
            "preempt": {"urgency": {"percent": 12.5, "delay": "PT1M"}, "others": "never"},
            "fill": {"depth": 3, "passes": None},
            "feasible": {"patience": {"pause": "PT5M", "deferrals": 2}, "failures_max": 4},
            "throttle": {"windows": {"interval": "PT1H", "decay": 0.5}},
        },
    )
    usual = SETS["campaign-default"]
    assert isinstance(policy.order, order.Weighted)
    assert policy.order.weights.terms == {"size": {"nodes": 2}}
    assert policy.share == share.ByUsage(30 * MINUTE, CampaignGrouping.LEVEL, entitled=True)
    assert isinstance(policy.select, select.ByFunction)
    assert isinstance(policy.preempt, preempt.UrgentByScore)
    assert policy.preempt.urgency.allowance(MINUTE, 80, 0) == 10
    assert policy.preempt.others == preempt.Never()
    assert policy.fill == fill.Protected(3, None)
    assert policy.feasible.patience == DeferralRule(5 * MINUTE, 2)  # type: ignore[attr-defined]
    assert policy.feasible.alone is True  # type: ignore[attr-defined]
    assert policy.throttle != usual.throttle


@pytest.mark.parametrize(
    ("overrides", "pointer", "remedy"),
    [
        ({"colour": {}}, "/overrides/colour", "there is no axis 'colour'"),
        ({"share": 3}, "/overrides/share", "as an object"),
        ({"share": {"rule": "usge"}}, "/overrides/share/rule", "did you mean usage"),
        ({"share": {"windw": "PT1H"}}, "/overrides/share/windw", "window, together"),
        ({"share": {"window": "an hour"}}, "/overrides/share/window", "write 30s"),
        ({"share": {"window": "PT0S"}}, "/overrides/share/window", "more than 0"),
        ({"order": {"rule": ["next-run"]}}, "/overrides/order/rule", "did you mean next-run"),
        ({"share": {"window": 3}}, "/overrides/share/window", "write a duration"),
        ({"share": {"serial": "yes"}}, "/overrides/share/serial", "true or false"),
        ({"share": {"together": "all"}}, "/overrides/share/together", "none, level, parent"),
        ({"fill": {"depth": -1}}, "/overrides/fill/depth", "at least 0"),
        ({"fill": {"depth": True}}, "/overrides/fill/depth", "whole number"),
        ({"order": {"others": {"age": {}}}}, "/overrides/order/others", "credential"),
        (
            {"order": {"others": {"size": {"disk": 1}}}},
            "/overrides/order/others",
            "nodes, duration",
        ),
        ({"order": {"others": {"size": 2}}}, "/overrides/order/others", "numbers by name"),
        ({"preempt": {"urgency": {"part": 1}}}, "/overrides/preempt/urgency", "percent, delay"),
        ({"preempt": {"others": []}}, "/overrides/preempt/others", "never, lower-priority"),
        ({"order": {"others": {"size": {"nodes": "x"}}}}, "/overrides/order/others", "a number"),
        ({"preempt": {"others": "always"}}, "/overrides/preempt/others", "never, lower-priority"),
        (
            {"select": {"rule": "function", "function": "2x"}},
            "/overrides/select/function",
            "as a sum of figures",
        ),
        ({"feasible": {"patience": 3}}, "/overrides/feasible/patience", "pause, deferrals"),
    ],
)
def test_a_wrong_field_is_named_with_its_remedy(
    overrides: dict[str, Any], pointer: str, remedy: str
) -> None:
    """Each wrong field has a pointer and a helpful sentence."""
    with pytest.raises(InvalidDocument) as refused:
        configured_set("campaign-default", overrides)
    [fault] = refused.value.faults
    assert fault.pointer == pointer
    assert remedy in fault.detail


def test_an_unknown_set_suggests_similar_names() -> None:
    """A mistyped set is refused with similar names."""
    with pytest.raises(InvalidDocument) as refused:
        configured_set("maui-fairshares")
    assert "maui-fairshare" in refused.value.faults[0].detail


@pytest.mark.parametrize("name", FORMER_SETS)
def test_a_former_name_is_what_it_was(name: str) -> None:
    """A set with options consists of the rules that the set of that name consisted of."""
    recipe = policysets.expanded(name, {})
    assert configured_set(recipe.set, options=recipe.options) == FORMER_SETS[name]
    assert recipe.set in SETS


def test_an_override_comes_after_the_options() -> None:
    """An override changes the parameters of the rule that an option has put on its axis."""
    policy = configured_set("long-term", {"select": {"low": "PT1H"}}, {"fetching": True})
    assert policy.select == select.NeediestNodes(low=times.HOUR)


def test_options_may_be_written_in_any_order() -> None:
    """Fairshare is one of the criteria that the weights name, whichever is written first."""
    options = {"fairshare": True, "weights": "usual"}
    reversed_options = dict(reversed(options.items()))
    one, other = (configured_set("priority", None, it) for it in (options, reversed_options))
    assert one == other == configured_recipe("priority weights=usual fairshare=true")


@pytest.mark.parametrize("name", SETS)
def test_each_option_is_described(name: str) -> None:
    """The node describes the options that the lead has for a set, and no others."""
    assert policysets.SETS[name].options.keys() == OPTIONS[name].keys()
    assert policysets.COMMON_OPTIONS.keys() == COMMON_OPTIONS.keys()


@pytest.mark.parametrize(
    ("written", "pointer", "remedy"),
    [
        ("shares serials=true", "/options/serials", "shares has no option 'serials'; did you mean"),
        ("in-order together=level", "/options/together", "in-order has no option 'together'"),
        ("shares serial=yes", "/options/serial", "true or false"),
        ("shares together=all", "/options/together", "none, level, parent"),
        ("priority slots=-1", "/options/slots", "at least 0"),
        ("turns patience=soon", "/options/patience", "write 30s"),
        ("priority nodes=best", "/options/nodes", "last-available, least-loaded, poorest"),
        ("share", "/policy", "did you mean shares"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(written: str, pointer: str, remedy: str) -> None:
    """Each wrong option has a pointer and a helpful sentence."""
    with pytest.raises(InvalidDocument) as refused:
        configured_recipe(written)
    [fault] = refused.value.faults
    assert fault.pointer == pointer
    assert remedy in fault.detail


def test_a_refusal_has_its_figures() -> None:
    """A refusal gives axis, rule, figures, and the sentence made from them, as plain data."""
    rule = RefusalRule(Axis.SHARE, "some", "{name} has {part} of {all}")
    refusal = rule.refuse(until=5, name="a", part=1 / 3, all=2)
    assert refusal.to_trace() == {
        "axis": "share",
        "rule": "some",
        "figures": {"name": "a", "part": 1 / 3, "all": 2},
        "sentence": "a has 0.333 of 2",
        "until": 5,
    }


def _ask(**figures: Any) -> Ask:
    nodes = nodes_of(3)
    wanted = {
        "k": 2,
        "k_min": 2,
        **{k: figures.pop(k) for k in list(figures) if k in {"k", "k_min", "together", "slip"}},
    }
    candidate = due("t", "a", nodes, **wanted)
    usual = {"wanted": candidate.k, "least": candidate.least}
    return Ask(0, AllocationRound.FIRST, candidate, tuple(nodes), **{**usual, **figures})


def _free(*minutes: tuple[int, int]) -> list[tuple[int, int]]:
    return [(NOW + begin * MINUTE, NOW + end * MINUTE) for begin, end in minutes]


def test_separate_runs_take_the_best_nodes_with_time() -> None:
    """Nodes that act apart start when they can; those that can begin first come first."""
    free = {"n0": _free((5, 9), (20, 60)), "n1": _free((0, 60)), "n2": _free((0, 60))}
    assert starts_by_node(_ask(), free) == {"n1": NOW, "n2": NOW}
    assert starts_by_node(_ask(k=3), free) == {"n0": NOW + 20 * MINUTE, "n1": NOW, "n2": NOW}
    assert starts_by_node(_ask(slip=0), free) == {"n1": NOW, "n2": NOW}
    assert starts_by_node(_ask(k=3, k_min=1, slip=0), free) == {"n1": NOW, "n2": NOW}
    assert starts_by_node(_ask(), {"n0": free["n0"]}) == {}
    assert starts_by_node(_ask(slip=0), {**free, "n2": _free((1, 60))}) == {}


def test_the_usual_node_is_awaited_within_the_slip() -> None:
    """A usual node is chosen if it is free within the slip of the run, and not later."""
    free = {"n0": _free((0, 60)), "n1": _free((0, 60)), "n2": _free((20, 60))}
    usual = frozenset({"n2"})
    waited = starts_by_node(_ask(k=1, k_min=1, usual=usual, slip=20 * MINUTE), free)
    assert waited == {"n2": NOW + 20 * MINUTE}
    assert starts_by_node(_ask(k=1, k_min=1, usual=usual, slip=19 * MINUTE), free) == {"n0": NOW}


def test_together_means_one_start() -> None:
    """Nodes that act together start at an instant at which all are free, outside slots."""
    free = {"n0": _free((0, 12), (30, 60)), "n1": _free((5, 16), (25, 60)), "n2": _free((0, 5))}
    assert starts_by_node(_ask(together=True), free) == dict.fromkeys(
        ("n0", "n1"), NOW + 30 * MINUTE
    )
    kept = {"n1": [ReservationView("slot of t", ("n1",), NOW, NOW + 35 * MINUTE)]}
    assert starts_by_node(_ask(together=True, avoid=kept), free) == {}
    assert starts_by_node(_ask(together=True, k=3), free) == {}
