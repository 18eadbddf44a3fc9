"""The names of the policy sets that a pool may be given, and what campaigns must be like for them.

Which algorithms stand behind a name is the lead's affair (``lead/policy/sets.py``). Here is what a
node must know to refuse a wrong name, or a campaign that a set cannot serve, at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT: Final = "campaign-default"

AXES: Final = ("order", "share", "select", "preempt", "throttle", "fill", "feasible")
"""The seven questions of an episode; each may be answered otherwise than the set does."""


@dataclass(frozen=True)
class PolicySetTraits:
    """What a set asks of campaigns.

    ``zero_weight``: a weight of 0 has a meaning (served when something would stay idle).
    ``divides``: it shares by weight, so that none may be 0. ``targets``: it serves promises.
    ``good_for`` says in one line when to choose it.
    """

    good_for: str = ""
    zero_weight: bool = False
    divides: bool = False
    targets: bool = False


def _plain(good_for: str) -> PolicySetTraits:
    return PolicySetTraits(good_for)


def _by_weight(good_for: str) -> PolicySetTraits:
    return PolicySetTraits(good_for, divides=True)


def _by_target(good_for: str) -> PolicySetTraits:
    return PolicySetTraits(good_for, targets=True)


def _long_term(good_for: str) -> PolicySetTraits:
    return PolicySetTraits(good_for, zero_weight=True)


SETS: Final[dict[str, PolicySetTraits]] = {
    DEFAULT: _by_weight(
        "several campaigns on one fleet: shares by weight, urgent runs within a budget, "
        "quotas and limits, nobody passed for ever"
    ),
    "pscheduler": _plain(
        "a schedule that can be foretold: what is due first goes first, a higher priority "
        "displaces a lower one; no shares"
    ),
    "gridserver-usage": _by_weight(
        "shares by weight: who had too little in the last 24 h is served first; the same node "
        "measures the same target"
    ),
    "gridserver-usage-aggregated": _by_weight(
        "like gridserver-usage where one project has many campaigns: those of one level share "
        "together, splitting up buys nothing"
    ),
    "gridserver-time": _plain(
        "one campaign after the other, the oldest first: a debugging session is over before "
        "the next one begins"
    ),
    "gridserver-serial-usage": _by_weight(
        "incidents before routine: all of a higher level first, by weight within a level"
    ),
    "gridserver-serial-time": _plain(
        "incidents before routine, and within a level one campaign after the other, the "
        "oldest first"
    ),
    "gridserver-urgent": _by_weight(
        "shares by weight, and outages: urgent campaigns displace others within a small part "
        "of the pool"
    ),
    "gridserver-sla": _by_target(
        "promised seats (targets), lent out while they are not used; serves only campaigns "
        "that are promised some"
    ),
    "gridserver-sla-preempt": _by_target(
        "like gridserver-sla where a promise must be good again at the next run: what was "
        "lent is taken back"
    ),
    "gridserver-blacklist": _by_weight(
        "shares by weight with unreliable nodes: one that failed a campaign gets no more of "
        "its runs"
    ),
    "fbsng-dynamic": _plain(
        "runs that cost about the same: turns by how many were started, without an account of time"
    ),
    "fbsng-quota": _plain(
        "like fbsng-dynamic, and no campaign takes more of a counted resource than its quota, "
        "such as so many Mb/s"
    ),
    "fbsng-partition": _plain(
        "like fbsng-dynamic with nodes that belong to somebody: the attribute `campaigns` "
        "says whom alone they serve"
    ),
    "fbsng-placement": _plain("like fbsng-dynamic, with the nodes of the pool taking turns"),
    "maui-fifo": _plain(
        "who waits longest goes first; limits, flags to displace, a kept slot for who is "
        "blocked, pauses for what finds no time"
    ),
    "maui-priority": _plain(
        "like maui-fifo, ordered by several wishes at once: waiting, size, credentials, "
        "whether it is late"
    ),
    "maui-fairshare": _plain(
        "like maui-priority, and shares of the week between institutions as points among "
        "these wishes, no guarantee"
    ),
    "maui-throttle": _plain(
        "soft and hard limits per campaign, tight when busy and generous when not, and nothing else"
    ),
    "maui-backfill": _plain(
        "long runs beside short ones: the blocked one has its slot, and what fits goes before it"
    ),
    "maui-nodes": _plain(
        "your own formula for which node is best, linear in what nodes say of themselves"
    ),
    "maui-availability": _plain(
        "nodes with counted resources: one that is full of them is not asked"
    ),
    "maui-preempt": _plain(
        "who displaces whom is said of campaigns: preemptors displace preemptees of lower priority"
    ),
    "maui-defer": _plain(
        "many tasks that may never fit: what finds no time again and again is put off, and says so"
    ),
    "maui-reservations": _plain(
        "several wide runs at once: the first four that are blocked have their slots"
    ),
    "boinc-rrsim": _long_term(
        "long-term shares (half-life a day), with what would miss its start seen before it "
        "happens and served first"
    ),
    "boinc-wrr": _long_term(
        "long-term shares with one number per campaign, in turns, and nothing else; weight 0 "
        "takes what is idle"
    ),
    "boinc-edf": _long_term("like boinc-wrr, with what would start too late going first"),
    "boinc-fetch": _long_term(
        "nodes that fetch their work: those that lack work most are asked first"
    ),
    "boinc-backoff": _long_term(
        "nodes that often refuse or are away: they are left alone for growing pauses"
    ),
}
"""By name; the first is the one recommended for pools."""

PROMISING: Final = "promised"
"""The rule of sharing that keeps promises, as overrides call it."""
