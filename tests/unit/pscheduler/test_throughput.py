"""pScheduler's throughput in its words and ours, with the output of real iperf3s."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from node.model.times import SECOND
from node.pscheduler.refusals import Refusal
from node.pscheduler.tests.contract import Document, Outcome
from node.pscheduler.tests.registry import LANGUAGES
from tests.golden.recorded import output
from tests.support.pscheduler_outcomes import outcome_of

THROUGHPUT = LANGUAGES["throughput"]
SPEC = {"schema": 1, "source": "a", "dest": "b"}
FIGURES = {
    "stream-id", "start", "end", "throughput-bits", "throughput-bytes", "receiver-throughput-bits",
    "retransmits", "tcp-window-size", "rtt", "sent", "lost", "jitter", "omitted",
}  # fmt: skip
"""The members that an entry may have; a result with any other is not valid there."""


def measured(case: str, tool: str = "iperf3", **fields: Any) -> Outcome:
    """Return the outcome of a recorded run between two iperf3s."""
    outputs = [output(tool, f"{case}-{end}") for end in ("client", "server")]
    return outcome_of("throughput", "iperf3", outputs, duration="PT2S", **fields)


def entries(result: Document) -> list[Document]:
    """Return all entries of a result, of intervals and of totals."""
    groups = [*result["intervals"], result["summary"]]
    return [each for group in groups for each in [*group["streams"], group["summary"]]]


def check(result: Document) -> None:
    """Check that a result is one that pScheduler can read."""
    assert result["succeeded"] is True
    assert isinstance(result["diags"], str)
    for entry in entries(result):
        assert entry.keys() <= FIGURES
    for group in [*result["intervals"], result["summary"]]:
        for stream in group["streams"]:
            assert {"stream-id", "start", "end", "throughput-bits"} <= stream.keys()


def test_words_are_converted() -> None:
    """Whole seconds, milliseconds, units, and a flow label that implies IPv6."""
    words = ["-d", "b", "-t", "30", "--link-rtt", "100", "-b", "10M", "-w", "1Ki", "-O", "2"]
    assert THROUGHPUT.parse(words) == {
        "schema": 3, "dest": "b", "duration": "PT30S", "link-rtt": "PT0.1S",
        "bandwidth": 10_000_000, "window-size": 1024, "omit": "PT2S",
    }  # fmt: skip
    assert THROUGHPUT.parse(["--destination", "b", "--flow-label", "5"])["ip-version"] == 6
    nothing = ["--flow-label", "0", "--ip-tos", "0", "-O", "", "--single-ended-port", "0"]
    assert THROUGHPUT.parse(nothing) == {"schema": 1}
    assert THROUGHPUT.parse(["--congestion", "cubic"])["schema"] == 1
    assert THROUGHPUT.parse(["--congestion", "dctcp"])["schema"] == 4
    with pytest.raises(Refusal, match=r"^option --bandwidth: 'x' is not a number; "):
        THROUGHPUT.parse(["-b", "x"])


def test_both_ends_take_part() -> None:
    """Each end is told by its node if that is named; a single end is the source alone."""
    assert THROUGHPUT.participants(SPEC).names == ("a", "b")
    nodes = {**SPEC, "source-node": "n:1", "dest-node": "m"}
    assert THROUGHPUT.participants(nodes).names == ("n:1", "m")
    assert THROUGHPUT.participants({**SPEC, "single-ended": True}).names == ("a",)


def test_the_booked_time_is_that_of_pscheduler() -> None:
    """Four seconds to set up, ten to measure, three until the client starts, two to finish."""
    assert THROUGHPUT.duration(SPEC) == 19 * SECOND
    near = {**SPEC, "link-rtt": "PT0.01S", "omit": "PT2S", "duration": "PT5S"}
    assert THROUGHPUT.duration(near) == 13 * SECOND


def test_it_is_our_throughput_and_back() -> None:
    """The defaults are those of iperf3: nothing omitted, the host's congestion control."""
    ours = THROUGHPUT.to_parley({**SPEC, "bandwidth": "10M", "parallel": 2}, ["a", "b"])
    assert ours.spec == {
        "source": "a", "dest": "b", "duration": "PT10S", "omit": "PT0S", "protocol": "tcp",
        "streams": 2, "rate_bps": 10_000_000, "congestion": "host",
    }  # fmt: skip
    back = THROUGHPUT.from_parley("throughput", ours.spec)
    assert back is not None
    assert (back["omit"], back["bandwidth"], "congestion" in back) == ("PT0S", 10_000_000, False)
    defaults = THROUGHPUT.from_parley("throughput", {"dest": "b"})
    assert defaults is not None
    assert (defaults["omit"], "congestion" in defaults) == ("PT2S", False)
    asked = THROUGHPUT.from_parley("throughput", {"dest": "b", "congestion": "bbr"}) or {}
    assert asked["congestion"] == "bbr"


