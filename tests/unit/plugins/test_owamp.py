"""The tools for servers of OWAMP: what they ask for, and what they make of what is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.model.errors import ToolOutputError
from node.plugins import registry
from node.plugins.contracts import Output, Part, PartContext
from node.plugins.distribution import both_ways
from node.plugins.tools.owping import TOOL as OWPING
from node.plugins.tools.powstream import TOOL as POWSTREAM
from tests.unit.plugins.parts import context, spec, with_ports
from tests.unit.plugins.records import CLOCK, owamp_record

MILLISECOND_NS = 1_000_000


def record(number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return a record of four packets, of which the last one was lost on the way back."""
    ways = dict.fromkeys(range(3), (20 * MILLISECOND_NS, 5 * MILLISECOND_NS))
    figures = {
        "sent": 4,
        "received_at_dest": 4,
        "received_back": 3,
        "duplicates_forward": 1,
        "reordered_forward": 2,
        **both_ways(ways),
        "ttls": [251, 255],
        "clock": CLOCK | {"error_bound_ns": 30_000},
    }
    return owamp_record(number, **(figures | changes))


def part(test: str = "latency", **fields: Any) -> PartContext:
    """Return the part of a run towards a server of OWAMP."""
    few = {"count": 4} if test == "latency" else {"each": "PT1S", "interval": "PT0.25S"}
    return with_ports(context(test, responder="owamp", **few, **fields), 5301, 5302)


def printed(document: dict[str, Any]) -> Output:
    """Return what the client prints of one exchange."""
    return Output(0, b"\x1e" + json.dumps(document).encode() + b'\n{"intervals":1}\n', b"")


