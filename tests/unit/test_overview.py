"""What policies see of the terms of pool tasks."""

from __future__ import annotations

from dataclasses import replace

from lead.model import OpenTerm
from lead.planning.overview import candidate_of
from node.model import times
from node.model.seating import Term
from tests.clocks import START
from tests.rounds import case_of


def test_a_term_waits_since_it_became_due() -> None:
    """That is the task's creation for the first one, and for later ones when they come near."""
    case = case_of("a", "ops", ["n1"])
    horizon = 6 * times.HOUR
    assert candidate_of(case, horizon).waits_since == START
    term = Term(START + times.DAY, START + times.DAY + times.HOUR)
    later = replace(case, open=OpenTerm(case.whole.id, term, term.ends_at, 1))
    assert candidate_of(later, horizon).waits_since == START + 20 * times.HOUR