def test_options_of_iperf3_are_passed_on() -> None:
    """Options that only iperf3 knows are set there, and zero is nothing special."""
    special = {
        "mss": 1400, "buffer-length": 8192, "no-delay": True, "zero-copy": True, "fq-rate": "10M",
        "ip-tos": 184, "flow-label": 5, "ip-version": 6,
    }  # fmt: skip
    ours = THROUGHPUT.to_parley({**SPEC, **special}, ["a", "b"])
    assert ours.spec.items() >= {
        "mss_bytes": 1400, "buffer_bytes": 8192, "no_delay": True, "zero_copy": True,
        "pacing_bps": 10_000_000, "tos": 184, "flow_label": 5,
    }.items()  # fmt: skip
    back = THROUGHPUT.from_parley("throughput", ours.spec)
    assert back is not None
    assert (back["schema"], back["fq-rate"], back["ip-tos"]) == (7, 10_000_000, 184)
    assert "tos" not in THROUGHPUT.to_parley({**SPEC, "ip-tos": 0}, ["a", "b"]).spec


def test_a_single_end_measures_a_server_that_is_no_node() -> None:
    """The server is a target at its port, and the test is told so on the way back."""
    asked = {**SPEC, "single-ended": True, "single-ended-port": 5202}
    ours = THROUGHPUT.to_parley(asked, ["a"])
    assert ours.spec.items() >= {"dest": "b", "single_ended": True, "port": 5202}.items()
    back = THROUGHPUT.from_parley("throughput", ours.spec)
    assert back is not None
    assert (back["single-ended"], back["single-ended-port"], back["schema"]) == (True, 5202, 2)
    assert "single-ended" not in (THROUGHPUT.from_parley("throughput", {"dest": "b"}) or {})


@pytest.mark.parametrize(
    ("member", "value"),
    [("burst-size", 5), ("loopback", True), ("omit", "P1D")],
)
def test_what_no_tool_does_is_refused(member: str, value: object) -> None:
    """A member that would be ignored is refused with a sentence."""
    with pytest.raises(Refusal, match=r"^throughput: ") as told:
        THROUGHPUT.to_parley({**SPEC, member: value}, ["a", "b"])
    assert told.value.status == 422


def test_figures_come_from_iperf3() -> None:
    """The intervals of each stream, the totals, and what the receiver has got."""
    result = THROUGHPUT.result(SPEC, measured("tcp", omit="PT1S"))
    check(result)
    assert [each["summary"]["omitted"] for each in result["intervals"]] == [True, False, False]
    total = result["summary"]["summary"]
    assert {"retransmits", "receiver-throughput-bits"} <= total.keys()
    text = THROUGHPUT.text(SPEC, result)
    assert text.startswith("* Stream ID ")
    assert text.splitlines()[-2].split("  ")[0] == "Interval"
    assert "Receiver Throughput" in text.splitlines()[-2]
    assert THROUGHPUT.html(SPEC, result) is None


def test_with_reverse_the_sender_is_the_server() -> None:
    """The server's intervals have retransmits and windows; the client has seen what arrived."""
    spec = {**SPEC, "reverse": True, "parallel": 2}
    result = THROUGHPUT.result(
        spec, measured("tcp-streams-reverse", omit="PT0S", streams=2, reverse=True)
    )
    check(result)
    assert len(result["summary"]["streams"]) == 2
    assert all("tcp-window-size" in each for each in result["intervals"][0]["streams"])
    for entry in (*result["summary"]["streams"], result["summary"]["summary"]):
        assert entry["receiver-throughput-bits"] > 0
    assert THROUGHPUT.text(spec, result).count("Summary") == 3


def test_datagrams_are_told() -> None:
    """With UDP, lost and sent packets and the jitter are told."""
    spec = {**SPEC, "udp": True}
    result = THROUGHPUT.result(spec, measured("udp", protocol="udp", omit="PT1S"))
    check(result)
    assert {"sent", "lost", "jitter"} <= result["summary"]["summary"].keys()
    assert "Lost / Sent" in THROUGHPUT.text(spec, result)
    assert "Jitter: " in THROUGHPUT.text(spec, result)


def test_newer_iperf3s_are_read() -> None:
    """The output of newer versions is read, too."""
    check(THROUGHPUT.result(SPEC, measured("tcp-streams", "iperf3-3.22", streams=2, omit="PT1S")))


def test_cut_output_leaves_one_stream() -> None:
    """If the output was cut, all streams together are one."""
    whole = measured("tcp", omit="PT1S")
    cut = [dataclasses.replace(part, output=(part.output or "")[:500]) for part in whole.parts]
    result = THROUGHPUT.result(SPEC, dataclasses.replace(whole, parts=cut))
    check(result)
    assert [each["stream-id"] for each in result["summary"]["streams"]] == ["SUM"]
    assert len(result["intervals"]) == 3


def test_a_failed_run_has_an_html_form() -> None:
    """Only a run that failed has one."""
    failed = THROUGHPUT.result(SPEC, Outcome("iperf3", None, "a: iperf3: unable to connect"))
    assert failed["error"] == "a: iperf3: unable to connect"
    assert THROUGHPUT.html(SPEC, failed) == "<p>Run failed.</p>"
