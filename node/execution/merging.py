"""The outcome of a run from the parts of its participants: result, figures, and verdict.

The same functions merge a run at its lead, and repeat it from a bundle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from uuid import UUID

import structlog

from node.execution.catalog import Capabilities
from node.model import times
from node.model.errors import InvalidDocument
from node.model.intervals import Interval
from node.model.reasons import (
    no_intervals_of_test,
    no_part_in_time,
    no_share_in_time,
    nothing_measured,
    plugin_at_fault,
    plugin_failed,
    spec_invalid_here,
)
from node.model.runstate import RunState
from node.model.verdict import Level, MeasurementTraits, PartEvidence, Verdict, judge
from node.model.wire.circumstances import Circumstances
from node.model.wire.tasks import Participant
from node.plugins.contracts import (
    Merged,
    Part,
    QualityReporting,
    Result,
    StreamingTest,
    Test,
)
from node.plugins.figures import faults_of
from node.plugins.plausibility import with_notes
from node.store.intervals import OpenInterval
from node.store.runs import KeptPart, RunConclusion

log = structlog.get_logger()


class MeasuredRun(Protocol):
    """The facts of a run that its outcome depends on; ``starts_at`` in microseconds."""

    @property
    def id(self) -> UUID:
        """The id that the log has."""
        ...

    @property
    def test(self) -> str:
        """The name of its test."""
        ...

    @property
    def spec(self) -> dict[str, Any]:
        """The spec that was measured."""
        ...

    @property
    def starts_at(self) -> int:
        """The booked start (µs)."""
        ...

    @property
    def participants(self) -> tuple[Participant, ...]:
        """The participants, in the order of the test."""
        ...


def conclude(
    capabilities: Capabilities,
    run: MeasuredRun,
    stored: Sequence[KeptPart],
    measured: Sequence[Interval],
) -> RunConclusion:
    """Return the outcome of a run; missing parts and failing plugins are reasons in it."""
    try:
        return _conclusion(capabilities, run, stored, measured)
    except InvalidDocument as error:
        return RunConclusion(RunState.FAILED, spec_invalid_here(error.detail), None, None)
    except Exception as error:
        # A plugin that fails on one run must not keep the others from being concluded.
        log.exception("a plugin failed", run=str(run.id))
        return RunConclusion(RunState.FAILED, _plugin_failure(run, error), None, None)


def _conclusion(
    capabilities: Capabilities,
    run: MeasuredRun,
    stored: Sequence[KeptPart],
    measured: Sequence[Interval],
) -> RunConclusion:
    part_by_place = {part.participant: part for part in stored}
    parts = []
    for place, participant in enumerate(run.participants):
        part = part_by_place.get(place)
        result, reason = (part.result, part.reason) if part else (None, no_part_in_time())
        parts.append(Part(place, participant.name, result, reason))
    test = capabilities.test(run.test)
    spec = capabilities.spec(test, run.spec)
    merged = merged_over_intervals(test, spec, test.merge(spec, parts), measured)
    verdict = _verdict(run, test, spec, merged.result, stored)
    judgement = (None, ()) if verdict is None else (verdict.level, verdict.reasons)
    if not merged.succeeded:
        return RunConclusion(RunState.FAILED, merged.reason, merged.result, None, *judgement)
    if not merged.result:
        return RunConclusion(RunState.FINISHED, None, merged.result, None, *judgement)
    summary = with_notes(test.summary(merged.result), merged.result)
    if fault := next(faults_of(test.metrics(merged.result)), None):
        why = plugin_at_fault(run.test, fault)
        return RunConclusion(RunState.FAILED, why, merged.result, None, *judgement)
    return RunConclusion(RunState.FINISHED, None, merged.result, summary, *judgement)


def _plugin_failure(run: MeasuredRun, error: Exception) -> str:
    """Return the reason that the plugin of its test has failed, as far as it can be stored."""
    return plugin_failed(run.test, repr(error)).replace("\x00", "")[:1000]


def _verdict(
    run: MeasuredRun, test: Test, spec: Any, result: Result | None, parts: Sequence[KeptPart]
) -> Verdict | None:
    """Judge a result; return None if there is none. A failure here must not lose a result."""
    if result is None:
        return None
    measured = MeasurementTraits(
        test.scheduling_class(spec), one_way="clock_error_ms" in test.result_model.model_fields
    )
    try:
        doubts = test.doubts(spec, result) if isinstance(test, QualityReporting) else ()
        return judge(measured, [_evidence(run, part) for part in parts], doubts)
    except Exception as error:
        log.exception("a result cannot be judged", run=str(run.id))
        return Verdict(Level.SUSPICIOUS, (f"it could not be judged: {error!r}"[:300],))


def _evidence(run: MeasuredRun, part: KeptPart) -> PartEvidence:
    late = None if part.started_at is None else part.started_at - run.starts_at
    late_ms = None if late is None else late / times.MILLISECOND
    return PartEvidence(part.name, late_ms, circumstances_of(part))


def circumstances_of(part: KeptPart) -> Circumstances | None:
    """Return the stored circumstances of a part."""
    stored = part.circumstances
    return None if stored is None else Circumstances.model_validate(stored)


def merged_over_intervals(
    test: Test, spec: Any, ended: Merged, measured: Sequence[Interval]
) -> Merged:
    """Return the outcome of a run: how its parts ended, and the result over all its intervals."""
    if not isinstance(test, StreamingTest):
        return ended
    if all(each.result is None for each in measured):
        gap = next((each.reason for each in measured if each.reason), None)
        return Merged(None, ended.reason or nothing_measured(gap))
    return Merged(test.total(spec, measured), ended.reason)


def streaming_of(capabilities: Capabilities, run: MeasuredRun) -> tuple[StreamingTest, Any] | None:
    """Return the test and its spec; None if it does not stream, or the spec is not valid."""
    test = capabilities.tests.get(run.test)
    if not isinstance(test, StreamingTest):
        return None
    try:
        return test, capabilities.spec(test, run.spec)
    except InvalidDocument:
        return None


def merge_interval(
    streaming: tuple[StreamingTest, Any] | None,
    run: MeasuredRun,
    interval: OpenInterval,
    reasons: Mapping[int, str],
) -> tuple[Interval, str | None]:
    """Merge an interval; return it with its line for lists."""
    parts = [
        _share_as_part(at, party.name, interval, reasons)
        for at, party in enumerate(run.participants)
    ]
    if streaming is None:
        return Interval(interval.number, None, no_intervals_of_test(run.test)), None
    test, spec = streaming
    try:
        merged = test.merge_interval(spec, parts)
        line = test.interval_summary(merged.result) if merged.result else None
        summary = None if line is None else with_notes(line, merged.result)
        figures = test.interval_metrics(merged.result) if merged.result else ()
        if merged.succeeded and (fault := next(faults_of(figures), None)):
            merged = replace(merged, reason=plugin_at_fault(run.test, fault))
    except Exception as error:
        # A plugin that fails on one interval must not keep the others from being merged.
        log.exception("a plugin failed", run=str(run.id))
        merged, summary = Merged(None, _plugin_failure(run, error)), None
    return Interval(interval.number, merged.result, merged.reason), summary


def _share_as_part(at: int, name: str, interval: OpenInterval, reasons: Mapping[int, str]) -> Part:
    stored = interval.parts.get(str(at))
    if stored is None:
        return Part(at, name, None, reasons.get(at, no_share_in_time()))
    return Part(at, name, stored["result"], stored["reason"])
