"""Latency by irtt: its command lines, and the recorded output of real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.model.times import MILLISECOND, SECOND
from node.plugins.contracts import Merged, Output, Part, PartContext, Party
from node.plugins.tests.latency import TEST
from node.plugins.tools.irtt import TOOL
from tests.golden.recorded import output
from tests.unit.plugins.parts import STARTS, context, spec

SOURCE, DEST = 0, 1
SHORT = {"interval": "PT0.01S", "timeout": "PT0.3S"}


def asked(participant: int, **fields: Any) -> dict[str, Any]:
    """Return the arguments of the program that attends irtt."""
    told: dict[str, Any] = json.loads(
        TOOL.command(context("latency", participant, **fields)).argv[-1]
    )
    return told


def merged(case: str, **fields: Any) -> Merged:
    """Return a recorded run, both parts merged."""
    parts = [
        Part(
            at,
            "ab"[at],
            TOOL.read(context("latency", at, **fields), output("irtt", f"{case}-{end}")),
        )
        for at, end in ((SOURCE, "client"), (DEST, "server"))
    ]
    return TEST.merge(spec("latency", **fields), parts)


def test_the_server_waits_for_its_end() -> None:
    """The server listens on its own address alone, until shortly before the booked end."""
    params = asked(DEST, length=100)
    assert " ".join(params["argv"]) == ("irtt server -b 192.0.2.2:5301 -i 0 -l 100 --timeout=0")
    assert params["at_ns"] == STARTS * 1000
    end = context("latency").ends - 400 * MILLISECOND
    assert params["until_ns"] == end * 1000


def test_the_client_follows() -> None:
    """The client starts a second later, and sends four packets more than are counted."""
    params = asked(SOURCE, count=10, **SHORT)
    assert " ".join(params["argv"]) == (
        "irtt client -Q -o - -i 10000000ns -d 140000000ns -l 44 --stats=both --tstamp=both"
        " --clock=wall --wait=300000000ns --timeouts=500ms,500ms,1000ms,1000ms,1000ms"
        " --local=192.0.2.1 -- 192.0.2.2:5301"
    )
    assert params["at_ns"] == (STARTS + SECOND) * 1000
    assert params["until_ns"] is None


def test_addresses_of_version_6_and_names() -> None:
    """An IPv6 address is in brackets; a name is not bound to."""
    parties = (Party("a", "a"), Party("b", "2001:db8::2", {"port": 9}))
    six = PartContext(spec("latency", ip_version=6), DEST, parties, 0, 1)
    assert "[2001:db8::2]:9" in json.loads(TOOL.command(six).argv[-1])["argv"]
    named = PartContext(
        spec("latency"), SOURCE, (Party("a", "a"), Party("b", "b", {"port": 9})), 0, 1
    )
    argv = json.loads(TOOL.command(named).argv[-1])["argv"]
    assert argv[-1] == "b:9"
    assert not any(word.startswith("--local") for word in argv)


def test_unsupported_specs() -> None:
    """Too many packets for its output to be read are refused."""
    assert TOOL.can(spec("latency", count=9_000)) is None
    assert str(TOOL.can(spec("latency", count=9_001))).startswith("irtt prints more")


def test_loss_each_way() -> None:
    """The server's counts show on which way packets were lost: the emulator lost 8 and 3."""
    outcome = merged("lossy", count=60, **SHORT)
    assert outcome.reason is None
    result = outcome.result
    assert result is not None
    assert (result["sent"], result["received_at_dest"], result["received_back"]) == (60, 52, 49)
    assert result["loss"] == {"forward": 0.133333, "backward": 0.057692, "round_trip": 0.183333}
    assert 20 < result["delay_ms"]["forward"]["median"] < 20.5
    assert 20 < result["delay_ms"]["backward"]["median"] < 20.5
    assert result["clocks_synchronised"] == (result["clock_error_ms"] is not None)


def test_figures_unknown_to_irtt_are_null() -> None:
    """Unknown figures are null, and counts of both ways together are not given to one."""
    result = merged("ipv6", count=10, length=200, **SHORT).result
    assert result is not None
    assert result["duplicates"] == {"forward": None, "backward": 0}
    assert result["reordered"] == {"forward": None, "backward": 0}
    assert result["hops"] == {"forward": None, "backward": None}
    assert (result["strays"], result["unreachable"]) == (None, None)
    assert TEST.summary(result).startswith("5.2")


def test_late_packets_are_lost() -> None:
    """Round trips of 40 ms with a timeout of 30 ms are late, and count as lost."""
    result = merged("late", count=10, interval="PT0.01S", timeout="PT0.03S").result
    assert result is not None
    assert (result["late"], result["received_back"], result["received_at_dest"]) == (10, 0, 10)
    assert TEST.summary(result) == "no packet came back, loss 0 % / 100 %"


def lossy(**changes: Any) -> Output:
    """Return the lossy case with a change of each unanswered packet, or of the stats."""
    printed, _, added = output("irtt", "lossy-client").stdout.decode().partition("\x1e")
    document = json.loads(printed)
    document["stats"].update(changes.get("stats", {}))
    document["config"]["params"].update(changes.get("params", {}))
    for trip in document["round_trips"]:
        if trip["lost"] != "false":
            trip["lost"] = changes.get("lost", trip["lost"])
        elif "delay" in changes:
            trip["delay"] = changes["delay"]
    return Output(0, f"{json.dumps(document)}\x1e{added}".encode(), b"")


def test_unknown_where_lost() -> None:
    """Without a later answer, only the loss of the round trip is known."""
    part = TOOL.read(context("latency", SOURCE, count=60, **SHORT), lossy(lost="true"))
    dest = TOOL.read(context("latency", DEST), output("irtt", "lossy-server"))
    result = TEST.merge(spec("latency"), [Part(0, "a", part), Part(1, "b", dest)]).result
    assert result is not None
    assert result["loss"] == {"forward": None, "backward": None, "round_trip": 0.183333}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"params": {"interval": 20_000_000}}, "irtt sent 44 bytes each 20000000 ns instead of"),
        ({"stats": {"packets_sent": 3}}, "irtt reports 63 packets, but 3 as sent"),
        ({"delay": {}}, "irtt reports no delay of packet"),
        ({"delay": {"send": -9, "receive": 1, "rtt": 1}}, "a round trip took less than zero time"),
    ],
)
def test_impossible_output_is_refused(changes: dict[str, Any], sentence: str) -> None:
    """Output that contradicts itself or the spec is refused."""
    with pytest.raises(ToolOutputError, match=sentence):
        TOOL.read(context("latency", SOURCE, count=60, **SHORT), lossy(**changes))


@pytest.mark.parametrize(
    ("case", "participant", "sentence"),
    [
        ("refused-client", SOURCE, "connection refused"),
        ("unanswered-client", SOURCE, "irtt: [OpenTimeout] no reply from server"),
        ("no-network-client", SOURCE, "network is unreachable"),
        ("terminated-client", SOURCE, "irtt had not finished at the end of the run"),
        ("port-taken-server", DEST, "bind: address already in use"),
    ],
)
def test_failures_say_their_cause(case: str, participant: int, sentence: str) -> None:
    """A failed irtt is not a result, and its own reason comes first."""
    with pytest.raises(ToolOutputError) as failure:
        TOOL.read(context("latency", participant), output("irtt", case))
    assert failure.value.detail.startswith("irtt")
    assert "Error:" not in failure.value.detail
    assert failure.value.detail.endswith(sentence)
