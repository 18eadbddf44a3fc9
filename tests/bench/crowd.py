"""One process that stands in for many nodes: ``python -m tests.bench.crowd COUNT FILE SECONDS``.

FILE has the card of the node that knows them, as JSON. The program replaces it by a list of theirs,
and prints ``ready``. Each has a key, and an address of its own on loopback, at one port. It
answers what a node asks that looks at another one, signed with the key of who was asked, and looks
at the node itself: as each of them once in so many SECONDS.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from node.client.peers import Peers
from node.model.errors import ParleyError
from node.model.wire.checks import PeerFacts
from node.model.wire.fields import Document
from node.model.wire.nodes import ClockState, NodeCard
from node.model.wire.participants import ConfirmationAnswer, ConfirmationRequest
from node.runtime.clock import SystemClock
from node.trust.keys import NodeKey
from node.trust.signatures import NONCE_HEADER, Asked
from node.trust.signer import Signer

PORT = 8700
READY = b"ready\n"
_NONCE = re.compile(r'nonce="([^"]+)"')
_PATIENCE_S = 10
_FREE_TIME = 80_000_000_000


@dataclass(frozen=True)
class _Member:
    card: NodeCard
    signer: Signer


class Crowd:
    """The nodes, by the addresses at which they answer."""

    def __init__(self, count: int, card: NodeCard) -> None:
        """Make so many nodes that have what the node of this card has."""
        self._clock = SystemClock()
        self._known = card
        self.members: dict[str, _Member] = {}
        for number in range(count):
            address = f"127.40.{number // 250}.{number % 250 + 1}"
            key = NodeKey.generate()
            own = card.model_copy(
                update={
                    "identity": key.identity,
                    "name": f"n{number}",
                    "url": f"http://{address}:{PORT}",
                    "address": address,
                }
            )
            self.members[address] = _Member(own, Signer(key, self._clock.now))

    async def answer(self, request: web.Request) -> web.Response:
        """Answer as the node whose address was asked."""
        assert request.transport is not None
        member = self.members[request.transport.get_extra_info("sockname")[0]]
        await request.read()
        body = self._document_of(request.path, member).model_dump_json().encode()
        nonce = request.headers.get(NONCE_HEADER, "")
        if found := _NONCE.search(request.headers.get("Signature-Input", "")):
            nonce = found[1]
        headers = member.signer.answer(200, body, nonce, Asked(request.method, request.raw_path))
        return web.Response(body=body, content_type="application/json", headers=headers)

    def _document_of(self, path: str, member: _Member) -> Document:
        now = self._clock.now()
        if path.endswith("/confirmations"):
            return ConfirmationAnswer(shortfall=_FREE_TIME, busy_until=now)
        if path.endswith("/facts"):
            return PeerFacts(
                received_at=now,
                answered_at=now,
                clock=ClockState(now=now, synchronised=True, error_bound_ms=1.0),
                processors=2,
                load=0,
                needs_attention=0,
            )
        return member.card

    async def look(self, every_s: float) -> None:
        """Look at the node as each of them, spread over the interval."""
        assert self._known.url is not None
        connector = aiohttp.TCPConnector(limit=16, keepalive_timeout=5)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            while True:
                for member in self.members.values():
                    await self._clock.sleep(every_s / len(self.members))
                    peers = Peers(session, member.signer, _PATIENCE_S)
                    peer = peers.client_of(self._known.identity, self._known.name, self._known.url)
                    try:
                        await peers.card(self._known.url, self._known.identity)
                        await peer.confirm(ConfirmationRequest(tasks=()))
                    except ParleyError as error:
                        sys.stderr.write(f"{member.card.name}: {error.detail}\n")


async def main(count: int, file: Path, every_s: float) -> None:
    """Answer and look until the process is ended."""
    crowd = Crowd(count, NodeCard.model_validate_json(file.read_text()))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", crowd.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", PORT, backlog=1024).start()
    cards = [it.card.model_dump(mode="json") for it in crowd.members.values()]
    file.write_text(json.dumps(cards))
    sys.stdout.write(READY.decode())
    sys.stdout.flush()
    await crowd.look(every_s)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))
