"""Measures a server of OWAMP (RFC 4656) both ways, once or interval by interval.

``owamp_client.py '{"host": "192.0.2.2", "port": 861, …}'``, see :func:`measure`. Each interval is
an exchange of its own, with a connection and two sessions that run at once: one to the server,
whose records are fetched afterwards, one from it. Exchanges overlap, because the next interval is
agreed upon before the last packets of this one have arrived; each has a thread, and its own port.

Nothing is sent back in OWAMP. Both sessions have the same pace and begin together; packet n of the
one counts as the answer to packet n of the other, and the round trip is the sum of both ways, in
which the difference of the clocks cancels out. Packets that either side could not send are left
out. What the server says of packets that this host has not sent as it says is not believed.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.distribution import both_ways
from node.plugins.tools.programs import owamp_messages as messages
from node.plugins.tools.programs import stamp_endpoint, stamp_packet, target
from node.plugins.tools.programs.owamp_messages import Accept
from node.plugins.tools.programs.owamp_packets import PacketSocket

_LATE_NS_MAX = stamp_endpoint.SECOND_NS
_END_DELAY_NS = stamp_endpoint.SECOND_NS
"""Delay of a stop: a server whose clock is behind drops what it may still await by its clock."""
_RECORDS_MAX = 100_000
"""Records that are read of one session: duplicates included, no session here has a third of it."""
_SLOTS_MAX = 16
_FAR_NS = 10**18
"""A delay beyond it is none: 32 years."""


class Refused(Exception):
    """The server has said no; ``accept`` is its code, the message what it was asked for."""

    def __init__(self, asked: str, accept: int) -> None:
        """Keep both."""
        super().__init__(asked)
        self.accept = accept


class Control:
    """The connection to the server. What takes longer than a deadline is a reason."""

    def __init__(self, arguments: stamp_endpoint.Arguments, deadline: target.Deadline) -> None:
        """Connect, and agree on open mode.

        :raises target.TargetUnreachable: nothing answers, or it does not speak OWAMP.
        :raises Refused: the server does not talk to this host, or not in open mode.
        """
        self.deadline = deadline
        host, port = arguments["host"], arguments["port"]
        found = target.look_up(host, port, arguments["ip_version"], deadline)
        self.socket = target.connect(found, deadline, arguments)
        self.place = target.place(self.socket.getpeername())
        try:
            self._set_up()
        except BaseException:
            self.socket.close()
            raise

    def _set_up(self) -> None:
        greeting = messages.Greeting.unpack(self.read(messages.GREETING_LENGTH))
        if not greeting.modes & messages.OPEN_MODE:
            asked = "sessions without keys" if greeting.modes else "a connection"
            raise Refused(asked, Accept.NOT_SUPPORTED if greeting.modes else Accept.FAILURE)
        self.send(messages.pack_set_up(messages.OPEN_MODE))
        _check(
            "a connection", messages.unpack_server_start(self.read(messages.SERVER_START_LENGTH))
        )

    @property
    def addresses(self) -> tuple[str, str]:
        """This host's address and the server's, as the connection has them."""
        return self.socket.getsockname()[0], self.socket.getpeername()[0]

    def read(self, length: int) -> bytes:
        """Return exactly so many octets.

        :raises target.TargetUnreachable: they do not come.
        """
        octets = bytearray()
        while len(octets) < length:
            try:
                self.socket.settimeout(self.deadline.left(f"{self.place} did not answer"))
                chunk = self.socket.recv(length - len(octets))
            except TimeoutError:
                raise self.deadline.over(f"{self.place} did not answer") from None
            except OSError as fault:
                raise self._broken(target.system_error_text(fault)) from None
            if not chunk:
                raise self._broken("it closed the connection")
            octets += chunk
        return bytes(octets)

    def send(self, message: bytes) -> None:
        """Send a message.

        :raises target.TargetUnreachable: it cannot be sent.
        """
        try:
            self.socket.settimeout(self.deadline.left(f"{self.place} did not read"))
            self.socket.sendall(message)
        except TimeoutError:
            raise self.deadline.over(f"{self.place} did not read") from None
        except OSError as fault:
            raise self._broken(target.system_error_text(fault)) from None

    def _broken(self, why: str) -> target.TargetUnreachable:
        return target.TargetUnreachable(f"{self.place}: {why}")

    def request(self, request: messages.Request) -> messages.Accepted:
        """Ask for a session.

        :raises Refused: the server does not want it.
        """
        self.send(request.pack())
        accepted = messages.Accepted.unpack(self.read(messages.ACCEPT_LENGTH))
        _check("a session", accepted.accept)
        return accepted

    def start(self) -> None:
        """Have the sessions begin.

        :raises Refused: the server does not want to.
        """
        self.send(messages.pack_start())
        _check("the start", messages.unpack_start_ack(self.read(messages.START_ACK_LENGTH)))

    def read_stop(self) -> dict[bytes, messages.Stopped]:
        """Read what the server has sent, by its sessions.

        :raises Refused: it has ended the sessions before their time.
        """
        accept, count = messages.unpack_stop(self.read(messages.STOP_LENGTH))
        if count > 1:
            raise messages.Malformed(f"the server tells of {count} sessions, and has one")
        stopped = {}
        for _ in range(count):
            head = self.read(messages.STOPPED_LENGTH)
            length = messages.stopped_length(head)
            if length > _RECORDS_MAX:
                raise messages.Malformed(f"the server tells of skips of {length} octets")
            each = messages.unpack_stopped(head + self.read(length))
            stopped[each.session] = each
        self.read(messages.BLOCK)
        _check("the whole session", accept)
        return stopped

    def fetch(self, session: bytes) -> list[messages.Record]:
        """Return the records of a session that the server has received.

        :raises Refused: it does not give them.
        """
        self.send(messages.Fetch(session).pack())
        ack = messages.FetchAck.unpack(self.read(messages.FETCH_ACK_LENGTH))
        _check("the records", ack.accept)
        if max(ack.records, ack.skips) > _RECORDS_MAX:
            raise messages.Malformed(f"the server has {ack.records} records of one session")
        slots = messages.Request.slots_in(self.read(messages.REQUEST_LENGTH))
        if slots > _SLOTS_MAX:
            raise messages.Malformed(f"the server tells of {slots} slots")
        self.read((slots + 1) * messages.BLOCK + ack.skips_length)
        return messages.unpack_records(self.read(ack.records_length), ack.records)


class Exchange:
    """One interval: the connection, the packets of both ways, and what became of them."""

    def __init__(self, arguments: stamp_endpoint.Arguments, number: int) -> None:
        """Take the interval's number; its first packet leaves so many intervals after the first."""
        self._arguments = arguments
        self._number = number
        self._count: int = arguments["packets"]
        self._interval_ns: int = arguments["interval_ns"]
        self._timeout_ns: int = arguments["timeout_ns"]
        self._first_ns: int = arguments["first_ns"] + number * self._count * self._interval_ns
        self._tail = os.urandom(arguments["length"] - messages.PACKET_LENGTH)
        self._sent_ns = [0] * self._count
        self._arrived: list[tuple[messages.Packet, int, int]] = []
        self._complaint = ""
        self._there, self._back = b"", os.urandom(16)
        self._to = self._from = ("", 0)

    def run(self) -> dict[str, Any]:
        """Return the record of the interval: its figures, or why there are none."""
        try:
            return {"interval": self._number, **self._measure()}
        except Refused as no:
            return {"interval": self._number, "refused": str(no), "accept": no.accept}
        except messages.Malformed as fault:
            return {"interval": self._number, "failure": f"this is no OWAMP: {fault}"}
        except (target.TargetUnreachable, stamp_endpoint.Unusable) as reason:
            return {"interval": self._number, "failure": str(reason)}

    def _measure(self) -> dict[str, Any]:
        setting_up = target.Deadline(max(1, self._first_ns - time.time_ns()))
        control = Control(self._arguments, setting_up)
        with control.socket:
            family, device = control.socket.family, self._arguments["device"]
            # The owner opens these ports in a firewall; exchanges that overlap need their own.
            port = self._arguments["own_port"] + self._number % self._arguments["own_ports"]
            packets = PacketSocket(family, device, control.addresses[0], port)
            with contextlib.closing(packets):
                self._clock = packets.clock
                self._agree(control, port)
                stopped = self._exchange(control, packets)
            control.deadline = target.Deadline(self._arguments["closing_ns"])
            return self._figures(control.fetch(self._there), stopped.get(self._back))

    def _agree(self, control: Control, own_port: int) -> None:
        """Have both sessions begin."""
        own, server = control.addresses
        own_end = (own, own_port)
        shared: dict[str, Any] = {
            "ip_version": 6 if ":" in server else 4,
            "packets": self._count,
            "padding": len(self._tail),
            "start": stamp_packet.ntp_from_ns(self._first_ns),
            "timeout_ns": self._timeout_ns,
            "slots": (messages.Slot(exponential=False, pause_ns=self._interval_ns),),
        }
        to_server: dict[str, Any] = {
            "sender": own_end,
            "receiver": (server, 0),
            "session": bytes(16),
        }
        accepted = control.request(messages.Request(server_sends=False, **to_server, **shared))
        self._there, self._to = accepted.session, (server, accepted.port)
        from_server: dict[str, Any] = {
            "sender": (server, 0),
            "receiver": own_end,
            "session": self._back,
        }
        accepted = control.request(messages.Request(server_sends=True, **from_server, **shared))
        self._from = (server, accepted.port)
        control.start()

    def _exchange(self, control: Control, packets: PacketSocket) -> dict[bytes, messages.Stopped]:
        """Send all packets, read those that come, and return what the server has sent."""
        stamp_endpoint.wait_until(self._first_ns)
        # Paced on monotonic time from here on, each packet by its own due time: no drift, no step.
        began_ns = time.monotonic_ns()
        for number in range(self._count):
            due_ns = began_ns + number * self._interval_ns
            self._listen_until(packets, due_ns)
            # After a pause of this process, a burst of old packets would only disturb.
            if time.monotonic_ns() - due_ns <= _LATE_NS_MAX:
                self._send(packets, number)
        self._listen_until(packets, time.monotonic_ns() + self._timeout_ns + _END_DELAY_NS)
        control.deadline = target.Deadline(self._arguments["closing_ns"])
        control.send(messages.pack_stop(Accept.OK, [self._own_end()]))
        # A server whose clock is behind is still sending.
        while not select.select([control.socket], [], [], 0)[0]:
            left_s = control.deadline.left(f"{control.place} did not end its session")
            waiting: list[Any] = [packets, control.socket]
            select.select(waiting, [], [], left_s)
            self._read(packets)
        return control.read_stop()

    def _listen_until(self, packets: PacketSocket, due_ns: int) -> None:
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            ready, _, _ = select.select([packets], [], [], left_ns / stamp_endpoint.SECOND_NS)
            if ready:
                self._read(packets)

    def _send(self, packets: PacketSocket, number: int) -> None:
        try:
            self._sent_ns[number] = packets.send(number, self._to, self._tail)
        except OSError as fault:
            self._complaint = target.system_error_text(fault)

    def _read(self, packets: PacketSocket) -> None:
        for packet, arrived_ns, ttl, sender in packets.read():
            if sender[:2] == self._from and len(self._arrived) < _RECORDS_MAX:
                self._arrived.append((packet, arrived_ns, ttl))

    def _own_end(self) -> messages.Stopped:
        """Return what was sent: all numbers but ranges of those that could not be."""
        unsent = [at for at, sent_ns in enumerate(self._sent_ns) if not sent_ns]
        skips = tuple((at, at) for at in unsent)
        return messages.Stopped(self._there, self._count, skips)

    def _figures(
        self, records: list[messages.Record], stopped: messages.Stopped | None
    ) -> dict[str, Any]:
        """Return the figures of the packets that both sides have sent."""
        left_out = _left_out(stopped, self._count)
        sent = [at for at, sent_ns in enumerate(self._sent_ns) if sent_ns and at not in left_out]
        there, back = _Way(sent), _Way(sent)
        for record in sorted(records, key=lambda each: each.received):
            number = record.number
            if number >= self._count or not record.received:
                continue
            sent_ns = self._sent_ns[number]
            if record.sent == stamp_packet.ntp_from_ns(sent_ns):
                arrived_ns = stamp_packet.ns_from_ntp(record.received, sent_ns)
                there.note(number, arrived_ns - sent_ns, record.ttl)
        for packet, arrived_ns, ttl in self._arrived:
            sent_ns = stamp_packet.ns_from_ntp(packet.timestamp, arrived_ns)
            back.note(packet.number, arrived_ns - sent_ns, ttl)
        estimates = [each.receive_error for each in records if each.received]
        estimates += [packet.error for packet, _, _ in self._arrived]
        both = {
            at: (there.delays_ns[at], back.delays_ns[at])
            for at in sent
            if at in there.delays_ns and at in back.delays_ns
        }
        in_time = {at: ways for at, ways in both.items() if sum(ways) <= self._timeout_ns}
        return {
            "sent": len(sent),
            "unsent": self._count - len(sent),
            "received_at_dest": len(there.delays_ns),
            "received_back": len(in_time),
            "late": len(both) - len(in_time),
            "duplicates_forward": there.duplicates,
            "duplicates_backward": back.duplicates,
            "reordered_forward": there.reordered,
            "reordered_backward": back.reordered,
            **both_ways(in_time),
            "ttls": (there.ttl, back.ttl),
            "complaint": self._complaint,
            "clock": self._clock.state(),
            "server": _server_clock(estimates),
        }


