"""Receivers of results: real brokers and databases, each a process of the tests."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aio_pika
import asyncpg
import boto3
from aiohttp import web
from confluent_kafka import Consumer, Producer, TopicPartition
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from pyarrow import parquet

from node.postgres.cluster import PrivateCluster
from node.runtime.clock import SystemClock
from tests.support.databases import copy_database
from tests.support.loopback import free_port, serving
from tests.support.patience import PATIENCE_S

CLOCK = SystemClock()
BOOT = 180.0
"""Maximum seconds for the start of a server on a busy host."""
REJECTED = 13.5
"""A figure that the collector rejects."""
_NUMBERS = count(1)


@dataclass
class Peer:
    """A receiver of results, with the archiver's spec for it; ``got`` are the documents."""

    spec: dict[str, Any]
    got: Callable[[], list[Any] | Awaitable[list[Any]]]
    leave: Callable[[], Any]

    async def until(self, count: int) -> list[Any]:
        """Return what it got, once it has this many documents."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := await self._found()) < count:
                await CLOCK.sleep(0.01)  # another process has it: nothing tells us
        return found

    async def _found(self) -> list[Any]:
        found = self.got()
        return await found if inspect.isawaitable(found) else found


class CloseableForwarder:
    """A forwarder to a server on loopback that can be closed, as if the server were gone."""

    def __init__(self, port: int) -> None:
        """Forward to ``port``."""
        self._to = port
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Return the port to connect to."""
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, back]
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(_pass(reader, back), _pass(there, writer))

    async def close(self) -> None:
        """Close all connections, and accept no more."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await CLOCK.sleep(0)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()


class Servers:
    """Servers that many tests use, started on first use."""

    def __init__(self) -> None:
        """Start without servers."""
        self._folder = Path(tempfile.mkdtemp(prefix="parley-servers-"))
        self._running: list[subprocess.Popen[bytes]] = []
        self._ports: dict[str, int] = {}

    def close(self) -> None:
        """Stop all servers."""
        for server in reversed(self._running):
            server.terminate()
            server.wait(PATIENCE_S)
        shutil.rmtree(self._folder)

    def rabbitmq(self) -> int:
        """Return the port of Debian's RabbitMQ, with its own port mapper and database."""
        if "rabbitmq" not in self._ports:
            folder = self._folder / "rabbitmq"
            folder.mkdir()
            port, mapper = free_port(), free_port()
            settings = folder / "rabbitmq.config"
            settings.write_text(f'[{{rabbit, [{{tcp_listeners, [{{"127.0.0.1", {port}}}]}}]}}].\n')
            (folder / "plugins").write_text("[].\n")
            names = {"ERL_EPMD_PORT": str(mapper), "ERL_EPMD_ADDRESS": "127.0.0.1"}
            self._start(["epmd"], names)
            names |= {
                "HOME": str(folder),
                "RABBITMQ_ADVANCED_CONFIG_FILE": str(settings),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "RABBITMQ_CONFIG_FILE": str(folder / "none"),
                "RABBITMQ_DIST_PORT": str(free_port()),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
                "RABBITMQ_NODENAME": f"parley-{port}@localhost",
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            }
            # Debian's command of that name becomes the user of its service; this is the same
            # without.
            server = self._start(["/usr/lib/rabbitmq/bin/rabbitmq-server"], names)
            self._until(server, lambda: _speaks_amqp(port))
            self._ports["rabbitmq"] = port
        return self._ports["rabbitmq"]

    def prometheus(self, configuration: str = "") -> int:
        """Return the port of Debian's Prometheus, with its remote write receiver.

        ``configuration`` is that of the first use.
        """
        if "prometheus" not in self._ports:
            folder = self._folder / "prometheus"
            folder.mkdir()
            (folder / "prometheus.yml").write_text(configuration)
            port = free_port()
            argv = [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-remote-write-receiver",
                "--log.level=error",
            ]
            server = self._start(argv, {})
            self._until(server, lambda: _answers(f"http://127.0.0.1:{port}/-/ready"))
            self._ports["prometheus"] = port
        return self._ports["prometheus"]

    def s3(self) -> int:
        """Return the port of moto's S3, which checks no signatures."""
        if "s3" not in self._ports:
            port = free_port()
            names = {"PYTHONWARNINGS": "ignore"}
            argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            server = self._start(argv, names)
            self._until(server, lambda: _answers(f"http://127.0.0.1:{port}/moto-api/"))
            self._ports["s3"] = port
        return self._ports["s3"]

    def _start(self, argv: list[str], names: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            started = subprocess.Popen(argv, env={**os.environ, **names}, stdout=log, stderr=log)
        self._running.append(started)
        return started

    def _until(self, server: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not ready():
            if server.poll() is not None or time.monotonic() - began > BOOT:
                raise AssertionError((self._folder / "log").read_text(errors="replace")[-2000:])
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.05)


def _speaks_amqp(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as asked:
        asked.settimeout(5)
        asked.sendall(b"AMQP\0\0\x09\x01")
        return bool(asked.recv(1))
    return False


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


@dataclass
class Surroundings:
    """The environment in which a peer is created."""

    folder: Path
    cluster: PrivateCluster
    servers: Servers


@contextlib.asynccontextmanager
async def postgres(where: Surroundings) -> AsyncIterator[Peer]:
    """Create a database of its own in the tests' Postgres."""
    name = f"taker_{next(_NUMBERS)}"

    async def admin(statement: str) -> None:
        connection = await asyncpg.connect(where.cluster.dsn("postgres"))
        await connection.execute(statement)
        await connection.close()

    async def leave() -> None:
        await admin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def got() -> list[Any]:
        connection = await asyncpg.connect(where.cluster.dsn(name))
        rows = await connection.fetch("SELECT document FROM parley_result ORDER BY at, key")
        await connection.close()
        return [json.loads(row[0]) for row in rows]

    await copy_database(where.cluster.dsn("postgres"), name, "template1")
    yield Peer({**postgres_spec(where.cluster), "database": name}, got, leave)
    await leave()


def postgres_spec(cluster: PrivateCluster) -> dict[str, Any]:
    """Return the fields of a spec for the tests' Postgres."""
    asked = urllib.parse.urlsplit(cluster.dsn("postgres"))
    query = dict(urllib.parse.parse_qsl(asked.query))
    return {
        "socket": query["host"],
        "port": int(query.get("port", 5432)),
        "user": asked.username or query.get("user"),
    }


@contextlib.asynccontextmanager
async def rabbitmq(where: Surroundings) -> AsyncIterator[Peer]:
    """Create a queue of its own, with a reader."""
    port = where.servers.rabbitmq()
    queue = f"results-{next(_NUMBERS)}"
    way = CloseableForwarder(port)
    bodies: list[bytes] = []

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        assert message.delivery_mode is aio_pika.DeliveryMode.PERSISTENT
        assert (message.message_id or "").startswith("key-")
        bodies.append(message.body)

    async with await aio_pika.connect(host="127.0.0.1", port=port) as connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, durable=True)
        await declared.consume(take, no_ack=True)
        spec = {"host": "127.0.0.1", "port": await way.open(), "routing_key": queue}
        yield Peer(spec, lambda: [json.loads(body) for body in bodies], way.close)
        await way.close()


@contextlib.asynccontextmanager
async def prometheus(where: Surroundings) -> AsyncIterator[Peer]:
    """Start a Prometheus and query it; a label distinguishes the series of one test."""
    port = where.servers.prometheus()
    way = CloseableForwarder(port)
    label = f"case{next(_NUMBERS)}"

    def got() -> list[Any]:
        query = urllib.parse.urlencode({"query": f'parley_result_number{{case="{label}"}}[1h]'})
        url = f"http://127.0.0.1:{port}/api/v1/query?{query}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            series = json.load(answer)["data"]["result"]
        return [
            {"number": int(value), "text": one["metric"]["text"]}
            for one in series
            for _, value in one["values"]
        ]

    url = f"http://127.0.0.1:{await way.open()}/api/v1/write"
    yield Peer({"url": url, "labels": {"case": label}}, got, way.close)
    await way.close()


@contextlib.asynccontextmanager
async def otlp(_: Surroundings) -> AsyncIterator[Peer]:
    """Start a collector, which parses requests by the protocol's own definitions."""
    numbers: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        asked = ExportMetricsServiceRequest()
        asked.ParseFromString(await request.read())
        answer = ExportMetricsServiceResponse()
        for there in asked.resource_metrics:
            names = {each.key: each.value.string_value for each in there.resource.attributes}
            assert names == {"service.name": "parley", "host.name": "a.example"}
            for metric in there.scope_metrics[0].metrics:
                points = metric.gauge.data_points
                if any(point.as_double == REJECTED for point in points):
                    answer.partial_success.rejected_data_points += 1
                    answer.partial_success.error_message = "not this one"
                elif metric.name == "parley_result_number":
                    numbers.extend(map(_read_point, points))
        return web.Response(body=answer.SerializeToString(), content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/metrics", take)
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(app))
        yield Peer({"url": f"{url}/v1/metrics"}, lambda: numbers, stack.aclose)


def _read_point(point: NumberDataPoint) -> dict[str, Any]:
    texts = {each.key: each.value.string_value for each in point.attributes}
    return {"number": int(point.as_double), "text": texts["text"]}


@contextlib.asynccontextmanager
async def kafka(_: Surroundings) -> AsyncIterator[Peer]:
    """Start librdkafka's mock broker, with a consumer."""
    brokers: list[Producer] = [Producer({"test.mock.num.brokers": 1, "log_level": 0})]
    [broker] = brokers[0].list_topics(timeout=PATIENCE_S).brokers.values()
    topic = "parley-results"
    consumers: list[Consumer] = []
    documents: list[Any] = []

    def got() -> list[Any]:
        if not consumers:
            # One that looked before there was a topic would look again after minutes.
            consumers.append(_consumer(f"{broker.host}:{broker.port}", topic))
        for record in consumers[0].consume(100, 0.1):
            assert record.error() is None
            assert record.key() == b"task"
            assert str(dict(record.headers() or ())["key"]).startswith("b'key-")
            documents.append(json.loads(record.value() or b""))
        return documents

    async def leave() -> None:
        while consumers:
            consumers.pop().close()
        brokers.clear()  # with its last user the broker is gone

    spec = {"brokers": [{"host": broker.host, "port": broker.port}], "timeout": "PT2S"}
    yield Peer(spec, got, leave)
    await leave()


def _consumer(address: str, topic: str) -> Consumer:
    made = Consumer({"bootstrap.servers": address, "group.id": "a", "log_level": 0})
    parts = made.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    made.assign([TopicPartition(topic, number, 0) for number in parts])
    return made


@contextlib.asynccontextmanager
async def s3(where: Surroundings) -> AsyncIterator[Peer]:
    """Create a bucket of its own in moto's S3."""
    port = where.servers.s3()
    way = CloseableForwarder(port)
    bucket = f"results-{next(_NUMBERS)}"
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    client = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", **keys
    )
    client.create_bucket(Bucket=bucket)

    def got() -> list[Any]:
        rows = []
        for one in client.list_objects_v2(Bucket=bucket).get("Contents", ()):
            assert re.fullmatch(r"a/b/date=\d{4}-\d\d-\d\d/[0-9a-f]{32}\.parquet", one["Key"])
            body = client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read()
            rows += parquet.read_table(io.BytesIO(body)).to_pylist()
        rows.sort(key=lambda row: row["at"])
        for row in rows:
            assert row["metrics"][0]["value"] == json.loads(row["document"])["number"]
        return [json.loads(row["document"]) for row in rows]

    spec = {
        "endpoint": f"http://127.0.0.1:{await way.open()}",
        "bucket": bucket,
        "prefix": "a/b",
        "access_key": "key",
        "secret_key": "secret",
    }
    yield Peer(spec, got, way.close)
    client.close()
    await way.close()


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    """Servers that are stopped at the end."""
    made = Servers()
    try:
        yield made
    finally:
        made.close()
