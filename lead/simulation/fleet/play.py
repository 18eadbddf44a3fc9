"""All trials over all sets of a fleet, and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lead.simulation.fleet import latecomers, trials, waits
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.report import FleetCheck, FleetReport, FleetTrial
from lead.simulation.fleet.trials import Tell

_Tried = Callable[[FleetScenario, str, Tell], Iterable[FleetCheck]]
Progress = Callable[[float, str], None]
"""Told which share of all trials is done, and what is under way."""

TRIALS: dict[str, tuple[_Tried, str]] = {
    "shares": (
        trials.shares,
        (
            "Each campaign wants half of the fleet; each gets its part within {within} of the "
            "promised."
        ),
    ),
    "overload": (
        trials.overload,
        (
            "Together they want half as much again as there is; who loses is as promised "
            "({within}), and nothing is left unused."
        ),
    ),
    "newcomers": (
        trials.newcomers,
        (
            "Joining a full fleet, a campaign never holds more than a seat beyond its part, "
            "rounded up; and of its first six hours it goes without its part in one at most."
        ),
    ),
    "latecomers": (
        latecomers.latecomers,
        (
            "Asking when others have asked for all of a day, a campaign has its part from the "
            "third hour on (5 %), whether it was known before or is made only then."
        ),
    ),
    "starvation": (
        waits.starvation,
        (
            "A run on all nodes waits no longer than the slip and the length of a single run: all "
            "that was booked when it became known has ended by then, and from then on it is booked."
        ),
    ),
    "backfill": (
        waits.backfill,
        "What is filled in before a slot that is kept does not reach into it.",
    ),
    "urgent": (
        waits.urgent,
        "What the urgent take from others is at no instant more than their part of the fleet.",
    ),
}
"""By name: what plays it, and what is promised; ``within`` is as of :func:`trials.tolerance`."""


def play(scenario: FleetScenario, progress: Progress) -> FleetReport:
    """Every trial with every set."""
    work = [(trial, name) for trial in TRIALS for name in scenario.sets]
    found: dict[str, list[FleetCheck]] = {trial: [] for trial in TRIALS}
    for number, (trial, name) in enumerate(work):

        def tell(share: float = number / len(work), doing: str = f"{trial}, {name}") -> None:
            progress(share, doing)

        found[trial] += TRIALS[trial][0](scenario, name, tell)
    within = f"{100 * trials.tolerance(scenario.runs):.3g} %"
    told = tuple(
        FleetTrial(name=trial, promise=TRIALS[trial][1].format(within=within), checks=tuple(checks))
        for trial, checks in found.items()
    )
    return FleetReport(
        title=scenario.title,
        seed=scenario.seed,
        runs=scenario.runs,
        nodes=scenario.nodes,
        sets=scenario.sets,
        trials=told,
        violations=tuple(sentence for trial in told for sentence in trial.broken),
    )
