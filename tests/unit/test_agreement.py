"""The agreement of participants that are asked for holds."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.model.reasons import hold_not_stated
from lead.planning.hold_agreement import agree, newest_epoch
from node.model.errors import Conflict, ParleyError, PeerUnreachable
from node.model.wire.participants import HoldAnswer, Refusal

RUNS = [UUID(int=number) for number in range(4)]

SAID = st.sampled_from(["held", "refused", "nothing"])
ANSWERS = st.lists(
    st.none() | st.lists(SAID, min_size=len(RUNS), max_size=len(RUNS)), min_size=1, max_size=4
)
"""By participant, its answer for each run, or None if it does not answer."""


def answer_of(said: list[str] | None) -> HoldAnswer | ParleyError:
    """Return the wire document, or the error in its place."""
    if said is None:
        return PeerUnreachable("is away")
    return HoldAnswer(
        held=tuple(run for run, word in zip(RUNS, said, strict=True) if word == "held"),
        refused=tuple(
            Refusal(run=run, reason="is busy")
            for run, word in zip(RUNS, said, strict=True)
            if word == "refused"
        ),
    )


@given(ANSWERS)
def test_a_run_is_kept_only_if_all_hold_it(answers: list[list[str] | None]) -> None:
    """One refusal, one omission, or one error keeps a run from being booked."""
    agreed = agree(RUNS, [(f"n{place}", answer_of(said)) for place, said in enumerate(answers)])
    for index, run in enumerate(RUNS):
        by_all = all(said is not None and said[index] == "held" for said in answers)
        assert (run in agreed.held) is by_all
        assert (run in agreed.refused) is not by_all


@given(ANSWERS)
def test_every_refusal_names_its_participant_and_reason(answers: list[list[str] | None]) -> None:
    """The reason of a run names a participant that does not hold it, with its own words."""
    agreed = agree(RUNS, [(f"n{place}", answer_of(said)) for place, said in enumerate(answers)])
    words = {"refused": "is busy", "nothing": hold_not_stated()}
    for index, run in enumerate(RUNS):
        possible = {
            f"n{place}: {'is away' if said is None else words[said[index]]}"
            for place, said in enumerate(answers)
            if said is None or said[index] != "held"
        }
        assert not possible or agreed.refused[run] in possible


@given(ANSWERS)
@pytest.mark.nightly
def test_the_outcome_distinguishes_conflicts_from_faults(answers: list[list[str] | None]) -> None:
    """The outcome is booked for all, partly booked for some, else no answer or a conflict."""
    agreed = agree(RUNS, [(f"n{place}", answer_of(said)) for place, said in enumerate(answers)])
    silent = None in answers
    expected = {len(RUNS): "booked", 0: "no answer" if silent else "conflict"}
    assert agreed.outcome == expected.get(len(agreed.held), "partly booked")
    assert bool(agreed.failed) is silent


def test_no_epoch_is_believed_that_is_later_than_all_clocks() -> None:
    """The highest epoch that refused a hold counts, but none that would leave no room above it."""
    told = [Conflict("older", epoch=epoch) for epoch in (7, 9, 2**63 - 1)]
    assert newest_epoch([*told, Conflict("ended"), PeerUnreachable("away")]) == 9
    assert newest_epoch([Conflict("ended")]) == 0
