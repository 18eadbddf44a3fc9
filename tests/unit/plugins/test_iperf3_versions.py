"""Documents of newer versions of iperf3.

Only 3.12 was at hand to be recorded. The others are derived here from its recorded documents, by
what the release notes of 3.13 to 3.20 say of the JSON; real ones may
differ in what these leave out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.plugins.contracts import Output
from node.plugins.tools.iperf3 import TOOL
from tests.golden.recorded import output
from tests.unit.plugins.parts import context

CASES = [
    ("tcp-client", 0, {}),
    ("tcp-server", 1, {}),
    ("tcp-streams-reverse-client", 0, {"streams": 2, "reverse": True}),
    ("tcp-streams-reverse-server", 1, {"streams": 2, "reverse": True}),
    ("udp-client", 0, {"protocol": "udp"}),
    ("udp-server", 1, {"protocol": "udp"}),
]


def to_3_13(document: dict[str, Any]) -> None:
    """Pacing and both directions at once are told of the test."""
    document["start"].get("test_start", {}).update(bidir=0, fqrate=0)


def to_3_17(document: dict[str, Any]) -> None:
    """The interval is told of the test."""
    document["start"].get("test_start", {}).update(interval=1)


def to_3_20(document: dict[str, Any]) -> None:
    """Time stamps have milliseconds, senders' streams the reordering that TCP saw."""
    stamp = document["start"].get("timestamp", {})
    stamp["timemillisecs"] = stamp.get("timesecs", 0) * 1000 + 17
    for stream in document["end"].get("streams", []):
        if "sender" in stream:
            stream["sender"]["reorder"] = 3
    for interval in document["intervals"]:
        for stream in interval["streams"]:
            stream["reorder"] = 3


STEPS: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("3.13", to_3_13),
    ("3.17", to_3_17),
    ("3.20", to_3_20),
]


def newer(case: str, version: str) -> dict[str, Any]:
    """A recorded document as that version would print it, as far as its release notes tell."""
    document: dict[str, Any] = json.loads(output("iperf3", case).stdout)
    document["start"]["version"] = f"iperf {version}"
    for since, step in STEPS:
        if since <= version:
            step(document)
    return document


@pytest.mark.parametrize(
    "version", ["3.13", "3.14", "3.15", "3.16", "3.17", "3.18", "3.19", "3.20"]
)
@pytest.mark.parametrize(("case", "participant", "fields"), CASES)
def test_newer_versions_say_the_same(
    case: str, participant: int, fields: dict[str, Any], version: str
) -> None:
    """What they add is passed over, and what is read is the same."""
    part = context("throughput", participant, **fields)
    text = json.dumps(newer(case, version), indent="\t")
    printed = Output(0, text.encode(), b"")
    assert TOOL.read(part, printed) == TOOL.read(part, output("iperf3", case))


def test_signed_rubbish_of_a_receiving_server() -> None:
    """Since 3.14 numbers are signed; what a server has not sent is not read."""
    document = newer("udp-server", "3.14")
    document["end"].setdefault("sum_sent", {}).update(bytes=-1448, packets=-4)
    part = context("throughput", 1, protocol="udp")
    printed = Output(0, json.dumps(document).encode(), b"")
    assert TOOL.read(part, printed) == TOOL.read(part, output("iperf3", "udp-server"))


def test_ended_with_exit_code_0() -> None:
    """Since 3.19 being told to end is no failure to iperf3, but it is to the run."""
    ended = output("iperf3", "terminated-client")
    printed = Output(0, ended.stdout, b"", "end")
    with pytest.raises(ToolOutputError) as failure:
        TOOL.read(context("throughput", 0), printed)
    assert failure.value.detail == "iperf3 had not finished at the end of the run"


def test_warnings_before_the_document() -> None:
    """What stands before the document is passed over."""
    real = output("iperf3", "tcp-client")
    warned = Output(0, b"warning: this is {odd}\n" + real.stdout, b"")
    part = context("throughput", 0)
    assert TOOL.read(part, warned) == TOOL.read(part, real)