class _Way:
    """The packets of one way that arrived, of those that count."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = set(numbers)
        self.delays_ns: dict[int, int] = {}
        self.duplicates = 0
        self.reordered = 0
        self.ttl: int | None = None
        self._highest = -1

    def note(self, number: int, delay_ns: int, ttl: int) -> None:
        """Note the arrival of a packet, in the order of arrivals."""
        if number not in self._numbers or abs(delay_ns) > _FAR_NS:
            return
        if number in self.delays_ns:
            self.duplicates += 1
            return
        self.delays_ns[number] = delay_ns
        self.reordered += number < self._highest  # RFC 4737
        self._highest = max(self._highest, number)
        if self.ttl is None:
            self.ttl = ttl


def _left_out(stopped: messages.Stopped | None, count: int) -> set[int]:
    """Return the numbers below ``count`` that the server has not sent, as far as it tells."""
    if stopped is None:
        return set()
    left_out = set(range(min(stopped.next_number, count), count))
    for first, last in stopped.skips:
        left_out.update(range(first, min(last + 1, count)))
    return left_out


def _server_clock(estimates: list[int]) -> dict[str, Any]:
    """Return the state of the server's clock; the least favourable of what its packets tell."""
    told = [messages.clock_error(each) for each in estimates]
    if not told:
        return {"synchronised": None, "error_bound_ns": None}
    synchronised = all(each for each, _ in told)
    return {
        "synchronised": synchronised,
        "error_bound_ns": max(error_ns for _, error_ns in told) if synchronised else None,
    }


