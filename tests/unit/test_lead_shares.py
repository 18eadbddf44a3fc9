"""The shares of leads in a node's time."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from node.model import times
from node.model.lead_shares import (
    CLAIM_LIFE,
    OTHERS,
    RELEASE,
    LeadShares,
    LeadUse,
    ShareJudge,
    corrected_shares,
    period,
)

NOW = 480_000 * times.HOUR
FIRST = NOW // times.HOUR
TEN = 10 * times.MINUTE
SHORT = 3 * times.MINUTE
"""A duration so short that a lead's part is counted hour by hour."""
SHARES = LeadShares({"b": 3}, others=1)
ALL_DAY = dict.fromkeys(range(FIRST, FIRST + 24), NOW)


def _judge(
    used: Sequence[tuple[str, int, float]] = (),
    claims: Mapping[str, Mapping[int, int]] | None = None,
    shares: LeadShares = SHARES,
    now: int = NOW,
) -> ShareJudge:
    return ShareJudge(shares, LeadUse(shares, used), claims or {}, now)


def test_alone_a_lead_may_have_everything() -> None:
    """Nothing is kept for leads that did not ask, whatever their shares are."""
    judge = _judge([("c", FIRST + 5, times.HOUR)], {"c": ALL_DAY})
    assert judge.kept("c", SHORT, FIRST, FIRST + 24) == []


def test_more_than_the_part_is_kept_for_who_asked() -> None:
    """A lead has its part of an hour, and the rest is kept while another one wants it."""
    judge = _judge([("c", FIRST + 5, 2 * TEN)], {"b": {FIRST + 5: NOW}})
    [kept] = judge.kept("c", SHORT, FIRST + 5, FIRST + 6)
    assert kept.percent == 25
    assert kept.claimed_until == NOW + CLAIM_LIFE
    assert (kept.starts_at, kept.ends_at) == (NOW + 5 * times.HOUR, NOW + 6 * times.HOUR)
    assert judge.kept("c", SHORT, FIRST + 7, FIRST + 9) == []
    assert judge.kept("b", SHORT, FIRST, FIRST + 9) == []


def test_time_is_kept_for_leads_below_their_part_only() -> None:
    """Once the other lead has its part, what is left is free for all."""
    mine, theirs = ("c", FIRST + 5, 2 * TEN), ("b", FIRST + 5, 5 * TEN)
    assert _judge([mine, theirs], {"b": ALL_DAY}).kept("c", SHORT, FIRST + 5, FIRST + 6) == []


def test_a_claim_ends() -> None:
    """Some time after a lead's last question its time is free for all."""
    used = [("c", FIRST + 5, 2 * TEN)]
    asked = {"b": {FIRST + 5: NOW - CLAIM_LIFE}}
    assert _judge(used, asked).kept("c", SHORT, FIRST + 5, FIRST + 6) == []


def test_what_begins_soon_is_free() -> None:
    """Within the last minutes nothing is kept, and the rest of the hour in progress is."""
    judge = _judge([("c", FIRST, 2 * TEN)], {"b": ALL_DAY})
    [kept] = judge.kept("c", SHORT, FIRST, FIRST + 1)
    assert kept.starts_at == NOW + RELEASE
    assert judge.admits("c", SHORT, NOW + RELEASE - 1) is None
    assert judge.admits("c", SHORT, NOW + RELEASE) is not None


