"""The state of the policies in JSON."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.planning.policy_state import decode_state, encode_state
from lead.policy.view import Backoff, QueueState, RememberedState


@given(st.from_type(RememberedState))
@pytest.mark.nightly
def test_a_state_survives_a_round_trip(state: RememberedState) -> None:
    """Every record, key, and fraction comes back from JSON unchanged."""
    assert decode_state(json.loads(json.dumps(encode_state(state)))) == state


def test_the_state_of_another_version_is_read() -> None:
    """An unknown field is ignored, and a missing one begins empty."""
    document = {"queues": [["ops", {"priority": "1/3", "started": 2}]], "moods": [["ops", "good"]]}
    queue = QueueState(priority=Fraction(1, 3), started=2)
    assert decode_state(document) == RememberedState(queues={"ops": queue})
    assert decode_state({}) == RememberedState()


def test_keys_of_several_words_are_lists() -> None:
    """Keys of campaign, node, and class are lists, so that other programs can read them."""
    state = RememberedState(backoffs={("ops", "a", "exclusive"): Backoff(2, 7)})
    assert encode_state(state)["backoffs"] == [
        [["ops", "a", "exclusive"], {"failures": 2, "until": 7}]
    ]
