"""Throughput by iperf3: its command lines, and the recorded output of real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

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
    with pytest.raises(ToolOutputError, match="iperf3: Invalid JSON"):
        TOOL.read(context("throughput", CLIENT), cut)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bits_per_second", -1),
        ("bits_per_second", 1e300),
        ("seconds", "x"),
        ("bytes", -5),
        ("bytes", 2**70),
    ],
)
def test_impossible_figures_are_refused(field: str, value: object) -> None:
    """Negative, unlimited and textual figures are refused."""
    document = json.loads(output("iperf3", "tcp-client").stdout)
    document["end"]["sum_sent"][field] = value
    with pytest.raises(ToolOutputError, match=f"end.sum_sent.{field}"):
        TOOL.read(context("throughput", CLIENT), Output(0, json.dumps(document).encode(), b""))


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
