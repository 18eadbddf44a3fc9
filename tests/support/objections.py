"""A name server on loopback, with records by which targets object to being measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import cast

import dns.asyncresolver
import dns.message
import dns.rcode
import dns.rrset

from node.runtime.opt_outs import OptOuts

_SOA = "example.net. 5 IN SOA ns.example.net. a.example.net. 1 2 3 4 90"
_RECORDS = {
    "_parley.example.org.": '"measure=no"',
    "_parley.www.example.org.": '"measure=yes"',
    "_parley.4.0.41.198.in-addr.arpa.": '"measure" "=no"',
}


class Zone(asyncio.DatagramProtocol):
    """A name server with some records; ``silent`` it answers nothing."""

    def __init__(self) -> None:
        """Answer what comes."""
        self.asked: Counter[str] = Counter()
        self.silent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer by this."""
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a question."""
        query = dns.message.from_wire(data)
        name = query.question[0].name.to_text()
        self.asked[name] += 1
        if self.silent:
            return
        answer = dns.message.make_response(query)
        if name in _RECORDS:
            answer.answer = [dns.rrset.from_text(name, 300, "IN", "TXT", _RECORDS[name])]
        else:
            answer.set_rcode(dns.rcode.NXDOMAIN)
            answer.authority = list(dns.message.from_text(f"id 1\n;ANSWER\n{_SOA}\n").answer)
        self.transport.sendto(answer.to_wire(), addr)


@contextlib.asynccontextmanager
async def objecting() -> AsyncIterator[tuple[Zone, OptOuts]]:
    """Serve the records; yield the server, and what asks it."""
    loop = asyncio.get_running_loop()
    transport, zone = await loop.create_datagram_endpoint(Zone, local_addr=("127.0.0.1", 0))
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = ["127.0.0.1"], transport.get_extra_info("sockname")[1]
    try:
        yield zone, OptOuts(tuple, resolver)
    finally:
        transport.close()
