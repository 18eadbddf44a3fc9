"""``kafka``: results as records of a topic, keyed by task, so that a task's order is kept.

A record's value is the document; its headers are ``key`` (the delivery's own, the same for every
attempt) and ``succeeded``; its timestamp is when the run was over. It counts as delivered when all
in-sync replicas have it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints

from node.model import times
from node.model.wire.fields import Document, Host
from node.plugins.contracts import (
    DeliveryItem,
    DeliveryOutcome,
)
from node.plugins.fields import SECRET, ArchiverTimeout, flag_field, whole_field
from node.plugins.transport.batches import (
    ConfirmingDestination,
    OwnArchiver,
    deliver_possible,
    timeout_field,
)
from node.plugins.transport.senders import error_summary

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

_MILLISECOND = times.SECOND // 1000
_RECORD_MAX = 1_000_000
"""Maximum bytes of a document; brokers accept 1,048,588 including the overhead."""


class Broker(Document):
    """One broker to connect to first."""

    host: Host = Field(description="One of the cluster's brokers.")
    port: int = whole_field(9092, 1, 65_535, "Its port.")


class KafkaSpec(Document):
    """The cluster and the topic."""

    brokers: list[Broker] = Field(
        min_length=1, max_length=16, description="Some of its brokers; they list the others."
    )
    topic: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")] = Field(
        "parley-results", description="The topic of the documents, keyed by series."
    )
    tls: bool = flag_field("Whether to use TLS.")
    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, description="The mechanism to log in with user and password."
    )
    user: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="With sasl: the user to log in as."
    )
    password: Annotated[str, StringConstraints(max_length=500)] | None = Field(
        None, description="Never shown.", json_schema_extra=SECRET
    )
    timeout: ArchiverTimeout = timeout_field("a batch")


class KafkaDestination(ConfirmingDestination):
    """One topic, with a producer that stays connected."""

    impatience = "did not acknowledge in time"
    _producer: AIOKafkaProducer | None = None

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Produce the documents that fit into a record (by brokers' defaults); refuse the rest."""
        return await deliver_possible(batch, _excess, super().deliver)

    async def send(self, batch: Sequence[DeliveryItem]) -> Sequence[object]:
        """Produce records, and wait until all in-sync replicas have each."""
        try:
            producer = await self._start_producer()
            sent = [await self._send(producer, item) for item in batch]
            await producer.flush()
            return await asyncio.gather(*sent, return_exceptions=True)
        except asyncio.CancelledError:
            await self.close()  # a record without acknowledgement must not be sent later
            raise

    async def _send(self, producer: AIOKafkaProducer, item: DeliveryItem) -> asyncio.Future[object]:
        future: asyncio.Future[object] = await producer.send(
            self._spec.topic,
            item.body,
            key=item.series.encode(),
            timestamp_ms=item.at // _MILLISECOND,
            headers=[("key", item.key.encode()), ("succeeded", b"1" if item.succeeded else b"0")],
        )
        return future

    async def _start_producer(self) -> AIOKafkaProducer:
        if self._producer is None:
            from aiokafka import AIOKafkaProducer

            # Failures are in the outcomes; aiokafka would also log each of them.
            logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
            spec = self._spec
            security = ("SASL_" if spec.sasl else "") + ("SSL" if spec.tls else "PLAINTEXT")
            self._producer = AIOKafkaProducer(
                bootstrap_servers=[_address(broker) for broker in spec.brokers],
                client_id="parley",
                acks="all",
                enable_idempotence=True,
                compression_type="gzip",
                max_batch_size=1_000_000,
                request_timeout_ms=spec.timeout // _MILLISECOND,
                security_protocol=security,
                ssl_context=ssl.create_default_context() if spec.tls else None,
                sasl_mechanism=spec.sasl or "PLAIN",
                sasl_plain_username=spec.user,
                sasl_plain_password=spec.password,
            )
            await self._producer.start()
        return self._producer

    async def look(self) -> str:
        """Log in, and request the topic's partitions; nothing is produced."""
        producer = await self._start_producer()
        count = len(await producer.partitions_for(self._spec.topic))
        return f"has {count} partitions; nothing was produced"

    def reason(self, error: BaseException) -> str:
        """Return what went wrong, in a few words."""
        return error_summary(error)

    async def close(self) -> None:
        """Close the connections; records without an acknowledgement are given up."""
        producer, self._producer = self._producer, None
        if producer is not None:
            from aiokafka.errors import KafkaConnectionError

            # stop() alone would wait for acknowledgements that a lost broker never sends.
            await producer._sender.close()  # noqa: SLF001 - there is no other way
            producer._message_accumulator.fail_all(KafkaConnectionError("given up"))  # noqa: SLF001
            await producer.stop()


class KafkaArchiver(OwnArchiver):
    """Produces records of a topic."""

    name = "kafka"
    title = "Produce to a topic of Kafka, acknowledged by all replicas"
    ordered = True
    spec_model: type[Document] = KafkaSpec
    extra = "kafka"
    modules = ("aiokafka",)
    attempts = 1
    closing = 10 * times.SECOND
    destination = KafkaDestination

    def label(self, spec: KafkaSpec) -> str:
        """Return the first broker, and the topic."""
        return f"{_address(spec.brokers[0])}, {spec.topic}"


def _excess(item: DeliveryItem) -> str | None:
    if len(item.body) <= _RECORD_MAX:
        return None
    return f"{len(item.body)} bytes exceed the size of a record; shorten it by a transform"


def _address(broker: Broker) -> str:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    return f"{host}:{broker.port}"


ARCHIVER = KafkaArchiver()
