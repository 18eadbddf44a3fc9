"""pScheduler's rtt in its words and ours, with the output of real pings."""

from __future__ import annotations

import dataclasses

import pytest

from node.model.times import SECOND
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.registry import LANGUAGES
from tests.golden.recorded import output
from tests.support.pscheduler_outcomes import outcome_of

RTT = LANGUAGES["rtt"]
SPEC = {"schema": 1, "dest": "b.example", "count": 10}
PING = outcome_of("rtt", "ping", [output("ping", "loopback")])


def test_the_schema_is_the_least_that_knows_all() -> None:
    """Each option that came later raises the number."""
    assert RTT.parse(["--dest", "b"]) == {"schema": 1, "dest": "b"}
    assert RTT.parse(["-d", "b", "--protocol", "twamp"])["schema"] == 2
    assert RTT.parse(["-d", "b", "--no-fragment"]) == {"schema": 3, "dest": "b", "fragment": False}
    assert RTT.parse(["-d", "b", "--protocol", "dns"])["schema"] == 4


def test_complaints_are_those_of_an_option_parser() -> None:
    """A wrong value and an unknown option are refused in one line."""
    with pytest.raises(Refusal, match=r"^option --count: invalid integer value: 'x'$"):
        RTT.parse(["--count", "x"])
    with pytest.raises(Refusal, match=r"^no such option: --bogus$"):
        RTT.parse(["--bogus"])


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ([], "The spec must be a JSON object"),
        ({}, "The member 'dest' is missing"),
        ({"dest": "b", "count": 0}, "At /count: must be a whole number of at least 1"),
        ({"dest": "b", "interval": "1"}, "At /interval: '1' is not a valid ISO 8601 duration."),
        ({"dest": "b", "x": 1}, "Unknown members: x"),
        ({"dest": "b", "fragment": True}, "At /fragment: needs schema 3, and the spec says 1"),
    ],
)
def test_invalid_specs_are_told(spec: object, sentence: str) -> None:
    """The sentence names the member, and what it must be."""
    with pytest.raises(Refusal) as told:
        RTT.check(spec)
    assert (told.value.status, told.value.text) == (400, sentence)


def test_the_node_of_the_source_takes_part() -> None:
    """The source's node comes before the source, and nobody named is whoever is asked."""
    assert RTT.participants({"dest": "b", "source": "a"}).names == ("a",)
    assert RTT.participants({"dest": "b", "source": "a", "source-node": "n:8443"}).names == (
        "n:8443",
    )
    assert RTT.participants({"dest": "b"}).document() == {
        "participants": [None],
        "null-reason": "No source specified",
    }


def test_the_booked_time_is_that_of_pscheduler() -> None:
    """Five packets a second apart, two seconds for the last, two for names, two of slack."""
    assert RTT.duration({"dest": "b"}) == 10 * SECOND
    assert RTT.duration({"dest": "b", "hostnames": False}) == 8 * SECOND
    assert RTT.duration({"dest": "b", "deadline": "PT1S"}) == 5 * SECOND


def test_it_is_our_rtt_and_back() -> None:
    """The defaults are pScheduler's; a source that is not the node's name is an address of it."""
    ours = RTT.to_parley({"dest": "b", "source": "192.0.2.1", "source-node": "n"}, ["n"])
    assert (ours.type, ours.participants) == ("rtt", ("n",))
    assert ours.spec == {
        "source": "n", "dest": "b", "count": 5, "interval": "PT1S", "timeout": "PT1S",
    }  # fmt: skip
    assert ours.addresses == {"n": "192.0.2.1"}
    assert RTT.from_parley("rtt", ours.spec) == {
        "schema": 1, "dest": "b", "source": "n", "count": 5, "interval": "PT1S", "timeout": "PT1S",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("member", "value"), [("flow-label", 5), ("port", 8), ("protocol", "twamp"), ("length", 5)]
)
def test_what_no_tool_does_is_refused(member: str, value: object) -> None:
    """A member that would be ignored is refused with a sentence."""
    with pytest.raises(Refusal, match=r"^rtt: ") as told:
        RTT.to_parley({"dest": "b", member: value}, ["a"])
    assert told.value.status == 422


