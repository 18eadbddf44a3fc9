"""Tasks, runs and entries of the schedule as pScheduler writes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.classes import SchedulingClass
from node.model.runstate import RunState
from node.model.task_terms import TaskTerms
from node.model.times import SECOND
from node.model.wire.meshes import GIVEN
from node.model.wire.tasks import Schedule
from node.pscheduler import times
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import MAINTAINER, Document, Outcome
from node.pscheduler.tests.language import Language

DISPLAY = {
    "pending": "Pending",
    "on-deck": "On Deck",
    "running": "Running",
    "cleanup": "Cleanup",
    "finished": "Finished",
    "overdue": "Overdue",
    "missed": "Missed",
    "failed": "Failed",
    "preempted": "Preempted",
    "nonstart": "Non-Starter",
    "canceled": "Canceled",
}
"""The states of runs, with the words that people see."""

ON_DECK = 5 * SECOND
"""The time before its start in which a run is prepared."""

STATES: Mapping[str, str] = {
    "waiting": "nonstart",
    "held": "pending",
    "scheduled": "pending",
    RunState.SET_ASIDE: "pending",
    RunState.RUNNING: "running",
    RunState.MERGING: "cleanup",
    RunState.FINISHED: "finished",
    RunState.FAILED: "failed",
    RunState.MISSED: "missed",
    RunState.CANCELLED: "canceled",
    RunState.DISPLACED: "preempted",
    RunState.UNPLACED: "nonstart",
}
"""Our states, as a run is shown with them, and theirs."""

ENDED = frozenset({"finished", "missed", "failed", "preempted", "nonstart", "canceled", "overdue"})
"""States in which nothing more is awaited."""


@dataclass(frozen=True)
class Spoken:
    """A measurement of a task in the words of pScheduler.

    ``language`` is None for a test of ours that pScheduler does not have; it is shown as it is.
    """

    test: str
    spec: Document
    words: tuple[str, ...]
    language: Language | None = None

    def enumeration(self, base: str) -> Document:
        """Return the description of the test."""
        href = {"href": f"{base}/tests/{self.test}"}
        if self.language is not None:
            return {**self.language.enumeration(), **href}
        return {
            "schema": 1,
            "name": self.test,
            "description": "A test that pScheduler does not have",
            "version": "1.0",
            "maintainer": dict(MAINTAINER),
            **href,
        }


@dataclass(frozen=True)
class ToldRun:
    """A run as it is told: its state in pScheduler's words, and what it left behind.

    ``number`` is that of this node among the participants. One that has no time, and for which it
    is still sought, is ``trying``.
    """

    id: UUID
    task: UUID
    state: str
    starts_at: int
    ends_at: int
    added_at: int
    priority: int
    number: int
    reason: str | None = None
    outcome: Outcome | None = None
    trying: bool = False


def state_of(state: str, starts_at: int, now: int) -> str:
    """Return the state of a run in pScheduler's words."""
    told = STATES[state]
    return "on-deck" if told == "pending" and starts_at - now <= ON_DECK else told


def static_detail(
    terms: TaskTerms, spoken: Spoken, participants: Sequence[str], hints: Document, diags: str
) -> Document:
    """Return the facts about a task that do not change."""
    kind = terms.scheduling_class
    return {
        "added": times.format_instant(terms.created_at),
        "anytime": kind in {SchedulingClass.BACKGROUND, SchedulingClass.BACKGROUND_MULTI},
        "cli": list(spoken.words),
        "diags": diags,
        "duration": times.format_duration(times.rounded_up(terms.duration)),
        "exclusive": kind == SchedulingClass.EXCLUSIVE,
        "hints": hints,
        "multi-result": kind == SchedulingClass.BACKGROUND_MULTI,
        "participant": 0,
        "participants": list(participants),
        "post": times.format_duration(0),
        "slip": times.format_duration(terms.schedule.slip or 0),
        "start": None,
    }


def changing_detail(base: str, task: UUID, *, enabled: bool, runs: int, started: int) -> Document:
    """Return the facts about a task that change, and its addresses."""
    href = f"{base}/tasks/{task}"
    return {
        "enabled": enabled,
        "runs": runs,
        "runs-started": started,
        "href": href,
        "runs-href": f"{href}/runs",
        "first-run-href": f"{href}/runs/first",
        "next-run-href": f"{href}/runs/next",
    }


def generated_task(terms: TaskTerms, spoken: Spoken) -> Document:
    """Return the document of a task that was not posted in this form."""
    document: Document = {
        "schema": 1,
        "test": {"type": spoken.test, "spec": spoken.spec},
        "schedule": _schedule(terms.schedule),
    }
    if terms.priority:
        document |= {"priority": terms.priority, "schema": 3}
    if terms.reference is not None:
        document["reference"] = _told_reference(terms.reference)
    return document


def _told_reference(reference: Any) -> Any:
    """Return a reference as its readers expect it.

    Members of a template stand beside those by which a task of a mesh is found, and hide these;
    its descriptions, which no archive of pScheduler gets, are left out.
    """
    if not isinstance(reference, dict):
        return reference
    if set(reference) == {WRAPPED}:
        return reference[WRAPPED]
    given = reference.get(GIVEN)
    if "mesh" not in reference or not isinstance(given, dict):
        return reference
    shown = {name: each for name, each in given.items() if not name.startswith("_")}
    if set(shown) == {WRAPPED}:
        return shown[WRAPPED]
    return {"mesh": reference["mesh"], "key": reference.get("key"), **shown}


