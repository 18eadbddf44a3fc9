"""One-way delay by owping: its command lines, and lines as its manual page describes them.

It has never been run here: ``tools/owping`` is from the documentation of owping(1), not from a run.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.execution.catalog import Capabilities
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
    """Return a part read from one of the documents."""
    return TOOL.read(context("latency", participant, **SPEC | fields), output("owping", case))


def merged() -> Merged:
    """Return both parts, merged."""
    parts = [
        Part(SOURCE, "a", read("both-ways-client", SOURCE)),
        Part(DEST, "b", read("both-ways-server", DEST)),
    ]
    return TEST.merge(spec("latency", **SPEC), parts)


def document() -> dict[str, Any]:
    """Return the output of the client's program."""
    told: dict[str, Any] = json.loads(output("owping", "both-ways-client").stdout)
    return told


def failed(told: dict[str, Any], participant: int = SOURCE, ended_by: str = "itself") -> str:
    """Return the reason with which a document is refused."""
    printed = Output(0, json.dumps(told).encode(), b"", ended_by)
    with pytest.raises(ToolOutputError) as failure:
        TOOL.read(context("latency", participant, **SPEC), printed)
    return failure.value.detail


def asked(participant: int, **fields: Any) -> dict[str, Any]:
    """Return the arguments of our program at one end."""
    part = with_ports(context("latency", participant, **SPEC | fields), 8760, 9000)
    told: dict[str, Any] = json.loads(TOOL.command(part).argv[-1])
    return told


def test_the_client_asks_for_both_ways() -> None:
    """The client uses open mode, a fixed pace, the spec's length, and its own ports."""
    params = asked(SOURCE, ip_version=4)
    assert " ".join(params["options"]) == "-R -A O -c 5 -i 0.1f -L 0.5 -s 30 -4"
    assert (params["forward"], params["backward"]) == (
        ["-t", "-P", "8760-8761"],
        ["-f", "-P", "8762-8763"],
    )
    assert (params["source"], params["dest"], params["port"]) == ("192.0.2.1", "192.0.2.2", 9000)


def test_the_server_runs_for_the_client() -> None:
    """The server runs until shortly before the booked end, on the assigned ports."""
    params = asked(DEST)
    assert (params["address"], params["port"], params["ports"]) == ("192.0.2.2", 9000, [9001, 9003])
    assert (params["client"], params["at_ns"]) == ("192.0.2.1", STARTS * 1000)
    assert [TOOL.needs_port(spec("latency"), at) for at in (SOURCE, DEST)] == [4, 4]


def test_it_is_never_chosen_unless_named() -> None:
    """It was tested with no version, and so ranks after all others, one of which always exists."""
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
def test_unsupported_specs(fields: dict[str, Any], reason: str) -> None:
    """Unsupported specs are refused with the reason."""
    assert TOOL.can(spec("latency", **fields)) == reason
    assert TOOL.can(spec("latency")) is None


ELSEWHERE = "from perfSONAR's archive: Debian has none"


@pytest.mark.parametrize(
    ("there", "lacks"),
    [
        ({"owping", "owampd"}, None),
        (
            {"owping"},
            f"owampd is not installed; apt install owamp-server, {ELSEWHERE}",
        ),
        (
            {"owampd"},
            f"owping is not installed; apt install owamp-client, {ELSEWHERE}",
        ),
    ],
)
def test_a_host_has_both_programs(there: set[str], lacks: str | None) -> None:
    """A host needs both programs, because it may be either end."""
    capabilities = Capabilities(lambda name: f"/absent/{name}" if name in there else None)
    assert capabilities.missing_program(TOOL) == lacks
    assert (TOOL.name in capabilities.offered_tools("latency")) is (lacks is None)


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


def test_slow_packets_are_late() -> None:
    """The sum of both ways is compared with the spec's timeout."""
    part = read("both-ways-client", SOURCE, timeout="PT0.019S")
    assert (part["received_back"], part["late"]) == (2, 1)


def test_unsent_packets_are_not_lost() -> None:
    """A packet without a line was left out by its sender, and is not lost."""
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
def test_impossible_measurements(way: str, change: dict[str, Any], sentence: str) -> None:
    """A failed owping and impossible lines are refused; its own reason comes first."""
    printed = document()
    printed[way] |= change
    assert failed(printed).startswith((sentence, f"owping: {sentence}"))


def test_a_client_that_was_ended() -> None:
    """The output of a client that was ended is incomplete and refused."""
    assert failed(document(), ended_by="end") == "owping had not finished at the end of the run"


def test_a_server_that_ended_early() -> None:
    """The server's own message is the reason if it ended before we ended it."""
    printed = json.loads(output("owping", "both-ways-server").stdout)
    printed |= {"early": True, "exit_code": 1, "said": "owampd: Address already in use\n"}
    assert failed(printed, DEST) == "owampd: Address already in use"
    assert cases("owping") == ["both-ways-client", "both-ways-server"]
