"""One suite that every archiver must pass, each with a real one of those that it speaks to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from node.archivers import archivers, missing
from node.execution import process
from node.model import archiving, times
from node.model.errors import ArchiverFailed
from node.plugins.contracts import ArchivingHost, Delivery, Destination, Fate
from node.postgres.cluster import PrivateCluster
from tests.archived import receiver
from tests.clocks import START
from tests.takers import (
    BOOT,
    CLOCK,
    REJECTED,
    ROOM,
    Peer,
    Servers,
    Surroundings,
    free_port,
    kafka,
    otlp,
    postgres,
    prometheus,
    rabbitmq,
    s3,
    servers,
)

pytestmark = pytest.mark.timeout(BOOT + 60)

BEGAN = CLOCK.now() - times.MINUTE


@contextlib.asynccontextmanager
async def http(_: Surroundings) -> AsyncIterator[Peer]:
    """An HTTP server."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(receiver())
        yield Peer({"url": server.url}, lambda: server.documents, stack.aclose)


@contextlib.asynccontextmanager
async def file(where: Surroundings) -> AsyncIterator[Peer]:
    """A folder."""
    path = where.folder / "kept" / "results.jsonl"
    path.parent.mkdir()

    async def leave() -> None:
        await asyncio.to_thread(shutil.rmtree, path.parent)

    def got() -> list[Any]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    yield Peer({"path": str(path)}, got, leave)


