"""``rabbitmq``: results as persistent messages (AMQP 0-9-1), each confirmed by the broker.

A message is a document; ``message_id`` is its key, and the header ``series`` the task. A message
that no queue takes is returned and not delivered: an exchange without queues loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

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
    from aio_pika.abc import AbstractConnection, AbstractExchange

_Name = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]{0,200}$")]
_CLOSED_WITHIN_S = 2.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RabbitmqSpec(Document):
    """The broker, and where to publish."""

    host: Host = Field(description="Name or address.")
    port: int = Field(5672, ge=1, le=65_535, strict=True, description="With TLS usually 5671.")
    tls: bool = Field(default=False, strict=True, description="Whether to use TLS.")
    vhost: Annotated[_Name, StringConstraints(min_length=1)] = Field(
        "/", description="The virtual host."
    )
    user: _Name = Field("guest", description="A user who may publish.")
    password: Annotated[str, StringConstraints(max_length=500)] = Field(
        "guest", description="Never shown.", json_schema_extra=SECRET
    )
    exchange: _Name = Field("", description="Must exist; the default one routes to the queue.")
    routing_key: _Name = Field(
        "parley.results",
        description="With the default exchange: the queue, created as durable if missing. With "
        "another one it may be empty.",
    )
    timeout: ArchiverTimeout = duration_field(
        30 * times.SECOND, "The timeout of a batch; PT1S to PT2M."
    )

    @field_validator("routing_key")
    @classmethod
    def _check_queue_named(cls, value: str, info: ValidationInfo) -> str:
        if not value and not info.data.get("exchange"):
            msg = "without an exchange it is the queue, so it must not be empty"
            raise ValueError(msg)
        return value


class RabbitmqArchiver(UnrestrictedArchiver):
    """Publishes messages to a broker."""

    name = "rabbitmq"
    title = "Publish to RabbitMQ (AMQP 0-9-1), confirmed"
    ordered = True
    spec_model: type[Document] = RabbitmqSpec
    extra = "rabbitmq"
    modules = ("aio_pika",)

    def label(self, spec: RabbitmqSpec) -> str:
        """Return the broker, the virtual host, exchange and routing key."""
        way = " ".join(filter(None, (spec.exchange, spec.routing_key)))
        return f"{spec.host} port {spec.port}, {spec.vhost} {way}"

    def batches(self, spec: RabbitmqSpec) -> Batches:
        """Return the number of messages that are in flight at once."""
        return Batches(500, 8_000_000, spec.timeout + 5 * times.SECOND)

    def open(self, spec: RabbitmqSpec, host: ArchivingHost) -> RabbitmqDestination:
        """Return the destination; it connects on first use."""
        return RabbitmqDestination(spec, self.label(spec))


class RabbitmqDestination:
    """One exchange, with one channel that stays open."""

    def __init__(self, spec: RabbitmqSpec, where: str) -> None:
        """Store the arguments; nothing is connected yet."""
        self._spec = spec
        self._where = where
        self._connection: AbstractConnection | None = None
        self._exchange: AbstractExchange | None = None

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Publish all, and wait until each is confirmed."""
        try:
            async with asyncio.timeout(self._spec.timeout / times.SECOND):
                exchange = await self._connect()
                confirmed = await asyncio.gather(
                    *(self._publish(exchange, item) for item in batch), return_exceptions=True
                )
        except Exception as error:  # noqa: BLE001 - three libraries raise many kinds
            await self.close()
            return [DeliveryOutcome(DeliveryStatus.AGAIN, _reason(error))] * len(batch)
        outcomes = [_outcome(error) for error in confirmed]
        if any(outcome.status is not DeliveryStatus.ACCEPTED for outcome in outcomes):
            await self.close()
        return in_order(batch, outcomes)

    async def _publish(self, exchange: AbstractExchange, item: DeliveryItem) -> None:
        from aio_pika import DeliveryMode, Message

        message = Message(
            item.body,
            delivery_mode=DeliveryMode.PERSISTENT,
            content_type="application/json",
            message_id=item.key,
            timestamp=_EPOCH + timedelta(microseconds=item.at),
            app_id="parley",
            headers={"series": item.series, "succeeded": item.succeeded},
        )
        await exchange.publish(message, self._spec.routing_key, mandatory=True)

    async def _connect(self) -> AbstractExchange:
        """Return the exchange; connect first if necessary.

        :raises Exception: any that the libraries raise.
        """
        if self._connection is None or self._connection.is_closed or self._exchange is None:
            await self.close()
            from aio_pika import connect

            spec = self._spec
            self._connection = await connect(
                host=spec.host,
                port=spec.port,
                login=spec.user,
                password=spec.password,
                virtualhost=spec.vhost,
                ssl=spec.tls,
                ssl_context=ssl.create_default_context() if spec.tls else None,
            )
            channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            if spec.exchange:
                self._exchange = await channel.get_exchange(spec.exchange)
            else:
                await channel.declare_queue(spec.routing_key, durable=True)
                self._exchange = channel.default_exchange
        return self._exchange

    async def test(self) -> str:
        """Log in, and look for the exchange; the queue is created if missing.

        :raises ArchiverFailed: that is not possible.
        """
        try:
            async with asyncio.timeout(self._spec.timeout / times.SECOND):
                await self._connect()
        except Exception as error:  # noqa: BLE001 - three libraries raise many kinds
            await self.close()
            msg = f"{self._where}: {_reason(error)}"
            raise ArchiverFailed(msg) from None
        return f"{self._where} exists; nothing was published"

    async def close(self) -> None:
        """Close the connection; do not wait long for a broker that hangs."""
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSED_WITHIN_S):
                    await connection.close()


def _outcome(error: BaseException | None) -> DeliveryOutcome:
    if error is None:
        return DeliveryOutcome(DeliveryStatus.ACCEPTED)
    return DeliveryOutcome(DeliveryStatus.AGAIN, _reason(error))


def _reason(error: BaseException) -> str:
    from aio_pika.exceptions import DeliveryError, PublishError

    if isinstance(error, TimeoutError) and not str(error):
        return "did not confirm in time"
    if isinstance(error, PublishError):
        return "no queue takes it: nothing is bound there"
    if isinstance(error, DeliveryError):
        return "the broker did not take it"
    return error_summary(error)


ARCHIVER = RabbitmqArchiver()
