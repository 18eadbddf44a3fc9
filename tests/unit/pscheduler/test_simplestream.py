"""pScheduler's simplestream in its words and ours."""

from __future__ import annotations

import pytest

from node.model.times import SECOND
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import Outcome
from node.pscheduler.tests.registry import LANGUAGES

STREAM = LANGUAGES["simplestream"]
SPEC = {"schema": 1, "source": "a", "dest": "b"}


def test_its_options_have_letters_of_their_own() -> None:
    """Here ``-d`` is the time to dawdle, and ``-e`` the dest."""
    spec = STREAM.parse(["-e", "b", "-d", "PT1S", "-p", "5890"])
    assert spec == {"schema": 3, "dest": "b", "dawdle": "PT1S", "port": 5890}


def test_the_booked_time_is_that_of_pscheduler() -> None:
    """The timeout counts before the time to dawdle."""
    assert STREAM.duration(SPEC) == 5 * SECOND
    assert STREAM.duration({**SPEC, "dawdle": "PT4S"}) == 8 * SECOND
    assert STREAM.duration({**SPEC, "dawdle": "PT4S", "timeout": "PT3S"}) == 3 * SECOND


def test_it_is_our_simplestream_and_back() -> None:
    """The text stays what it is; a failure on purpose is refused."""
    ours = STREAM.to_parley({**SPEC, "test-material": "Hello", "fail": 0}, ["a", "b"])
    assert (ours.type, ours.participants) == ("simplestream", ("a", "b"))
    assert ours.spec == {"source": "a", "dest": "b", "text": "Hello", "timeout": "PT5S"}
    back = {**SPEC, "test-material": "Hello", "timeout": "PT5S"}
    assert STREAM.from_parley("simplestream", ours.spec) == back
    with pytest.raises(Refusal, match="no test here fails on purpose"):
        STREAM.to_parley({**SPEC, "fail": 0.5}, ["a", "b"])


def test_its_result_has_four_lines() -> None:
    """Both texts and both times are told."""
    measured = {"sent": "x", "received": "x", "dawdled_ms": 0.0, "elapsed_ms": 1.25}
    result = STREAM.result(SPEC, Outcome("simplestreamer", measured))
    assert result == {
        "schema": 1, "succeeded": True, "dawdled": "P0D", "sent": "x", "received": "x",
        "elapsed-time": "PT0.00125S",
    }  # fmt: skip
    assert STREAM.text(SPEC, result).splitlines() == [
        "Dawdled ......... P0D",
        "Text Sent ....... x",
        "Text Received ... x",
        "Elapsed Time .... PT0.00125S",
    ]
    assert str(STREAM.html(SPEC, result)).count("<tr>") == 4
