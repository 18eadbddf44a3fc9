"""Throughput by iperf3: its command lines, and the recorded output of real ones."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from node.model.attempts import passing_reason
from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.contracts import Merged, Output, Part, PartContext, Party
from node.plugins.tests.throughput import TEST, ThroughputSpec
from node.plugins.tools.iperf3 import TOOL
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, spec

CLIENT, SERVER = 0, 1
SHORT = {"duration": "PT2S"}


def read(case: str, participant: int, **fields: Any) -> dict[str, Any]:
    """Return the part read from a recorded case."""
    return TOOL.read(context("throughput", participant, **fields), output("iperf3", case))


def merged(case: str, **fields: Any) -> Merged:
    """Return a recorded run, both parts merged."""
    parts = [
        Part(CLIENT, "a", read(f"{case}-client", CLIENT, **fields)),
        Part(SERVER, "b", read(f"{case}-server", SERVER, **fields)),
    ]
    return TEST.merge(spec("throughput", **fields), parts)


def failed(case: str, participant: int, **fields: Any) -> str:
    """Return the reason with which a recorded case is refused."""
    with pytest.raises(ToolOutputError) as failure:
        read(case, participant, **fields)
    return failure.value.detail


def test_the_server_starts_first() -> None:
    """The server starts at the agreed instant, serves one client and gives up without one."""
    command = TOOL.command(context("throughput", SERVER))
    assert " ".join(command.argv) == ("iperf3 -s -1 -J -p 5301 -i 1 -B 192.0.2.2 --idle-timeout 10")
    assert command.delay == 0


def test_the_client_follows() -> None:
    """The client starts a second later and always sets its congestion control."""
    command = TOOL.command(context("throughput", CLIENT))
    assert " ".join(command.argv) == (
        "iperf3 -c 192.0.2.2 -J -p 5301 -i 1 -B 192.0.2.1 -t 10 -O 2 -P 1"
        " --connect-timeout 2000 -C cubic"
    )
    assert command.delay == SECOND


ALONE = {"single_ended": True, "duration": "PT1S", "omit": "PT0S"}


def test_a_server_that_is_no_node_gets_a_client_alone() -> None:
    """The client starts at the agreed instant, at the server's port, and at no other."""
    command = TOOL.command(context("throughput", CLIENT, **ALONE))
    assert " ".join(command.argv) == (
        "iperf3 -c 192.0.2.2 -J -p 5201 -i 1 -t 1 -O 0 -P 1 --connect-timeout 2000 -C cubic"
    )
    assert command.delay == 0
    elsewhere = TOOL.command(context("throughput", CLIENT, **ALONE, port=5, reverse=True))
    assert elsewhere.argv[4:6] == ("-p", "5")
    assert elsewhere.argv[-1] == "-R"


def test_what_a_server_that_is_no_node_says_is_told() -> None:
    """A busy server may be free later; one with passwords is told, and what may be no server."""
    busy = failed("busy-client", CLIENT, **ALONE)
    assert busy == "the server at b.example port 5201 is busy with another client"
    assert passing_reason([busy]) == busy
    locked = failed("unauthorised-client", CLIENT, **ALONE, port=5398)
    assert locked.startswith("iperf3: the server at b.example port 5398 wants a user and a passwo")
    assert passing_reason([locked, failed("refused-client", CLIENT, **ALONE)]) is None
    assert "may be no server of iperf3" in failed("refused-client", CLIENT, **ALONE)
    interrupted = failed("unanswered-client", CLIENT, **ALONE)
    assert "may be no server of iperf3" in interrupted


def test_a_client_alone_gives_the_result() -> None:
    """The client's part is enough; a part of the server is not waited for."""
    part = Part(CLIENT, "a", read("tcp-client", CLIENT, single_ended=True, **SHORT))
    alone = TEST.merge(spec("throughput", single_ended=True, **SHORT), [part])
    assert alone.reason is None
    assert alone.result is not None
    assert alone.result["received"]["bytes"] > 0
    assert alone.result["cpu"]["dest"] is None


