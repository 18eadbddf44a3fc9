"""Doing nothing for a while with a result per interval: for trials and tests of streams. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from node.model.intervals import Interval
from node.model.times import DAY, HOUR, MILLISECOND, SECOND, duration_text
from node.model.wire.fields import Document, Duration, Host
from node.plugins.contracts import Metric, Result
from node.plugins.fields import CountField, NonNegative, between, duration_field
from node.plugins.outline import IntervalTest, TargetTest, check_multiple, gaps_text


class IdleBgSpec(Document):
    """The host that idles, for how long, and the length of the intervals."""

    source: Host | None = Field(
        default=None, description="The host that idles; by default the lead itself."
    )
    duration: Annotated[Duration, between(SECOND, DAY)] = duration_field(
        HOUR, "How long a run lasts, PT1S to P1D; if repeated as often, there is no gap."
    )
    each: Annotated[Duration, between(SECOND, HOUR)] = duration_field(
        10 * SECOND, "The length of an interval, PT1S to PT1H; divides `duration`."
    )

    @model_validator(mode="after")
    def _check_fields(self) -> IdleBgSpec:
        check_multiple("duration", self.duration, "each", self.each)
        return self


class IdleInterval(Document):
    """The result of one interval."""

    slept_ms: NonNegative = Field(description="How long the host idled, in milliseconds.")


class IdleBgResult(Document):
    """The result over all intervals of a run."""

    intervals: CountField = Field(description="Intervals that were told.")
    gaps: CountField = Field(description="Intervals that were not told.")
    slept_ms: NonNegative = Field(description="How long the host idled, in milliseconds.")


class IdleBgTest(IntervalTest, TargetTest):
    """Doing nothing for a while, interval by interval."""

    name = "idlebg"
    title = "Nothing, interval by interval, for trying and testing"
    example: Mapping[str, Any] = {"duration": "PT10S", "each": "PT2S"}
    spec_model: type[Document] = IdleBgSpec
    result_model: type[Document] = IdleBgResult
    interval_model: type[Document] = IdleInterval
    targets = ()
    share_models: tuple[type[Document], ...] = (IdleInterval,)

    def interval_summary(self, result: Result) -> str:
        """Return ``occupied for PT2S``."""
        return _summary(IdleInterval.model_validate(result).slept_ms)

    def interval_metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return how long the host idled."""
        return (Metric("idle_ms", IdleInterval.model_validate(result).slept_ms, "ms"),)

    def total(self, spec: IdleBgSpec, intervals: Sequence[Interval]) -> Result:
        """Return the sum of all intervals."""
        told = [IdleInterval.model_validate(each.result) for each in intervals if each.result]
        return IdleBgResult(
            intervals=len(told),
            gaps=len(intervals) - len(told),
            slept_ms=math.fsum(each.slept_ms for each in told),
        ).model_dump(mode="json")

    def summary(self, result: Result) -> str:
        """Return ``occupied for PT10S; 5 intervals``."""
        figures = IdleBgResult.model_validate(result)
        return f"{_summary(figures.slept_ms)}; {gaps_text(figures.intervals, figures.gaps)}"

    def metrics(self, result: Result) -> tuple[Metric, ...]:
        """Return how long the host idled."""
        return (Metric("idle_ms", IdleBgResult.model_validate(result).slept_ms, "ms"),)


def _summary(slept_ms: float) -> str:
    seconds = round(slept_ms * MILLISECOND / SECOND)
    return f"occupied for {duration_text(seconds * SECOND)}"


TEST = IdleBgTest()
