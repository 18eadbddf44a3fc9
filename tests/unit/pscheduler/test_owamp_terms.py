"""The terms of the server of OWAMP: which sessions it refuses, and with which code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.plugins.tools.programs.owamp_messages import Accept, Request, Slot
from node.pscheduler.owamp import terms

SECOND_NS = 1_000_000_000
NOW_NS = 1_800_000_000 * SECOND_NS
PEER = "192.0.2.7"
TO_SERVER = Request(
    ip_version=4,
    server_sends=False,
    packets=600,
    sender=(PEER, 8803),
    receiver=("192.0.2.1", 0),
    session=bytes(16),
    padding=0,
    start=0,
    timeout_ns=SECOND_NS,
    slots=(Slot(exponential=True, pause_ns=SECOND_NS // 10),),
)
FROM_SERVER = replace(TO_SERVER, server_sends=True, sender=("192.0.2.1", 0), receiver=(PEER, 8803))


def refused(request: Request, start_ns: int = NOW_NS, peer: str = PEER) -> Accept | None:
    """Return the code of the refusal."""
    refusal = terms.refusal(request, peer, NOW_NS, start_ns)
    return None if refusal is None else refusal.accept


def test_what_owping_and_powstream_ask_for_is_given() -> None:
    """Ten packets a second each way, also without an address, and at IPv6."""
    for request in (TO_SERVER, FROM_SERVER):
        assert refused(request) is None
        assert refused(replace(request, sender=("", 0), receiver=("", 8803))) is None
    six = replace(FROM_SERVER, ip_version=6, receiver=("2001:db8::7", 8803))
    assert refused(six, peer="2001:db8::7") is None


@pytest.mark.parametrize("request_", [
    replace(FROM_SERVER, receiver=("192.0.2.99", 8803)),
    replace(TO_SERVER, sender=("192.0.2.99", 8803)),
    replace(FROM_SERVER, receiver=(PEER, 53)),
    replace(FROM_SERVER, receiver=("", 123)),
    replace(TO_SERVER, ip_version=6),
    replace(TO_SERVER, type_of_packet=1),
    replace(TO_SERVER, packets=0),
    replace(TO_SERVER, slots=()),
    replace(TO_SERVER, slots=TO_SERVER.slots * 17),
    replace(TO_SERVER, padding=9000),
    replace(TO_SERVER, timeout_ns=3600 * SECOND_NS),
])  # fmt: skip
def test_third_hosts_and_odd_sessions_are_not_supported(request_: Request) -> None:
    """Nobody has packets sent to another host than itself, or to a port of a service."""
    assert refused(request_) is Accept.NOT_SUPPORTED


@pytest.mark.parametrize("request_", [
    replace(FROM_SERVER, slots=(Slot(exponential=False, pause_ns=0),)),
    replace(FROM_SERVER, slots=(Slot(exponential=False, pause_ns=1_000_000),), padding=112),
    replace(FROM_SERVER, packets=2**32 - 1),
    replace(TO_SERVER, packets=terms.PACKETS_MAX + 1),
])  # fmt: skip
def test_too_much_is_refused_for_ever(request_: Request) -> None:
    """A rate above that for strangers, a session without end, or too many records."""
    assert refused(request_) is Accept.NO_RESOURCES


def test_a_session_far_ahead_is_refused() -> None:
    """A session may begin within hours, not days."""
    assert refused(TO_SERVER, NOW_NS + 3600 * SECOND_NS) is None
    assert refused(TO_SERVER, NOW_NS + 86_400 * SECOND_NS) is Accept.NO_RESOURCES


def test_this_host_sends_more_packets_than_it_keeps_records_of() -> None:
    """A day of a stream to the client needs no memory here."""
    assert refused(replace(FROM_SERVER, packets=864_000)) is None
