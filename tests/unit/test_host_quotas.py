"""Quotas, runs at once, and the times of a rule of the limits of a host."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model import times
from node.model.host_limits.opening import Opening, closed_spans
from node.model.host_limits.quotas import (
    Account,
    PeriodQuota,
    Quantity,
    RunAmounts,
    UseCount,
    full_spans,
    parse_quota,
)

START = times.parse_instant("2026-12-01T00:00:00Z")
INSTANTS = st.integers(0, 3 * 24 * 4).map(lambda quarter: START + quarter * 15 * times.MINUTE)
QUOTAS = st.sampled_from(
    [
        parse_quota(Quantity.RUNS, "3/PT6H"),
        parse_quota(Quantity.RUNS, "5/P1D"),
        parse_quota(Quantity.TIME, "PT10M/PT1H"),
        parse_quota(Quantity.BYTES, "1G/P1D"),
    ]
)
AMOUNTS = st.builds(
    RunAmounts, time=st.sampled_from([times.MINUTE, 4 * times.MINUTE]), bytes=st.just(300_000_000)
)


@given(st.lists(QUOTAS, unique=True), st.lists(st.tuples(INSTANTS, AMOUNTS), max_size=40))
def test_no_period_ever_has_more_than_its_quota(
    quotas: list[PeriodQuota], runs: list[tuple[int, RunAmounts]]
) -> None:
    """Admitted runs are within each quota in any order, and only excess is refused."""
    count = UseCount({})
    used: Counter[tuple[PeriodQuota, int]] = Counter()
    for start, amounts in runs:
        over = [
            quota
            for quota in quotas
            if used[quota, quota.begin(start)] + amounts.of(quota.quantity) > quota.most
        ]
        refused = count.admit([Account("rule", "lead", tuple(quotas))], start, amounts)
        assert (refused is None) == (not over)
        if refused is None:
            for quota in quotas:
                used[quota, quota.begin(start)] += amounts.of(quota.quantity)
    assert all(amount <= quota.most for (quota, _), amount in used.items())


def test_leads_and_rules_count_apart() -> None:
    """Use counts for its lead and its rule, and for no other one."""
    quota = parse_quota(Quantity.RUNS, "1/P1D")
    count, amounts = UseCount({}), RunAmounts(times.MINUTE, 0)
    one, other, target = (Account(*it, (quota,)) for it in (("r", "a"), ("r", "b"), ("s", "a")))
    assert count.admit([one], START, amounts) is None
    assert count.admit([other], START, amounts) is None
    assert count.admit([target], START, amounts) is None
    assert count.admit([one], START, amounts) == (one, quota, 1)
    assert count.admit([one], START + times.DAY, amounts) is None


def test_a_refused_run_counts_nowhere() -> None:
    """A run that one account has no room for uses nothing of the others."""
    quota = parse_quota(Quantity.RUNS, "1/P1D")
    count, amounts = UseCount({}), RunAmounts(times.MINUTE, 0)
    lead, target = Account("r", "a", (quota,)), Account("cap", "192.0.2.7/32", (quota,))
    assert count.admit([target], START, amounts) is None
    assert count.admit([lead, target], START, amounts) == (target, quota, 1)
    assert count.admit([lead], START, amounts) is None


@pytest.mark.parametrize(
    ("quantity", "text", "words", "used"),
    [
        (Quantity.RUNS, "24/P1D", "24 runs per day", "24 runs of 24 runs per day used"),
        (Quantity.TIME, "PT10M/PT1H", "PT10M per hour", "PT0.000024S of PT10M per hour used"),
        (Quantity.BYTES, "50G/P7D", "50 GB per week", "24 B of 50 GB per week used"),
    ],
)
def test_quotas_are_worded(quantity: Quantity, text: str, words: str, used: str) -> None:
    """A quota reads as an amount per period, and tells when it is free again."""
    quota = parse_quota(quantity, text)
    assert quota.in_words() == words
    end = times.to_the_second(START + quota.period)
    assert quota.used_up(24, START) == f"{used}, free again from {end}"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8)), max_size=12), st.integers(1, 4))
def test_full_time_is_where_so_many_runs_overlap(runs: list[tuple[int, int]], most: int) -> None:
    """An instant is full exactly if that many spans hold it."""
    spans = [(start, start + length) for start, length in runs]
    full = full_spans(spans, most)
    for instant in range(30):
        overlapping = sum(start <= instant < end for start, end in spans)
        assert any(start <= instant < end for start, end in full) == (overlapping >= most)
    assert all(one[1] < other[0] for one, other in pairwise(full))


def test_a_rule_is_open_in_the_zone_of_its_times() -> None:
    """Nights in Berlin are open from ten to six there, and closed in between."""
    night = Opening("0 22 * * *", 8 * times.HOUR, "Europe/Berlin")
    day = 16 * times.HOUR
    assert closed_spans([night], START, START + 2 * times.DAY) == [
        (START + 5 * times.HOUR, START + 21 * times.HOUR),
        (START + 29 * times.HOUR, START + 29 * times.HOUR + day),
    ]


@given(
    st.lists(
        st.builds(
            Opening,
            st.sampled_from(["0 22 * * *", "*/30 8-17 * * MON-FRI", "0 0 * * SAT"]),
            st.sampled_from([10 * times.MINUTE, 3 * times.HOUR, times.DAY]),
        ),
        max_size=3,
    ),
    INSTANTS,
    st.integers(1, 48),
)
def test_time_is_either_open_or_closed(openings: list[Opening], since: int, hours: int) -> None:
    """Closed time is the rest of what the openings leave of a span."""
    until = since + hours * times.HOUR
    closed = closed_spans(openings, since, until)
    opened = [span for each in openings for span in each.spans(since, until)]
    for instant in range(since, until, 15 * times.MINUTE):
        is_open = any(start <= instant < end for start, end in opened)
        assert any(start <= instant < end for start, end in closed) != is_open