def measured(document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the result of a run whose client printed this."""
    test, task_part = registry.tests()["latency"], part(**fields)
    merged = test.merge(task_part.spec, [Part(0, "a", OWPING.read(task_part, printed(document)))])
    assert merged.reason is None, merged.reason
    assert merged.result is not None
    return merged.result


def test_dest_is_a_target() -> None:
    """A server of OWAMP takes no part: it is a target at its control port."""
    for name in ("latency", "latencybg"):
        test: Any = registry.tests()[name]
        task_spec = spec(name, responder="owamp")
        assert test.participants(task_spec) == (None,)
        assert test.hosts(task_spec) == ("b.example",)
        assert test.target_port(task_spec) == 861
        assert test.target_port(spec(name, responder="owamp", port=8610)) == 8610
        assert test.target_port(spec(name)) is None
        assert test.with_participants(task_spec, ["a"]).source == "a"
        with pytest.raises(ValueError, match="takes one participant"):
            test.with_participants(task_spec, ["a", "b.example"])


def test_each_tool_measures_its_own_kind_of_dest() -> None:
    """Tools that need a node at the other end refuse a server of OWAMP, and the other way round."""
    for name, own in (("latency", "owping"), ("latencybg", "powstream")):
        asked = {tool.name: tool.can(spec(name, responder="owamp")) for tool in _tools(name)}
        assert [tool for tool, reason in asked.items() if reason is None] == [own]
        between = {tool.name: tool.can(spec(name)) for tool in _tools(name)}
        assert "set responder to owamp" in (between[own] or "")


def _tools(name: str) -> list[Any]:
    return list(registry.tools_for(name))


def test_what_is_asked() -> None:
    """The client is told the server, its own port, and when the first packet leaves."""
    task_part = part(port=8610, length=100)
    arguments = json.loads(OWPING.command(task_part).argv[-1])
    assert (arguments["host"], arguments["port"], arguments["own_port"]) == (
        "192.0.2.2",
        8610,
        5301,
    )
    assert arguments["first_ns"] == (task_part.starts + 4_000_000) * 1000
    assert (arguments["packets"], arguments["intervals"], arguments["length"]) == (4, 1, 100)


def test_a_stream_has_a_port_for_each_exchange_that_overlaps() -> None:
    """Intervals of a minute alternate between two ports, short ones have more."""
    minute, second = spec("latencybg", responder="owamp"), part("latencybg").spec
    assert (POWSTREAM.needs_port(minute, 0), POWSTREAM.needs_port(second, 0)) == (2, 11)
    command = POWSTREAM.command(part("latencybg", duration="PT10S"))
    assert command.streams
    assert json.loads(command.argv[-1])["intervals"] == 10


def test_figures_of_both_ways() -> None:
    """Loss, order and duplicates are told of both ways, and both clocks with their errors."""
    result = measured(record())
    assert result["loss"] == {"forward": 0.0, "backward": 0.25, "round_trip": 0.25}
    assert result["delay_ms"]["forward"]["median"] == 20
    assert result["delay_ms"]["backward"]["median"] == 5
    assert result["reordered"] == {"forward": 2, "backward": 0}
    assert result["duplicates"] == {"forward": 1, "backward": 0}
    assert result["hops"] == {"forward": 4, "backward": None}
    assert result["clock_error_ms"] == 0.1
    assert result["clocks"]["dest"]["error_bound_ms"] == 0.07
    assert result["histogram"]["forward"]["buckets"]
    assert "histogram" not in measured(record(), histogram=False)


def test_a_clock_that_is_not_synchronised_is_told() -> None:
    """Without the S bit of the server's packets, the error of one-way delays is unknown."""
    result = measured(record(server={"synchronised": False, "error_bound_ns": None}))
    assert result["clocks_synchronised"] is False
    assert result["clock_error_ms"] is None


@pytest.mark.parametrize(("accept", "code"), [
    (1, "owamp-refused"), (2, "owamp-refused"), (3, "owamp-refused"), (4, "owamp-busy"),
    (5, "owamp-busy"), (77, "owamp-refused"),
])  # fmt: skip
def test_a_refusal_is_a_reason_with_a_code(accept: int, code: str) -> None:
    """A server's answer becomes a sentence with a code, also if its number is not known."""
    document = {"interval": 0, "refused": "a session", "accept": accept}
    with pytest.raises(ToolOutputError, match="refuses a session") as caught:
        OWPING.read(part(), printed(document))
    assert caught.value.reason.code == code


def test_an_interval_without_a_server_is_a_gap() -> None:
    """A server that is away costs the interval, with the reason, and not the run."""
    failed = {"interval": 3, "failure": "192.0.2.2 port 861: Connection refused"}
    interval = POWSTREAM.read_interval(part("latencybg"), json.dumps(failed).encode())
    assert (interval.number, interval.result) == (3, None)
    assert interval.reason == "no OWAMP with b.example: 192.0.2.2 port 861: Connection refused"
    good = POWSTREAM.read_interval(part("latencybg"), json.dumps(record(4)).encode())
    test: Any = registry.tests()["latencybg"]
    merged = test.merge_interval(part("latencybg").spec, [Part(0, "a", good.result)])
    assert merged.result["loss"]["backward"] == 0.25
    assert test.merge(part("latencybg").spec, [Part(0, "a", {"intervals": 5})]).succeeded


@pytest.mark.parametrize("changes", [
    {"sent": 5}, {"received_back": 2}, {"received_at_dest": -1}, {"ttls": [300, 1]},
    {"server": {}}, {"unsent": 1}, {"clock": None},
])  # fmt: skip
def test_impossible_figures_are_refused(changes: dict[str, Any]) -> None:
    """Counts that contradict each other are no result."""
    with pytest.raises(ToolOutputError):
        OWPING.read(part(), printed(record(**changes)))


def test_output_without_figures_is_refused() -> None:
    """A client that crashed is no result; its complaint is the reason."""
    with pytest.raises(ToolOutputError, match="no memory"):
        OWPING.read(part(), Output(1, b"", b"MemoryError: no memory\n"))


def test_more_answers_than_arrivals_contradict_each_other() -> None:
    """No more packets come back than have reached the server."""
    test, task_part = registry.tests()["latency"], part()
    read = OWPING.read(task_part, printed(record(received_at_dest=2)))
    merged = test.merge(task_part.spec, [Part(0, "a", read)])
    assert "contradict each other" in (merged.reason or "")
