"""Repeats merge, figures, and verdict from a bundle, and compares. Pure but for the plugins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.execution.catalog import Capabilities
from node.execution.merging import conclude, merge_interval, streaming_of
from node.model.canonical import canonical, whole_number
from node.model.intervals import Interval
from node.model.runstate import RunState
from node.model.times import parse_instant
from node.model.wire.tasks import Participant
from node.results.bundles.verification import Bundle
from node.store.intervals import OpenInterval
from node.store.runs import KeptPart, RunConclusion

ABSENT = "(absent)"
"""The value of a field that only one side has."""


@dataclass(frozen=True)
class ReplayedRun:
    """The facts of a run in a bundle that its outcome depends on; ``starts_at`` in microseconds."""

    id: UUID
    test: str
    spec: dict[str, Any]
    starts_at: int
    participants: tuple[Participant, ...]


@dataclass(frozen=True)
class Difference:
    """A field that differs: its JSON pointer, and both values."""

    field: str
    bundle: Any
    replay: Any


def differences_of(bundle: Bundle, capabilities: Capabilities) -> list[Difference]:
    """Return what comes out otherwise with the tests that are installed.

    :raises InvalidDocument: there is no such test.
    """
    capabilities.test(bundle["run"]["test"], "/run/test")
    run = _run(bundle)
    parts = [_part(bundle, part) for part in bundle["parts"]]
    merged = _intervals(bundle, capabilities, run, parts)
    outcome = conclude(capabilities, run, parts, [interval for interval, _ in merged])
    names = ("result", "summary", "reason")
    replayed = [
        {"result": interval.result, "summary": summary, "reason": interval.reason}
        for interval, summary in merged
    ]
    before = {
        "intervals": [{name: one[name] for name in names} for one in bundle["intervals"]],
        "outcome": bundle["outcome"],
    }
    after = {
        "intervals": replayed,
        "outcome": _outcome(capabilities, run.test, outcome),
    }
    return differences(before, json.loads(canonical(after), parse_int=whole_number))


def differences(before: Any, after: Any, pointer: str = "") -> list[Difference]:
    """Return the fields in which two JSON values differ, the deepest ones."""
    steps: Sequence[Any]
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        steps = sorted(before.keys() | after.keys())
        sides = [(step, before.get(step, ABSENT), after.get(step, ABSENT)) for step in steps]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        sides = [(str(at), *pair) for at, pair in enumerate(zip(before, after, strict=True))]
    else:
        same = before == after and isinstance(before, bool) == isinstance(after, bool)
        return [] if same else [Difference(pointer or "/", before, after)]
    return [
        difference
        for step, one, other in sides
        for difference in differences(
            one, other, f"{pointer}/{step.replace('~', '~0').replace('/', '~1')}"
        )
    ]


def _run(bundle: Bundle) -> ReplayedRun:
    run = bundle["run"]
    participants = tuple(
        Participant.model_construct(  # its address was valid at the lead, whatever its version
            node=each["node"],
            name=each["name"],
            url=None,
            address=each["address"],
            context=each["context"],
        )
        for each in bundle["participants"]
    )
    starts_at = parse_instant(run["starts_at"])
    return ReplayedRun(UUID(run["id"]), run["test"], run["spec"], starts_at, participants)


def _part(bundle: Bundle, part: Bundle) -> KeptPart:
    return KeptPart(
        part["participant"],
        bundle["participants"][part["participant"]]["name"],
        part["result"],
        part["reason"],
        _instant(part["started_at"]),
        _instant(part["finished_at"]),
        circumstances=part["circumstances"],
    )


def _intervals(
    bundle: Bundle, capabilities: Capabilities, run: ReplayedRun, parts: Sequence[KeptPart]
) -> list[tuple[Interval, str | None]]:
    """Merge each interval again, as the lead did when the run was over."""
    streaming = streaming_of(capabilities, run)
    reasons = {part.participant: part.reason for part in parts if part.reason is not None}
    return [
        merge_interval(
            streaming, run, OpenInterval(one["number"], _shares(one), merged=True), reasons
        )
        for one in bundle["intervals"]
    ]


def _shares(interval: Bundle) -> dict[str, dict[str, Any]]:
    return {
        str(share["participant"]): {"result": share["result"], "reason": share["reason"]}
        for share in interval["shares"]
    }


def _outcome(capabilities: Capabilities, test: str, outcome: RunConclusion) -> dict[str, Any]:
    figures: Sequence[Any] = ()
    if outcome.state is RunState.FINISHED and outcome.result is not None:
        figures = capabilities.metrics(test, outcome.result)
    return {
        "state": outcome.state.value,
        "reason": outcome.reason,
        "result": outcome.result,
        "summary": outcome.summary,
        "verdict": outcome.verdict,
        "verdict_reasons": outcome.verdict_reasons,
        "metrics": [vars(figure) for figure in figures],
    }


def _instant(text: str | None) -> int | None:
    return None if text is None else parse_instant(text)
