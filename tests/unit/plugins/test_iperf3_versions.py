"""Output of other versions of iperf3, alone and with another version at the other end.

Recorded in namespaces 10 ms apart (20 Mb/s, one packet of 200 lost): 3.12, 3.18 and 3.22 are of
Debian 12, 13 and unstable; versions in between were not available. ``tools/iperf3-3.18`` has both
ends of one version, ``tools/iperf3-3.12-3.18`` a client of the first and a server of the second.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.plugins.contracts import Merged, Output, Part
from node.plugins.tests.throughput import TEST
from node.plugins.tools.iperf3 import TOOL
from tests.golden.recorded import cases, output
from tests.unit.plugins.parts import context, spec

NEWER = ["3.18", "3.22"]
PAIRS = ["3.12-3.18", "3.12-3.22", "3.18-3.12", "3.22-3.12"]
UDP: dict[str, Any] = {"protocol": "udp", "rate_bps": 2_000_000}
CASES: dict[str, dict[str, Any]] = {
    "tcp": {},
    "tcp-streams-reverse": {"streams": 3, "reverse": True},
    "udp-reverse": UDP | {"reverse": True},
    "tcp-streams": {"streams": 3},
    "tcp-ipv6": {"ip_version": 6, "congestion": "reno", "duration": "PT1S", "omit": "PT0S"},
    "udp": UDP,
    "udp-streams": UDP | {"streams": 2},
}
SENTENCES = {
    "refused-client": "iperf3: unable to connect to server: Connection refused",
    "unanswered-client": "iperf3: unable to connect to server: Connection timed out",
    "unknown-host-client": "iperf3: unable to connect to server: Resource temporarily unavailable",
    "unknown-congestion-client": "iperf3: unable to set TCP_CONGESTION: "
    "Supplied congestion control algorithm not supported on this host",
    "unknown-congestion-server": "iperf3: the other end went away before anything was measured"
    " (exit code 0)",
    "terminated-client": "iperf3 had not finished at the end of the run",
    "terminated-server": "iperf3: the client has terminated",
    "ended-server": "iperf3 had not finished at the end of the run",
    "ended-server-client": "iperf3: the server has terminated",
    "terminated-without-client-server": "iperf3 had seen no client at the end of the run",
    "idle-timeout-server": "iperf3: no client came within 10 s",
    "address-not-local-server": "iperf3: unable to start listener for connections: "
    "Cannot assign requested address",
}


def fields_of(case: str) -> dict[str, Any]:
    """Return the spec of the recording."""
    return {"duration": "PT2S", "omit": "PT1S"} | CASES[case.removesuffix("-omit")]


def read(where: str, case: str, end: str, **fields: Any) -> dict[str, Any]:
    """Return the part read from a recorded output."""
    part = context("throughput", int(end == "server"), **fields)
    return TOOL.read(part, output(where, f"{case}-{end}"))


def merged(where: str, case: str) -> Merged:
    """Return a recorded run, both parts merged."""
    fields = fields_of(case)
    parts = [
        Part(0, "a", read(where, case, "client", **fields)),
        Part(1, "b", read(where, case, "server", **fields)),
    ]
    return TEST.merge(spec("throughput", **fields), parts)


def plausible(outcome: Merged, case: str) -> None:
    """Check that a result is possible for 2 s (or 1 s) over that path, and is complete."""
    fields = fields_of(case)
    assert outcome.reason is None
    result = outcome.result
    assert result is not None
    udp = fields.get("protocol") == "udp"
    offered_bps = 2_000_000 * fields.get("streams", 1) if udp else None
    assert offered_bps is None or result["rate_bps"] == pytest.approx(offered_bps, rel=0.03)
    assert 1_900_000 < result["rate_bps"] < 20_500_000
    seconds = 1 if case == "tcp-ipv6" else 2
    for way in ("sent", "received"):
        assert result[way]["duration_ms"] == pytest.approx(seconds * 1000, abs=60)
        rate_bps = result[way]["bytes"] * 8 / result[way]["duration_ms"] * 1000
        assert result[way]["rate_bps"] == pytest.approx(rate_bps, rel=0.001)
    assert (result["sent"]["retransmits"] is None) == udp
    assert (result["rtt_ms"] is None) == udp
    assert udp or 20 < result["rtt_ms"]["min"] < 40
    assert result["congestion"] == (None if udp else fields.get("congestion", "cubic"))
    assert (result["datagrams"] is None) != udp
    assert not udp or 340 <= result["datagrams"]["packets"] / fields.get("streams", 1) <= 351
    omitted = [interval["omitted"] for interval in result["intervals"]]
    assert omitted == ([False] if case == "tcp-ipv6" else [True, False, False])


@pytest.mark.parametrize("version", NEWER)
@pytest.mark.parametrize("case", CASES)
def test_newer_versions_are_read(case: str, version: str) -> None:
    """Newer versions give all figures that 3.12 gives."""
    plausible(merged(f"iperf3-{version}", case), case)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("case", ["tcp", "tcp-streams-reverse", "udp-reverse"])
def test_versions_measure_with_each_other(case: str, pair: str) -> None:
    """A client of one version and a server of another measure with each other."""
    plausible(merged(f"iperf3-{pair}", case), case)


@pytest.mark.parametrize("version", NEWER)
@pytest.mark.parametrize(("case", "sentence"), SENTENCES.items())
def test_newer_versions_say_why_they_failed(case: str, sentence: str, version: str) -> None:
    """Newer versions give the same reasons as 3.12, though 3.22 exits with 0 on TERM."""
    name, _, end = case.rpartition("-")
    with pytest.raises(ToolOutputError) as failure:
        read(f"iperf3-{version}", name, end)
    assert failure.value.detail == sentence


@pytest.mark.parametrize("version", NEWER)
def test_every_recording_is_read_here(version: str) -> None:
    """Every recording is used by a test here."""
    pairs = [f"{case}-{end}" for case in CASES for end in ("client", "server")]
    assert cases(f"iperf3-{version}") == sorted([*pairs, *SENTENCES])


def test_figures_of_a_sending_server_are_ignored() -> None:
    """Figures of a server that did not receive are ignored: 3.12 counts fewer packets than 0."""
    server = json.loads(output("iperf3", "udp-reverse-omit-server").stdout)
    assert server["end"]["sum_received"]["packets"] > 2**63
    plausible(merged("iperf3", "udp-reverse-omit"), "udp-reverse-omit")


def test_warnings_before_the_document() -> None:
    """Warnings before the document are ignored."""
    real = output("iperf3", "tcp-client")
    warned = Output(0, b"warning: this is {odd}\n" + real.stdout, b"")
    part = context("throughput", 0)
    assert TOOL.read(part, warned) == TOOL.read(part, real)
