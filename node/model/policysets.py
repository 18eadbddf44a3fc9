"""The names of the policy sets that a pool may be given, and what campaigns must be like for them.

Which algorithms stand behind a name is the lead's affair (``lead/policy/sets.py``). Here is what a
node must know to refuse a wrong name, or a campaign that a set cannot serve, at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

DEFAULT: Final = "campaign-default"

AXES: Final = ("order", "share", "select", "preempt", "throttle", "fill", "feasible")
"""The seven questions of an episode; each may be answered otherwise than the set does."""


@dataclass(frozen=True)
class Kind:
    """What a set asks of campaigns.

    ``zero_weight``: a weight of 0 has a meaning (served when something would stay idle).
    ``divides``: it shares by weight, so that none may be 0. ``targets``: it serves promises.
    """

    zero_weight: bool = False
    divides: bool = False
    targets: bool = False


_PLAIN = Kind()
_BY_WEIGHT = Kind(divides=True)
_BY_TARGET = Kind(targets=True)
_LONG_TERM = Kind(zero_weight=True)

SETS: Final[dict[str, Kind]] = {
    DEFAULT: _BY_WEIGHT,
    "pscheduler": _PLAIN,
    "gridserver-usage": _BY_WEIGHT,
    "gridserver-usage-aggregated": _BY_WEIGHT,
    "gridserver-time": _PLAIN,
    "gridserver-serial-usage": _BY_WEIGHT,
    "gridserver-serial-time": _PLAIN,
    "gridserver-urgent": _BY_WEIGHT,
    "gridserver-sla": _BY_TARGET,
    "gridserver-sla-preempt": _BY_TARGET,
    "gridserver-blacklist": _BY_WEIGHT,
    "fbsng-dynamic": _PLAIN,
    "fbsng-quota": _PLAIN,
    "fbsng-partition": _PLAIN,
    "fbsng-placement": _PLAIN,
    "maui-fifo": _PLAIN,
    "maui-priority": _PLAIN,
    "maui-fairshare": _PLAIN,
    "maui-throttle": _PLAIN,
    "maui-backfill": _PLAIN,
    "maui-nodes": _PLAIN,
    "maui-availability": _PLAIN,
    "maui-preempt": _PLAIN,
    "maui-defer": _PLAIN,
    "maui-reservations": _PLAIN,
    "boinc-rrsim": _LONG_TERM,
    "boinc-wrr": _LONG_TERM,
    "boinc-edf": _LONG_TERM,
    "boinc-fetch": _LONG_TERM,
    "boinc-backoff": _LONG_TERM,
}
"""By name; the first is the one recommended for pools."""

PROMISING: Final = "promised"
"""The rule of sharing that keeps promises, as overrides call it."""


def near(name: str) -> list[str]:
    """Sets whose names are like this one, for whoever has mistyped it."""
    return get_close_matches(name, SETS, n=3, cutoff=0.5) or list(SETS)
