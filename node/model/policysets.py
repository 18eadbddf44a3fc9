"""The policy sets that a pool may use, what each of them requires of campaigns, and former names.

The lead defines which algorithms a set consists of, and what its options change
(``lead/policy/sets.py``). This module has what a node needs to describe the sets, and to refuse a
campaign that a set cannot serve.

Earlier programs had thirty sets. Each of their names is an alias of one of today's sets with
options. It is expanded where it is read (a document, a command, a stored pool); nothing after that
knows it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

DEFAULT: Final = "campaign-default"

AXES: Final = ("order", "share", "select", "preempt", "throttle", "fill", "feasible")
"""The seven questions of an episode; a pool may override a set's answer to each of them."""


@dataclass(frozen=True)
class PolicySetTraits:
    """The description of a policy set, and its requirements on campaigns.

    ``good_for`` says in one line when to choose it, ``options`` by name what each changes.
    ``zero_weight``: a weight of 0 is meaningful (served when capacity would stay idle).
    ``divides``: it shares by weight, so no weight may be 0. ``targets``: it serves promises.
    """

    good_for: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    zero_weight: bool = False
    divides: bool = False
    targets: bool = False


_URGENT = (
    "part of the pool, in percent, on which urgent campaigns may displace others at once; or "
    '{"percent": 10, "delay": "PT10S"}'
)
_TOGETHER = (
    "campaigns that share as one, so that splitting up gains nothing: none, level, or parent"
)
_WINDOW = "the time over which shares are made up for, such as P1D"
COMMON_OPTIONS: Final[Mapping[str, str]] = {
    "failures_max": "a node with so many failed runs of a campaign gets no more of its runs, until "
    "it is pardoned",
    "alone": "true: a node that refuses is left alone for growing pauses",
    "patience": "what finds no time is deferred for so long each time, such as PT1H, and later "
    "held; null: never",
    "partition": "true: a node with the attribute `campaigns` serves only those that it lists",
    "counted": "what counts as taken of a node's resources: dedicated (reserved), utilised, or "
    "combined",
}
"""The options that every set has, beside its own: which nodes and tasks are left alone."""

SETS: Final[dict[str, PolicySetTraits]] = {
    DEFAULT: PolicySetTraits(
        "several campaigns on one fleet: shares by weight, urgent runs within a budget, "
        "quotas and limits, nobody passed over forever",
        {
            "together": _TOGETHER,
            "window": _WINDOW,
            "urgent": _URGENT,
            "passes": "how often others may go before a blocked task; null: any number",
        },
        divides=True,
    ),
    "pscheduler": PolicySetTraits(
        "a predictable schedule: what is due first goes first, a higher priority "
        "displaces a lower one; no shares"
    ),
    "shares": PolicySetTraits(
        "shares by weight and nothing else: whoever had too little in the last 24 h is served "
        "first; the same node measures the same target",
        {
            "together": _TOGETHER,
            "serial": "true: all of a higher level first, and by weight within a level",
            "window": _WINDOW,
            "urgent": _URGENT,
        },
        divides=True,
    ),
    "in-order": PolicySetTraits(
        "one campaign after the other, the oldest first: a debugging session is over before "
        "the next one begins",
        {"serial": "true: all of a higher level first"},
    ),
    "promised": PolicySetTraits(
        "promised seats (targets), lent out while they are not used; serves only campaigns "
        "with a promise",
        {
            "take_back": "true: what was lent is taken back for the next run, also from campaigns "
            "without a promise that hold it by tasks which name their nodes",
            "window": _WINDOW,
        },
        targets=True,
    ),
    "turns": PolicySetTraits(
        "runs that cost about the same: turns by number of starts, without an account of time",
        {"laid": "how the seats of a run are laid over nodes: round-robin, spread, or pack"},
    ),
    "priority": PolicySetTraits(
        "several criteria at once: what waits longest goes first, or what your weights of "
        "waiting, size, credentials, lateness say; limits of campaigns",
        {
            "weights": 'usual, or terms by component: {"service": {"waiting": 1}}',
            "fairshare": "true: shares of the week between institutions as one of the criteria, "
            "no guarantee",
            "flags": "true: preemptors displace preemptees of lower priority, and nobody else",
            "slots": "so many blocked runs keep a slot; 0: none",
            "nodes": "which nodes first: last-available (fewest unusable gaps), least-loaded, or "
            "poorest (the least of counted resources)",
            "function": "your own formula for which node is best, such as speed - 2*load",
        },
    ),
    "backfill": PolicySetTraits(
        "long runs beside short ones: the blocked run keeps its slot, and what fits goes before it",
        {
            "depth": "so many blocked runs keep a slot",
            "lasting": "true: a slot is kept, whatever comes first later",
            "fits": "which of the runs that fit go first: first, best, or greedy",
        },
    ),
    "long-term": PolicySetTraits(
        "long-term shares with one number per campaign (half-life a day), in turns; weight 0 "
        "uses idle capacity",
        {
            "deadlines": "true: runs that would start too late go first",
            "fetching": "true: nodes that lack work are asked first",
            "half_life": "the time after which what a campaign had counts half, such as P1D",
        },
        zero_weight=True,
    ),
}
"""Traits by name; the first set is the one recommended for pools."""