def test_only_a_server_that_is_no_node_is_a_target() -> None:
    """It takes no part, and its port is that of the target; a node assigns its own port."""
    known = spec("throughput", source="a", **ALONE)
    assert TEST.participants(known) == ("a",)
    assert TEST.hosts(known) == ("a", "b.example")
    assert (TEST.target_port(known), TEST.target_port(spec("throughput"))) == (5201, None)
    assert TEST.with_participants(spec("throughput", **ALONE), ["a"]).source == "a"
    with pytest.raises(ValidationError, match="a node assigns its port itself"):
        spec("throughput", port=5201)
    with pytest.raises(ValidationError, match="single_ended needs dest"):
        ThroughputSpec(single_ended=True)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"protocol": "udp"}, "-u -b 1000000"),
        ({"protocol": "udp", "rate_bps": 5_000_000, "reverse": True}, "-u -b 5000000 -R"),
        ({"rate_bps": 2_000_000, "window_bytes": 65_536}, "-C cubic -b 2000000 -w 65536"),
        ({"congestion": "bbr", "ip_version": 6}, "-C bbr -6"),
        (
            {"mss_bytes": 1400, "buffer_bytes": 8192, "tos": 184, "no_delay": True},
            "-C cubic -M 1400 -l 8192 -S 184 -N",
        ),
        (
            {"ip_version": 6, "flow_label": 5, "pacing_bps": 9_000, "zero_copy": True},
            "-C cubic -6 --fq-rate 9000 -L 5 -Z",
        ),
    ],
)
def test_options_of_the_client(fields: dict[str, Any], options: str) -> None:
    """Every field of the spec reaches the client's command line."""
    argv = " ".join(TOOL.command(context("throughput", CLIENT, **fields)).argv)
    assert argv.partition("--connect-timeout 2000 ")[2] == options


def test_a_name_is_not_bound_to() -> None:
    """Only addresses are bound to, because a name may resolve differently on its own host."""
    part = PartContext(
        spec("throughput"), SERVER, (Party("a", "a"), Party("b", "b", {"port": 5301})), 0, 1
    )
    assert "-B" not in TOOL.command(part).argv


def test_long_courses_are_thinned() -> None:
    """A long run of many streams reports less often, so that its output stays readable."""
    argv = TOOL.command(context("throughput", CLIENT, duration="PT1H", streams=64)).argv
    assert argv[argv.index("-i") + 1] == "24"


@pytest.mark.parametrize(
    ("duration", "omitted"),
    [("PT1S", 0), ("PT4S", 0), ("PT5S", 1), ("PT9S", 1), ("PT10S", 2), ("PT1H", 2)],
)
def test_the_default_of_omit(duration: str, omitted: int) -> None:
    """The omitted time is a fifth of the duration, in whole seconds, at most two."""
    assert ThroughputSpec.model_validate({"duration": duration}).omitted == omitted * SECOND


def test_the_booked_time() -> None:
    """The booked time covers the client's delay, its exchange, its traffic and the wrap-up."""
    assert TOOL.duration(spec("throughput")) == 12 * SECOND + 4_250_000
    assert TOOL.duration(spec("throughput", streams=8, omit="PT0S")) == 10 * SECOND + 6 * SECOND
    assert [TOOL.needs_port(spec("throughput"), participant) for participant in (0, 1)] == [
        False,
        True,
    ]


def test_tcp() -> None:
    """The sent figure is the client's, the received figure the server's."""
    result = merged("tcp", **SHORT, omit="PT1S").result
    assert result is not None
    assert result["sent"]["rate_bps"] == 5_473_820
    assert result["sent"]["retransmits"] == 11
    assert result["received"]["bytes"] == 1_220_664
    assert result["rate_bps"] == 4_833_406
    assert result["congestion"] == "cubic"
    assert result["rtt_ms"] == {"min": 20.203, "mean": 20.937, "max": 22.292}
    assert [interval["omitted"] for interval in result["intervals"]] == [True, False, False]
    assert TEST.summary(result) == "4.83 Mb/s, 11 retransmits (cubic)"
    assert [(it.name, it.value, it.unit) for it in TEST.metrics(result)] == [
        ("throughput_bps", 4_833_406, "bit/s"),
        ("retransmits", 11, "segments"),
        ("tcp_rtt_mean_ms", 20.937, "ms"),
    ]


def test_tcp_in_reverse() -> None:
    """In reverse the server sends, and its round-trip times are shown."""
    result = merged("tcp-streams-reverse", **SHORT, streams=2, reverse=True).result
    assert result is not None
    assert result["sent"]["retransmits"] == 1233
    assert result["received"]["bytes"] == 113_080_112
    assert result["rtt_ms"]["min"] == 21.981
    assert TEST.summary(result) == "452 Mb/s, 1233 retransmits (cubic)"


def test_ipv6_and_another_congestion_control() -> None:
    """The result has the congestion control that was actually used."""
    result = merged("tcp-ipv6", duration="PT1S", ip_version=6, congestion="reno").result
    assert result is not None
    assert result["congestion"] == "reno"