def _schedule(schedule: Schedule) -> Document:
    members: Document = {
        "slip": times.format_duration(schedule.slip or 0),
        "start": None if schedule.start is None else times.format_instant(schedule.start),
        "repeat": None if schedule.repeat is None else times.format_duration(schedule.repeat),
        "repeat-cron": schedule.cron,
        "schema": None if schedule.cron is None else 2,
        "until": None if schedule.until is None else times.format_instant(schedule.until),
        "max-runs": schedule.max_runs,
        "sliprand": schedule.slip_random or None,
    }
    return {name: value for name, value in members.items() if value is not None}


WRAPPED = "pscheduler"
"""The member of a task's reference here that has the reference that was posted."""


def run_document(run: ToldRun, spoken: Spoken, participants: Sequence[str], base: str) -> Document:
    """Return a run, without the deliveries of its result."""
    task = f"{base}/tasks/{run.task}"
    href = f"{task}/runs/{run.id}"
    merged = result_of(run, spoken)
    state = told_state(run, spoken)
    several = None
    if merged is not None:
        several = parts_of(run.outcome, merged, spoken, len(participants))
    own = several[0] if several else None
    return {
        "start-time": times.format_instant(run.starts_at),
        "end-time": times.format_instant(times.rounded_up(run.ends_at)),
        "duration": times.format_duration(times.rounded_up(run.ends_at - run.starts_at)),
        "participant": run.number,
        "participants": list(participants),
        "participant-data": {},
        "participant-data-full": [{} for _ in participants],
        "state": state,
        "state-display": DISPLAY[state],
        "result": own,
        "result-full": several,
        "result-merged": merged,
        "errors": None if state == "finished" else run.reason,
        "priority": run.priority,
        "limit-diags": NO_LIMITS,
        "added": times.format_instant(run.added_at),
        "href": href,
        "task-href": task,
        "result-href": f"{href}/result",
    }


NO_LIMITS = "No limits were applied"


def result_of(run: ToldRun, spoken: Spoken) -> Document | None:
    """Return the merged result of a run; None while there is none, or there will be none."""
    if run.outcome is None or run.state not in {"finished", "failed"}:
        return None
    if spoken.language is not None:
        return spoken.language.result(spoken.spec, run.outcome)
    succeeded = run.outcome.reason is None and run.outcome.result is not None
    result = dict(run.outcome.result or {})
    failure = {} if succeeded else {"error": run.outcome.reason or "no result", "diags": ""}
    return {"schema": 1, "succeeded": succeeded, **failure, **result}


def told_state(run: ToldRun, spoken: Spoken) -> str:
    """Return the state of a run: one that failed here may be a success in pScheduler's eyes.

    An answer that lacks an expected text is one, as is a node that does not answer psresponse.
    """
    if run.state != "failed" or run.outcome is None or run.outcome.result is None:
        return run.state
    merged = result_of(run, spoken)
    return "finished" if merged is not None and merged["succeeded"] else run.state


def parts_of(
    outcome: Outcome | None, merged: Document, spoken: Spoken, count: int
) -> list[Document | None]:
    """Return what the tools of all participants told: the first one's is around the result.

    None is a participant of which there is no part.
    """
    parts = [] if outcome is None else list(outcome.parts)
    succeeded = bool(merged.get("succeeded"))
    own = merged if spoken.language is None else spoken.language.own_part(merged)
    first: Document = {
        "schema": 1,
        "succeeded": succeeded,
        "diags": (parts[0].output or "") if parts else "",
        "error": None if succeeded else merged.get("error", ""),
        "result": own if succeeded else None,
    }
    others: list[Document | None] = [
        {
            "schema": 1,
            "succeeded": part.reason is None,
            "diags": part.output or "",
            "error": part.reason,
            "result": None if part.result is None else dict(part.result),
        }
        for part in parts[1:]
    ]
    told = [first, *others, *[None] * count]
    return told[:count]


def schedule_entry(
    run: ToldRun, spoken: Spoken, task: Document, tool: Document | None, base: str
) -> Document:
    """Return a run as an entry of the schedule; ``task`` is its document with ``href``."""
    href = f"{base}/tasks/{run.task}/runs/{run.id}"
    state = told_state(run, spoken)
    return {
        "start-time": times.format_instant(run.starts_at),
        "end-time": times.format_instant(times.rounded_up(run.ends_at)),
        "href": href,
        "result-href": f"{href}/result",
        "state": state,
        "state-display": DISPLAY[state],
        "task": task,
        "cli": list(spoken.words),
        "test": spoken.enumeration(base),
        "tool": tool,
        "errors": None if state == "finished" else run.reason,
        "priority": run.priority,
    }


COMPARISONS_MAX = 1_000_000
"""Maximum number of values that are compared for one request: lists are compared each with each."""


def contains(whole: Any, part: Any, left: Iterator[int]) -> bool:
    """Return whether a document contains another one, as ``@>`` of Postgres does.

    ``left`` is run through, one for each comparison; many documents of a request share it.

    :raises Refusal: it has come to its end.
    """
    if next(left, None) is None:
        raise Refusal(400, "Argument 'json' has too much to compare.")
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and contains(whole[name], each, left) for name, each in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and all(
            any(contains(each, wanted, left) for each in whole) for wanted in part
        )
    return type(whole) is type(part) and bool(whole == part)