def options_of(policy_set: str) -> Mapping[str, str]:
    """Return the options of a set in words, its own first; empty for an unknown one."""
    traits = SETS.get(policy_set)
    return {} if traits is None else {**traits.options, **COMMON_OPTIONS}


class PolicyRecipe(NamedTuple):
    """A set with options, as it is written: ``shares`` and ``{"serial": true}``."""

    set: str
    options: Mapping[str, Any] = {}

    @property
    def words(self) -> str:
        """Return the recipe in words: ``shares with serial=true``."""
        options = ", ".join(f"{name}={_option_text(it)}" for name, it in self.options.items())
        return f"{self.set} with {options}" if options else self.set


def _option_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_PATIENT: Final = {"flags": True, "slots": 1, "patience": "PT1H"}
ALIASES: Final[Mapping[str, PolicyRecipe]] = {
    "gridserver-usage": PolicyRecipe("shares"),
    "gridserver-usage-aggregated": PolicyRecipe("shares", {"together": "level"}),
    "gridserver-time": PolicyRecipe("in-order"),
    "gridserver-serial-usage": PolicyRecipe("shares", {"serial": True}),
    "gridserver-serial-time": PolicyRecipe("in-order", {"serial": True}),
    "gridserver-urgent": PolicyRecipe("shares", {"urgent": 10}),
    "gridserver-sla": PolicyRecipe("promised"),
    "gridserver-sla-preempt": PolicyRecipe("promised", {"take_back": True}),
    "gridserver-blacklist": PolicyRecipe("shares", {"failures_max": 1}),
    "fbsng-dynamic": PolicyRecipe("turns"),
    "fbsng-quota": PolicyRecipe("turns"),
    "fbsng-partition": PolicyRecipe("turns", {"partition": True}),
    "fbsng-placement": PolicyRecipe("turns", {"laid": "round-robin"}),
    "maui-fifo": PolicyRecipe("priority", _PATIENT),
    "maui-priority": PolicyRecipe("priority", {"weights": "usual", **_PATIENT}),
    "maui-fairshare": PolicyRecipe("priority", {"weights": "usual", "fairshare": True, **_PATIENT}),
    "maui-throttle": PolicyRecipe("priority"),
    "maui-backfill": PolicyRecipe("backfill"),
    "maui-nodes": PolicyRecipe("priority", {"function": "speed - load - 0.1*booked"}),
    "maui-availability": PolicyRecipe("priority", {"counted": "combined"}),
    "maui-preempt": PolicyRecipe("priority", {"flags": True}),
    "maui-defer": PolicyRecipe("priority", {"patience": "PT1H"}),
    "maui-reservations": PolicyRecipe("priority", {"slots": 4}),
    "boinc-rrsim": PolicyRecipe("long-term", {"deadlines": True, "alone": True}),
    "boinc-wrr": PolicyRecipe("long-term"),
    "boinc-edf": PolicyRecipe("long-term", {"deadlines": True}),
    "boinc-fetch": PolicyRecipe("long-term", {"deadlines": True, "fetching": True, "alone": True}),
    "boinc-backoff": PolicyRecipe("long-term", {"alone": True}),
}
"""The former names that are no longer names of sets, with what they stand for."""


def expanded(name: str, options: Mapping[str, Any]) -> PolicyRecipe:
    """Return a set, or what an alias stands for, with these options beside those of the alias."""
    known = ALIASES.get(name, PolicyRecipe(name))
    return PolicyRecipe(known.set, {**known.options, **options})


def parsed(written: str) -> PolicyRecipe:
    """Return a recipe from one line: ``shares serial=true``, or an alias.

    :raises ValueError: a word behind the name is not NAME=VALUE.
    """
    name, *words = shlex.split(written) or [""]
    options = {}
    for word in words:
        option, equals, value = word.partition("=")
        if not equals or not value:
            msg = f"{word!r} is not an option; write it as NAME=VALUE, such as serial=true"
            raise ValueError(msg)
        options[option] = _option_value(value)
    return expanded(name, options)


def _option_value(text: str) -> Any:
    """Return a value as JSON, or as the word that it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


PROMISING: Final = "promised"
"""Name of the share rule that keeps promises, as written in overrides."""
