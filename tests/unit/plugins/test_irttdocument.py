"""The document of irtt's client: parsed packet by packet, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node.plugins.irttprogram import observe_trips, parse_irtt_document
from tests.golden.recorded import output

INTERVAL_NS, LENGTH, TIMEOUT_NS = 10_000_000, 44, 300_000_000


def document() -> dict[str, Any]:
    """Return irtt's document of 63 packets, of which 11 were lost."""
    printed, _, _ = output("irtt", "lossy-client").stdout.decode().partition("\x1e")
    found: dict[str, Any] = json.loads(printed)
    return found


def test_packets_and_what_became_of_them() -> None:
    """Each packet has an instant, and each returned packet an answer."""
    trips = parse_irtt_document(document(), INTERVAL_NS, LENGTH).trips
    assert len(trips) == 63
    assert all(trip.sent_ns > 0 for trip in trips)
    assert [trip.lost == "false" for trip in trips] == [trip.answer is not None for trip in trips]
    seen = observe_trips(trips, TIMEOUT_NS)
    assert len(seen.in_time) == sum(trip.lost == "false" for trip in trips)
    assert seen.at_dest == sum(trip.lost != "true_up" for trip in trips)
    assert observe_trips(trips, 1).late == len(seen.in_time)


def test_answers_out_of_order_are_counted() -> None:
    """An answer that came before one that had been sent earlier is out of order."""
    whole = document()
    one, other = [trip for trip in whole["round_trips"] if trip["lost"] == "false"][3:5]
    stamps = [trip["timestamps"]["client"]["receive"] for trip in (one, other)]
    stamps[0]["wall"], stamps[1]["wall"] = stamps[1]["wall"], stamps[0]["wall"]
    assert (
        observe_trips(parse_irtt_document(whole, INTERVAL_NS, LENGTH).trips, TIMEOUT_NS).reordered
        == 1
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"round_trips": {}}, "irtt: round_trips in its output is not as expected"),
        ({"round_trips": [5]}, "irtt: seqno in its output"),
        ({"round_trips": [{"seqno": 1}]}, "not numbered consecutively"),
        ({"round_trips": []}, "irtt sent no packet"),
        ({"stats": {"packets_sent": 63.0}}, "packets_sent"),
        ({"stats": {"packets_sent": 63, "duplicates": -1}}, "duplicates"),
        ({"stats": []}, "stats"),
        ({"config": None}, "params"),
    ],
)
def test_invalid_documents_of_irtt(changes: dict[str, Any], sentence: str) -> None:
    """A document is refused with the reason."""
    with pytest.raises(ValueError, match=sentence):
        parse_irtt_document(document() | changes, INTERVAL_NS, LENGTH)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"lost": "perhaps"}, "lost"),
        ({"lost": True}, "lost"),
        ({"lost": ["true"]}, "lost"),
        ({"timestamps": {}}, "client"),
        ({"delay": {"send": 1, "receive": 1, "rtt": True}}, "rtt"),
        ({"delay": {"send": 1, "receive": 10**19, "rtt": 1}}, "receive"),
        ({"delay": {"send": 1, "receive": float("nan"), "rtt": 1}}, "receive"),
        ({"delay": {"send": -5, "receive": 4, "rtt": 1}}, "less than zero time"),
        ({"lost": "false", "delay": {}}, "no delay of packet 0"),
    ],
)
def test_a_packet_that_cannot_be(changes: dict[str, Any], sentence: str) -> None:
    """A single malformed or impossible packet makes the document invalid."""
    whole = document()
    whole["round_trips"][0].update(changes)
    with pytest.raises(ValueError, match=sentence):
        parse_irtt_document(whole, INTERVAL_NS, LENGTH)
