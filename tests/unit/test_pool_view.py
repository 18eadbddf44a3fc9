"""The terms of pool tasks as policies see them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from lead.model.records import OpenTerm, UnplannedSeatTask
from lead.planning.pool_view import candidate_of, runs_to_come
from node.model import times
from node.model.terms import Term
from tests.support.clocks import START
from tests.support.episodes import case_of


def test_a_term_waits_since_it_became_due() -> None:
    """The first term waits since the task's creation, later ones since they came near."""
    case = case_of("a", "ops", ["n1"])
    horizon = 6 * times.HOUR
    assert candidate_of(case, horizon).waits_since == START
    term = Term(START + times.DAY, START + times.DAY + times.HOUR)
    later = replace(case, open=OpenTerm(case.pool_task.id, term, term.ends_at, 1))
    assert candidate_of(later, horizon).waits_since == START + 20 * times.HOUR


def test_future_runs_lie_at_their_known_starts() -> None:
    """Runs with a known start lie there, and the others at their nominal start."""
    schedule = {"start": times.format_instant(START), "repeat": "PT1H", "slip": "PT10M"}
    result = [START + times.HOUR + 10 * times.MINUTE, START + 2 * times.HOUR + 11 * times.MINUTE]
    given = UnplannedSeatTask(
        UUID(int=1), "ops", schedule, 5 * times.MINUTE, START, "exclusive", 0, ["key"], result
    )
    runs = runs_to_come(given, {"key": "n1"}, START + 3 * times.HOUR, {}, 10)
    starts = [START, result[0], START + 2 * times.HOUR]
    assert [(run.start, run.end) for run in runs] == [(at, at + 5 * times.MINUTE) for at in starts]
