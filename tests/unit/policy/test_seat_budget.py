"""Budgets of seat-time until an instant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.campaign_room import Counted, RunAdmission, room_for
from lead.policy.limit_counting import RunDemand, spent_with
from lead.policy.throttle.active_limits import LimitLevel
from lead.policy.view import CampaignView, Charge, SeatBudget
from node.model import times
from node.model.seat_weights import SEAT
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

MINUTE, HOUR = times.MINUTE, times.HOUR
UNTIL = NOW + 5 * HOUR


def _budget(hours: float, name: str = "ops", parent: str | None = None) -> CampaignView:
    budget = SeatBudget(int(hours * HOUR), NOW - times.DAY, UNTIL)
    return CampaignView(name, parent=parent, budget=budget)


@given(
    used=st.integers(0, 300),
    most=st.integers(1, 300),
    length=st.integers(1, 90),
    nodes=st.integers(1, 3),
    starts=st.lists(st.integers(0, 600), max_size=20),
)
def test_runs_are_admitted_while_the_budget_lasts(
    used: int, most: int, length: int, nodes: int, starts: list[int]
) -> None:
    """Runs before its end take seat-time one after the other; later ones are free."""
    ops = _budget(most / 60)
    demand = RunDemand("ops", length * MINUTE, nodes, nodes * SEAT)
    booked = Counted([], spent={"ops": used * MINUTE})
    room = room_for(demand, {"ops": ops}, booked, LimitLevel.HARD, NOW)
    admission, taken = RunAdmission(room), used
    for start in sorted(starts):
        at = NOW + start * MINUTE
        admitted = admission.refuse(at) is None
        assert admitted == (at >= UNTIL or taken + length * nodes <= most)
        if admitted and at < UNTIL:
            taken += length * nodes
    if used + length * nodes > most:
        reason = room.why_not(UNTIL - MINUTE, UNTIL)
        assert reason is not None
        assert reason.startswith("ops has used or booked ")
        assert room.why_not(UNTIL, UNTIL + length * MINUTE) is None


def test_a_budget_is_for_all_below() -> None:
    """Time of a campaign below counts; that before the period, or after it, does not."""
    ops, lab = _budget(2), CampaignView("lab", parent="ops")
    charges = [
        Charge("lab", NOW, NOW + HOUR, HOUR),
        Charge("lab", UNTIL, UNTIL + HOUR, HOUR),
        Charge("lab", NOW - 2 * times.DAY, NOW - times.DAY, HOUR),
        Charge("other", NOW, NOW + HOUR, HOUR),
        Charge("ops", NOW, NOW + HOUR, -HOUR // 2),
    ]
    campaigns = {"ops": ops, "lab": lab, "other": CampaignView("other")}
    assert spent_with({"ops": HOUR}, charges, campaigns) == {"ops": HOUR + HOUR // 2}


def test_a_pool_gives_no_more_than_the_budget() -> None:
    """Runs of pool tasks are placed until the budget is spent, and the refusal has the figures."""
    nodes = nodes_of(4)
    candidates = [due(f"t{number}", "ops", nodes, duration=30 * MINUTE) for number in range(8)]
    driver = Driver(view_of(nodes, [_budget(2)], candidates, spent={"ops": HOUR // 2}))
    outcome = driver.drive(COMPOSITIONS["campaign-default"])
    assert len(driver.runs) == 3
    [sentence] = {refusals[0].reason for refusals in outcome.refused.values()}
    assert sentence == (
        "ops has used or booked 2 of its 2 seat-hours, and wants 0.5 more, until "
        f"{times.to_the_second(UNTIL)}"
    )
