"""Quotas of bytes per period: how they are written, and which hours they close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.policy.throttle.byte_quota import MovedBytes
from node.model import times
from node.model.byte_quotas import ByteQuota, bytes_text, parse_byte_quota
from node.model.host_limits.quotas import Quantity, parse_quota

HOUR = times.HOUR
GIGABYTE = 10**9


@pytest.mark.parametrize(
    ("text", "most", "period", "canonical", "words"),
    [
        ("50G/P1D", 50 * GIGABYTE, times.DAY, "50G/P1D", "50 GB per day"),
        ("0.5TB/P7D", 500 * GIGABYTE, 7 * times.DAY, "500G/P7D", "500 GB per week"),
        ("1500k/PT1H", 1_500_000, HOUR, "1500k/PT1H", "1.5 MB per hour"),
        ("12/PT36H", 12, 36 * HOUR, "12/P1DT12H", "12 B per 1 d 12 h"),
        ("0/P1D", 0, times.DAY, "0/P1D", "0 B per day"),
    ],
)
def test_a_quota_is_an_amount_per_period(
    text: str, most: int, period: int, canonical: str, words: str
) -> None:
    """Units are decimal; a quota is stored in one form, and people read another."""
    quota = parse_byte_quota(text)
    assert quota == ByteQuota(most, period)
    assert (str(quota), quota.words) == (canonical, words)
    assert parse_byte_quota(str(quota)) == quota


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("50G", "such as 50G/P1D"),
        ("50X/P1D", "such as 50G/P1D"),
        ("-1G/P1D", "such as 50G/P1D"),
        ("1G/PT90M", "whole hours"),
        ("1G/P32D", "1 h to 31 d"),
        ("1G/tomorrow", "write 30s"),
        ("1G/P1M", "use days"),
        ("0.5/P1D", "whole bytes"),
        ("9999999T/P1D", "at most 1000000T"),
    ],
)
def test_anything_else_is_refused_with_a_remedy(text: str, remedy: str) -> None:
    """Errors say what to write."""
    with pytest.raises(ValueError, match=remedy):
        parse_byte_quota(text)


@given(st.integers(0, 10**18), st.integers(1, 31 * 24))
def test_every_quota_is_read_as_it_is_written(most: int, hours: int) -> None:
    """Writing and parsing are inverse."""
    quota = ByteQuota(most, hours * HOUR)
    assert parse_byte_quota(str(quota)) == quota


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0 B"), (999, "999 B"), (1250, "1.25 kB"), (3 * 10**12, "3 TB")]
)
def test_bytes_have_decimal_units(amount: int, text: str) -> None:
    """Two digits after the point at most."""
    assert bytes_text(amount) == text


runs_drawn = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=20)


@given(runs_drawn, st.integers(1, 30), st.integers(1, 30), st.integers(1, 12))
def test_the_quota_holds_in_every_period(
    wanted: list[tuple[int, int]], most: int, period: int, own: int
) -> None:
    """All that is admitted fits into every period, and what is refused exceeds one."""
    moved = MovedBytes("ops", ByteQuota(most, period * HOUR), {})
    booked: list[tuple[int, int]] = []

    def worst_at(hour: int) -> int:
        """Return the most in a period that contains this hour."""
        return max(
            sum(amount for at, amount in booked if first <= at < first + period)
            for first in range(hour - period + 1, hour + 1)
        )

    for hour, amount in [*wanted, *((hour, own) for hour in range(0, 40, 7))]:
        refusal = moved.find_refusal(hour * HOUR + HOUR // 3, amount)
        assert (refusal is None) == (worst_at(hour) + amount <= most)
        if refusal is None:
            booked.append((hour, amount))
            moved.add(hour * HOUR + HOUR // 3, amount)
        elif refusal.until is not None:
            assert worst_at(refusal.until // HOUR) + amount <= most, "there is room again then"
            assert all(worst_at(at) + amount > most for at in range(hour, refusal.until // HOUR))
    assert all(worst_at(hour) <= most for hour in range(41))


def test_short_durations_are_taken_too() -> None:
    """A day is written 1d or P1D, in each kind of quota."""
    assert parse_byte_quota("50G/1d") == parse_byte_quota("50G/P1D")
    for kind, short, long in (
        (Quantity.RUNS, "4/1h", "4/PT1H"),
        (Quantity.TIME, "10m/1d", "PT10M/P1D"),
    ):
        assert parse_quota(kind, short) == parse_quota(kind, long)
