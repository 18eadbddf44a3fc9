"""Quotas of the owner's limits: so many runs, so much time, so many bytes in a period. Pure.

Periods are whole hours that follow each other since 1970-01-01T00:00:00Z: a period of a day begins
at midnight UTC. A run counts in the period in which it starts, whenever it was booked. Each quota
counts for itself what one node or user has under one rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from node.model import times
from node.model.byte_quotas import bytes_text, parse_byte_quota, parse_period, period_in_words
from node.model.reason import Reason
from node.model.reasons import limit_used_up
from node.model.spans import Span

_RUNS = re.compile(r"(\d{1,9})/(.+)", re.ASCII)
_TIME = re.compile(r"([^/]+)/(.+)", re.ASCII)


class Quantity(StrEnum):
    """The quantities of which a rule may allow so much in a period."""

    RUNS = "runs"
    TIME = "time"
    BYTES = "bytes"


@dataclass(frozen=True)
class RunAmounts:
    """The amounts of one run: its time on this host (µs), and the bytes that it moves."""

    time: int
    bytes: int

    def of(self, quantity: Quantity) -> int:
        """Return how much of a quantity the run takes."""
        if quantity is Quantity.RUNS:
            return 1
        return self.time if quantity is Quantity.TIME else self.bytes


@dataclass(frozen=True)
class PeriodQuota:
    """At most ``most`` of a quantity (runs, µs, bytes) in each ``period`` (µs)."""

    quantity: Quantity
    most: int
    period: int

    def begin(self, instant: int) -> int:
        """Return when the period of an instant begins."""
        return instant - instant % self.period

    def exceeded(self, used: int, amount: int) -> bool:
        """Return whether a run that takes this amount does not fit beside what is used."""
        return used + amount > self.most

    def text_of(self, amount: int) -> str:
        """Return an amount with its unit: ``24 runs``, ``10 min``, ``50 GB``."""
        if self.quantity is Quantity.RUNS:
            return f"{amount} run{'' if amount == 1 else 's'}"
        if self.quantity is Quantity.TIME:
            return times.duration_text(amount)
        return bytes_text(amount)

    def in_words(self) -> str:
        """Return ``24 runs per day``."""
        return f"{self.text_of(self.most)} per {period_in_words(self.period)}"

    def used_up(self, limit: str, used: int, begin: int) -> Reason:
        """Return why the limit of this name admits no further run in a period."""
        return limit_used_up(limit, self.text_of(used), self.in_words(), begin + self.period)


class UseKey(NamedTuple):
    """The key under which a use is counted: a rule and holder, or a cap and network; a period.

    Keys are locked in their order.
    """

    rule: str
    holder: str
    quantity: str
    period: int
    begins_at: int


@dataclass(frozen=True)
class Account:
    """A holder of quotas: a lead or a user under a rule, or a target under a cap; with its name."""

    name: str
    holder: str
    quotas: tuple[PeriodQuota, ...]


def use_key(account: Account, quota: PeriodQuota, start: int) -> UseKey:
    """Return under what a run that begins at ``start`` counts."""
    return UseKey(account.name, account.holder, quota.quantity, quota.period, quota.begin(start))


class UseCount:
    """The use of quotas, as runs are admitted one after another."""

    def __init__(self, used: Mapping[UseKey, int]) -> None:
        """``used`` has what is counted already; what it lacks is zero."""
        self._used = dict(used)

    def admit(
        self, accounts: Sequence[Account], start: int, amounts: RunAmounts
    ) -> tuple[Account, PeriodQuota, int] | None:
        """Count a run for all accounts and return None.

        Or count nothing, and return an account, its quota that is exceeded, and its use so far.
        """
        keys = [
            (account, quota, use_key(account, quota, start))
            for account in accounts
            for quota in account.quotas
        ]
        for account, quota, key in keys:
            used = self._used.get(key, 0)
            if quota.exceeded(used, amounts.of(quota.quantity)):
                return account, quota, used
        for _, quota, key in keys:
            self._used[key] = self._used.get(key, 0) + amounts.of(quota.quantity)
        return None


def full_spans(spans: Iterable[Span], most: int) -> list[Span]:
    """Return where at least ``most`` of these spans overlap, in order."""
    return loaded_spans(((start, end, 1) for start, end in spans), most)


def _sums(loads: Iterable[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Return the instants at which the sum of loads may change, and the sum from each on."""
    changes: dict[int, int] = {}
    for start, end, load in loads:
        changes[start] = changes.get(start, 0) + load
        changes[end] = changes.get(end, 0) - load
    instants = sorted(changes)
    return instants, list(accumulate(changes[instant] for instant in instants))


def loaded_spans(loads: Iterable[tuple[int, int, int]], least: int) -> list[Span]:
    """Return where the sum of these loads, each with its span, is at least this, in order."""
    instants, sums = _sums(loads)
    full: list[Span] = []
    for start, end, count in zip(instants, instants[1:], sums, strict=False):
        if count < least:
            continue
        if full and full[-1][1] == start:
            full[-1] = (full[-1][0], end)
        else:
            full.append((start, end))
    return full


def load_steps(loads: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the sums of these loads, each with its span, from when to when; without zeros."""
    instants, sums = _sums(loads)
    steps = zip(instants, instants[1:], sums, strict=False)
    return [(start, end, load) for start, end, load in steps if load]


def parse_quota(quantity: Quantity, text: str) -> PeriodQuota:
    """Parse ``24/P1D`` (runs), ``PT10M/P1D`` (time), or ``50G/P1D`` (bytes).

    :raises ValueError: it is something else; says what to write.
    """
    if quantity is Quantity.BYTES:
        read = parse_byte_quota(text)
        return PeriodQuota(quantity, read.most, read.period)
    written = _RUNS if quantity is Quantity.RUNS else _TIME
    example = "24/P1D" if quantity is Quantity.RUNS else "PT10M/P1D"
    match = written.fullmatch(text.strip())
    if match is None:
        msg = f"write an amount per period, such as {example}"
        raise ValueError(msg)
    most = int(match[1]) if quantity is Quantity.RUNS else times.parse_duration(match[1])
    return PeriodQuota(quantity, most, parse_period(match[2]))
