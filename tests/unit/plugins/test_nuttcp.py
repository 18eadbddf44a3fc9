"""Throughput by nuttcp: its command lines, and the recorded output of real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.model.times import SECOND
from node.plugins.contracts import Merged, Output, Part, PartContext, Party
from node.plugins.tests.throughput import TEST
from node.plugins.tools.nuttcp import TOOL
from tests.golden.recorded import output
from tests.unit.plugins.parts import STARTS, context, spec

CLIENT, SERVER = 0, 1
HOST: dict[str, Any] = {"congestion": "host"}
UDP: dict[str, Any] = {"protocol": "udp", "rate_bps": 5_000_000}


def asked(part: PartContext) -> dict[str, Any]:
    """Return the arguments of the program that attends nuttcp."""
    told: dict[str, Any] = json.loads(TOOL.command(part).argv[-1])
    return told


def merged(case: str, **fields: Any) -> Merged:
    """Return a recorded run, both parts merged."""
    parts = []
    for at, end in ((CLIENT, "client"), (SERVER, "server")):
        printed = output("nuttcp", f"{case}-{end}")
        parts.append(Part(at, "ab"[at], TOOL.read(context("throughput", at, **fields), printed)))
    return TEST.merge(spec("throughput", **fields), parts)


def test_the_server_serves_one_client() -> None:
    """The server serves one client until shortly before the booked end, and no third party."""
    params = asked(context("throughput", SERVER, **HOST))
    assert " ".join(params["argv"]) == "nuttcp -1 -4 -P 5301 --nofork --no3rdparty"
    assert (params["at_ns"], params["flow"]) == (STARTS * 1000, None)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        (HOST, "-T 12 -i 1 -l 8192"),
        (HOST | {"duration": "PT1S"}, "-T 1 -i 0.5 -l 8192"),
        (
            HOST | {"rate_bps": 2_000_000, "window_bytes": 65_536},
            "-T 12 -i 1 -l 8192 -R 2000k -w64 -ws64",
        ),
        (HOST | {"reverse": True}, "-T 12 -i 1 -l 8192 -r -F"),
        (HOST | {"streams": 3}, "-T 12 -i 1 -N 3 -l 8192"),
        (HOST | {"streams": 3, "rate_bps": 2_000_000}, "-T 12 -i 1 -N 3 -l 8192 -R 6000k"),
        ({"protocol": "udp", "omit": "PT0S"}, "-T 10 -i 1 -u -l 1400 -R 1000k"),
    ],
)
def test_options_of_the_client(fields: dict[str, Any], options: str) -> None:
    """Every field of the spec reaches the client's command line; the data has a port of its own."""
    params = asked(context("throughput", CLIENT, **fields))
    shared = "nuttcp -4 -P 5301 -p 5302 -fparse"
    assert " ".join(params["argv"]) == f"{shared} {options} 192.0.2.2"
    assert params["at_ns"] == (STARTS + SECOND) * 1000


def test_the_sender_is_watched() -> None:
    """The congestion control is read at the sending end, and only for TCP."""
    flows = [
        asked(context("throughput", at, **HOST, reverse=reverse))["flow"]
        for reverse in (False, True)
        for at in (CLIENT, SERVER)
    ]
    assert flows == [{"port": 5302, "own": False}, None, None, {"port": 5302, "own": True}]
    assert asked(context("throughput", CLIENT, **UDP))["flow"] is None


def test_udp_in_reverse_goes_to_a_port_of_the_client() -> None:
    """The data comes unsolicited, so the client's node assigns a port for it."""
    parties = (Party("a", "192.0.2.1", {"port": 6001}), Party("b", "2001:db8::2", {"port": 7001}))
    task_spec = spec("throughput", **UDP, reverse=True)
    argv = asked(PartContext(task_spec, CLIENT, parties, 0, 1))["argv"]
    assert argv[:6] == ["nuttcp", "-6", "-P", "7001", "-p", "6001"]
    assert [TOOL.needs_port(task_spec, at) for at in (CLIENT, SERVER)] == [1, 2]
    assert not TOOL.needs_port(spec("throughput", **HOST, reverse=True), CLIENT)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {},
            "nuttcp cannot choose cubic, only the host's own congestion control: --congestion host",
        ),
        (UDP | {"streams": 2}, "nuttcp counts the datagrams of a single stream only"),
        ({"rate_bps": 1500}, "nuttcp supports rates in whole kb/s only"),
        ({"window_bytes": 1500}, "nuttcp supports windows in whole KiB only"),
    ],
)
def test_unsupported_specs(fields: dict[str, Any], reason: str) -> None:
    """Unsupported specs are refused with the reason; UDP has no congestion control to choose."""
    task_fields = HOST | fields if fields else fields
    assert TOOL.can(spec("throughput", **task_fields)) == reason
    assert TOOL.can(spec("throughput", **HOST)) is None
    assert TOOL.can(spec("throughput", **UDP)) is None


def test_tcp() -> None:
    """The first second is omitted; the congestion control is the one that the kernel used."""
    result = merged("tcp", duration="PT3S", omit="PT1S", **HOST).result
    assert result is not None
    assert result["congestion"] == "bbr"
    assert 18e6 < result["rate_bps"] < 19.4e6  # 20 Mb/s minus the headers
    assert 3000 <= result["received"]["duration_ms"] < 3200
    assert [interval["omitted"] for interval in result["intervals"]] == [True, False, False]
    assert TEST.summary(result).endswith("(bbr)")