def test_later_is_when_the_time_is_released() -> None:
    """A refusal says when the time may be offered: once nobody claims it, or shortly before."""
    judge = _judge([("c", FIRST + 5, 2 * TEN)], {"b": {FIRST + 5: NOW}})
    [kept] = judge.kept("c", SHORT, FIRST + 5, FIRST + 6)
    assert kept.later(NOW, NOW) == NOW + CLAIM_LIFE
    near = _judge([("c", FIRST, 2 * TEN)], {"b": ALL_DAY})
    [kept] = near.kept("c", SHORT, FIRST, FIRST + 1)
    assert kept.later(NOW + times.HOUR // 2, NOW) == NOW + times.HOUR // 2 - RELEASE
    assert kept.later(NOW, NOW) == NOW + times.MINUTE


def test_others_have_one_share_together() -> None:
    """Leads without a share of their own are counted as one."""
    used = [("c", FIRST + 5, TEN), ("d", FIRST + 5, TEN)]
    judge = _judge(used, {"b": ALL_DAY, "c": ALL_DAY})
    assert judge.kept("e", SHORT, FIRST + 5, FIRST + 6)
    assert SHARES.account("e") == OTHERS


def test_a_lead_without_share_gets_what_nobody_wants() -> None:
    """A share of zero is served with time that no other lead wants."""
    shares = LeadShares({"b": 3, "z": 0})
    judge = _judge([], {"b": {FIRST + 5: NOW}}, shares)
    assert judge.kept("z", TEN, FIRST + 5, FIRST + 6)
    assert judge.kept("z", TEN, FIRST + 3, FIRST + 5) == []
    assert _judge([], {"z": ALL_DAY}, shares).kept("b", SHORT, FIRST, FIRST + 24) == []


def test_long_runs_are_counted_over_several_hours() -> None:
    """A lead's part of a period holds four of its runs, up to a day."""
    assert period(0.25, TEN) == 3
    assert period(1.0, TEN) == 1
    assert period(0.25, times.HOUR) == 24
    assert period(0.01, times.HOUR) == 24
    assert period(0.0, times.HOUR) == 1


def test_recent_use_corrects_the_parts() -> None:
    """A lead that used its share keeps it; one that used more gets less, down to half."""
    even, hour = {"b": 0.5, "c": 0.5}, times.HOUR
    assert corrected_shares(even, {"b": 9 * hour, "c": 9 * hour}) == even
    assert corrected_shares(even, {"b": 0, "c": 0}) == even
    assert corrected_shares(even, {"b": 0, "c": 9 * hour}) == {"b": 0.8, "c": 0.2}
    slightly = corrected_shares(even, {"b": 9 * hour, "c": 10 * hour})
    assert 0.5 < slightly["b"] < 0.6
    # A few seconds of use say nothing.
    assert corrected_shares(even, {"b": 0, "c": times.SECOND})["c"] > 0.499
    assert sum(slightly.values()) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(50))
def test_of_all_that_want_time_one_may_book(seed: int) -> None:
    """No hour is kept from all leads that want it, whatever was used and asked for."""
    rng = random.Random(seed)
    leads = ["a", "b", "c", "d"][: rng.randint(2, 4)]
    shares = LeadShares({lead: rng.choice((0, 1, 2, 10)) for lead in leads[1:]}, rng.choice((0, 3)))
    amount = rng.choice((SHORT, TEN, 50 * times.MINUTE))
    used = [
        (rng.choice(leads), FIRST + rng.randrange(-48, 24), rng.random() * times.HOUR)
        for _ in range(rng.choice((0, 5, 60)))
    ]
    judge = _judge(used, dict.fromkeys(leads, ALL_DAY), shares)
    kept = [{it.starts_at for it in judge.kept(lead, amount, FIRST, FIRST + 24)} for lead in leads]
    assert not set.intersection(*kept)


