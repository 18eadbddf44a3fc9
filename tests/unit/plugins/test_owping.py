"""Delay each way by owping: its command lines, and lines as its manual page describes them.

Nobody here has run it: ``tools/owping`` is from the documentation of owping(1), not from a run.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.capability.catalog import Capabilities
from node.model.errors import ToolOutputError
from node.plugins import registry
from node.plugins.contracts import Merged, Output, Part
from node.plugins.tests.latency import TEST
from node.plugins.tools.owping import TOOL
from tests.golden.recorded import cases, output
from tests.unit.plugins.parts import STARTS, context, spec, with_ports

SOURCE, DEST = 0, 1
SPEC: dict[str, Any] = {"count": 5, "interval": "PT0.1S", "timeout": "PT0.5S"}


def read(case: str, participant: int, **fields: Any) -> dict[str, Any]:
    """A part read from one of the documents."""
    return TOOL.read(context("latency", participant, **SPEC | fields), output("owping", case))


def merged() -> Merged:
    """Both parts, merged."""
    parts = [
        Part(SOURCE, "a", read("both-ways-client", SOURCE)),
        Part(DEST, "b", read("both-ways-server", DEST)),
    ]
    return TEST.merge(spec("latency", **SPEC), parts)


def document() -> dict[str, Any]:
    """What the client's program printed."""
    told: dict[str, Any] = json.loads(output("owping", "both-ways-client").stdout)
    return told


def failed(told: dict[str, Any], participant: int = SOURCE, ended_by: str = "itself") -> str:
    """The sentence with which a document is refused."""
    printed = Output(0, json.dumps(told).encode(), b"", ended_by)
    with pytest.raises(ToolOutputError) as failure:
        TOOL.read(context("latency", participant, **SPEC), printed)
    return failure.value.detail


def asked(participant: int, **fields: Any) -> dict[str, Any]:
    """What our program at one end is told."""
    part = with_ports(context("latency", participant, **SPEC | fields), 8760, 9000)
    told: dict[str, Any] = json.loads(TOOL.command(part).argv[-1])
    return told


def test_the_client_asks_for_both_ways() -> None:
    """In open mode, at a fixed pace, with as many bytes as the spec says, on its own ports."""
    told = asked(SOURCE, ip_version=4)
    assert " ".join(told["options"]) == "-R -A O -c 5 -i 0.1f -L 0.5 -s 30 -4"
    assert (told["forward"], told["backward"]) == (
        ["-t", "-P", "8760-8761"],
        ["-f", "-P", "8762-8763"],
    )
    assert (told["source"], told["dest"], told["port"]) == ("192.0.2.1", "192.0.2.2", 9000)


def test_the_server_is_there_for_the_client() -> None:
    """From the start until shortly before the booked end, on the ports that were given out."""
    told = asked(DEST)
    assert (told["address"], told["port"], told["ports"]) == ("192.0.2.2", 9000, [9001, 9003])
    assert (told["client"], told["at_ns"]) == ("192.0.2.1", STARTS * 1000)
    assert [TOOL.needs_port(spec("latency"), at) for at in (SOURCE, DEST)] == [4, 4]


def test_it_is_never_chosen_unless_named() -> None:
    """It was tried with no version, and so comes after all others, of which one is always there."""
    assert TOOL.tried == ()
    assert registry.tools_for("latency")[-1] is TOOL
    assert registry.tools_for("latency")[0].requirement is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"port": 8620},
            "owping needs several consecutive ports; leave out port to have them assigned",
        ),
        (
            {"count": 10_001, "interval": "PT0.01S"},
            "owping prints more than can be read for more than 10000 packets",
        ),
    ],
)
def test_what_it_cannot(fields: dict[str, Any], reason: str) -> None:
    """What it cannot is told beforehand."""
    assert TOOL.can(spec("latency", **fields)) == reason
    assert TOOL.can(spec("latency")) is None


@pytest.mark.parametrize(
    ("there", "lacks"),
    [
        ({"owping", "owampd"}, None),
        ({"owping"}, "owampd is not installed; apt install owamp-server"),
        ({"owampd"}, "owping is not installed; apt install owamp-client"),
    ],
)
def test_a_host_has_both_programs(there: set[str], lacks: str | None) -> None:
    """It may be either end, and would accept runs that fail if the other one's was not there."""
    known = Capabilities(lambda name: f"/absent/{name}" if name in there else None)
    assert known.missing(TOOL) == lacks
    assert (TOOL.name in known.offered("latency")) is (lacks is None)


def test_both_ways() -> None:
    """Packets are paired by number; the second was lost there, the fourth on its way back."""
    result = merged().result
    assert merged().reason is None
    assert result is not None
    assert (result["sent"], result["received_at_dest"], result["received_back"]) == (5, 4, 3)
    assert result["loss"] == {"forward": 0.2, "backward": 0.25, "round_trip": 0.4}
    assert result["delay_ms"]["forward"]["min"] == pytest.approx(20, abs=0.001)
    assert result["delay_ms"]["forward"]["max"] == pytest.approx(24, abs=0.001)
    assert result["delay_ms"]["backward"]["median"] == pytest.approx(-4, abs=0.001)
    assert result["delay_ms"]["round_trip"]["median"] == pytest.approx(18, abs=0.001)
    assert result["hops"] == {"forward": 3, "backward": None}
    assert result["duplicates"] == result["reordered"] == {"forward": None, "backward": None}


def test_what_took_too_long_is_late() -> None:
    """There and back together, against the timeout of the spec."""
    part = read("both-ways-client", SOURCE, timeout="PT0.019S")
    assert (part["received_back"], part["late"]) == (2, 1)


def test_what_was_not_sent_is_no_loss() -> None:
    """A packet of which nothing is told was left out by its sender."""
    told = document()
    lines = told["forward"]["printed"].splitlines()
    told["forward"]["printed"] = "\n".join(lines[:-1])
    printed = Output(0, json.dumps(told).encode(), b"")
    part = TOOL.read(context("latency", SOURCE, **SPEC), printed)
    assert (part["sent"], part["unsent"], part["received_back"]) == (4, 1, 2)


@pytest.mark.parametrize(
    ("way", "change", "sentence"),
    [
        ("forward", {"exit_code": 1, "said": "owping: Unable to open control\n"}, "Unable to open"),
        ("backward", {"exit_code": -15}, "it ended without a reason (exit code -15)"),
        ("backward", {"printed": ""}, "it printed no packet"),
        ("forward", {"printed": "5 1 1 0 1 1 0 255"}, "owping reports packet 5 of 5"),
        (
            "forward",
            {"printed": "0 99999999999999 1 0.1 1 1 0.1 255"},
            "a round trip took less than zero time: a clock was set during the run",
        ),
    ],
)
def test_what_is_no_measurement(way: str, change: dict[str, Any], sentence: str) -> None:
    """Either owping failed, or they tell of what cannot be; its own reason first."""
    told = document()
    told[way] |= change
    assert failed(told).startswith((sentence, f"owping: {sentence}"))


def test_a_client_that_was_ended() -> None:
    """What it had printed by then is not the whole."""
    assert failed(document(), ended_by="end") == "owping had not finished at the end of the run"


def test_a_server_that_ended_early() -> None:
    """What it said comes first; it is ended by us otherwise."""
    told = json.loads(output("owping", "both-ways-server").stdout)
    told |= {"early": True, "exit_code": 1, "said": "owampd: Address already in use\n"}
    assert failed(told, DEST) == "owampd: Address already in use"
    assert cases("owping") == ["both-ways-client", "both-ways-server"]
