"""A name server on loopback, with records by which targets object to being measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import dns.message
import dns.rcode
import dns.rrset

from node.runtime.opt_outs import OptOuts
from node.runtime.resolver import NameServers

_SOA = "example.net. 5 IN SOA ns.example.net. a.example.net. 1 2 3 4 90"
_NO = "TXT", '"measure=no"'
_RECORDS = {
    "_parley.example.org.": [(300, *_NO)],
    "_parley.www.example.org.": [(300, "TXT", '"measure=yes"')],
    "_parley.4.0.41.198.in-addr.arpa.": [(300, "TXT", '"measure" "=no"')],
    "_parley.forever.example.": [(300, "CNAME", "_parley.forever.example.")],
    "_parley.huge.example.": [
        (300, "TXT", " ".join(f'"{"x" * 255}"' for _ in range(60))),
        (300, *_NO),
    ],
    "_parley.hasty.example.": [(0, *_NO)],
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
        for seconds, kind, text in _RECORDS.get(name, ()):
            answer.answer.append(dns.rrset.from_text(name, seconds, "IN", kind, text))
        if not answer.answer:
            answer.set_rcode(dns.rcode.NXDOMAIN)
            answer.authority = list(dns.message.from_text(f"id 1\n;ANSWER\n{_SOA}\n").answer)
        self.transport.sendto(answer.to_wire(), addr)


@contextlib.asynccontextmanager
async def objecting() -> AsyncIterator[tuple[Zone, OptOuts]]:
    """Serve the records; yield the server, and what asks it."""
    loop = asyncio.get_running_loop()
    transport, zone = await loop.create_datagram_endpoint(Zone, local_addr=("127.0.0.1", 0))
    with TemporaryDirectory() as folder:
        configuration = Path(folder, "resolv.conf")
        configuration.write_text("nameserver 127.0.0.1\n")
        port = transport.get_extra_info("sockname")[1]
        try:
            yield zone, OptOuts(tuple, NameServers(configuration, port))
        finally:
            transport.close()