def test_udp() -> None:
    """UDP has loss and jitter as its receiver counted them, and no congestion control."""
    result = merged("udp", **SHORT, protocol="udp", rate_bps=2_000_000).result
    assert result is not None
    assert result["datagrams"] == {
        "packets": 349,
        "lost": 3,
        "loss": 0.008596,
        "jitter_ms": 0.3638,
        "out_of_order": 0,
    }
    assert result["congestion"] is None
    assert TEST.summary(result) == "1.98 Mb/s, loss 0.86 %, jitter 0.36 ms"


def test_udp_in_reverse() -> None:
    """UDP in reverse is received, and so counted, by the client."""
    result = merged("udp-reverse", **SHORT, protocol="udp", reverse=True).result
    assert result is not None
    assert (result["datagrams"]["packets"], result["datagrams"]["lost"]) == (346, 0)
    assert result["received"]["bytes"] == 501_008


def test_the_client_alone_is_a_partial_result() -> None:
    """Without the server's part the run has failed, but the client's figures are kept."""
    client = Part(CLIENT, "a", read("tcp-client", CLIENT))
    outcome = TEST.merge(spec("throughput"), [client, Part(SERVER, "b", None, "no answer")])
    assert outcome.reason == "b: no answer"
    assert outcome.result is not None
    assert outcome.result["rate_bps"] == 4_833_406


def test_the_server_alone_is_no_result() -> None:
    """Without the client's part there is no result, and its reason comes first."""
    server = Part(SERVER, "b", read("tcp-server", SERVER))
    outcome = TEST.merge(spec("throughput"), [Part(CLIENT, "a", None, "died"), server])
    assert outcome == Merged(None, "a: died")


def test_a_client_without_received_figures_fails() -> None:
    """If neither end reports what was received, the run has failed with that reason."""
    deaf = read("tcp-client", CLIENT) | {"received": None}
    silent = read("tcp-server", SERVER) | {"received": None}
    outcome = TEST.merge(spec("throughput"), [Part(0, "a", deaf), Part(1, "b", silent)])
    assert outcome == Merged(None, "neither end reports what was received")


@pytest.mark.parametrize(
    ("case", "participant", "sentence"),
    [
        ("refused-client", CLIENT, "iperf3: unable to connect to server: Connection refused"),
        ("unanswered-client", CLIENT, "iperf3: unable to connect to server: Connection timed out"),
        (
            "unknown-host-client",
            CLIENT,
            "iperf3: unable to connect to server: Resource temporarily unavailable",
        ),
        (
            "unknown-congestion-client",
            CLIENT,
            (
                "iperf3: unable to set TCP_CONGESTION: "
                "Supplied congestion control algorithm not supported on this host"
            ),
        ),
        (
            "unknown-congestion-server",
            SERVER,
            "iperf3: the other end went away before anything was measured (exit code 0)",
        ),
        ("terminated-client", CLIENT, "iperf3 had not finished at the end of the run"),
        ("terminated-server", SERVER, "iperf3: the client has terminated"),
        (
            "terminated-without-client-server",
            SERVER,
            "iperf3 had seen no client at the end of the run",
        ),
        ("idle-timeout-server", SERVER, "iperf3: no client came within 10 s"),
        (
            "address-not-local-server",
            SERVER,
            "iperf3: unable to start listener for connections: Cannot assign requested address",
        ),
    ],
)
def test_failures_say_their_cause(case: str, participant: int, sentence: str) -> None:
    """A failed iperf3 is no result, whatever its exit code, and its own reason comes first."""
    assert failed(case, participant) == sentence


@pytest.mark.parametrize(
    ("case", "participant", "sentence"),
    [
        ("udp-hello-lost-client", CLIENT, "sent only once, was not answered"),
        ("udp-hello-lost-server", SERVER, "sent only once, did not arrive"),
        ("terminated-client", CLIENT, "iperf3 had not finished at the end of the run"),
        ("terminated-without-client-server", SERVER, "iperf3 had seen no client"),
    ],
)
def test_a_udp_stream_that_did_not_open(case: str, participant: int, sentence: str) -> None:
    """A stream opens with one datagram each way; a run that lost one of them says so."""
    with pytest.raises(ToolOutputError, match=sentence):
        read(case, participant, protocol="udp", duration="PT2S")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_truncated_output_is_refused(share: float) -> None:
    """Half a JSON document is no result."""
    whole = output("iperf3", "tcp-client").stdout
    cut = Output(0, whole[: int(len(whole) * share)], b"")
    with pytest.raises(
        ToolOutputError, match=r"iperf3: its output ends in the middle \(\d+ bytes\)"
    ):
        TOOL.read(context("throughput", CLIENT), cut)


