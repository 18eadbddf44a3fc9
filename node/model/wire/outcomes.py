"""Outcomes: what is to be thought of runs, and what is common to those that went wrong."""

from __future__ import annotations

from typing import Self
from uuid import UUID

from pydantic import Field

from node.model.outcome import Judgement
from node.model.reasons import judged_by_lead, no_run_over, too_old
from node.model.wire.fields import HEADLINE, Document, Instant

PAIRS_MAX = 20
"""Maximum number of failing tasks that are named one by one."""


class JudgedOutcome(Document):
    """The judgement of a run, or of the newest run of a task or pair that is over.

    How far a figure can be trusted is another question, which the verdict answers.
    """

    judgement: Judgement = Field(
        description="good, fair and bad compare figures with the thresholds of the task when the "
        "run ended; no-answer: nothing arrived, in one direction at least; failed: no result; "
        "missed: not begun; not-planned: no time was found, or it was lost or taken back; stale: "
        "older than twice the interval; unknown: nothing is over, or only its lead knows."
    )
    code: str | None = Field(description="The code of the reason; null if it is good.")
    reason: str | None = Field(description="Why, in a sentence; null if it is good.")

    @classmethod
    def told(
        cls,
        judgement: str,
        code: str | None,
        reason: str | None,
        *,
        lead: str,
        ended_at: int | None,
    ) -> Self:
        """Return an outcome as the database has it, with the reason why nothing is known.

        ``ended_at`` (µs) is None if no slot is over.
        """
        why: tuple[str | None, str | None] = (code, reason)
        if judgement == Judgement.GOOD:
            why = (None, None)
        elif judgement == Judgement.UNKNOWN and ended_at is None:
            return cls.unknown()
        elif judgement == Judgement.UNKNOWN:
            why = (judged_by_lead(lead).code, judged_by_lead(lead))
        elif judgement == Judgement.STALE and ended_at is not None:
            why = (too_old(ended_at).code, too_old(ended_at))
        return cls(judgement=Judgement(judgement), code=why[0], reason=why[1])

    @classmethod
    def unknown(cls) -> Self:
        """Return the outcome of what has no run yet that is over."""
        why = no_run_over()
        return cls(judgement=Judgement.UNKNOWN, code=why.code, reason=why)


class FailingTask(Document):
    """A task whose newest run went wrong."""

    task: UUID
    run: UUID
    headline: str = Field(description=HEADLINE)
    since: Instant | None = Field(description="The first of the runs in a row that went wrong.")
    outcome: JudgedOutcome


class CommonCauseView(Document):
    """A cause that explains the outcomes of several tasks."""

    kind: str = Field(
        description="host, from-host, to-host, tool-at-host, network-edge, network, one-way, "
        "between, split, tool, test, lead or all."
    )
    names: tuple[str, ...] = Field(description="Those of the host, networks, tool, test, or lead.")
    sentence: str = Field(description="All of this in words, with what is not known.")
    since: Instant | None
    failing: int = Field(description="Tasks that it explains.")
    crossing: int = Field(description="Tasks that it concerns, failing or not.")
    judgements: dict[str, int] = Field(description="The number of failing tasks by judgement.")
    alternatives: tuple[str, ...] = Field(
        description="What the same tasks have in common, too: nothing measured tells them apart."
    )
    tasks: tuple[FailingTask, ...] = Field(description=f"The failing tasks; at most {PAIRS_MAX}.")


class OutcomesStatus(Document):
    """The newest outcomes of the active tasks that a node leads."""

    judgements: dict[str, int] = Field(description="The number of tasks by judgement.")
    causes: tuple[CommonCauseView, ...] = Field(description="The widest first.")
    apart: tuple[FailingTask, ...] = Field(
        description=f"Failing tasks that have nothing in common; at most {PAIRS_MAX}."
    )
    apart_count: int