@contextlib.asynccontextmanager
async def tcp(_: Surroundings) -> AsyncIterator[Peer]:
    """A server that reads lines."""
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

    server = await asyncio.start_server(read, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield Peer({"host": host, "port": port}, lambda: list(map(json.loads, lines)), leave)
    await leave()


@contextlib.asynccontextmanager
async def udp(_: Surroundings) -> AsyncIterator[Peer]:
    """A socket that takes datagrams."""
    datagrams: list[bytes] = []

    class Taking(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, _: object) -> None:
            datagrams.append(data)

    loop = asyncio.get_running_loop()
    transport, _protocol = await loop.create_datagram_endpoint(Taking, local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")

    async def leave() -> None:
        transport.close()
        await CLOCK.sleep(0)

    yield Peer({"host": host, "port": port}, lambda: list(map(json.loads, datagrams)), leave)
    await leave()


@contextlib.asynccontextmanager
async def rsyslogd(folder: Path, transport: str) -> AsyncIterator[Peer]:
    """Debian's syslog server, with a port or a socket of its own."""
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
        lines = [line.split(None, 4) for line in text.splitlines()]
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
    """Wait until it listens; of a port of UDP its kernel table tells."""
    table = Path("/proc/net/udp")
    async with asyncio.timeout(ROOM):
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
"""By case: the archiver, and who takes its results. A new archiver adds a line."""

LASTING = {"udp", "syslog-udp"}
"""Who sends datagrams does not notice that nobody takes them, unless the host says so."""


@dataclass
class Case:
    """An archiver's destination, and who is at the other end."""

    name: str
    destination: Destination
    peer: Peer


@pytest.fixture(scope="module")
def started() -> Iterator[Servers]:
    """Servers that are started for the first test that asks for them."""
    with servers() as made:
        yield made


@pytest.fixture(params=sorted(PEERS))
async def case(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: PrivateCluster, started: Servers
) -> AsyncIterator[Case]:
    """Each archiver with its peer."""
    name, made = PEERS[request.param]
    archiver = archivers()[name]
    assert missing(archiver) is None
    async with made(Surroundings(tmp_path, cluster, started)) as peer:
        spec = archiver.spec_model.model_validate(peer.spec)
        host = ArchivingHost("a.example", (tmp_path, cluster.socket), lambda: START)
        assert archiver.refusal(spec, host) is None
        destination = archiver.open(spec, host)
        yield Case(request.param, destination, peer)
        await destination.close()


def deliveries(count: int, first: int = 0) -> list[Delivery]:
    """Documents that are all different."""
    return [
        Delivery(
            f"key-{number}",
            "task",
            BEGAN + number * times.SECOND,
            number % 2 == 0,
            json.dumps(document(number), ensure_ascii=False).encode(),
        )
        for number in range(first, first + count)
    ]


def document(number: float) -> dict[str, Any]:
    """As a run's, as far as archivers look into it; its only figure is the number."""
    text = 'é" \\ %s'
    labels = {"text": text}
    metric = {"name": "number", "value": number, "unit": "1", "labels": labels}
    return {"number": number, "text": text, "succeeded": True, "metrics": [metric]}


def test_every_archiver_is_tried() -> None:
    """None is without a peer here."""
    assert {name for name, _ in PEERS.values()} == set(archivers())


async def test_a_batch_arrives_whole_and_in_order(case: Case) -> None:
    """Each document of two batches arrives once, as it was, in order."""
    for first in (0, 30):
        outcomes = await case.destination.deliver(deliveries(30, first))
        assert [outcome.fate for outcome in outcomes] == [Fate.ACCEPTED] * 30
    got = await case.peer.until(60)
    assert [document["number"] for document in got] == list(range(60))
    assert {document["text"] for document in got} == {'é" \\ %s'}


async def test_trying_it_delivers_nothing(case: Case) -> None:
    """A test says what was tried, and leaves no result behind."""
    assert await case.destination.test()
    await case.destination.deliver(deliveries(1))
    assert len(await case.peer.until(1)) == 1


async def test_who_has_gone_is_noticed(case: Case) -> None:
    """When the other side goes, what follows is to be tried again, and says why; a test fails."""
    await case.destination.deliver(deliveries(1))
    await case.peer.until(1)
    await case.peer.leave()
    await case.destination.deliver(deliveries(2, 1))
    outcomes = await case.destination.deliver(deliveries(2, 1))
    assert {outcome.fate for outcome in outcomes} == {Fate.AGAIN}
    assert all(outcome.reason for outcome in outcomes)
    if case.name not in LASTING:
        with pytest.raises(ArchiverFailed):
            await case.destination.test()


@pytest.mark.parametrize("name", sorted(archivers()))
def test_an_archiver_describes_itself(name: str) -> None:
    """Name, title, a schema with descriptions, limits, and a label without what is secret."""
    archiver = archivers()[name]
    assert (archiver.name, bool(archiver.title)) == (name, True)
    schema = archiver.spec_model.model_json_schema()
    assert schema["additionalProperties"] is False
    secret = archiving.secret_fields(archiver.spec_model)
    assert secret <= set(schema["properties"])
    examples = {
        "file": {"path": "/srv/x"},
        "http": {"url": "http://h/p?token=hush", "secret": "hush" * 4, "headers": {"A": "hush"}},
        "postgresql": {"database": "d", "user": "u", "password": "hush"},
        "prometheus": {"url": "http://h/p?token=hush", "headers": {"A": "hush"}},
        "rabbitmq": {"host": "h", "password": "hush"},
        "kafka": {"brokers": [{"host": "h"}], "password": "hush"},
        "otlp": {"url": "http://h/p?token=hush", "headers": {"A": "hush"}},
        "s3": {"bucket": "results", "access_key": "a", "secret_key": "hush"},
        "syslog": {},
    }
    spec = archiver.spec_model.model_validate(examples.get(name, {"host": "h", "port": 1}))
    limits = archiver.batches(spec)
    assert min(limits.items, limits.size, limits.timeout) > 0
    assert "hush" not in archiver.label(spec)
    shown = archiving.redacted(archiver.spec_model, spec.model_dump(mode="json"))
    assert "hush" not in json.dumps({**shown, "url": ""})


@contextlib.asynccontextmanager
async def at(
    name: str, peer: Peer, *directories: Path, **fields: Any
) -> AsyncIterator[Destination]:
    """A destination at a peer, with other fields."""
    archiver = archivers()[name]
    spec = archiver.spec_model.model_validate({**peer.spec, **fields})
    destination = archiver.open(spec, ArchivingHost("a.example", directories, CLOCK.now))
    yield destination
    await destination.close()


async def test_postgres_keeps_what_comes_twice_once(
    tmp_path: Path, cluster: PrivateCluster, started: Servers
) -> None:
    """A row for each key, and one in the view for each figure; what it cannot keep is refused."""
    async with (
        postgres(Surroundings(tmp_path, cluster, started)) as peer,
        at("postgresql", peer) as destination,
    ):
        good = deliveries(5)
        bad = replace(good[2], key="key-bad", body=b'{"text": "\\u0000"}')
        outcomes = await destination.deliver([*good[:2], bad, *good[2:]])
        accepted, refused = Fate.ACCEPTED, Fate.REFUSED
        assert [one.fate for one in outcomes] == [accepted] * 2 + [refused] + [accepted] * 3
        assert "Unicode" in (outcomes[2].reason or "")
        assert {one.fate for one in await destination.deliver(good)} == {accepted}
        connection = await asyncpg.connect(
            cluster.dsn(peer.spec["database"]), server_settings={"timezone": "UTC"}
        )
        rows = await connection.fetch("SELECT name, value, unit, at, key FROM parley_metric")
        await connection.close()
    found = sorted((row["value"], row["key"], row["at"]) for row in rows)
    assert found == [
        (float(n), f"key-{n}", times.to_datetime(one.at)) for n, one in enumerate(good)
    ]


async def test_postgres_makes_no_table_where_it_must_not(
    tmp_path: Path, cluster: PrivateCluster, started: Servers
) -> None:
    """What is delivered waits until somebody has made it, and says so."""
    async with (
        postgres(Surroundings(tmp_path, cluster, started)) as peer,
        at("postgresql", peer, create=False) as destination,
    ):
        [outcome] = await destination.deliver(deliveries(1))
        assert (outcome.fate, outcome.reason) == (
            Fate.AGAIN,
            "there is no table parley_result in schema public",
        )
        with pytest.raises(ArchiverFailed):
            await destination.test()
        async with at("postgresql", peer) as making:
            assert (await making.deliver(deliveries(1)))[0].fate is Fate.ACCEPTED
        assert (await destination.deliver(deliveries(1)))[0].fate is Fate.ACCEPTED


async def test_what_no_queue_takes_is_not_delivered(
    tmp_path: Path, cluster: PrivateCluster, started: Servers
) -> None:
    """In an exchange to which nothing is bound a message would be lost; one not there is told."""
    async with rabbitmq(Surroundings(tmp_path, cluster, started)) as peer:
        for exchange, said in (("amq.fanout", "no queue takes it"), ("none", "no exchange 'none'")):
            async with at("rabbitmq", peer, exchange=exchange) as destination:
                outcomes = await destination.deliver(deliveries(3))
                assert {one.fate for one in outcomes} == {Fate.AGAIN}
                assert said in (outcomes[0].reason or "")
        assert peer.got() == []


async def test_prometheus_refuses_what_is_older_than_what_it_has(
    tmp_path: Path, cluster: PrivateCluster, started: Servers
) -> None:
    """Only that, and what has no figures; what comes twice at the same instant is taken."""
    async with (
        prometheus(Surroundings(tmp_path, cluster, started)) as peer,
        at("prometheus", peer) as destination,
    ):
        first, *later = deliveries(4)
        empty = replace(first, key="key-empty", body=b'{"summary": "changed by a transform"}')
        assert {one.fate for one in await destination.deliver(later)} == {Fate.ACCEPTED}
        outcomes = await destination.deliver([first, later[-1], empty])
        assert [one.fate for one in outcomes] == [Fate.REFUSED, Fate.ACCEPTED, Fate.REFUSED]
        assert "out of order" in (outcomes[0].reason or "")
        assert "figures" in (outcomes[2].reason or "")
        assert [one["number"] for one in await peer.until(3)] == [1, 2, 3]


async def test_a_collector_may_reject_one_of_many(
    tmp_path: Path, cluster: PrivateCluster, started: Servers
) -> None:
    """What says success and rejects a figure refuses that result; the others are taken."""
    async with (
        otlp(Surroundings(tmp_path, cluster, started)) as peer,
        at("otlp", peer) as destination,
    ):
        good = deliveries(4)
        bad = replace(good[2], body=json.dumps(document(REJECTED)).encode())
        outcomes = await destination.deliver([*good[:2], bad, good[3]])
        fates = [Fate.ACCEPTED, Fate.ACCEPTED, Fate.REFUSED, Fate.ACCEPTED]
        assert [one.fate for one in outcomes] == fates
        assert outcomes[2].reason == "rejected: not this one"
        assert {one["number"] for one in await peer.until(3)} == {0, 1, 3}


async def test_kafka_parks_what_no_record_holds(
    tmp_path: Path, cluster: PrivateCluster, started: Servers
) -> None:
    """What is around it is delivered."""
    async with (
        kafka(Surroundings(tmp_path, cluster, started)) as peer,
        at("kafka", peer) as destination,
    ):
        first, second, third = deliveries(3)
        long = replace(second, body=b'"' + b"x" * 1_000_000 + b'"')
        outcomes = await destination.deliver([first, long, third])
        assert [one.fate for one in outcomes] == [Fate.ACCEPTED, Fate.REFUSED, Fate.ACCEPTED]
        assert [one["number"] for one in await peer.until(2)] == [0, 2]