def changed(case: str, *path: str | int, value: object) -> Output:
    """Return a recorded document with another value at one place."""
    document = json.loads(output("iperf3", case).stdout)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return Output(0, json.dumps(document).encode(), b"")


@pytest.mark.parametrize(
    ("field", "value", "note"),
    [
        ("bits_per_second", -1, "sent bits_per_second is left out: -1 is below 0"),
        ("bits_per_second", 1e300, "sent bits_per_second is left out: 1e+300 is more than 1e+15"),
        (
            "bits_per_second",
            9e12,
            "sent is left out: 1368360 bytes in 1999.86 ms are not 9e+12 b/s",
        ),
        ("seconds", "x", "sent seconds is left out: x is no number"),
        ("seconds", 2**64 / 1e5, "sent seconds is left out: 184467440737095.53 is more than 1e+09"),
        ("seconds", math.nan, "sent seconds is left out: nan is no number"),
        ("bytes", -5, "sent bytes is left out: -5 is below 0"),
        ("bytes", 2**70, "sent bytes is left out: 1180591620717411303424 is more than 9.22337e+18"),
        ("retransmits", -1, "sent retransmits is left out: -1 is below 0"),
        ("retransmits", 2**32 - 1, "retransmits is left out: 4294967295 is more than 39010"),
    ],
)
def test_impossible_figures_are_left_out_and_named(field: str, value: object, note: str) -> None:
    """A figure that cannot be is dropped, and all others are kept."""
    printed = changed("tcp-client", "end", "sum_sent", field, value=value)
    part = TOOL.read(context("throughput", CLIENT, **SHORT), printed)
    assert part["notes"] == [note]
    assert part["received"]["bytes"] == 1_220_664
    sent = part["sent"]
    assert sent is None or sent["rate_bps"] == pytest.approx(5_473_820, rel=0.01)


@pytest.mark.parametrize("key", ["start", "end"])
def test_an_interval_of_millions_of_years_is_left_out(key: str) -> None:
    """A time that no result can hold costs its interval, not the run."""
    printed = changed("tcp-client", "intervals", 0, "sum", key, value=2**64 / 1e5)
    part = TOOL.read(context("throughput", CLIENT, **SHORT), printed)
    whole = TOOL.read(context("throughput", CLIENT, **SHORT), output("iperf3", "tcp-client"))
    assert len(part["intervals"]) == len(whole["intervals"]) - 1
    assert part["received"] == whole["received"]


def test_a_figure_that_others_contradict_is_not_derived() -> None:
    """A missing figure is computed from the others only if it can be true."""
    for figures in (
        {"bits_per_second": 1e15, "seconds": 1e9},
        {"bytes": 2**62, "seconds": 5e-324},
        {"bytes": 2**62, "bits_per_second": 5e-324},
    ):
        printed = changed("tcp-client", "end", "sum_sent", value=figures)
        assert TOOL.read(context("throughput", CLIENT, **SHORT), printed)["sent"] is None


def test_an_unknown_counter_is_null() -> None:
    """A null counter is unknown, without a word, and an odd interval costs only itself."""
    part = TOOL.read(
        context("throughput", CLIENT, **SHORT),
        changed("tcp-client", "end", "sum_sent", "retransmits", value=None),
    )
    assert (part["sent"]["retransmits"], part["sent"]["rate_bps"]) == (None, 5_473_820)
    assert "notes" not in part
    odd = TOOL.read(
        context("throughput", CLIENT, **SHORT),
        changed("tcp-client", "intervals", 1, "sum", value=None),
    )
    assert len(odd["intervals"]) == 2
    assert odd["notes"] == ["an interval is left out: its time or rate is not known"]


def test_text_behind_the_document_is_the_cause() -> None:
    """Text behind the sums says why the run failed, and the sums are kept."""
    whole = output("iperf3", "tcp-client").stdout
    printed = Output(1, whole + b"iperf3: error - unable to send control message: Broken pipe", b"")
    with pytest.raises(ToolOutputError) as failure:
        TOOL.read(context("throughput", CLIENT), printed)
    assert failure.value.detail == "iperf3: unable to send control message: Broken pipe"
    assert failure.value.result is not None
    assert failure.value.result["received"]["rate_bps"] == 4_833_406


def test_a_run_that_was_cut_keeps_what_each_end_counted() -> None:
    """Ended at the end of its time, the client keeps what it sent, and nothing of the server."""
    with pytest.raises(ToolOutputError) as failure:
        read("terminated-client", CLIENT)
    assert failure.value.result is not None
    assert failure.value.result["sent"]["bytes"] == 2_749_752
    assert failure.value.result["received"] is None


