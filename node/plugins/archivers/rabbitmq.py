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
from node.model.wire.fields import Document, Host
from node.plugins.contracts import (
    DeliveryItem,
)
from node.plugins.fields import SECRET, ArchiverTimeout, flag_field, whole_field
from node.plugins.transport.batches import ConfirmingDestination, OwnArchiver, timeout_field
from node.plugins.transport.senders import error_summary

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection, AbstractExchange

_Name = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]{0,200}$")]
_CLOSED_WITHIN_S = 2.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RabbitmqSpec(Document):
    """The broker, and where to publish."""

    host: Host = Field(description="Name or address.")
    port: int = whole_field(5672, 1, 65_535, "With TLS usually 5671.")
    tls: bool = flag_field("Whether to use TLS.")
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
    timeout: ArchiverTimeout = timeout_field("a batch")

    @field_validator("routing_key")
    @classmethod
    def _check_queue_named(cls, value: str, info: ValidationInfo) -> str:
        if not value and not info.data.get("exchange"):
            msg = "without an exchange it is the queue, so it must not be empty"
            raise ValueError(msg)
        return value


class RabbitmqDestination(ConfirmingDestination):
    """One exchange, with one channel that stays open."""

    impatience = "did not confirm in time"
    _connection: AbstractConnection | None = None
    _exchange: AbstractExchange | None = None

    async def send(self, batch: Sequence[DeliveryItem]) -> Sequence[object]:
        """Publish messages, and wait until the broker has confirmed each."""
        exchange = await self._connect()
        published = (self._publish(exchange, item) for item in batch)
        return await asyncio.gather(*published, return_exceptions=True)

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

    async def look(self) -> str:
        """Log in, and look for the exchange; the queue is created if missing."""
        await self._connect()
        return "exists; nothing was published"

    def reason(self, error: BaseException) -> str:
        """Return what went wrong, in a few words."""
        from aio_pika.exceptions import DeliveryError, PublishError

        if isinstance(error, PublishError):
            return "no queue takes it: nothing is bound there"
        if isinstance(error, DeliveryError):
            return "the broker did not take it"
        return error_summary(error)

    async def close(self) -> None:
        """Close the connection; do not wait long for a broker that hangs."""
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSED_WITHIN_S):
                    await connection.close()


class RabbitmqArchiver(OwnArchiver):
    """Publishes messages to a broker."""

    name = "rabbitmq"
    title = "Publish to RabbitMQ (AMQP 0-9-1), confirmed"
    ordered = True
    spec_model: type[Document] = RabbitmqSpec
    extra = "rabbitmq"
    modules = ("aio_pika",)
    items = 500
    attempts = 1
    closing = 5 * times.SECOND
    destination = RabbitmqDestination

    def label(self, spec: RabbitmqSpec) -> str:
        """Return the broker, the virtual host, exchange and routing key."""
        way = " ".join(filter(None, (spec.exchange, spec.routing_key)))
        return f"{spec.host} port {spec.port}, {spec.vhost} {way}"


ARCHIVER = RabbitmqArchiver()
