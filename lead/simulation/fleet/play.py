"""The trials of a fleet: plays each with every set and builds the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lead.simulation.fleet import deadlines, guarantees, latecomers, trials, waits
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.report import FleetCheck, FleetReport, FleetTrial
from lead.simulation.fleet.trials import StepDone

_Trial = Callable[[FleetScenario, str, StepDone], Iterable[FleetCheck]]
Progress = Callable[[float, str], None]
"""Called with the completed share of all trials and the name of the current one."""

TRIALS: dict[str, tuple[_Trial, str]] = {
    "shares": (
        trials.shares,
        (
            "Each campaign wants half of the fleet; each gets its share within {within} of the "
            "promise."
        ),
    ),
    "overload": (
        trials.overload,
        (
            "Together they want one and a half times the fleet; the losses are as promised "
            "({within}), and nothing is left unused."
        ),
    ),
    "newcomers": (
        trials.newcomers,
        (
            "Joining a full fleet, a campaign never holds more than a seat beyond its share, "
            "rounded up; in at most one of its first six hours it does not get its share."
        ),
    ),
    "latecomers": (
        latecomers.latecomers,
        (
            "A campaign that asks when others have asked for all of a day gets its share from the "
            "third hour on (5 %), whether it existed before or is created only then."
        ),
    ),
    "starvation": (
        waits.starvation,
        (
            "A run on all nodes waits no longer than the slip and the length of a single run: all "
            "runs booked when it became known have ended by then, and from then on it is booked."
        ),
    ),
    "backfill": (
        waits.backfill,
        "No run filled in before a reserved slot reaches into it.",
    ),
    "urgent": (
        waits.urgent,
        "Urgent runs never displace more than their part of the fleet at any instant.",
    ),
    "seats": (
        guarantees.promised_seats,
        (
            "A group that is promised two seats holds two at each instant, whatever the length of "
            "its runs and those of a group that wants all of the fleet."
        ),
    ),
    "gaps": (
        guarantees.gaps,
        (
            "A run on all nodes is passed twice and no third time, in however many episodes it "
            "waits; while it is stuck, a queue of lower priority starts nothing."
        ),
    ),
    "deadlines": (
        deadlines.deadlines,
        (
            "Of runs that miss their latest start, the forecast had said so; with regard to "
            "deadlines, fewer do than without."
        ),
    ),
}
"""By name: the trial and its promise, in which ``within`` is :func:`trials.tolerance`."""


def play(scenario: FleetScenario, progress: Progress) -> FleetReport:
    """Play every trial with every set."""
    work = [(trial, name) for trial in TRIALS for name in scenario.sets]
    checks_by_trial: dict[str, list[FleetCheck]] = {trial: [] for trial in TRIALS}
    for number, (trial, name) in enumerate(work):

        def step_done(share: float = number / len(work), current: str = f"{trial}, {name}") -> None:
            progress(share, current)

        checks_by_trial[trial] += TRIALS[trial][0](scenario, name, step_done)
    within = f"{100 * trials.tolerance(scenario.runs):.3g} %"
    results = tuple(
        FleetTrial(name=trial, promise=TRIALS[trial][1].format(within=within), checks=tuple(checks))
        for trial, checks in checks_by_trial.items()
    )
    return FleetReport(
        title=scenario.title,
        seed=scenario.seed,
        runs=scenario.runs,
        nodes=scenario.nodes,
        sets=scenario.sets,
        trials=results,
        violations=tuple(sentence for trial in results for sentence in trial.broken_checks),
    )
