"""``kafka``: results as records of a topic, keyed by task: those of a task keep their order.

A record's value is the document; its headers are ``key`` (the delivery's own, the same however
often it comes) and ``succeeded``; its time is when the run was over. It is delivered when all
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
from node.model.errors import ArchiverFailed
from node.model.wire.fields import Document, Host
from node.plugins.contracts import (
    ArchivingHost,
    Batches,
    DeliveryItem,
    DeliveryOutcome,
    DeliveryStatus,
)
from node.plugins.fields import SECRET, ArchiverTimeout, duration_field
from node.plugins.transport.ordering import in_order
from node.plugins.transport.senders import error_summary
from node.plugins.transport.unrestricted import UnrestrictedArchiver

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

_MILLISECOND = times.SECOND // 1000
_RECORD_MAX = 1_000_000
"""Bytes of a document; brokers take 1,048,588 with all that is around it."""


class Broker(Document):
    """One broker to ask first."""

    host: Host = Field(description="One of the cluster's brokers.")
    port: int = Field(9092, ge=1, le=65_535, strict=True, description="Its port.")


class KafkaSpec(Document):
    """Which cluster, and which topic."""

    brokers: list[Broker] = Field(
        min_length=1, max_length=16, description="Some of its brokers; they name the others."
    )
    topic: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,249}$")] = Field(
        "parley-results", description="Where the documents go, by series."
    )
    tls: bool = Field(default=False, strict=True, description="Whether to speak TLS.")
    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, description="How to log in, with user and password."
    )
    user: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="With sasl: as whom to log in."
    )
    password: Annotated[str, StringConstraints(max_length=500)] | None = Field(
        None, description="Never shown.", json_schema_extra=SECRET
    )
    timeout: ArchiverTimeout = duration_field(
        30 * times.SECOND, "How long a batch may take; PT1S to PT2M."
    )


class KafkaArchiver(UnrestrictedArchiver):
    """Records of a topic."""

    name = "kafka"
    title = "Produce to a topic of Kafka, acknowledged by all replicas"
    ordered = True
    spec_model: type[Document] = KafkaSpec
    extra = "kafka"
    modules = ("aiokafka",)

    def label(self, spec: KafkaSpec) -> str:
        """The first broker, and the topic."""
        return f"{_address(spec.brokers[0])}, {spec.topic}"

    def batches(self, spec: KafkaSpec) -> Batches:
        """A thousand records on their way at once."""
        return Batches(1000, 8_000_000, spec.timeout + 10 * times.SECOND)

    def open(self, spec: KafkaSpec, host: ArchivingHost) -> KafkaDestination:  # noqa: ARG002 - the contract's
        """Connects when it is first used."""
        return KafkaDestination(spec, self.label(spec))


class KafkaDestination:
    """One topic, with a producer that stays."""

    def __init__(self, spec: KafkaSpec, where: str) -> None:
        """Nothing is connected yet."""
        self._spec = spec
        self._where = where
        self._seconds = spec.timeout / times.SECOND
        self._producer: AIOKafkaProducer | None = None

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """What fits into a record, as brokers are set unless told otherwise; the rest is parked."""
        fitting = [one for one in batch if len(one.body) <= _RECORD_MAX]
        outcomes = iter(await self._produce(fitting) if fitting else ())
        return [next(outcomes) if len(one.body) <= _RECORD_MAX else _too_long(one) for one in batch]

    async def _produce(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Send all, and wait until each is acknowledged."""
        try:
            async with asyncio.timeout(self._seconds):
                producer = await self._started()
                sent = [await self._send(producer, one) for one in batch]
                await producer.flush()
                said = await asyncio.gather(*sent, return_exceptions=True)
        except Exception as error:  # noqa: BLE001 - of a library with many
            await self.close()
            return [DeliveryOutcome(DeliveryStatus.AGAIN, _said(error))] * len(batch)
        except BaseException:
            await self.close()  # what was sent and not acknowledged must not come later
            raise
        outcomes = [
            DeliveryOutcome(DeliveryStatus.AGAIN, _said(one))
            if isinstance(one, BaseException)
            else _ACCEPTED
            for one in said
        ]
        if any(outcome.status is not DeliveryStatus.ACCEPTED for outcome in outcomes):
            await self.close()
        return in_order(batch, outcomes)

    async def _send(self, producer: AIOKafkaProducer, one: DeliveryItem) -> asyncio.Future[object]:
        found: asyncio.Future[object] = await producer.send(
            self._spec.topic,
            one.body,
            key=one.series.encode(),
            timestamp_ms=one.at // _MILLISECOND,
            headers=[("key", one.key.encode()), ("succeeded", b"1" if one.succeeded else b"0")],
        )
        return found

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            from aiokafka import AIOKafkaProducer

            # What fails is told by the outcome; aiokafka would say it line by line.
            logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
            spec = self._spec
            security = ("SASL_" if spec.sasl else "") + ("SSL" if spec.tls else "PLAINTEXT")
            self._producer = AIOKafkaProducer(
                bootstrap_servers=[_address(one) for one in spec.brokers],
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

    async def test(self) -> str:
        """Log in, and ask for the topic's partitions; nothing is produced.

        :raises ArchiverFailed: not possible.
        """
        try:
            async with asyncio.timeout(self._seconds):
                producer = await self._started()
                count = len(await producer.partitions_for(self._spec.topic))
        except Exception as error:  # noqa: BLE001 - of a library with many
            await self.close()
            msg = f"{self._where}: {_said(error)}"
            raise ArchiverFailed(msg) from None
        return f"{self._where} has {count} partitions; nothing was produced"

    async def close(self) -> None:
        """Close the connections; what was not acknowledged is given up."""
        found, self._producer = self._producer, None
        if found is not None:
            from aiokafka.errors import KafkaConnectionError

            # To stop it is to wait for what a broker that is gone will never acknowledge.
            await found._sender.close()  # noqa: SLF001 - there is no other way
            found._message_accumulator.fail_all(KafkaConnectionError("given up"))  # noqa: SLF001
            await found.stop()


_ACCEPTED = DeliveryOutcome(DeliveryStatus.ACCEPTED)


def _too_long(one: DeliveryItem) -> DeliveryOutcome:
    said = f"{len(one.body)} bytes are more than a record holds; deliver less by a transform"
    return DeliveryOutcome(DeliveryStatus.REFUSED, said)


def _address(broker: Broker) -> str:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    return f"{host}:{broker.port}"


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "did not acknowledge in time"
    return error_summary(error)


ARCHIVER = KafkaArchiver()
