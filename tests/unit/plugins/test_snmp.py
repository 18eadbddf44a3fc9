"""Interfaces by SNMP: what two readings tell, what cannot be, and what is told to whom."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from node.model.errors import HostError, ToolOutputError
from node.plugins.contracts import Part
from node.plugins.tests.snmp import TEST, Reading, SnmpResult, result_between
from node.plugins.tools.snmpget import TOOL, settings_of
from tests.golden.recorded import output
from tests.unit.plugins.parts import context, printed, spec

GIGABIT = 1_000_000_000
USER: dict[str, Any] = {"version": "3", "user": "watcher"}
BOTH = {"authentication": "first-secret", "privacy": "second-secret"}
FIRST: dict[str, int | str | None] = {
    "name": "ge-0/0/0",
    "uptime": 5_000,
    "status": 1,
    "speed": GIGABIT,
    "high_speed": 1_000,
    "discontinuity": 0,
    **{
        f"{way}_{what}": 1_000
        for way in ("received", "sent")
        for what in (
            "bytes", "bytes_32", "unicast", "multicast", "broadcast", "errors", "drops",
        )
    },
}  # fmt: skip
"""A reading of an agent with all counters."""


def later(**grown: int | str | None) -> dict[str, int | str | None]:
    """Return the reading ten seconds later, in which only these values are others."""
    return {**FIRST, "uptime": 6_000, **grown}


def between(first: Reading, second: Reading, took_ms: float = 10_000) -> SnmpResult:
    """Return what two readings tell."""
    return result_between(7, first, second, took_ms)


def test_rates_are_differences_over_time() -> None:
    """Bytes, packets of all kinds, errors and drops are counted, and the share of the speed."""
    grown = later(
        received_bytes=1_000 + 125_000_000, received_unicast=1_090, received_multicast=1_005,
        received_broadcast=1_005, received_errors=1_001, sent_drops=1_010,
    )  # fmt: skip
    result = between(FIRST, grown)
    received, sent = result.received, result.sent
    assert (received.rate_bps, received.utilisation) == (1e8, 0.1)
    assert (received.packets, received.packet_rate, received.errors) == (100, 10, 1)
    assert (sent.rate_bps, sent.utilisation, sent.drops, sent.drop_rate) == (0, 0, 10, 1)
    assert (result.status, result.speed_bps, result.counter_bits) == ("up", GIGABIT, 64)
    document = result.model_dump(mode="json")
    assert TEST.summary(document) == "ge-0/0/0: 100 Mb/s in (10 %), 0 b/s out (0 %)"
    labels = {"direction": "received", "interface": "ge-0/0/0"}
    [share] = [
        it for it in TEST.metrics(document) if it.name == "utilisation" and it.labels == labels
    ]
    assert share.value == 0.1


NARROW = {f"{way}_{what}": None for way in ("received", "sent") for what in ("bytes", "unicast")}


def test_a_short_counter_wraps_once() -> None:
    """One wrap of 32 bits is counted; where there may be more, the figure is named and null."""
    slow = {**FIRST, **NARROW, "high_speed": 100, "received_bytes_32": 2**32 - 1_000}
    result = between(slow, {**slow, "uptime": 6_000, "received_bytes_32": 9_000})
    assert (result.counter_bits, result.received.bytes) == (32, 10_000)
    assert (result.received.packets, result.notes) == (None, ())
    fast = {**slow, "high_speed": 10_000}
    result = between(fast, {**fast, "uptime": 6_000, "received_bytes_32": 9_000})
    assert result.received.rate_bps is None
    assert "may wrap more than once" in result.notes[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"uptime": 12}, "the agent restarted"),
        ({"discontinuity": 5_900}, "began anew"),
        ({"name": "xe-1/0/0"}, "another interface"),
        ({"uptime": None}, "does not say since when"),
    ],
)
def test_readings_of_different_counters_tell_nothing(changes: Any, said: str) -> None:
    """After a restart, a discontinuity or a new numbering no figure is told, and the run fails."""
    result = between(FIRST, later(received_bytes=2_000, **changes))
    assert result.received.bytes is result.sent.errors is None
    assert said in result.notes[0]
    part = Part(0, "a", result.model_dump(mode="json"))
    merged = TEST.merge(spec("snmp"), [part])
    assert merged.result is not None
    assert said in (merged.reason or "")


def test_a_clock_of_ticks_that_wraps_is_no_restart() -> None:
    """The time since the agent began wraps after 497 days."""
    result = between({**FIRST, "uptime": 2**32 - 500}, later(uptime=500, sent_bytes=11_000))
    assert result.sent.bytes == 10_000


def test_a_counter_that_cannot_be_is_null_and_named() -> None:
    """One that went back or leapt is left out, and the others stay."""
    changed = later(received_bytes=10, sent_bytes=2_000, sent_errors=900, sent_unicast=2**63)
    result = between(FIRST, changed)
    assert (result.received.bytes, result.received.rate_bps) == (None, None)
    assert (result.sent.bytes, result.sent.errors, result.sent.packets) == (1_000, None, None)
    text = " ".join(result.notes)
    assert "received bytes is left out: the counter went back from 1000 to 10" in text
    assert "sent errors is left out" in text
    assert "sent packets is left out" in text


def test_a_speed_that_cannot_be_makes_no_share() -> None:
    """Virtual interfaces state any speed: the rate is told, and the utilisation is not."""
    tunnel = {**FIRST, "high_speed": 0, "speed": 9_000}
    result = between(tunnel, {**tunnel, "uptime": 6_000, "received_bytes": 1_000_000_000})
    assert (result.speed_bps, result.received.utilisation) == (9_000, None)
    assert result.received.rate_bps == pytest.approx(8e8, rel=1e-4)
    assert "more than the speed that the agent states, 9.00 kb/s" in result.notes[0]
    beyond = between(
        {**FIRST, "high_speed": None, "speed": 2**32 - 1}, later(speed=2**32 - 1, high_speed=None)
    )
    assert beyond.speed_bps is None


@given(
    st.fixed_dictionaries({name: st.integers(0, 2**64 - 1) | st.none() for name in FIRST}),
    st.fixed_dictionaries({name: st.integers(0, 2**64 - 1) | st.none() for name in FIRST}),
    st.floats(0.001, 7_200_000),
)
def test_any_readings_make_a_valid_result(
    first: dict[str, int | None], second: dict[str, int | None], took_ms: float
) -> None:
    """No figure is below zero or beyond what the model allows, whatever an agent tells."""
    document = between(first, second, took_ms).model_dump(mode="json")
    assert SnmpResult.model_validate(document).index == 7
    assert TEST.summary(document)


def test_secrets_are_in_no_list_of_processes() -> None:
    """Passphrases and communities go to standard input; the argv has the place and the columns."""
    part = context("snmp", credentials=BOTH, **USER)
    command = TOOL.command(part)
    assert not any(word in " ".join(command.argv) for word in BOTH.values())
    assert json.loads(command.stdin) == {
        "version": "3", "user": "watcher", "level": "authPriv",
        "authentication": "first-secret", "authentication_protocol": "SHA-256",
        "privacy": "second-secret", "privacy_protocol": "AES",
    }  # fmt: skip
    assert settings_of(spec("snmp")) == {"version": "2c", "community": "public"}
    lone = spec("snmp", credentials={"authentication": "first-secret"}, **USER)
    assert (settings_of(lone)["level"], settings_of(spec("snmp", **USER))["level"]) == (
        "authNoPriv",
        "noAuthNoPriv",
    )
    named = {"community": {"secret": "lab"}}
    with pytest.raises(HostError, match="community: a secret was not opened"):
        TOOL.command(context("snmp", credentials=named))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"version": "3"}, "SNMPv3 needs a user"),
        ({"user": "watcher"}, "SNMPv2c has a community only"),
        ({"credentials": {"privacy": "x"}}, "SNMPv2c has a community only"),
        ({**USER, "credentials": {"community": "x"}}, "SNMPv3 has no community"),
        ({**USER, "credentials": {"privacy": "x"}}, "only what it authenticates"),
        ({"credentials": {"community": 'a" b'}}, "1 to 64 ASCII characters"),
        ({"interface": "-Cr"}, "pattern"),
        ({"duration": "PT2H"}, "2 h is outside 1 s to 1 h"),
    ],
)
def test_specs_that_cannot_be(fields: Any, words: str) -> None:
    """Fields that do not fit together, or could be an option or a token, are refused."""
    with pytest.raises(ValidationError, match=words):
        spec("snmp", **fields)


def test_a_recorded_agent() -> None:
    """The readings of a real agent, and its words when it refuses, become result and reason."""
    part = replace(context("snmp", interface="lo"), participant=0)
    result = TOOL.read(part, output("snmpget", "loopback"))
    assert (result["interface"], result["counter_bits"], result["status"]) == ("lo", 64, "up")
    assert result["received"]["bytes"] > 0
    for case, said in (
        ("unknown-interface", "has no interface nope; it has: eth0"),
        ("unanswered", "nothing speaks SNMP there, or not with these credentials"),
        ("wrong-passphrase", "Authentication failure"),
    ):
        with pytest.raises(ToolOutputError, match=said):
            TOOL.read(part, output("snmpget", case))
    with pytest.raises(ToolOutputError, match="no two readings"):
        TOOL.read(part, printed({"index": 1, "readings": []}))
