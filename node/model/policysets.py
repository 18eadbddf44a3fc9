"""The policy sets that a pool may use, and what each of them requires of campaigns.

The lead defines which algorithms a set consists of (``lead/policy/sets.py``). This module has what
a node needs to refuse a wrong name at once, or a campaign that a set cannot serve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT: Final = "campaign-default"

AXES: Final = ("order", "share", "select", "preempt", "throttle", "fill", "feasible")
"""The seven questions of an episode; a pool may override a set's answer to each of them."""


@dataclass(frozen=True)
class PolicySetTraits:
    """The requirements of a policy set on campaigns.

    ``zero_weight``: a weight of 0 is meaningful (served when capacity would stay idle).
    ``divides``: it shares by weight, so no weight may be 0. ``targets``: it serves promises.
    ``good_for`` says in one line when to choose it.
    """

    good_for: str = ""
    zero_weight: bool = False
    divides: bool = False
    targets: bool = False


def _plain_traits(good_for: str) -> PolicySetTraits:
    return PolicySetTraits(good_for)


def _weighted_traits(good_for: str) -> PolicySetTraits:
    return PolicySetTraits(good_for, divides=True)


def _target_traits(good_for: str) -> PolicySetTraits:
    return PolicySetTraits(good_for, targets=True)


def _long_term_traits(good_for: str) -> PolicySetTraits:
    return PolicySetTraits(good_for, zero_weight=True)


SETS: Final[dict[str, PolicySetTraits]] = {
    DEFAULT: _weighted_traits(
        "several campaigns on one fleet: shares by weight, urgent runs within a budget, "
        "quotas and limits, nobody passed over forever"
    ),
    "pscheduler": _plain_traits(
        "a predictable schedule: what is due first goes first, a higher priority "
        "displaces a lower one; no shares"
    ),
    "gridserver-usage": _weighted_traits(
        "shares by weight: campaigns that had too little in the last 24 h are served first; the "
        "same node measures the same target"
    ),
    "gridserver-usage-aggregated": _weighted_traits(
        "like gridserver-usage where one project has many campaigns: those of one level share "
        "together, so splitting up gains nothing"
    ),
    "gridserver-time": _plain_traits(
        "one campaign after the other, the oldest first: a debugging session is over before "
        "the next one begins"
    ),
    "gridserver-serial-usage": _weighted_traits(
        "incidents before routine: all of a higher level first, by weight within a level"
    ),
    "gridserver-serial-time": _plain_traits(
        "incidents before routine, and within a level one campaign after the other, the "
        "oldest first"
    ),
    "gridserver-urgent": _weighted_traits(
        "shares by weight, and outages: urgent campaigns displace others within a small part "
        "of the pool"
    ),
    "gridserver-sla": _target_traits(
        "promised seats (targets), lent out while they are not used; serves only campaigns "
        "with a promise"
    ),
    "gridserver-sla-preempt": _target_traits(
        "like gridserver-sla where a promise must be kept again at the next run: what was "
        "lent is taken back, and what campaigns without a promise hold by tasks that name their "
        "nodes"
    ),
    "gridserver-blacklist": _weighted_traits(
        "shares by weight with unreliable nodes: a node that failed a campaign gets no more of "
        "its runs"
    ),
    "fbsng-dynamic": _plain_traits(
        "runs that cost about the same: turns by number of starts, without an account of time"
    ),
    "fbsng-quota": _plain_traits(
        "like fbsng-dynamic; a name for pools whose campaigns have quotas of counted resources "
        "(such as Mb/s)"
    ),
    "fbsng-partition": _plain_traits(
        "like fbsng-dynamic with nodes that belong to somebody: the attribute `campaigns` "
        "lists the only campaigns that they serve"
    ),
    "fbsng-placement": _plain_traits("like fbsng-dynamic, with the nodes of the pool taking turns"),
    "maui-fifo": _plain_traits(
        "what waits longest goes first; limits, preemption flags, a reserved slot for blocked "
        "runs, pauses for tasks that find no time"
    ),
    "maui-priority": _plain_traits(
        "like maui-fifo, ordered by several criteria at once: waiting time, size, credentials, "
        "lateness"
    ),
    "maui-fairshare": _plain_traits(
        "like maui-priority, with shares of the week between institutions as one of "
        "the criteria, no guarantee"
    ),
    "maui-throttle": _plain_traits(
        "what waits longest goes first, within the limits per campaign, tight when busy and "
        "generous when not"
    ),
    "maui-backfill": _plain_traits(
        "long runs beside short ones: the blocked run keeps its slot, and what fits goes before it"
    ),
    "maui-nodes": _plain_traits(
        "your own formula for which node is best, linear in the nodes' attributes"
    ),
    "maui-availability": _plain_traits(
        "nodes with counted resources: a node that is full is not asked"
    ),
    "maui-preempt": _plain_traits(
        "preemption decided by campaign: preemptors displace preemptees of lower priority"
    ),
    "maui-defer": _plain_traits(
        "many tasks that may never fit: what repeatedly finds no time is deferred, and says so"
    ),
    "maui-reservations": _plain_traits(
        "several wide runs at once: the first four that are blocked keep their slots"
    ),
    "boinc-rrsim": _long_term_traits(
        "long-term shares (half-life a day), with runs that would miss their start found by "
        "simulation and served first"
    ),
    "boinc-wrr": _long_term_traits(
        "long-term shares with one number per campaign, in turns, and nothing else; weight 0 "
        "uses idle capacity"
    ),
    "boinc-edf": _long_term_traits(
        "like boinc-wrr, with runs that would start too late going first"
    ),
    "boinc-fetch": _long_term_traits(
        "nodes that fetch their work: those with the least work are asked first"
    ),
    "boinc-backoff": _long_term_traits(
        "nodes that often refuse or are away: they are left alone for growing pauses"
    ),
}
"""Traits by name; the first set is the one recommended for pools."""

PROMISING: Final = "promised"
"""Name of the share rule that keeps promises, as written in overrides."""
