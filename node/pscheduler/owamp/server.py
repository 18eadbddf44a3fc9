"""The server of OWAMP: the control connections of hosts that measure to and from this one.

Everything that a stranger may have is bounded: connections, sessions, time to say something, memory
(:data:`RECORDS_MAX`), rate and length (:mod:`.terms`), and the caps of the owner's limits, under
which a session counts like a run to this host by name. It speaks to the networks that the owner has
named, in open mode: the address is all that is known of the other end, and packets are exchanged
with this address alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import structlog

from node.model.errors import DatabaseUnavailable, HostError, reason_of
from node.model.host_limits.quotas import RunAmounts
from node.plugins.tools.programs import owamp_messages as messages
from node.plugins.tools.programs import stamp_endpoint, stamp_packet
from node.plugins.tools.programs.owamp_messages import Accept, Accepted, Command, Request, Stopped
from node.plugins.tools.programs.owamp_packets import PacketSocket, now_ns
from node.pscheduler.owamp import terms
from node.pscheduler.owamp.sessions import Receiver, Sender, Session
from node.service import NodeService

CONNECTIONS_MAX = 256
CONNECTIONS_PER_ADDRESS = 32
RECORDS_MAX = 1_000_000
"""Maximum records of all sessions that this host receives: 25 MB."""
SETTING_UP_S = 10.0
"""Maximum seconds until a client has chosen a mode, and for the rest of a message that began."""
SILENCE_S = 1_800.0
"""Maximum seconds between two requests, as RFC 4656 proposes."""
READING_S = 60.0
"""Maximum seconds until a client has read what it asked for, which is 2 MB at most."""
STOP_S = 30.0
"""Maximum seconds for a client's stop, once this host has ended its own sessions."""
KEPT_S = 120.0
"""Seconds for which the records of a session that is over may be fetched."""
_PORT_TRIALS = 20
_US_PER_S, _NS_PER_US, _MEGABIT = 1_000_000, 1_000, 1_000_000

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def listening(node: NodeService) -> AsyncIterator[None]:
    """Serve clients of OWAMP meanwhile, if the settings say where.

    :raises HostError: this host cannot listen there.
    """
    address = node.settings.owamp_address
    if address is None:
        yield
        return
    serving = OwampServer(node)
    try:
        server = await asyncio.start_server(serving.serve, *address)
    except OSError as error:
        msg = (
            f"cannot listen on {node.settings.owamp_listen}: {error.strerror}; choose another with "
            "PARLEY_OWAMP_LISTEN, and stop owampd if it is still there"
        )
        raise HostError(msg) from error
    log.info(
        "clients of OWAMP are served, and known by their addresses alone",
        listen=node.settings.owamp_listen,
        may_measure=node.settings.owamp_allow or "nobody: set PARLEY_OWAMP_ALLOW",
    )
    try:
        yield
    finally:
        server.close()
        await serving.close()


