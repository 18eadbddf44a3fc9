"""Sessions of the server of OWAMP: packets that are sent, and records of those that arrive.

Both end at their own time, or when the client says so. What has arrived is kept as it is fetched,
25 octets for each packet, and may be fetched while the session still runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from itertools import islice

from node.plugins.tools.programs import owamp_messages as messages
from node.plugins.tools.programs import stamp_endpoint, stamp_packet
from node.plugins.tools.programs.owamp_messages import Accept, Record, Request, Stopped
from node.plugins.tools.programs.owamp_packets import PacketSocket, now_ns
from node.pscheduler.owamp.schedule import offsets_ns
from node.runtime.clock import Clock, LatchedEvent

_LATE_NS_MAX = stamp_endpoint.SECOND_NS
_END_DELAY_NS = stamp_endpoint.SECOND_NS
"""Delay of a stop: a receiver whose clock is behind drops what it may still await by its clock."""
_UNKNOWN_TTL = 255
_AT_ONCE = 1_000
"""Packets whose times are computed before others get their turn, in some 2 ms."""


class Session:
    """A session of either kind: its socket, and when its packets are due."""

    def __init__(self, request: Request, peer: str, packets: PacketSocket, clock: Clock) -> None:
        """Take a request that was accepted, and a socket of its own; ``peer`` is an address."""
        self._clock = clock
        self.request, self.peer, self.packets = request, peer, packets
        self.start_ns = stamp_packet.ns_from_ntp(request.start, now_ns())
        self.over = LatchedEvent()

    def due_ns(self) -> Iterator[int]:
        """Yield when each packet is due."""
        offsets = offsets_ns(self.request.session, self.request.slots)
        for offset in islice(offsets, self.request.packets):
            yield self.start_ns + offset

    async def run(self) -> None:
        """Do its work until it is over."""
        raise NotImplementedError

    async def wait_until(self, instant_ns: int) -> None:
        """Wait until an instant, or until the session is over."""
        while (left_ns := instant_ns - now_ns()) > 0 and not self.over.is_set:
            await self.over.wait(left_ns / stamp_endpoint.SECOND_NS)

    def end(self) -> None:
        """End it before its time, or once it is over."""
        self.over.set()


class Sender(Session):
    """A session to the client."""

    def __init__(self, request: Request, peer: str, packets: PacketSocket, clock: Clock) -> None:
        """Take a request that was accepted, and a socket of its own."""
        super().__init__(request, peer, packets, clock)
        self._tail = os.urandom(request.padding)
        self._next, self._skips = 0, list[tuple[int, int]]()

    async def run(self) -> None:
        """Send all packets, and wait as long as the client does for the last one."""
        to = (self.peer, self.request.receiver[1])
        for number, due_ns in enumerate(self.due_ns()):
            await self.wait_until(due_ns)
            if self.over.is_set:
                return
            self._next = number + 1
            # After a pause of this process, a burst of old packets would only disturb.
            if now_ns() - due_ns > _LATE_NS_MAX:
                self._skip(number)
                continue
            try:
                self.packets.send(number, to, self._tail)
            except OSError:
                self._skip(number)
        await self.wait_until(now_ns() + self.request.timeout_ns + _END_DELAY_NS)

    def _skip(self, number: int) -> None:
        if self._skips and self._skips[-1][1] == number - 1:
            number_before, _ = self._skips.pop()
            self._skips.append((number_before, number))
        else:
            self._skips.append((number, number))

    @property
    def stopped(self) -> Stopped:
        """The numbers that were sent."""
        return Stopped(self.request.session, self._next, tuple(self._skips))


class Receiver(Session):
    """A session from the client, with the records of its packets."""

    def __init__(self, request: Request, peer: str, packets: PacketSocket, clock: Clock) -> None:
        """Take a request that was accepted, and a socket of its own."""
        super().__init__(request, peer, packets, clock)
        self._received = bytearray()
        self._count = 0
        self.stopped: Stopped | None = None
        self._finished = False

    @staticmethod
    def records_max(request: Request) -> int:
        """Return the maximum number of records: of each packet, and as many duplicates."""
        return 2 * request.packets

    async def run(self) -> None:
        """Read packets until the last one is not awaited any more."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.packets.fileno(), self._read)
        try:
            last_ns = self.start_ns
            for at, last_ns in enumerate(self.due_ns()):  # noqa: B007 - the last one counts
                if not at % _AT_ONCE:
                    await self._clock.sleep(0)
            await self.wait_until(max(last_ns, now_ns()) + self.request.timeout_ns)
            self._read()
        finally:
            loop.remove_reader(self.packets.fileno())

    def _read(self) -> None:
        for packet, arrived_ns, ttl, sender in self.packets.read():
            sent_ns = stamp_packet.ns_from_ntp(packet.timestamp, arrived_ns)
            if (
                sender[0] != self.peer
                or packet.number >= self.request.packets
                or arrived_ns - sent_ns > self.request.timeout_ns
                or self._count >= self.records_max(self.request)
            ):
                continue
            arrived = stamp_packet.ntp_from_ns(arrived_ns)
            error = self.packets.error
            record = Record(packet.number, packet.error, error, packet.timestamp, arrived, ttl)
            self._received += messages.pack_record(record)
            self._count += 1

    def finish(self, stopped: Stopped | None) -> None:
        """Take what the client says that it has sent, None if it says nothing."""
        self.stopped, self._finished = stopped, True

    async def records(self, first: int, last: int) -> list[Record]:
        """Return the records of packets by their numbers, with those of packets that were lost.

        A packet is lost once it is not awaited any more, by when it was to be sent. Readers rely on
        the order: a lost packet stands where its time was up, between those that arrived. What its
        sender has left out, or never sent, has no record.
        """
        arrived: dict[int, list[Record]] = {}
        for record in messages.unpack_records(bytes(self._received), self._count):
            arrived.setdefault(record.number, []).append(record)
        unsent, over_ns = self._unsent(), None if self._finished else now_ns()
        found: list[tuple[int, Record]] = []
        for number, due_ns in enumerate(self.due_ns()):
            if not number % _AT_ONCE:
                await self._clock.sleep(0)
            if number > last:
                break
            if number >= first:
                lost_ns = due_ns + self.request.timeout_ns
                is_lost = number not in unsent and (over_ns is None or lost_ns < over_ns)
                found += self._records_of(number, due_ns, arrived.get(number, ()), is_lost=is_lost)
        found.sort(key=lambda each: each[0])
        return [record for _, record in found]

    def _records_of(
        self, number: int, due_ns: int, arrived: Sequence[Record], *, is_lost: bool
    ) -> Iterator[tuple[int, Record]]:
        """Yield the records of one packet, each with its place in time."""
        lost_ns = due_ns + self.request.timeout_ns
        instants = [stamp_packet.ns_from_ntp(each.received, due_ns) for each in arrived]
        in_time = [pair for pair in zip(instants, arrived, strict=True) if pair[0] <= lost_ns]
        yield from in_time
        if is_lost and not in_time:
            sent, error = stamp_packet.ntp_from_ns(due_ns), self.packets.error
            yield lost_ns, Record(number, error, error, sent, 0, _UNKNOWN_TTL)

    def _unsent(self) -> set[int]:
        if self.stopped is None:
            return set()
        count = self.request.packets
        unsent = set(range(min(self.stopped.next_number, count), count))
        for first, last in self.stopped.skips:
            unsent.update(range(first, min(last + 1, count)))
        return unsent

    def ack(self, records: int) -> messages.FetchAck:
        """Return the answer before so many records."""
        stopped = self.stopped
        next_number = self.request.packets if stopped is None else stopped.next_number
        skips = 0 if stopped is None else len(stopped.skips)
        if not self._finished:
            next_number = skips = 0
        return messages.FetchAck(Accept.OK, int(self._finished), next_number, skips, records)
