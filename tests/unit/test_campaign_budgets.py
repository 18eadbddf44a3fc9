"""The use that campaigns make of their limits and quotas is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.planning.campaign_budgets import budgets_of
from lead.planning.campaign_room import Counted
from lead.policy.limit_counting import CountedRun
from lead.policy.view import CampaignView, Charge, LimitView, SeatBudget
from node.model import times
from node.model.byte_quotas import parse_byte_quota

NOW = 100 * times.HOUR
runs = st.lists(
    st.tuples(st.sampled_from(["ops", "lab"]), st.integers(-5, 40), st.integers(6, 20)).map(
        lambda it: CountedRun(it[0], NOW + it[1], NOW + it[1] + it[2], 2, 1500, {"mbps": 10})
    ),
    max_size=12,
)


@given(runs)
@pytest.mark.nightly
def test_use_is_counted_at_each_instant(booked: list[CountedRun]) -> None:
    """The use of now, and the most at any time, are those of the runs that overlap then."""
    campaigns = {
        "ops": CampaignView("ops", limits={"nodes": LimitView(3, 9)}, quotas={"mbps": 100}),
        "lab": CampaignView("lab", parent="ops", seats_max=4),
    }
    found = budgets_of(campaigns, Counted(booked), NOW)
    told = {(name, each.what): each for name, several in found.items() for each in several}

    def use(at: int, *names: str) -> int:
        return sum(it.campaign in names and it.start <= at < it.end for it in booked)

    expected = {("ops", "nodes"): 2.0, ("ops", "mbps"): 10.0, ("lab", "seats_max"): 1.5}
    for (name, what), each in expected.items():
        names = ("ops", "lab") if what == "nodes" else (name,)
        by_time = [each * use(NOW + later, *names) for later in range(61)]
        budget = told[name, what]
        assert (budget.used, budget.peak) == (by_time[0], max(by_time))
    assert (told["ops", "nodes"].soft, told["ops", "nodes"].hard) == (3, 9)


def test_time_deliveries_and_bytes_are_sums() -> None:
    """Booked time counts from now on, deliveries as they were charged, bytes by their period."""
    limits = {
        "seat_time": LimitView(None, 100 * times.SECOND),
        "delivered_percent": LimitView(None, 50),
        "due_runs": LimitView(None, 3),
    }
    ops = CampaignView("ops", limits=limits, byte_quota=parse_byte_quota("50G/PT2H"))
    under_way = CountedRun("ops", NOW - times.SECOND, NOW + 4 * times.SECOND, 2, 0)
    hour = times.HOUR
    moved = {"ops": {NOW - hour: 3, NOW: 4, NOW + hour: 5, NOW - 2 * hour: 100}}
    ledger = [
        Charge("ops", NOW - hour, NOW, 3 * times.SECOND),
        Charge("other", NOW - hour, NOW, times.SECOND),
    ]
    found = budgets_of({"ops": ops}, Counted([under_way], ledger, moved), NOW)["ops"]
    assert [(it.what, round(it.used, 6), it.peak) for it in found] == [
        ("seat_seconds", 8, 8),
        ("delivered_percent", 75, 75),
        ("bytes", 7, 9),
    ]
    assert found[-1].period == 2 * hour


def test_a_budget_of_seat_time_is_told_until_it_is_over() -> None:
    """Use and bookings of it count, of the campaign and of those below."""
    budget = SeatBudget(200 * times.HOUR, NOW - times.DAY, NOW + times.HOUR)
    campaigns = {"ops": CampaignView("ops", budget=budget)}
    booked = Counted([], spent={"ops": 50 * times.HOUR})
    [told] = budgets_of(campaigns, booked, NOW)["ops"]
    assert (told.what, told.hard, told.used, told.until) == ("seat_hours", 200, 50, budget.until)
    assert budgets_of(campaigns, booked, budget.until) == {}
