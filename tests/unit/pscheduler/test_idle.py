"""pScheduler's idle in its words and ours."""

from __future__ import annotations

from node.model.times import SECOND
from node.pscheduler.tests.contract import Outcome
from node.pscheduler.tests.registry import LANGUAGES

IDLE = LANGUAGES["idle"]


def test_one_host_needs_schema_one() -> None:
    """A host is a text, and two are a list, which schema 2 brought."""
    assert IDLE.parse(["--duration", "PT2S"]) == {"schema": 1, "duration": "PT2S"}
    assert IDLE.parse(["-d", "PT2S", "-H", "a"])["host"] == "a"
    two = IDLE.parse(["-d", "PT2S", "-H", "a", "-H", "b"])
    assert two == {"schema": 2, "duration": "PT2S", "host": ["a", "b"]}
    assert IDLE.participants(two).document() == {"participants": ["a", "b"]}


def test_nobody_named_is_whoever_is_asked() -> None:
    """Without a host the participant is null, and the member with the reason is ``reason``."""
    assert IDLE.participants({"duration": "PT2S"}).document() == {
        "participants": [None],
        "reason": "No source specified",
    }


def test_it_is_booked_for_a_second_longer() -> None:
    """The booked time has a second for what comes after."""
    assert IDLE.duration({"duration": "PT2S"}) == 3 * SECOND


def test_it_is_our_idle_and_back() -> None:
    """Our idle runs in the background on the same hosts."""
    spec = {"schema": 2, "duration": "PT2S", "host": ["a", "b"]}
    ours = IDLE.to_parley(spec, ["a", "b"])
    assert (ours.type, ours.participants) == ("idle", ("a", "b"))
    assert IDLE.from_parley("idle", ours.spec) == spec
    assert IDLE.from_parley("idle", {"class": "exclusive"}) is None


def test_its_result_is_the_duration() -> None:
    """The result and both its forms tell the duration."""
    spec = {"duration": "PT2S"}
    result = IDLE.result(spec, Outcome("sleep", {"participants": 1, "duration_ms": 2000.0}))
    assert result == {"schema": 1, "succeeded": True, "duration": "PT2S"}
    assert IDLE.own_part(result) == {**result, "time-slept": "PT2S"}
    assert IDLE.text(spec, result) == "Duration ... PT2S"
    assert "<td>PT2S</td>" in str(IDLE.html(spec, result))


def test_a_failed_run_tells_why() -> None:
    """A failed run has the reason as its error."""
    spec = {"duration": "PT2S"}
    result = IDLE.result(spec, Outcome("sleep", None, "b: the program was killed"))
    assert result == {
        "schema": 1,
        "succeeded": False,
        "error": "b: the program was killed",
        "diags": "",
    }
    assert IDLE.text(spec, result) == "Run failed."
    assert IDLE.html(spec, result) == "<p>Run failed.</p>"
