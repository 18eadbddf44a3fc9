"""The choice of starts stays within the quotas that participants tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.agenda import Slot
from lead.planning.host_quotas import QuotaCount
from lead.planning.placement import Offer, choose
from lead.planning.unplaced import unplaced_reasons
from node.model import times
from node.model.host_limits.quotas import Account, PeriodQuota, Quantity, RunAmounts, UseCount
from node.model.reasons import limit_used_up
from node.model.wire.participants import HostQuota, Proposal

HOUR = times.HOUR
DAY = 500_000 * HOUR
DURATION = 60


def told(most: int, amount: int = 1, used: Mapping[int, int] | None = None) -> HostQuota:
    """Return a quota of so many runs in an hour."""
    return HostQuota(
        name="few",
        holder="a",
        quantity=Quantity.RUNS,
        most=most,
        period=HOUR,
        amount=amount,
        used=tuple(sorted((used or {}).items())),
    )


def slots(starts: list[int], slip: int) -> list[Slot]:
    """Return slots with these nominal starts."""
    return [Slot(at, 1, at, at + slip + DURATION) for at in starts]


def proposal(asked: list[Slot], *quotas: HostQuota) -> Proposal:
    """Return a proposal that offers all windows."""
    free = tuple((slot.start, slot.end) for slot in asked)
    return Proposal(now=0, horizon=times.LATEST - 1, free=free, quotas=quotas)


@given(
    starts=st.lists(st.integers(0, 300), min_size=1, max_size=40, unique=True),
    slip=st.integers(0, 80),
    most=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    used=st.integers(0, 6),
)
def test_what_is_chosen_is_what_a_hold_admits(
    starts: list[int], slip: int, most: list[int], used: int
) -> None:
    """Each chosen run is admitted beside the others, and every other one has a reason."""
    asked = slots([DAY + at * times.MINUTE for at in sorted(starts)], slip * times.MINUTE)
    quotas = [told(each, used={DAY: used}) for each in most]
    proposals = {"b": proposal(asked, *quotas)}
    count = QuotaCount.of(proposals)
    offers = [Offer("b", proposals["b"].free, proposals["b"].free)]
    chosen = choose(asked, offers, DURATION, None, (), count)
    reasons = unplaced_reasons(asked, chosen, DURATION, offers, proposals, count)
    assert len(chosen) + len(reasons) == len(asked)
    accounts = [
        Account(str(number), "a", (PeriodQuota(Quantity.RUNS, each, HOUR),))
        for number, each in enumerate(most)
    ]
    keys = Counter({(account.name, "a", "runs", HOUR, DAY): used for account in accounts})
    admission = UseCount(keys)  # type: ignore[arg-type]
    for choice in sorted(chosen, key=lambda each: each.starts_at):
        assert admission.admit(accounts, choice.starts_at, RunAmounts(DURATION, 0)) is None
    assert all(reason.figures["limit"] == "few" for reason in reasons.values())


def test_a_run_that_exceeds_a_quota_alone_never_starts() -> None:
    """All time is closed to a run that takes more than a period allows."""
    asked = slots([DAY + 5, DAY + 7 * HOUR], 0)
    proposals = {"b": proposal(asked, told(2, amount=3))}
    count = QuotaCount.of(proposals)
    offers = [Offer("b", proposals["b"].free, proposals["b"].free)]
    assert choose(asked, offers, DURATION, None, (), count) == []
    reasons = unplaced_reasons(asked, [], DURATION, offers, proposals, count)
    closed = limit_used_up("few", "0 runs", "2 runs per hour", DAY + 8 * HOUR)
    assert reasons[DAY + 7 * HOUR] == closed.at("b")


def test_nothing_is_counted_where_no_quota_is_told() -> None:
    """Without quotas there is no count, and a choice costs what it did."""
    asked = slots([DAY], 0)
    assert QuotaCount.of({"b": proposal(asked)}) is None
    assert QuotaCount.of({"b": proposal(asked).model_copy(update={"quotas": None})}) is None
