"""The records of sessions of OWAMP that this host receives, in the order that readers rely on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from node.plugins.tools.programs import owamp_messages as messages
from node.plugins.tools.programs import stamp_packet
from node.plugins.tools.programs.owamp_messages import Record, Request, Slot, Stopped
from node.plugins.tools.programs.owamp_packets import PacketSocket
from node.pscheduler.owamp.sessions import Receiver
from tests.support.clocks import ManualClock

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS
"""Long ago: each packet has been awaited for long enough."""
REQUEST = Request(
    ip_version=4,
    server_sends=False,
    packets=6,
    sender=("192.0.2.7", 8803),
    receiver=("192.0.2.1", 8804),
    session=bytes(16),
    padding=0,
    start=stamp_packet.ntp_from_ns(START_NS),
    timeout_ns=SECOND_NS // 2,
    slots=(Slot(exponential=False, pause_ns=SECOND_NS),),
)


def receiver(arrivals_s: dict[int, float]) -> Receiver:
    """Return a session in which packets have arrived at these seconds after its start."""
    socket = cast(PacketSocket, SimpleNamespace(error=1))
    session = Receiver(REQUEST, "192.0.2.7", socket, ManualClock())
    for number, at_s in arrivals_s.items():
        sent = stamp_packet.ntp_from_ns(START_NS + (number + 1) * SECOND_NS)
        arrived = stamp_packet.ntp_from_ns(START_NS + round(at_s * SECOND_NS))
        session._received += messages.pack_record(Record(number, 1, 1, sent, arrived, 250))
        session._count += 1
    return session


async def told(session: Receiver, *, first: int = 0, last: int = 5) -> list[Any]:
    """Return the numbers of the records, negative where the packet was lost."""
    records = await session.records(first, last)
    return [each.number if each.received else -each.number for each in records]


async def test_a_lost_packet_stands_where_its_time_was_up() -> None:
    """Powstream reads records in this order, and gives up at a lost packet that comes later."""
    session = receiver({0: 1.1, 1: 2.6, 3: 4.2, 2: 4.3, 5: 6.1})
    session.finish(None)
    assert await told(session) == [0, -1, -2, 3, -4, 5]
    assert await told(session, first=3, last=4) == [3, -4]


async def test_what_was_not_sent_is_not_lost() -> None:
    """Numbers that the sender has left out, and those behind its last one, have no record."""
    session = receiver({0: 1.1})
    session.finish(Stopped(bytes(16), 4, ((1, 2),)))
    assert await told(session) == [0, -3]
    ack = session.ack(2)
    assert (ack.finished, ack.next_number, ack.skips, ack.records) == (1, 4, 1, 2)


async def test_a_session_that_runs_tells_no_end() -> None:
    """Nothing is final before the client has said what it has sent."""
    ack = receiver({}).ack(0)
    assert (ack.finished, ack.next_number, ack.skips) == (0, 0, 0)