def test_no_packet_is_sent_after_the_deadline() -> None:
    """A deadline limits the packets and how long the last one is awaited."""
    ours = RTT.to_parley({"dest": "b", "count": 60, "deadline": "PT0.5S"}, ["a"]).spec
    assert (ours["count"], ours["timeout"]) == (1, "PT0.5S")
    assert RTT.to_parley({"dest": "b", "count": 3, "deadline": "PT9S"}, ["a"]).spec["count"] == 3


def test_options_of_ip_are_passed_on() -> None:
    """A type of service, a flow label, and that packets must not be fragmented."""
    spec = {"dest": "b", "ip-tos": 184, "fragment": False, "flow-label": 5, "ip-version": 6}
    ours = RTT.to_parley(spec, ["a"])
    assert ours.spec.items() >= {"tos": 184, "dont_fragment": True, "flow_label": 5}.items()
    back = RTT.from_parley("rtt", ours.spec)
    assert back is not None
    assert (back["schema"], back["fragment"]) == (3, False)
    assert "dont_fragment" not in RTT.to_parley({"dest": "b", "fragment": True}, ["a"]).spec


def test_round_trips_come_from_the_output_of_ping() -> None:
    """Each answer is told with its number, length, TTL and time."""
    result = RTT.result(SPEC, PING)
    assert result["roundtrips"][0] == {
        "seq": 1, "length": 64, "ip": "127.0.0.1", "ttl": 64,
        "rtt": result["roundtrips"][0]["rtt"],
    }  # fmt: skip
    assert [trip["seq"] for trip in result["roundtrips"]] == list(range(1, 11))
    assert (result["sent"], result["received"], result["lost"], result["loss"]) == (10, 10, 0, 0)
    assert result["min"] <= result["mean"] <= result["max"]
    assert "diags" not in result


def test_round_trips_come_from_the_output_of_fping() -> None:
    """Fping counts from zero, and tells no TTL."""
    result = RTT.result(SPEC, outcome_of("rtt", "fping", [output("fping", "loopback")]))
    assert [trip["seq"] for trip in result["roundtrips"]] == list(range(1, 11))
    assert "ttl" not in result["roundtrips"][0]


def test_missing_output_is_told() -> None:
    """Round trips that the kept output does not have are counted in ``diags``."""
    parts = [dataclasses.replace(PING.parts[0], output="")]
    result = RTT.result(SPEC, dataclasses.replace(PING, parts=parts))
    assert result["roundtrips"] == []
    assert result["diags"].startswith("10 of 10 round trips are not listed: ")


def test_both_forms_have_a_line_per_round_trip() -> None:
    """The text has the number, the address, bytes, TTL and time, and then the summary."""
    result = RTT.result(SPEC, PING)
    lines = RTT.text(SPEC, result).splitlines()
    assert lines[0].startswith("1       127.0.0.1 (127.0.0.1)  64 Bytes  TTL 64  RTT 0.")
    assert lines[-1].startswith("0% Packet Loss  RTT Min/Mean/Max/StdDev = 0.")
    assert str(RTT.html(SPEC, result)).count("<tr>") == 11


def test_silence_is_told() -> None:
    """A host that never answers has no round trips and unknown times."""
    silent = outcome_of("rtt", "ping", [output("ping", "all-lost")], count=3)
    result = RTT.result({**SPEC, "count": 3}, silent)
    assert (result["roundtrips"], result["loss"]) == ([], 1)
    summary = "100% Packet Loss  RTT Min/Mean/Max/StdDev = None/None/None/None ms"
    assert RTT.text(SPEC, result) == summary
