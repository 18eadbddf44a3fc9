"""A name server on loopback that answers from a table, or swallows what it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from node.runtime.resolver import Resolver

NOTHING, EVERYTHING = re.compile("(?!)"), re.compile("")

ABSENT_S = 60
"""Seconds for which it holds that there is no such name, by the server's SOA record."""


class NameServer(asyncio.DatagramProtocol):
    """Answers questions.

    ``records`` has, by name, records as ``(seconds to live, kind, text)``. ``asked`` counts
    questions by name and kind. Questions for names in which ``swallowed`` finds something are not
    answered.
    """

    def __init__(self) -> None:
        """Know no names."""
        self.records: dict[str, list[tuple[int, str, str]]] = {}
        self.asked: Counter[tuple[str, str]] = Counter()
        self.swallowed = NOTHING
        self.heard = asyncio.Event()
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep the transport, to answer by it."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Answer a question."""
        query = dns.message.from_wire(data)
        [question] = query.question
        name, kind = (
            question.name.to_text(omit_final_dot=True),
            dns.rdatatype.to_text(question.rdtype),
        )
        self.asked[name, kind] += 1
        self.heard.set()
        if self.swallowed.search(name):
            return
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        if name not in self.records:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        fitting = [each for each in self.records.get(name, ()) if each[1] == kind]
        for seconds, _, text in fitting:
            answer.answer.append(dns.rrset.from_text(question.name, seconds, "IN", kind, text))
        if not fitting:
            soa = f"ns.test. owner.test. 1 3600 600 86400 {ABSENT_S}"
            answer.authority.append(dns.rrset.from_text("test.", ABSENT_S, "IN", "SOA", soa))
        self._transport.sendto(answer.to_wire(), addr)


@contextlib.asynccontextmanager
async def name_server(address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[NameServer]:
    """Serve names at an address meanwhile."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(NameServer, local_addr=(address, port))
    try:
        yield server
    finally:
        transport.close()


def resolver_of(server: NameServer, folder: Path) -> Resolver:
    """Return a resolver that asks this server only."""
    host, port = server._transport.get_extra_info("sockname")
    (folder / "resolv.conf").write_text(f"nameserver {host}\n")
    (folder / "hosts").write_text("192.0.2.9 Listed other\n2001:db8::9 listed # by hand\n")
    return Resolver(folder / "resolv.conf", folder / "hosts", port)
