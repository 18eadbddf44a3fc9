"""Paths: the spec, how single packets become hops, and the summary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.model.errors import ToolOutputError
from node.plugins.contracts import Part
from node.plugins.hops import Probe, address_in, assemble_path
from node.plugins.tests.trace import TEST, TraceResult, TraceSpec
from tests.unit.plugins.parts import spec

DEST = "192.0.2.9"
ROUTERS = ["192.0.2.1", "192.0.2.2", "192.0.2.3", DEST]

probes_of_any_path = st.lists(
    st.builds(
        Probe,
        st.integers(1, 6),
        st.none() | st.sampled_from(ROUTERS),
        st.floats(0, 3000),
        st.none() | st.just("!N"),
    ),
    max_size=30,
)


def traced(*probes: Probe, **fields: Any) -> dict[str, Any]:
    """Return a path of these packets."""
    return assemble_path("t", spec("trace", **fields), DEST, probes, paris=False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": "sctp"},
        {"port": 80},
        {"protocol": "icmp", "port": 80},
        {"protocol": "tcp", "port": 0},
        {"protocol": "tcp", "length": 100},
        {"hops_max": 65},
        {"probes": 0},
        {"wait": "PT0.5S"},
        {"wait": "PT11S"},
        {"length": 59},
        {"names": 1},
        {"dest": "-x"},
        {"dest": "$(id)"},
        {"dest": "b.example\n-oX"},
        {"dest": "b\u2024example"},
    ],
)
def test_specs_outside_the_limits_are_refused(wrong: dict[str, Any]) -> None:
    """Specs that no tool supports, or that could be an option, are refused."""
    with pytest.raises(ValidationError):
        TraceSpec.model_validate({"dest": "b"} | wrong)


def test_a_path_that_reaches_its_end() -> None:
    """Hops end at dest, packets beyond it are left out, late and lost answers count as lost."""
    result = traced(
        Probe(1, ROUTERS[0], 1.0),
        Probe(1, ROUTERS[0], 2500.0),
        Probe(2),
        Probe(3, DEST, 20.0),
        Probe(3, DEST, 30.0),
        Probe(4, DEST, 21.0),
    )
    assert result["path"] == [ROUTERS[0], None, DEST]
    assert [hop["lost"] for hop in result["hops"]] == [1, 1, 0]
    assert (result["reached"], result["hops_tried"]) == (True, 3)
    assert TEST.summary(result) == "3 hops to 192.0.2.9, 25.00 ms"
    figures = {metric.name: metric.value for metric in TEST.metrics(result)}
    assert figures == {"hops": 3, "rtt_median_ms": 25, "reached": 1}


def test_a_path_that_ends_early() -> None:
    """Silent hops at the end are left out, but counted as tried; a router's refusal is quoted."""
    result = traced(Probe(1, ROUTERS[0], 1.0), Probe(2, ROUTERS[1], 2.0, "!N"), Probe(3))
    assert (result["reached"], result["hops_tried"], len(result["hops"])) == (False, 3, 2)
    assert TEST.summary(result) == "stops after hop 2 (192.0.2.2 says !N)"
    assert {metric.name for metric in TEST.metrics(result)} == {"hops", "reached"}
    silent = traced(Probe(1), Probe(2))
    assert TEST.summary(silent) == "no hop answered, 2 hops tried"


def test_the_address_that_answers_most_is_the_path() -> None:
    """All addresses of diverging paths are kept; of equals the first one is the path's."""
    parting = traced(*(Probe(1, ROUTERS[at], 1.0) for at in (0, 1, 1)))
    assert [each["address"] for each in parting["hops"][0]["addresses"]] == ROUTERS[:2]
    assert parting["path"] == [ROUTERS[1]]
    assert traced(Probe(1, ROUTERS[0], 1.0), Probe(1, ROUTERS[1], 1.0))["path"] == [ROUTERS[0]]


@given(probes_of_any_path)
def test_any_packets_make_a_path(probes: list[Probe]) -> None:
    """Hops are numbered from one without a gap, end in an answer, and dest can only be the last."""
    result = TraceResult.model_validate(traced(*probes))
    assert [hop.ttl for hop in result.hops] == list(range(1, len(result.hops) + 1))
    assert not result.path or result.path[-1] is not None
    assert result.reached == (DEST in {each.address for each in _last(result)})
    answers = sum(len(each.rtts_ms) for hop in result.hops for each in hop.addresses)
    seen = [probe for probe in probes if probe.ttl <= len(result.hops)]
    assert answers + sum(hop.lost for hop in result.hops) == len(seen)
    assert TEST.summary(result.model_dump(mode="json"))


def _last(result: TraceResult) -> tuple[Any, ...]:
    return result.hops[-1].addresses if result.hops else ()


def test_impossible_hops_are_refused() -> None:
    """A hop that was not probed, and an invalid address, are refused."""
    with pytest.raises(ToolOutputError, match="reports hop 4, but probed 3"):
        traced(Probe(4), hops_max=3)
    with pytest.raises(ToolOutputError, match="not an address"):
        address_in("router.example", "t")
    assert address_in("fe80::1%eth0", "t") == "fe80::1"


def test_the_part_is_the_result() -> None:
    """A path that ends early is a result, not a failure; a missing part is a failure."""
    part = traced(Probe(1, ROUTERS[0], 1.0))
    merged = TEST.merge(spec("trace"), [Part(0, "a", part)])
    assert merged.succeeded
    assert merged.result == part
    assert TEST.merge(spec("trace"), [Part(0, "a", None, "away")]).reason == "a: away"
