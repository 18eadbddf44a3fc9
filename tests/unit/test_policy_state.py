"""What policies remember survives being written down."""

from __future__ import annotations

import json
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.policy_state import decode_state, encode_state
from lead.policy.view import Backoff, QueueState, RememberedState


@given(st.from_type(RememberedState))
def test_a_state_is_read_as_it_was_written(state: RememberedState) -> None:
    """Every record, key and fraction comes back from JSON as it was."""
    assert decode_state(json.loads(json.dumps(encode_state(state)))) == state


def test_what_another_version_wrote_is_read_as_far_as_it_is_known() -> None:
    """A field nobody knows any more is passed over, and one that is new begins empty."""
    document = {"queues": [["ops", {"priority": "1/3", "started": 2}]], "moods": [["ops", "good"]]}
    queue = QueueState(priority=Fraction(1, 3), started=2)
    assert decode_state(document) == RememberedState(queues={"ops": queue})
    assert decode_state({}) == RememberedState()


def test_keys_of_several_words_are_lists() -> None:
    """What is kept by campaign, node and class can be read by others, too."""
    state = RememberedState(backoffs={("ops", "a", "exclusive"): Backoff(2, 7)})
    assert encode_state(state)["backoffs"] == [
        [["ops", "a", "exclusive"], {"failures": 2, "until": 7}]
    ]