class OwampServer:
    """All connections, and what they have taken."""

    def __init__(self, node: NodeService) -> None:
        """Serve under the settings and limits of a node."""
        self._node, self.clock = node, node.clock
        self._open = Counter[str]()
        self._tasks = set[asyncio.Task[Any] | None]()
        self._receivers: dict[bytes, Receiver] = {}
        self._records = 0
        self._ports = random.SystemRandom()
        self.started = stamp_packet.ntp_from_ns(now_ns())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.current_task()
        if task is not None:  # there is one, since the server starts it
            self._tasks.add(task)
        peer = _address(writer.get_extra_info("peername"))
        self._open[peer] += 1
        try:
            await _Connection(self, reader, writer, peer).talk(self._mode(peer))
        except (messages.Malformed, OSError, EOFError, TimeoutError) as fault:
            log.debug("a client of OWAMP is gone", peer=peer, why=reason_of(fault))
        finally:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]
            self._tasks -= {task}
            writer.close()

    async def close(self) -> None:
        """End all connections."""
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _mode(self, peer: str) -> int:
        """Return the mode that a host is offered; none if it is not served."""
        allowed = self._node.settings.owamp_clients
        if not any(ipaddress.ip_address(peer) in network for network in allowed):
            return 0
        if self._open[peer] > CONNECTIONS_PER_ADDRESS or self._open.total() > CONNECTIONS_MAX:
            return 0
        return messages.OPEN_MODE

    async def refusal(self, request: Request, peer: str) -> terms.Refusal | None:
        """Return why a session with a host is refused; None if it is counted and may begin."""
        now = now_ns()
        start_ns = max(now, stamp_packet.ns_from_ntp(request.start, now))
        refused = terms.refusal(request, peer, now, start_ns)
        if refused is not None:
            return refused
        if not request.server_sends and self._records + Receiver.records_max(request) > RECORDS_MAX:
            return terms.Refusal(Accept.NO_RESOURCES_NOW, "the memory for records is used up")
        lasts = terms.duration_ns(request) // _NS_PER_US
        moved = request.packets * terms.length_bytes(request)
        start = start_ns // _NS_PER_US
        mbps = -(-moved * 8 * _US_PER_S // max(1, lasts) // _MEGABIT)
        try:
            limited = await self._node.limits.count_named_targets(
                [peer], (start, start + max(1, lasts)), RunAmounts(lasts, moved), mbps
            )
        except DatabaseUnavailable as fault:
            return terms.Refusal(Accept.NO_RESOURCES_NOW, fault.detail)
        return None if limited is None else terms.Refusal(Accept.NO_RESOURCES_NOW, limited)

    def packet_socket(self, family: int, own: str) -> PacketSocket:
        """Return a socket at a free port of those for sessions.

        :raises stamp_endpoint.Unusable: none of those tried is free.
        """
        ports = self._node.settings.owamp_session_ports
        for _ in range(_PORT_TRIALS - 1):
            with contextlib.suppress(stamp_endpoint.Unusable):
                return PacketSocket(family, None, own, self._ports.choice(ports))
        return PacketSocket(family, None, own, self._ports.choice(ports))

    def keep(self, receiver: Receiver) -> None:
        """Reserve the memory of a session, and let its records be fetched."""
        self._receivers[receiver.request.session] = receiver
        self._records += Receiver.records_max(receiver.request)

    def forget(self, receiver: Receiver) -> None:
        """Release it again."""
        if self._receivers.pop(receiver.request.session, None) is not None:
            self._records -= Receiver.records_max(receiver.request)

    def forget_later(self, receiver: Receiver) -> None:
        """Release it after a while in which it may be fetched, over any connection of its host."""
        asyncio.get_running_loop().call_later(KEPT_S, self.forget, receiver)

    def receiver(self, session: bytes, peer: str) -> Receiver | None:
        """Return a session that a host may fetch; None if there is none of its own."""
        found = self._receivers.get(session)
        return found if found is not None and found.peer == peer else None


class _Connection:
    """One control connection, and its sessions."""

    def __init__(
        self,
        server: OwampServer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: str,
    ) -> None:
        self._server, self._reader, self._writer, self._peer = server, reader, writer, peer
        self._own = _address(writer.get_extra_info("sockname"))
        self._family = socket.AF_INET6 if ":" in peer else socket.AF_INET
        self._sessions: list[Session] = []

    async def talk(self, mode: int) -> None:
        """Answer until the client is gone, or says what cannot be."""
        greeting = messages.Greeting(mode)
        self._writer.write(greeting.pack(os.urandom(16), os.urandom(16), 1 << 10))
        if not mode:
            await self._flush()
            return
        chosen = messages.unpack_set_up(await self._read(messages.SET_UP_LENGTH, SETTING_UP_S))
        accept = Accept.OK if chosen == messages.OPEN_MODE else Accept.NOT_SUPPORTED
        self._writer.write(messages.pack_server_start(accept, self._server.started))
        if accept is not Accept.OK:
            await self._flush()
            return
        try:
            while True:
                await self._flush()
                await self._answer(await self._read(messages.BLOCK, SILENCE_S))
        finally:
            self._release()

    def _release(self) -> None:
        for session in self._sessions:
            session.end()
            session.packets.close()
            if isinstance(session, Receiver):
                self._server.forget(session)
        self._sessions.clear()

    async def _read(self, length: int, patience_s: float) -> bytes:
        async with asyncio.timeout(patience_s):
            return await self._reader.readexactly(length)

    async def _flush(self) -> None:
        async with asyncio.timeout(READING_S):
            await self._writer.drain()

    async def _rest(self, first: bytes, length: int) -> bytes:
        return first + await self._read(length - len(first), SETTING_UP_S)

    async def _answer(self, first: bytes) -> None:
        if first[0] == Command.REQUEST:
            head = await self._rest(first, messages.REQUEST_LENGTH)
            slots = messages.Request.slots_in(head)
            if slots > terms.SLOTS_MAX:
                raise messages.Malformed(f"a request has {slots} slots")
            more = await self._read((slots + 1) * messages.BLOCK, SETTING_UP_S)
            answer = await self._open(Request.unpack(head + more))
            self._writer.write(answer.pack())
        elif first[0] == Command.START:
            await self._rest(first, messages.START_LENGTH)
            await self._run()
        elif first[0] == Command.FETCH:
            fetch = messages.Fetch.unpack(await self._rest(first, messages.FETCH_LENGTH))
            await self._give(fetch)
        else:
            raise messages.Malformed(f"a message begins with {first[0]}")

    async def _open(self, request: Request) -> Accepted:
        """Return the answer to a request, with a session that waits for its start."""
        refused: terms.Refusal | None
        if len(self._sessions) >= terms.SESSIONS_MAX:
            refused = terms.Refusal(Accept.NO_RESOURCES, "too many sessions at a time")
        elif (refused := await self._server.refusal(request, self._peer)) is None:
            try:
                packets = self._server.packet_socket(self._family, self._own)
                return self._accepted(request, packets)
            except stamp_endpoint.Unusable as fault:
                refused = terms.Refusal(Accept.NO_RESOURCES_NOW, str(fault))
        log.info("a session of OWAMP is refused", peer=self._peer, why=str(refused.why))
        return Accepted(refused.accept)

    def _accepted(self, request: Request, packets: PacketSocket) -> Accepted:
        clock = self._server.clock
        if request.server_sends:
            self._sessions.append(Sender(request, self._peer, packets, clock))
            return Accepted(Accept.OK, packets.port, request.session)
        # Whoever receives chooses the id.
        session = os.urandom(16)
        told = replace(request, session=session, receiver=(request.receiver[0], packets.port))
        receiver = Receiver(told, self._peer, packets, clock)
        self._server.keep(receiver)
        self._sessions.append(receiver)
        return Accepted(Accept.OK, packets.port, session)

    async def _run(self) -> None:
        """Run all sessions; they end when each is over, or the client says so."""
        self._writer.write(messages.pack_start_ack(Accept.OK))
        await self._flush()
        sessions, self._sessions = self._sessions, []
        receivers = [each for each in sessions if isinstance(each, Receiver)]
        working = [asyncio.create_task(each.run()) for each in sessions]
        stopping = asyncio.create_task(self._read_stop())
        try:
            all_over = asyncio.gather(*working)
            first: list[asyncio.Future[Any]] = [all_over, stopping]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            for each in sessions:
                each.end()
            await all_over
            sent = [each.stopped for each in sessions if isinstance(each, Sender)]
            self._writer.write(messages.pack_stop(Accept.OK, sent))
            await self._flush()
            async with asyncio.timeout(STOP_S):
                stopped = await stopping
        finally:
            stopping.cancel()
            for each, task in zip(sessions, working, strict=True):
                task.cancel()
                each.packets.close()
            await asyncio.gather(stopping, *working, return_exceptions=True)
            for receiver in receivers:
                self._server.forget_later(receiver)
        for receiver in receivers:
            receiver.finish(stopped.get(receiver.request.session))

    async def _read_stop(self) -> dict[bytes, Stopped]:
        """Read what the client has sent, by its sessions."""
        first = await self._reader.readexactly(messages.STOP_LENGTH)
        _, count = messages.unpack_stop(first)
        if count > terms.SESSIONS_MAX:
            raise messages.Malformed(f"a stop tells of {count} sessions")
        stopped = {}
        for _ in range(count):
            head = await self._read(messages.STOPPED_LENGTH, SETTING_UP_S)
            length = messages.stopped_length(head)
            if length > terms.PACKETS_MAX * messages.BLOCK:
                raise messages.Malformed(f"a stop tells of skips of {length} octets")
            each = messages.unpack_stopped(head + await self._read(length, SETTING_UP_S))
            stopped[each.session] = each
        await self._read(messages.BLOCK, SETTING_UP_S)
        return stopped

    async def _give(self, fetch: messages.Fetch) -> None:
        """Answer a request for records."""
        receiver = self._server.receiver(fetch.session, self._peer)
        if receiver is None:
            self._writer.write(messages.FetchAck(Accept.FAILURE).pack())
            return
        records = await receiver.records(fetch.first, fetch.last)
        ack = receiver.ack(len(records))
        skips = receiver.stopped.skips if receiver.stopped and ack.skips else ()
        self._writer.write(ack.pack() + receiver.request.pack() + messages.pack_skips(skips))
        self._writer.write(messages.pack_records(records))
        await self._flush()


def _address(name: tuple[str, int]) -> str:
    """Return the address of a socket, without the form that IPv4 has over IPv6."""
    return str(name[0]).removeprefix("::ffff:").partition("%")[0]
