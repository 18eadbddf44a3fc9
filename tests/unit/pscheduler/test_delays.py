"""pScheduler's latency and latencybg in its words and ours, with the output of real irtts."""

from __future__ import annotations

from typing import Any

import pytest

from node.model.times import DAY, HOUR, SECOND
from node.plugins import registry
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import Outcome
from node.pscheduler.tests.language import fitted_to_interval
from node.pscheduler.tests.registry import LANGUAGES
from tests.golden.recorded import output
from tests.support.pscheduler_outcomes import outcome_of

LATENCY, LATENCYBG = LANGUAGES["latency"], LANGUAGES["latencybg"]
SPEC = {"schema": 1, "source": "a", "dest": "b"}
MEASURED = outcome_of(
    "latency", "irtt", [output("irtt", "lossy-client"), output("irtt", "lossy-server")],
    count=60, interval="PT0.01S", timeout="PT0.3S", histogram=True,
)  # fmt: skip


def test_words_of_latency() -> None:
    """Seconds are numbers, and the ports are a range."""
    spec = LATENCY.parse(["-d", "b", "-i", "0.01", "-P", "8760-9960", "-r", "-R"])
    assert spec == {
        "schema": 2, "dest": "b", "packet-interval": 0.01, "reverse": True, "output-raw": True,
        "data-ports": {"lower": 8760, "upper": 9960},
    }  # fmt: skip
    assert "8760-9960" in LATENCY.words(spec)
    with pytest.raises(Refusal, match=r"^option --data-ports: 'x' is not a range of ports; "):
        LATENCY.parse(["-P", "x"])


def test_durations_are_those_of_pscheduler() -> None:
    """A tenth is added to the time of sending, and five seconds for the rest; no end is a day."""
    assert LATENCY.duration(SPEC) == 16 * SECOND
    assert LATENCYBG.duration(SPEC) == DAY
    assert LATENCYBG.duration({**SPEC, "duration": "PT60S"}) == 60 * SECOND


def test_dest_takes_part_in_latency_here() -> None:
    """There the source alone takes part, and with flip the dest; here it is always both."""
    assert LATENCY.participants(SPEC).names == ("a",)
    assert LATENCY.participants({**SPEC, "flip": True, "dest-node": "n"}).names == ("n",)
    assert LATENCY.to_parley(SPEC, ["a"]).participants == ("a", "b")
    assert LATENCY.to_parley({**SPEC, "flip": True}, ["n"]).participants == ("a", "n")
    assert LATENCY.to_parley({**SPEC, "reverse": True}, ["a"]).participants == ("b", "a")
    with pytest.raises(Refusal, match="with flip, the source must be named"):
        LATENCY.to_parley({"dest": "b", "flip": True}, ["n"])


def test_latency_is_ours_and_back() -> None:
    """The packets are counted by delay, which 0.2 does not know and is not asked otherwise."""
    told = {**SPEC, "packet-padding": 100, "ctrl-port": 861, "output-raw": False}
    ours = LATENCY.to_parley(told, ["a"])
    assert ours.spec == {
        "source": "a", "dest": "b", "count": 100, "interval": "PT0.1S", "length": 144,
        "histogram": True,
    }  # fmt: skip
    assert LATENCY.notes(told) == (
        "ctrl-port makes no difference: between two nodes no control connection is needed",
    )
    back = LATENCY.from_parley("latency", ours.spec)
    assert back is not None
    assert (back["packet-padding"], back["packet-interval"]) == (100, 0.1)


def test_protocols_choose_tools() -> None:
    """The protocol names a tool of ours, or nobody speaks it."""
    assert LATENCY.to_parley({**SPEC, "protocol": "owamp"}, ["a"]).tools == ("stamp",)
    assert LATENCYBG.to_parley({**SPEC, "protocol": "owamp"}, ["a"]).tools == ("stampbg",)
    with pytest.raises(Refusal, match="no tool here speaks twamp"):
        LATENCY.to_parley({**SPEC, "protocol": "twamp"}, ["a"])


def test_a_dest_that_is_no_node_is_asked_by_owamp() -> None:
    """The source measures alone, at the port that the spec names; not the way from there."""
    for language in (LATENCY, LATENCYBG):
        ours = language.test_of_target({**SPEC, "protocol": "owamp", "ctrl-port": 8610}, ["a"])
        assert ours is not None
        assert (ours.participants, ours.tools) == (("a",), ())
        assert ours.spec["dest"] == "b"
        assert (ours.spec["responder"], ours.spec["port"]) == ("owamp", 8610)
        for asked in ({"protocol": "stamp"}, {"flip": True, "source": "c"}):
            with pytest.raises(Refusal, match="no node"):
                language.test_of_target({**SPEC, **asked}, ["a"])
    with pytest.raises(Refusal, match="leave out reverse"):
        LATENCY.test_of_target({**SPEC, "reverse": True}, ["a"])


