"""What policies remember survives being written down."""

from __future__ import annotations

import json
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.remembering import document_of, state_of
from lead.policy.view import Backoff, QueueState, State


@given(st.from_type(State))
def test_a_state_is_read_as_it_was_written(state: State) -> None:
    """Every record, key and fraction comes back from JSON as it was."""
    assert state_of(json.loads(json.dumps(document_of(state)))) == state


def test_what_another_version_wrote_is_read_as_far_as_it_is_known() -> None:
    """A field nobody knows any more is passed over, and one that is new begins empty."""
    document = {"queues": [["ops", {"priority": "1/3", "started": 2}]], "moods": [["ops", "good"]]}
    queue = QueueState(priority=Fraction(1, 3), started=2)
    assert state_of(document) == State(queues={"ops": queue})
    assert state_of({}) == State()


def test_keys_of_several_words_are_lists() -> None:
    """What is kept by campaign, node and class can be read by others, too."""
    state = State(backoffs={("ops", "a", "exclusive"): Backoff(2, 7)})
    assert document_of(state)["backoffs"] == [
        [["ops", "a", "exclusive"], {"failures": 2, "until": 7}]
    ]
