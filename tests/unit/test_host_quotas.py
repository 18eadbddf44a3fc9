"""The choice of starts stays within the quotas that participants tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lead.planning.agenda import Slot
from lead.planning.host_quotas import QuotaCount
from lead.planning.placement import ChosenStart, Offer, choose
from lead.planning.tentative_bookings import TentativeBookings, TentativeTask
from lead.planning.unplaced import unplaced_reasons
from node.model import times
from node.model.classes import SchedulingClass
from node.model.host_limits.quotas import Account, PeriodQuota, Quantity, RunAmounts, UseCount
from node.model.lead_shares import LeadShares, LeadUse, ShareJudge
from node.model.reasons import busy, limit_used_up, no_time_free
from node.model.wire.participants import HostLoad, HostQuota, HostShare, Proposal, ToldLimit

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


def proposal(asked: list[Slot], *quotas: ToldLimit) -> Proposal:
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
    assert all(each.figures["because"].figures["limit"] == "few" for each in reasons.values())


def test_a_run_that_exceeds_a_quota_alone_never_starts() -> None:
    """All time is closed to a run that takes more than a period allows."""
    asked = slots([DAY + 5, DAY + 7 * HOUR], 0)
    proposals = {"b": proposal(asked, told(2, amount=3))}
    count = QuotaCount.of(proposals)
    offers = [Offer("b", proposals["b"].free, proposals["b"].free)]
    assert choose(asked, offers, DURATION, None, (), count) == []
    reasons = unplaced_reasons(asked, [], DURATION, offers, proposals, count)
    closed = limit_used_up("few", "0 runs", "2 runs per hour", DAY + 8 * HOUR)
    assert reasons[DAY + 7 * HOUR] == no_time_free(DURATION, closed).at("b")


def test_nothing_is_counted_where_no_quota_is_told() -> None:
    """Without quotas there is no count, and a choice costs what it did."""
    asked = slots([DAY], 0)
    assert QuotaCount.of({"b": proposal(asked)}) is None
    assert QuotaCount.of({"b": proposal(asked).model_copy(update={"quotas": None})}) is None


SHARES = LeadShares({"b": 3, "c": 1}, others=1)
USE = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.integers(-30, 6)), st.integers(0, 3600), max_size=12
)


@given(
    starts=st.lists(st.integers(0, 300), min_size=1, max_size=30, unique=True),
    used=USE,
    wanted=st.dictionaries(st.sampled_from("bc"), st.integers(0, 6), min_size=1),
)
def test_what_is_chosen_is_within_the_share_of_the_lead(
    starts: list[int], used: dict[tuple[str, int], int], wanted: dict[str, int]
) -> None:
    """By what a host tells of its shares, a lead chooses the runs that it then admits."""
    asked = slots([DAY + 20 * times.MINUTE + at * times.MINUTE for at in sorted(starts)], 0)
    first, lasts = DAY // HOUR, 8 * times.MINUTE
    use = LeadUse(
        SHARES, ((lead, first + at, amount * times.SECOND) for (lead, at), amount in used.items())
    )
    claims = {lead: {first + hour: DAY} for lead, hour in wanted.items()}
    judge = ShareJudge(SHARES, use, claims, DAY)
    share = HostShare.of("others", lasts, judge.accounts("a", first, first + 6))
    assert share is not None
    answered = proposal(asked, share).model_copy(update={"now": DAY})
    count = QuotaCount.of({"h": answered})
    offers = [Offer("h", answered.free, answered.free)]
    chosen = {each.starts_at for each in choose(asked, offers, DURATION, None, (), count)}
    reasons = unplaced_reasons(asked, [], DURATION, offers, {"h": answered}, count)
    for slot in asked:
        kept = judge.admits("a", lasts, slot.start)
        assert (kept is None) is (slot.start in chosen)
        if kept is None:
            use.add("a", slot.start // HOUR, lasts)
        else:
            assert reasons[slot.nominal].figures["because"].code == "lead-above-share"


def exclusive(priority: int) -> TentativeTask:
    """Return a task of exclusive runs at b, whose key is its priority."""
    kind = SchedulingClass.EXCLUSIVE
    return TentativeTask(priority, "idle", priority, kind, DURATION, ["b"])


def test_runs_of_a_task_that_is_planned_before_give_way_as_booked_ones_would() -> None:
    """Time of what has a lower precedence there is free if that gives way."""
    tentative, [slot] = TentativeBookings(), slots([DAY], 0)
    kind = SchedulingClass.EXCLUSIVE
    answers = {
        rank: proposal([slot], told(2)).model_copy(update={"precedence": (0, rank)})
        for rank in (3, 4, 5)
    }
    low = [ChosenStart(slot, DAY, displacing=False)]
    assert tentative.take(exclusive(4), {"b": answers[4]}, low) == []
    offer = Offer("b", answers[4].free, answers[4].free)
    for rank, left in ((3, []), (4, []), (5, [(DAY, DAY + DURATION)])):
        beside, told_ = tentative.beside(offer, answers[rank], [slot], (kind, DURATION))
        assert (beside.free, beside.free_displacing) == ([], left)
        assert bool(told_.obstacles) is not bool(left)
    high = [ChosenStart(slot, DAY, displacing=True)]
    [lost] = tentative.take(exclusive(5), {"b": answers[5]}, high)
    assert (lost.key, lost.name, lost.span, lost.by) == (4, "b", (DAY, DAY + DURATION), DAY)
    assert tentative.quotas.used("b", told(2)) == {DAY: 2}
    tentative.give_back(exclusive(4), {"b": answers[4]}, {DAY})
    assert tentative.quotas.used("b", told(2)) == {DAY: 1}
    [obstacle] = tentative.beside(offer, answers[4], [slot], (kind, DURATION))[1].obstacles
    assert obstacle.why() == busy(kind, DAY, DAY + DURATION, "idle", 5)


def test_what_is_given_to_a_task_is_told_to_the_next_as_if_it_was_booked() -> None:
    """Time, quotas, and loads that another task takes are in the way, each with its reason."""
    tentative, normal = TentativeBookings(), SchedulingClass.NORMAL
    asked = slots([DAY, DAY + HOUR, DAY + 2 * HOUR], 0)
    load = HostLoad(name="one", holder="a", load="runs", most=1, amount=1)
    answered = proposal(asked, load, told(1))
    offer = Offer("b", answered.free, answered.free)
    tentative.count({"b": proposal(asked, load)}, [DAY + 30], DURATION)
    tentative.count({"b": proposal(asked, told(1))}, [DAY + HOUR + 100], DURATION)
    start = DAY + 2 * HOUR
    booked = [ChosenStart(asked[2], start, displacing=False)]
    tentative.take(exclusive(3), {"b": proposal(asked)}, booked)
    left, beside = tentative.beside(offer, answered, asked, (normal, DURATION))
    assert left.free == [(DAY, DAY + 30)]
    sentences = [each.why() for each in beside.obstacles]
    assert sentences[0].startswith("limit 'one': 1 of 1 runs at once, free again from ")
    assert sentences[1].startswith("limit 'few': 1 run of 1 run per hour used, free again from ")
    end = DAY + 2 * HOUR + DURATION
    assert sentences[2] == busy(SchedulingClass.EXCLUSIVE, DAY + 2 * HOUR, end, "idle", 3)


def test_a_host_tells_one_share_of_so_many_hours() -> None:
    """A participant that tells more would keep its lead counting for seconds with each run."""
    start = times.parse_instant("2026-12-01T00:00:00Z")
    first = start // times.HOUR
    hours = tuple((first + at, start) for at in range(1000))
    account = {"name": "0", "share": 1, "wants": hours}
    accounts = [{**account, "name": str(number)} for number in range(11)]
    share = HostShare.model_validate({"account": "0", "amount": 1.0, "accounts": accounts[:10]})
    with pytest.raises(ValidationError, match="more than 10000 hours"):
        HostShare.model_validate({"account": "0", "amount": 1.0, "accounts": accounts})
    told = {"now": start, "horizon": start, "free": ()}
    assert Proposal.model_validate({**told, "quotas": (share,)}).quotas == (share,)
    with pytest.raises(ValidationError, match="more than one share"):
        Proposal.model_validate({**told, "quotas": (share, share)})
