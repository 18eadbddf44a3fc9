"""The two ends of a run understand each other in both directions, with recorded print-outs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies

from node.plugins.contracts import Output, Part
from node.plugins.tests import throughput
from node.plugins.tools.iperf3 import TOOL
from node.pscheduler.dialects import idle, simplestreamer
from node.pscheduler.dialects.iperf3 import DIALECT
from node.pscheduler.dialects.registry import DIALECTS, dialects_of
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import PartOutcome
from tests.golden.recorded import output
from tests.unit.plugins.parts import context

CLIENT, SERVER = 0, 1
COMMAND = ("iperf3", "-s", "-1", "-J")
VERSIONS = {"3.9": "3.17", "3.16+": "3.17", "3.17.1": "3.17.1", "3.20": "3.20", "4.0": "4.0"}
"""Versions of iperf3, and what is told of them as those of a server."""


def part(case: str, place: int, *, cut: bool = False, **fields: Any) -> PartOutcome:
    """Return a recorded part as this node stores it; ``cut`` as if it had been too long."""
    printed = output("iperf3", case)
    result = TOOL.read(context("throughput", place, **fields), printed)
    text = printed.stdout.decode()
    return PartOutcome("a", COMMAND, text[:900] + "\n[cut]\n" if cut else text, result)


@pytest.mark.parametrize("case", ["tcp", "udp"])
def test_a_part_is_told_in_their_words(case: str) -> None:
    """A part is told with streams, intervals, and a summary, and nothing else."""
    told = DIALECT.told_part(SERVER, {"dest": "b"}, part(f"{case}-server", SERVER, protocol=case))
    assert told["succeeded"]
    assert told["diags"].startswith("iperf3 -s -1 -J\n\n{")
    assert [set(each) for each in told["intervals"]] == [{"streams", "summary"}] * len(
        told["intervals"]
    )
    [stream] = told["summary"]["streams"]
    total = told["summary"]["summary"]
    assert isinstance(stream["stream-id"], int)
    assert total["stream-id"] == "SUM"
    assert total["throughput-bits"] == pytest.approx(stream["throughput-bits"], rel=0.03)
    assert total["throughput-bits"] > 0
    known = {
        "stream-id", "start", "end", "throughput-bits", "throughput-bytes", "retransmits",
        "receiver-throughput-bits", "tcp-window-size", "rtt", "sent", "lost", "jitter", "omitted",
    }  # fmt: skip
    entries = [stream, total, *told["intervals"][0]["streams"], told["intervals"][0]["summary"]]
    assert all(set(entry) <= known for entry in entries)


def test_a_client_tells_both_rates() -> None:
    """A client that sends knows what the server has received, too."""
    told = DIALECT.told_part(CLIENT, {"dest": "b"}, part("tcp-client", CLIENT))
    total = told["summary"]["summary"]
    assert {"throughput-bits", "receiver-throughput-bits", "retransmits"} <= set(total)
    assert {"tcp-window-size", "rtt"} <= set(told["intervals"][0]["streams"][0])


def test_a_server_that_sends_tells_what_it_sent() -> None:
    """With reverse the server's figures are those of the sender: the lead takes them."""
    stored = part("tcp-streams-reverse-server", SERVER, streams=2, reverse=True)
    told = DIALECT.told_part(SERVER, {"dest": "b", "reverse": True}, stored)
    sent = throughput.ThroughputPart.model_validate(stored.result).sent
    assert sent is not None
    assert told["summary"]["summary"]["throughput-bits"] == pytest.approx(sent.rate_bps, rel=0.01)


def test_output_that_was_cut_leaves_the_sums() -> None:
    """A print-out that was not kept whole leaves the figures of all streams together."""
    whole = DIALECT.told_part(SERVER, {}, part("tcp-server", SERVER))
    told = DIALECT.told_part(SERVER, {}, part("tcp-server", SERVER, cut=True))
    [stream] = told["summary"]["streams"]
    assert stream == told["summary"]["summary"]
    assert stream["stream-id"] == "SUM"
    bits = whole["summary"]["summary"]["throughput-bits"]
    assert stream["throughput-bits"] == pytest.approx(bits, rel=0.01)
    assert len(told["intervals"]) == len(whole["intervals"])


def test_a_failed_part_has_its_reason() -> None:
    """A part without a result is an object with the reason; a lead needs one to merge."""
    told = DIALECT.told_part(SERVER, {}, PartOutcome("a", COMMAND, "", None, "no client came"))
    assert (told["succeeded"], told["error"]) == (False, "no client came")
    assert told["diags"] == "iperf3 -s -1 -J"


@pytest.mark.parametrize("place", [CLIENT, SERVER])
def test_what_is_told_is_heard(place: int) -> None:
    """A part that went through both directions is the one that our test merges."""
    end = ("client", "server")[place]
    stored = part(f"tcp-{end}", place)
    spec = context("throughput", place).spec.model_dump(mode="json")
    heard = DIALECT.heard_part(place, spec, DIALECT.told_part(place, {}, stored))
    assert (heard.result, heard.reason) == (stored.result, None)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, "it has no result"),
        ({"succeeded": False, "error": "no route"}, "no route"),
        ({"succeeded": False}, "it failed and gave no reason"),
        ({"succeeded": True, "diags": "iperf3 -c b\n\nno JSON"}, "its diagnostics lack"),
        ({"succeeded": True, "diags": '{"end": {}}'}, "the other end went away"),
        ({"succeeded": True, "diags": "{" * 9}, "its diagnostics lack"),
    ],
)
def test_a_part_that_is_none(said: dict[str, Any] | None, reason: str) -> None:
    """A part of another host that cannot be used is a reason, never an exception."""
    spec = context("throughput").spec.model_dump(mode="json")
    heard = DIALECT.heard_part(SERVER, spec, said)
    assert heard.result is None
    assert reason in (heard.reason or "")


