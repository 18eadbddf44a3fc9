"""Quotas of bytes per period, such as 50G/P1D, and bytes as people read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from node.model import times

BYTES: Final = "bytes"
"""The name of this quota among those of a campaign; the others are counted resources."""

_UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_WRITTEN = re.compile(r"(\d{1,19}(?:\.\d{1,12})?) ?([kKMGT]?)B?/(.+)", re.ASCII)
_PERIODS: Final = {times.HOUR: "hour", times.DAY: "day", 7 * times.DAY: "week"}
_LONGEST: Final = 31 * times.DAY
_MOST: Final = 10**18
_HELP = "write an amount per period, such as 50G/P1D (50 GB per day); units are k, M, G and T"


@dataclass(frozen=True, slots=True)
class ByteQuota:
    """At most ``most`` bytes in any ``period`` of whole hours (µs)."""

    most: int
    period: int

    def __str__(self) -> str:
        """Return ``50G/P1D``."""
        unit = max((it for it in _UNITS if self.most % _UNITS[it] == 0), key=_UNITS.__getitem__)
        if not self.most:
            unit = ""
        return f"{self.most // _UNITS[unit]}{unit}/{times.format_duration(self.period)}"

    @property
    def words(self) -> str:
        """Return ``50 GB per day``."""
        return f"{bytes_text(self.most)} per {period_in_words(self.period)}"


def parse_period(text: str) -> int:
    """Parse the period of a quota, ``P1D`` (µs).

    :raises ValueError: it is no duration, or not one of whole hours up to 31 days.
    """
    period = times.parse_duration(text)
    if period % times.HOUR or not times.HOUR <= period <= _LONGEST:
        msg = "the period of a quota is whole hours, 1 h to 31 d"
        raise ValueError(msg)
    return period


def period_in_words(period: int) -> str:
    """Return a period (µs) as it follows "per": ``day``, or ``2 h``."""
    return _PERIODS.get(period) or times.duration_text(period)


def parse_byte_quota(text: str) -> ByteQuota:
    """Parse ``50G/P1D``.

    :raises ValueError: it is something else; says what to write.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise ValueError(_HELP)
    amount, unit, duration = match.groups()
    period = parse_period(duration)
    most = Decimal(amount) * _UNITS["k" if unit == "K" else unit]
    if most != most.to_integral() or most > _MOST:
        msg = "the amount of a quota is whole bytes, at most 1000000T"
        raise ValueError(msg)
    return ByteQuota(int(most), period)


def byte_quota_of(quotas: Mapping[str, Any]) -> ByteQuota | None:
    """Return the quota of bytes among the stored quotas of a campaign, or None."""
    written = quotas.get(BYTES)
    return None if written is None else parse_byte_quota(written)


def bytes_text(amount: int) -> str:
    """Return bytes with a decimal unit: ``50 GB``, ``1.25 MB``, ``12 B``."""
    for unit in ("T", "G", "M", "k"):
        if amount >= _UNITS[unit]:
            rounded = f"{amount / _UNITS[unit]:.2f}".rstrip("0").rstrip(".")
            return f"{rounded} {unit}B"
    return f"{amount} B"
