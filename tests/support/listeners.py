"""Receivers of results that are neither brokers nor databases, and a receiver for each archiver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from node.execution import process
from node.model import times
from node.plugins.contracts import DeliveryItem
from tests.support.archiving import receiver
from tests.support.loopback import free_port
from tests.support.patience import PATIENCE_S
from tests.support.receivers import (
    CLOCK,
    Peer,
    Surroundings,
    kafka,
    otlp,
    postgres,
    prometheus,
    rabbitmq,
    s3,
)

BEGAN = CLOCK.now() - times.MINUTE


@contextlib.asynccontextmanager
async def http(_: Surroundings) -> AsyncIterator[Peer]:
    """Start an HTTP server."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(receiver())
        yield Peer({"url": server.url}, lambda: server.documents, stack.aclose)


@contextlib.asynccontextmanager
async def http_single(where: Surroundings) -> AsyncIterator[Peer]:
    """Start an HTTP server that gets a PUT for each document."""
    async with http(where) as peer:
        spec = {**peer.spec, "format": "single", "method": "PUT", "bind": "127.0.0.1"}
        yield Peer(spec, peer.got, peer.leave)


@contextlib.asynccontextmanager
async def file(where: Surroundings) -> AsyncIterator[Peer]:
    """Create a folder."""
    path = where.folder / "kept" / "results.jsonl"
    path.parent.mkdir()

    async def leave() -> None:
        await asyncio.to_thread(shutil.rmtree, path.parent)

    def got() -> list[Any]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    yield Peer({"path": str(path)}, got, leave)


@contextlib.asynccontextmanager
async def tcp(_: Surroundings, port: int = 0) -> AsyncIterator[Peer]:
    """Start a server that reads lines."""
    lines: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.CancelledError):
            while line := await reader.readline():
                lines.append(line)
        writer.close()

    async def leave() -> None:
        server.close()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(read, "127.0.0.1", port)
    host, port = server.sockets[0].getsockname()
    yield Peer({"host": host, "port": port}, lambda: list(map(json.loads, lines)), leave)
    await leave()


@contextlib.asynccontextmanager
async def udp(_: Surroundings, port: int = 0) -> AsyncIterator[Peer]:
    """Open a socket that receives datagrams."""
    datagrams: list[bytes] = []

    class Taking(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, _: object) -> None:
            datagrams.append(data)

    loop = asyncio.get_running_loop()
    address = ("127.0.0.1", port)
    transport, _protocol = await loop.create_datagram_endpoint(Taking, local_addr=address)
    host, port = transport.get_extra_info("sockname")

    async def leave() -> None:
        transport.close()
        await CLOCK.sleep(0)

    yield Peer({"host": host, "port": port}, lambda: list(map(json.loads, datagrams)), leave)
    await leave()


@contextlib.asynccontextmanager
async def rsyslogd(folder: Path, transport: str) -> AsyncIterator[Peer]:
    """Start Debian's syslog server, with a port or a socket of its own."""
    port = free_port()
    path, written = folder / "log.sock", folder / "messages"
    listens = {
        "udp": f'module(load="imudp") input(type="imudp" port="{port}" address="127.0.0.1")',
        "tcp": f'module(load="imtcp") input(type="imtcp" port="{port}" address="127.0.0.1")',
        "unix": f'module(load="imuxsock" SysSock.Use="off") input(type="imuxsock" socket="{path}" '
        'useSpecialParser="off" parseHostname="on")',
    }
    settings = folder / "rsyslog.conf"
    settings.write_text(
        f'global(workDirectory="{folder}")\n{listens[transport]}\n'
        'template(name="parts" type="list") { property(name="syslogfacility-text") '
        'constant(value=" ") property(name="syslogseverity-text") constant(value=" ") '
        'property(name="app-name") constant(value=" ") property(name="msgid") '
        'constant(value=" ") property(name="msg") constant(value="\\n") }\n'
        f'action(type="omfile" file="{written}" template="parts")\n'
    )
    argv = ["rsyslogd", "-n", "-i", str(folder / "pid"), "-f", str(settings)]
    daemon = await process.start(argv, log=folder / "rsyslog.log")

    def got() -> list[Any]:
        text = written.read_text() if written.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # the daemon may be writing the last line
        lines = [line.split(None, 4) for line in whole.splitlines()]
        own = [line for line in lines if line[2:4] == ["parley", "result"]]
        assert {line[0] for line in own} <= {"local0"}
        return [json.loads(line[4]) for line in own]

    async def leave() -> None:
        await daemon.end(5)
        path.unlink(missing_ok=True)

    try:
        await _listening(transport, port, path)
        spec: dict[str, Any] = {"transport": transport, "path": str(path)}
        yield Peer({**spec, "host": "127.0.0.1", "port": port}, got, leave)
    finally:
        await leave()


async def _listening(transport: str, port: int, path: Path) -> None:
    """Wait until a server listens; for UDP, look into the kernel's table."""
    table = Path("/proc/net/udp")
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(OSError):
                if transport == "tcp":
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                if path.exists() or f":{port:04X} " in table.read_text():
                    return
            await CLOCK.sleep(0.01)


PEERS: dict[str, tuple[str, Callable[[Surroundings], AbstractAsyncContextManager[Peer]]]] = {
    "file": ("file", file),
    "http": ("http", http),
    "http-single": ("http", http_single),
    "kafka": ("kafka", kafka),
    "otlp": ("otlp", otlp),
    "postgresql": ("postgresql", postgres),
    "prometheus": ("prometheus", prometheus),
    "rabbitmq": ("rabbitmq", rabbitmq),
    "s3": ("s3", s3),
    "tcp": ("tcp", tcp),
    "udp": ("udp", udp),
    "syslog-tcp": ("syslog", lambda where: rsyslogd(where.folder, "tcp")),
    "syslog-udp": ("syslog", lambda where: rsyslogd(where.folder, "udp")),
    "syslog-unix": ("syslog", lambda where: rsyslogd(where.folder, "unix")),
}
"""By case: the archiver, and the receiver of its results. A new archiver adds a line."""


def deliveries(count: int, first: int = 0) -> list[DeliveryItem]:
    """Return documents that are all different, a second apart."""
    return [
        DeliveryItem(
            f"key-{number}",
            "task",
            BEGAN + number * times.SECOND,
            number % 2 == 0,
            json.dumps(document(number), ensure_ascii=False).encode(),
        )
        for number in range(first, first + count)
    ]


def document(number: float) -> dict[str, Any]:
    """Return a document like a run's, as far as archivers read it; its figure is the number."""
    text = 'é" \\ %s'
    labels = {"text": text}
    metric = {"name": "number", "value": number, "unit": "1", "labels": labels}
    return {"number": number, "text": text, "succeeded": True, "metrics": [metric]}