def test_the_data_of_both_ends() -> None:
    """A server tells its port without authentication, and a client asks for none."""
    assert DIALECT.data(SERVER, {"port": 5301}, "3.12") == {
        "schema": 3,
        "iperf3-version": "3.17",
        "server_port": 5301,
    }
    told = {each: DIALECT.data(SERVER, {"port": 1}, each)["iperf3-version"] for each in VERSIONS}
    assert told == VERSIONS
    assert DIALECT.data(SERVER, {"port": 1}, None)["iperf3-version"] == "3.17"
    assert DIALECT.data(CLIENT, {}, "3.12") == {"schema": 1, "iperf3-version": "3.12"}
    assert DIALECT.data(CLIENT, {}, None) == {"schema": 1, "iperf3-version": "0.0"}
    assert DIALECT.command_data(SERVER, {"server_port": 5201, "_auth": {}}) == {"port": 5201}
    assert DIALECT.command_data(CLIENT, {"schema": 3}) == {}
    for bad in (None, "5201", 0, 70_000, True):
        with pytest.raises(Refusal, match="server_port"):
            DIALECT.command_data(SERVER, {"server_port": bad})


def test_a_text() -> None:
    """The ends of a stream of text understand each other in both directions."""
    speak = simplestreamer.DIALECT
    sent = {"sent": "hello", "dawdled_ms": 120.0}
    received = {"received": "hello", "elapsed_ms": 1500.0}
    there = speak.told_part(0, {}, PartOutcome("a", None, None, sent))
    back = speak.told_part(1, {}, PartOutcome("b", None, None, received))
    assert there["result"] == {"dawdled": "PT0.12S", "sent": "hello"}
    assert back["result"] == {"received": "hello", "elapsed-time": "PT1.5S"}
    assert speak.heard_part(0, {}, there).result == sent
    assert speak.heard_part(1, {}, back).result == received
    wrong = {"succeeded": True, "result": {"received": 5, "elapsed-time": "PT1S"}}
    assert "no valid text" in (speak.heard_part(1, {}, wrong).reason or "")
    assert speak.data(1, {"port": 5890}, None) == {"listen-port": 5890}
    odd = {"succeeded": True, "result": {"received": "a\ud800\x00", "elapsed-time": "PT1S"}}
    assert (speak.heard_part(1, {}, odd).result or {})["received"] == "a?\N{REPLACEMENT CHARACTER}"
    with pytest.raises(Refusal, match="listen-port"):
        speak.command_data(1, {})


def test_idling() -> None:
    """Our idling is as long as theirs, and snooze is for a minute at most."""
    assert idle.SLEEP.adapted_spec({"duration": "PT2S"}) == {"duration": "PT2.5S"}
    told = idle.SLEEP.told_part(1, {}, PartOutcome("a", None, None, {"slept_ms": 2000.0}))
    assert told["result"]["time-slept"] == "PT2S"
    assert idle.SLEEP.heard_part(1, {}, told).result == {"slept_ms": 2000.0}
    assert "not understood" in (
        idle.SLEEP.heard_part(1, {}, {"succeeded": True, "result": {}}).reason or ""
    )
    assert idle.SLEEP.obstacle({"duration": "PT1H"}) is None
    assert idle.SNOOZE.obstacle({"duration": "PT1H"}) == "snooze idles for at most PT1M"


def test_tools_of_a_test() -> None:
    """Tools are listed by test, the preferred ones first."""
    assert [each.tool for each in dialects_of("idle")] == ["sleep", "snooze"]
    assert [each.tool for each in dialects_of("throughput")] == ["iperf3"]
    assert dialects_of("rtt") == ()


def test_both_ends_merge() -> None:
    """A run whose server was a foreign host merges as one of ours."""
    spec = context("throughput").spec
    wire = spec.model_dump(mode="json")
    client = TOOL.read(context("throughput", CLIENT), output("iperf3", "tcp-client"))
    heard = DIALECT.heard_part(
        SERVER, wire, DIALECT.told_part(SERVER, {}, part("tcp-server", SERVER))
    )
    merged = throughput.TEST.merge(spec, [Part(0, "a", client), Part(1, "b", heard.result)])
    assert merged.succeeded
    assert isinstance(output("iperf3", "tcp-client"), Output)


JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats()
    | strategies.text(strategies.characters(), max_size=20),
    lambda inner: strategies.lists(inner, max_size=3)
    | strategies.dictionaries(
        strategies.sampled_from(
            ["succeeded", "diags", "error", "result", "time-slept", "sent", "received", "dawdled"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip


@given(result=JSON, diags=JSON | strategies.sampled_from(['{"end": {}}', '{"end": {"sum": 5}}']))
@pytest.mark.nightly
def test_any_part_is_heard(result: Any, diags: Any) -> None:
    """A part of another host may be anything: it is a result of ours, or there is a reason."""
    throughput_spec = context("throughput").spec.model_dump(mode="json")
    said = {"succeeded": True, "result": result, "diags": diags}
    for each in DIALECTS.values():
        for place in (CLIENT, SERVER):
            spec = throughput_spec if each is DIALECT else {}
            heard = each.heard_part(place, spec, said)
            assert (heard.result is None) == (heard.reason is not None)