def test_packets_are_told_by_delay() -> None:
    """The histogram has milliseconds with two decimals, of the packets that came back."""
    result = LATENCY.result(SPEC, MEASURED)
    counts = (result["packets-sent"], result["packets-received"], result["packets-lost"])
    assert counts == (60, 52, 8)
    measured = MEASURED.result or {}
    assert sum(result["histogram-latency"].values()) == measured["received_back"] == 49
    lost = "The delay of 3 of the packets is not known: answers to them were lost."
    assert result["diags"] == lost
    raw = LATENCY.result({**SPEC, "output-raw": True}, MEASURED)["diags"]
    assert raw.splitlines() == [lost, "Single packets are not told: the tools here keep none."]
    assert all(len(step.partition(".")[2]) == 2 for step in result["histogram-latency"])
    text = LATENCY.text(SPEC, result)
    assert "\nPackets Sent ......... 60 packets\n" in text
    assert "\nDelay Median ......... " in text
    assert "\nHistogram:\n    " in text
    assert LATENCY.html(SPEC, result) is None


def test_without_a_histogram_the_counts_are_told() -> None:
    """A result whose packets were not counted by delay says so."""
    measured = {**(MEASURED.result or {}), "histogram": None}
    result = LATENCY.result(SPEC, Outcome("stamp", measured))
    assert "histogram-latency" not in result
    assert result["diags"] == "The delays of the packets were not counted."
    assert "Delay Median ......... Not Reported" in LATENCY.text(SPEC, result)


def interval(**spec: Any) -> dict[str, Any]:
    """Return the percentiles' lines of a result with these steps."""
    histogram = {
        "width_ms": 0.001, "buckets": [[1000, 1], [2000, 2], [5000, 1]],
    }  # fmt: skip
    measured = {**(MEASURED.result or {}), "histogram": {"forward": histogram}}
    result = LATENCYBG.result({**SPEC, **spec}, Outcome("stampbg", measured))
    lines = LATENCYBG.text({**SPEC, **spec}, result).splitlines()
    return {
        label.rstrip(" ."): value for label, _, value in (each.partition(". ") for each in lines)
    }


def test_statistics_do_not_depend_on_the_width_of_steps() -> None:
    """Steps of ten milliseconds give the same figures as those of one."""
    assert interval()["Delay Median"] == "2.00 ms"
    assert interval()["Delay Maximum"] == "5.00 ms"
    assert interval()["Delay Mode"] == "2.00 ms"
    assert interval(**{"bucket-width": 0.01})["Delay Median"] == "2.00 ms"


def test_long_streams_are_runs_of_a_day() -> None:
    """Without a duration, runs of a day follow each other; two days are two of them."""
    ours = LATENCYBG.to_parley(SPEC, ["a"])
    assert (ours.spec["duration"], ours.spec["each"]) == ("P1D", "PT1M")
    assert (ours.repeat, ours.max_runs) == ("P1D", None)
    two = LATENCYBG.to_parley({**SPEC, "duration": "P2D"}, ["a"])
    assert (two.repeat, two.max_runs) == ("P1D", 2)
    minute = LATENCYBG.to_parley({**SPEC, "duration": "PT90S"}, ["a"])
    assert (minute.spec["duration"], minute.repeat) == ("PT1M", None)
    with pytest.raises(Refusal, match="an interval of PT1M is longer than the duration"):
        LATENCYBG.to_parley({**SPEC, "duration": "PT5S"}, ["a"])


def test_repeated_streams_are_as_long_as_the_interval() -> None:
    """A run without an end is cut to the interval at which it is repeated; others stay."""
    endless = LATENCYBG.to_parley(SPEC, ["a"])
    hourly = fitted_to_interval(endless, HOUR + 30 * SECOND)
    assert (hourly.spec["duration"], hourly.repeat) == ("PT1H", None)
    assert fitted_to_interval(endless, None) == endless
    short = LATENCYBG.to_parley({**SPEC, "duration": "PT2H"}, ["a"])
    assert fitted_to_interval(short, HOUR) == short


def test_streams_are_ours_and_back() -> None:
    """An interval is as many packets as the spec counts."""
    ours = LATENCYBG.to_parley({**SPEC, "duration": "PT60S", "packet-count": 100}, ["a"])
    assert ours.type in registry.tests()
    back = LATENCYBG.from_parley("latencybg", ours.spec)
    assert back is not None
    assert (back["packet-count"], back["packet-interval"], back["duration"]) == (100, 0.1, "PT1M")