UDP: dict[str, Any] = {"protocol": "udp", "rate_bps": 2_000_000, "omit": "PT0S", **SHORT}


def udp(**received: object) -> Merged:
    """Return a run over UDP whose receiver counted something else, as its client tells it."""
    document = json.loads(output("iperf3", "udp-client").stdout)
    document["end"]["sum_received"] |= received
    part = TOOL.read(
        context("throughput", CLIENT, **UDP), Output(0, json.dumps(document).encode(), b"")
    )
    return TEST.merge(spec("throughput", **UDP), [Part(CLIENT, "a", part)])


def loss_of(merged: Merged) -> tuple[int, int, float]:
    """Return packets, lost packets and loss of a result."""
    assert merged.result is not None
    assert merged.result["datagrams"] is not None
    return tuple(merged.result["datagrams"][key] for key in ("packets", "lost", "loss"))


def test_nothing_that_arrived_is_total_loss() -> None:
    """The receiver counts no packet and no loss where nothing came; all that was sent is lost."""
    nothing = udp(bytes=0, bits_per_second=0, packets=0, lost_packets=0)
    assert loss_of(nothing) == (345, 345, 1)
    assert nothing.result is not None
    assert TEST.summary(nothing.result) == "nothing arrived, loss 100 %"


def test_what_was_to_come_after_the_last_packet_is_lost() -> None:
    """A path that dies after a third of the run has lost two thirds, of which no gap tells."""
    died = udp(bytes=166_520, bits_per_second=658_534, packets=115, lost_packets=0)
    assert loss_of(died) == (345, 230, 0.666667)


def test_counts_that_cannot_be_give_way_to_the_bytes() -> None:
    """More lost than there were: the loss is that of the bytes, and says so."""
    odd = udp(packets=100, lost_packets=137)
    assert loss_of(odd)[2] == 0
    assert odd.result is not None
    assert odd.result["notes"] == ["the count of 137 lost of 100 packets is left out"]
    assert loss_of(udp(packets=345, lost_packets=-4)) == (345, 0, 0)


def test_jitter_of_a_week_is_left_out() -> None:
    """Packets cannot vary by more than the run lasts."""
    merged = udp(jitter_ms=611_273_000.0)
    assert merged.result is not None
    assert merged.result["datagrams"]["jitter_ms"] is None
    assert merged.result["notes"] == ["jitter is left out: 611273000.0 is more than 62000"]


def test_an_old_version_is_named() -> None:
    """Versions before 3.11 print one sum of UDP, which does not tell what arrived."""
    document = json.loads(output("iperf3", "udp-client").stdout)
    document["start"]["version"] = "iperf 3.9"
    del document["end"]["sum_sent"], document["end"]["sum_received"]
    with pytest.raises(ToolOutputError, match=r"this is iperf 3\.9, older than 3\.11"):
        TOOL.read(
            context("throughput", CLIENT, **UDP), Output(0, json.dumps(document).encode(), b"")
        )


def test_a_connection_without_a_byte_has_failed() -> None:
    """A connection that opened and brought nothing is a failure: long packets may vanish."""
    nothing = changed("tcp-client", "end", "sum_received", "bytes", value=0)
    document = json.loads(nothing.stdout)
    document["end"]["sum_received"]["bits_per_second"] = 0
    printed = Output(0, json.dumps(document).encode(), b"")
    part = TOOL.read(context("throughput", CLIENT), printed)
    merged = TEST.merge(spec("throughput"), [Part(CLIENT, "a", part)])
    assert merged.result is not None
    assert merged.reason is not None
    assert "not a byte arrived, though the connection opened" in merged.reason


def test_a_silent_failure_is_refused() -> None:
    """An exit code other than zero is a failure, even with a good document."""
    good = output("iperf3", "tcp-client").stdout
    with pytest.raises(ToolOutputError, match="exit code 3"):
        TOOL.read(context("throughput", CLIENT), Output(3, good, b""))


@pytest.mark.parametrize(
    "wrong",
    [
        {"duration": "PT1.5S"},
        {"duration": "PT0S"},
        {"omit": "PT0.5S"},
        {"omit": "PT2M"},
        {"streams": 0},
        {"protocol": "sctp"},
        {"congestion": "cubic; rm -rf"},
        {"congestion": "-R"},
        {"reverse": "yes"},
        {"rate_bps": 0},
        {"window_bytes": 1},
        {"source": "b", "dest": "b"},
    ],
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Specs that iperf3 cannot run, or would mistake for an option, are refused."""
    with pytest.raises(ValidationError):
        ThroughputSpec.model_validate({"dest": "b"} | wrong)