@dataclass
class _Host:
    """A node with one seat whose leads ask for runs a day ahead, in any order."""

    shares: LeadShares
    wanted: Mapping[str, tuple[int, float]]
    """By lead: how long its runs last, and the part of all time that it wants."""
    rng: random.Random
    now: int = NOW
    use: LeadUse = field(init=False)
    booked: list[tuple[str, int, int]] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    """The minutes that are booked."""
    claims: dict[str, dict[int, int]] = field(default_factory=dict)
    pending: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with nothing used."""
        self.use = LeadUse(self.shares)

    def pass_quarter(self) -> None:
        """Let leads want new runs at the horizon, and ask for all that they miss."""
        edge = self.now + times.DAY
        for lead, (duration, part) in self.wanted.items():
            due = part * 15 * times.MINUTE / duration
            count = int(due) + (self.rng.random() < due % 1)
            new = [edge + self.rng.randrange(15) * times.MINUTE for _ in range(count)]
            self.pending[lead] = [*self.pending.get(lead, ()), *new]
        order = [(lead, slot) for lead, slots in self.pending.items() for slot in slots]
        self.rng.shuffle(order)
        self.pending = {}
        for lead, slot in order:
            self._ask(lead, slot)
        self.now += 15 * times.MINUTE

    def _ask(self, lead: str, slot: int) -> None:
        duration, _ = self.wanted[lead]
        starts = range(max(slot, self.now), slot + times.HOUR - duration, times.MINUTE)
        hours = sorted({start // times.HOUR for start in starts})
        self.claims.setdefault(lead, {}).update(dict.fromkeys(hours, self.now))
        free = [start for start in starts if self._is_free(start, duration)]
        judge = ShareJudge(self.shares, self.use, self.claims, self.now)
        for hour in hours:
            inside = [start for start in free if start // times.HOUR == hour]
            soon = [start for start in inside if start < self.now + RELEASE]
            if inside and judge.admits(lead, duration, inside[-1]) is None:
                soon = inside
            if soon:
                self._book(lead, soon[0], duration)
                return
        if starts:
            self.pending.setdefault(lead, []).append(slot)

    def _is_free(self, start: int, duration: int) -> bool:
        minutes = range(start // times.MINUTE, (start + duration) // times.MINUTE)
        return self.taken.isdisjoint(minutes)

    def _book(self, lead: str, start: int, duration: int) -> None:
        self.booked.append((lead, start, start + duration))
        self.taken.update(range(start // times.MINUTE, (start + duration) // times.MINUTE))
        self.use.add(lead, start // times.HOUR, duration)


def _had(host: _Host, days: float) -> dict[str, float]:
    """Return the part of all time that each lead had after a first day."""
    had = dict.fromkeys(host.wanted, 0)
    begins, ends = host.now + times.DAY, host.now + round(days * times.DAY)
    while host.now < ends:
        host.pass_quarter()
    for lead, start, end in host.booked:
        had[lead] += end - start if begins <= start < ends else 0
    return {lead: amount / (ends - begins) for lead, amount in had.items()}


@pytest.mark.nightly
def test_shares_are_kept_when_all_want_more() -> None:
    """Leads that want more than there is have their shares, with runs of one length."""
    shares = LeadShares({"a": 3, "b": 2, "c": 1}, others=0)
    wanted = {"a": (TEN, 0.75), "b": (TEN, 0.5), "c": (TEN, 0.25)}
    had = _had(_Host(shares, wanted, random.Random(1)), 2.5)
    total = sum(had.values())
    assert total > 0.9
    assert had["a"] / total == pytest.approx(1 / 2, abs=0.03)
    assert had["b"] / total == pytest.approx(1 / 3, abs=0.03)
    assert had["c"] / total == pytest.approx(1 / 6, abs=0.03)


@pytest.mark.nightly
def test_nobody_starves_with_long_runs() -> None:
    """A small lead has its share beside a large one, with runs longer than its part of an hour."""
    shares = LeadShares({"a": 9, "b": 1}, others=0)
    wanted = {"a": (TEN, 1.2), "b": (20 * times.MINUTE, 0.3)}
    had = _had(_Host(shares, wanted, random.Random(1)), 3)
    assert had["b"] == pytest.approx(0.1, abs=0.03)
    assert sum(had.values()) > 0.9


@pytest.mark.nightly
def test_what_one_lead_does_not_want_another_one_has() -> None:
    """All time that somebody wants is used, whatever the shares are."""
    shares = LeadShares({"a": 9, "b": 1}, others=0)
    wanted = {"a": (TEN, 0.1), "b": (TEN, 1.2)}
    had = _had(_Host(shares, wanted, random.Random(1)), 2)
    assert had["a"] == pytest.approx(0.1, abs=0.03)
    assert had["b"] > 0.7