def _check(asked: str, accept: int) -> None:
    if accept != Accept.OK:
        raise Refused(asked, accept)


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run all exchanges.

    Arguments: ``host``, ``port`` of the server, ``ip_version`` (4, 6 or null), ``source``,
    ``device`` (an address and an interface, or null), ``own_port`` and ``own_ports`` (the ports of
    packets here), ``packets`` (in an interval), ``intervals``, ``interval_ns`` (from packet to
    packet), ``timeout_ns``, ``length`` (octets of UDP payload), ``first_ns`` (the instant of the
    first packet), ``opening_ns`` and ``closing_ns`` (how long agreeing, and ending a session with
    fetching its records, may take each).
    Records: figures of the packets of one interval and both clocks; or ``refused`` with the
    server's code in ``accept``; or a ``failure``.
    Result: ``intervals``, the number of records.
    """
    each_ns = arguments["packets"] * arguments["interval_ns"]
    running: deque[Future[dict[str, Any]]] = deque()
    with ThreadPoolExecutor(arguments["own_ports"]) as pool:
        for number in range(arguments["intervals"]):
            opens_ns = arguments["first_ns"] + number * each_ns - arguments["opening_ns"]
            _print_ended(running, until_ns=opens_ns)
            running.append(pool.submit(Exchange(arguments, number).run))
        _print_ended(running)
    return {"intervals": arguments["intervals"]}


def _print_ended(running: deque[Future[dict[str, Any]]], until_ns: int | None = None) -> None:
    """Print records in their order as exchanges end: until an instant, or all."""
    while running and (until_ns is None or time.time_ns() < until_ns):
        left_s = None if until_ns is None else (until_ns - time.time_ns()) / 1e9
        try:
            stamp_endpoint.record(running[0].result(left_s))
        except NotYet:
            continue
        running.popleft()
    if until_ns is not None:
        stamp_endpoint.wait_until(until_ns)


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