def test_retransmissions_are_not_believed() -> None:
    """The printed count of 0, on a path that lost 66 packets, is ignored."""
    assert b"retrans=0" in output("nuttcp", "tcp-client").stdout
    result = merged("tcp", duration="PT3S", omit="PT1S", **HOST).result
    assert result is not None
    assert result["sent"]["retransmits"] is None
    assert "retransmits" not in {metric.name for metric in TEST.metrics(result)}


def test_tcp_in_reverse() -> None:
    """The server sends, and reports the congestion control."""
    fields = HOST | {"duration": "PT2S", "reverse": True, "ip_version": 6}
    result = merged("tcp-reverse-ipv6", **fields).result
    assert result is not None
    assert result["congestion"] == "bbr"
    assert 18e6 < result["rate_bps"] < 19.4e6


def test_each_stream_has_a_port_of_the_server() -> None:
    """The ports follow the server's own; each stream takes another round trip to open."""
    task_spec = spec("throughput", **HOST, streams=3)
    assert [TOOL.needs_port(task_spec, at) for at in (CLIENT, SERVER)] == [0, 4]
    assert TOOL.duration(task_spec) - TOOL.duration(spec("throughput", **HOST)) == 800_000


@pytest.mark.parametrize(
    ("case", "fields", "rate_bps"),
    [
        ("tcp-streams", {}, (18e6, 20e6)),
        ("tcp-streams-reverse", {"reverse": True}, (18e6, 20e6)),
        ("tcp-streams-rate", {"rate_bps": 2_000_000}, (5.8e6, 6.1e6)),
    ],
)
def test_several_streams(case: str, fields: dict[str, Any], rate_bps: tuple[float, float]) -> None:
    """The result is that of all streams; the rate is per stream."""
    result = merged(case, duration="PT2S", omit="PT1S", streams=3, **HOST, **fields).result
    assert result is not None
    assert rate_bps[0] < result["rate_bps"] < rate_bps[1]
    assert (result["streams"], result["congestion"]) == (3, "bbr")
    assert [interval["omitted"] for interval in result["intervals"]][:2] == [True, False]


def test_a_single_second() -> None:
    """Even the shortest run has intervals."""
    result = merged("tcp-second", duration="PT1S", rate_bps=2_000_000, **HOST).result
    assert result is not None
    assert 1.9e6 < result["rate_bps"] < 2.1e6
    assert len(result["intervals"]) >= 1


@pytest.mark.parametrize(
    ("case", "fields"), [("udp", {"omit": "PT1S"}), ("udp-reverse", {"reverse": True})]
)
def test_udp(case: str, fields: dict[str, Any]) -> None:
    """Loss is that counted by the receiver; jitter and order are unknown."""
    result = merged(case, duration="PT2S", **UDP, **fields).result
    assert result is not None
    datagrams = result["datagrams"]
    assert 880 <= datagrams["packets"] <= 900
    assert 0.04 < datagrams["loss"] < 0.06
    assert (datagrams["jitter_ms"], datagrams["out_of_order"]) == (None, None)
    assert result["congestion"] is None
    assert result["sent"]["rate_bps"] == pytest.approx(5e6, rel=0.01)
    assert TEST.summary(result).startswith("4.7")
    assert {metric.name for metric in TEST.metrics(result)} == {"throughput_bps", "loss"}


def test_a_servers_traffic_is_unknown() -> None:
    """A server prints no figures, so its part has none."""
    part = TOOL.read(context("throughput", SERVER, **HOST), output("nuttcp", "tcp-server"))
    assert TEST.moved(spec("throughput", **HOST), SERVER, part) is None


def test_sums_that_did_not_come_are_missed() -> None:
    """A client whose server was terminated before reporting the sums is refused."""
    part = context("throughput", CLIENT, protocol="udp", duration="PT3S", omit="PT1S")
    with pytest.raises(ToolOutputError, match=r"^nuttcp: its server did not report the sums"):
        TOOL.read(part, output("nuttcp", "udp-sums-lost-client"))


def changed(old: str, new: str) -> Output:
    """Return the recorded client's output with a change."""
    real = output("nuttcp", "tcp-client")
    return Output(0, real.stdout.decode().replace(old, new).encode(), b"")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("real_seconds", "x", "nuttcp: it printed no figures"),
        ("megabytes=2.", "megabytes=92.", "nuttcp's seconds exceed the whole"),
        ("real_sec=", "x=", "nuttcp reports 0 seconds, fewer than are omitted"),
        ('"bbr"', "null", "nuttcp: its connection was not seen"),
        ("\x1e", "", "nuttcp: there is no report of how it ended"),
    ],
)
def test_impossible_output_is_refused(old: str, new: str, sentence: str) -> None:
    """Output that contradicts itself, or lacks a necessary figure, is refused."""
    part = context("throughput", CLIENT, duration="PT3S", omit="PT1S", **HOST)
    with pytest.raises(ToolOutputError, match=sentence):
        TOOL.read(part, changed(old, new))


@pytest.mark.parametrize(
    ("case", "participant", "sentence"),
    [
        ("refused-client", CLIENT, "nuttcp: connect failed: Connection refused"),
        ("no-network-client", CLIENT, "nuttcp: connect failed: Network is unreachable"),
        ("terminated-client", CLIENT, "nuttcp had not finished at the end of the run"),
        ("no-client-server", SERVER, "nuttcp: no client connected"),
        (
            "port-taken-server",
            SERVER,
            "nuttcp: it did not start: its port may be taken (exit code 1)",
        ),
    ],
)
def test_failures_say_their_cause(case: str, participant: int, sentence: str) -> None:
    """A failed nuttcp is not a result; its obsolete mode is not given as the reason."""
    with pytest.raises(ToolOutputError) as failure:
        TOOL.read(context("throughput", participant, **HOST), output("nuttcp", case))
    assert failure.value.detail == sentence
