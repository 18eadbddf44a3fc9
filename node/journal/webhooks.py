"""Tells the owner's webhooks of nodes that are away, failing tasks, poor meshes, and alerts.

What is told, and that it was, are written in one transaction with the message for the outbox, which
is sent until it is accepted. So nothing is told twice or lost, whatever process ends when.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import orjson

from node.journal.troubles import read_troubles
from node.model import times
from node.model.errors import Conflict, HostError, NotFound, WebhookFailed
from node.model.headline import headline
from node.model.secrets import SEAL_PREFIX
from node.model.webhooks import (
    Condition,
    WebhookEvent,
    changes,
    secret_of,
    signature_headers,
)
from node.model.wire.seats import SeatRequest
from node.model.wire.webhooks import (
    NewWebhook,
    Webhook,
    WebhookDocument,
    WebhookMessage,
    WebhookTerms,
)
from node.plugins.contracts import DeliveryStatus
from node.plugins.transport.posting import Poster
from node.runtime.version import agent_of
from node.store import alerts, meshes, outbox, tasks, webhooks
from node.store.core import Core
from node.store.database import Connection
from node.store.outbox import Message, MessageKind
from node.store.webhooks import KeptWebhook
from node.trust.sealing import WEBHOOK

_TIMEOUT = 10 * times.SECOND
_KEY_BYTES = 32

Found = dict[Condition, str]
"""By condition that holds now, a sentence about it."""


class Webhooks:
    """The webhooks of a node: added and removed by its owner, checked, and delivered to."""

    def __init__(self, core: Core, new_id: Callable[[], UUID]) -> None:
        self._core = core
        self._new_id = new_id

    async def all(self) -> list[Webhook]:
        """Return all webhooks, by name."""
        async with self._core.database.connection() as connection:
            return [_webhook_for_people(each) for each in await webhooks.find_all(connection)]

    async def add(self, document: WebhookDocument) -> NewWebhook:
        """Add a webhook, and return it with its secret.

        :raises Conflict: there is one of this name.
        """
        secret = document.secret or secret_of(secrets.token_bytes(_KEY_BYTES))
        sealed = self._core.sealing.seal(secret, WEBHOOK)
        terms = WebhookTerms.model_validate(document.model_dump(exclude={"secret"}))
        kept = KeptWebhook(terms, sealed, self._core.clock.now())
        async with self._core.database.transaction() as connection:
            if not await webhooks.keep(connection, kept):
                msg = f"there is already a webhook {document.name}; remove it, or use another name"
                raise Conflict(msg)
        return NewWebhook(**_webhook_for_people(kept).model_dump(), secret=secret)

    async def remove(self, name: str) -> None:
        """Remove a webhook, and drop what it was not told yet.

        :raises NotFound: there is none of this name.
        """
        async with self._core.database.transaction() as connection:
            if not await webhooks.remove(connection, name):
                raise NotFound(_unknown_webhook(name))

    async def test(self, name: str) -> UUID:
        """Send a message of the type test at once; return its id when it was accepted.

        :raises NotFound: there is none of this name.
        :raises WebhookFailed: it was not accepted.
        """
        async with self._core.database.connection() as connection:
            found = await webhooks.find_all(connection, name)
        if not found:
            raise NotFound(_unknown_webhook(name))
        sentence = f"{self._core.settings.name} tests its webhook {name}"
        message = self._message("test", name, sentence, over=False)
        await self._post(found[0], message)
        return message.id

    def _message(
        self, kind: WebhookEvent | str, subject: str, sentence: str, *, over: bool
    ) -> WebhookMessage:
        return WebhookMessage.model_validate(
            {
                "id": self._new_id(),
                "type": kind,
                "state": "over" if over else "begun",
                "at": self._core.clock.now(),
                "node": self._core.settings.name,
                "subject": subject,
                "sentence": times.with_durations_in_words(sentence),
            }
        )

    # What there is to tell

    async def queue_messages(self) -> None:
        """Write a message for each webhook about conditions that began or ended since last time."""
        async with self._core.database.connection() as connection:
            every = await webhooks.find_all(connection)
        for each in every:
            async with self._core.database.transaction() as connection:
                await self._queue_for_webhook(connection, each.terms)

    async def _queue_for_webhook(self, connection: Connection, terms: WebhookTerms) -> None:
        now = self._core.clock.now()
        holding = await self._conditions_now(connection, terms, now)
        change = changes(holding, await webhooks.told_conditions(connection, terms.name))
        begun = await webhooks.note_told(connection, terms.name, change.begun, now)
        over = await webhooks.note_over(connection, terms.name, change.over)
        ended = await _sentences_when_over(connection, over)
        messages = [
            *(self._message(*each, holding[each], over=False) for each in sorted(begun)),
            *(self._message(*each, ended[each], over=True) for each in sorted(over)),
        ]
        receiver = webhooks.NODE + terms.name
        posts = [
            outbox.OutgoingMessage(receiver, MessageKind.WEBHOOK, each.model_dump(mode="json"))
            for each in messages
        ]
        await outbox.post_all(connection, posts, now)

    async def _conditions_now(self, connection: Connection, terms: WebhookTerms, now: int) -> Found:
        holding: Found = {}
        if WebhookEvent.NODE_AWAY in terms.events:
            holding |= await _nodes_away(connection)
        if WebhookEvent.TASK_FAILING in terms.events:
            holding |= await self._failing_tasks(connection, terms.failures, now)
        if WebhookEvent.MESH_BELOW in terms.events:
            holding |= await _meshes_below_target(connection, terms, now)
        if WebhookEvent.ALERT in terms.events:
            told = await alerts.to_tell(connection, terms.name, terms.mesh, now)
            holding |= _alert_conditions(told, await _headlines(connection, [it[1] for it in told]))
        return holding

    async def _failing_tasks(self, connection: Connection, failures: int, now: int) -> Found:
        """Return the tasks that fail; those with a common cause as one condition, by its name."""
        failing = dict(await webhooks.failing_tasks(connection, failures))
        found: Found = {}
        if len(failing) > 1:
            troubles = await read_troubles(connection, self._core.settings.name, now)
            for cause, of_cause in troubles.explained:
                explained = failing.keys() & of_cause
                if explained:
                    subject = " ".join([cause.kind, *cause.names])
                    found[Condition(WebhookEvent.TASK_FAILING, subject)] = cause.sentence
                for task in explained:
                    del failing[task]
        lines = await _headlines(connection, list(failing))
        times_ = "run" if failures == 1 else f"{failures} runs"
        for task, reason in failing.items():
            found[Condition(WebhookEvent.TASK_FAILING, str(task))] = (
                f"{lines.get(task, task)}: the last {times_} had no result or no answer: "
                f"{reason or 'no reason is known'}"
            )
        return found

    # Delivery

    async def deliver(self, message: Message) -> None:
        """Deliver a message of the outbox; one for a webhook that was removed is dropped.

        :raises WebhookFailed: it was not accepted; it is sent again later.
        """
        name = message.node.removeprefix(webhooks.NODE)
        async with self._core.database.connection() as connection:
            found = await webhooks.find_all(connection, name)
        if found:
            await self._post(found[0], WebhookMessage.model_validate(message.body))

    async def _post(self, webhook: KeptWebhook, message: WebhookMessage) -> None:
        """Post a message, and record how that went.

        :raises WebhookFailed: it was not accepted.
        """
        now, name = self._core.clock.now(), webhook.terms.name
        body = orjson.dumps(message.model_dump(mode="json"))
        headers = signature_headers(
            self._opened_secret(webhook), str(message.id), now // times.SECOND, body
        )
        agent = agent_of(self._core.settings)
        poster = Poster(webhook.terms.url, _TIMEOUT, self._core.clock.now, agent=agent)
        try:
            reply = await poster.post(body, {**headers, "Content-Type": "application/json"})
        finally:
            await poster.close()
        accepted = reply.outcome.status is DeliveryStatus.ACCEPTED
        error = None if accepted else reply.outcome.reason
        async with self._core.database.connection() as connection:
            await webhooks.note_delivery(connection, name, now if accepted else None, error)
        if not accepted:
            raise WebhookFailed(f"webhook {name} did not accept the message: {error}")

    def _opened_secret(self, webhook: KeptWebhook) -> str:
        """Return the secret of a webhook.

        :raises WebhookFailed: it cannot be read.
        """
        if not webhook.secret.startswith(SEAL_PREFIX):
            return webhook.secret  # an earlier program stored it
        try:
            return self._core.sealing.open(webhook.secret, WEBHOOK)
        except HostError as error:
            msg = f"the secret of webhook {webhook.terms.name} cannot be read: {error.detail}"
            raise WebhookFailed(msg) from error


def _unknown_webhook(name: str) -> str:
    return f"there is no webhook {name}; see: parley webhook list"


def _webhook_for_people(kept: KeptWebhook) -> Webhook:
    return Webhook(
        **kept.terms.model_dump(),
        created_at=kept.created_at,
        waiting=kept.waiting,
        delivered_at=kept.delivered_at,
        last_error=kept.last_error,
    )


async def _sentences_when_over(connection: Connection, over: Iterable[Condition]) -> Found:
    """Return by condition that is over a sentence about that."""
    every = list(over)
    ids = [UUID(each.subject) for each in every if each.event is WebhookEvent.ALERT]
    found = await alerts.find_sentences(connection, ids) if ids else []
    lines = await _headlines(connection, [each[1] for each in found])
    rules = {str(alert): f"{lines.get(task, task)}: {rule}" for alert, task, rule, _ in found}
    return {
        each: f"{rules[each.subject]} is over"
        if each.subject in rules
        else _sentence_when_over(each)
        for each in every
    }


def _alert_conditions(
    every: Iterable[tuple[UUID, UUID, str, str]], lines: Mapping[UUID, str]
) -> Found:
    return {
        Condition(WebhookEvent.ALERT, str(alert)): f"{lines.get(task, task)}: {sentence}"
        for alert, task, _, sentence in every
    }


def _sentence_when_over(condition: Condition) -> str:
    match condition.event:
        case WebhookEvent.ALERT:
            return f"alert {condition.subject} is over, and its task is gone"
        case WebhookEvent.NODE_AWAY:
            return f"{condition.subject} answers again"
        case WebhookEvent.TASK_FAILING:
            is_task = len(condition.subject.split()) == 1
            what = f"task {condition.subject}" if is_task else f"what {condition.subject} explains"
            return f"{what} fails no more, or has ended"
        case WebhookEvent.MESH_BELOW:
            return (
                f"mesh {condition.subject} delivers enough good results again, or has nothing due"
            )


async def _nodes_away(connection: Connection) -> Found:
    return {
        Condition(WebhookEvent.NODE_AWAY, each.name): f"{each.name} does not answer since "
        f"{times.to_the_second(each.since)}: {each.error or 'no reason is known'}"
        for each in await webhooks.nodes_away(connection)
    }


async def _headlines(connection: Connection, ids: list[UUID]) -> dict[UUID, str]:
    rows = await tasks.naming_facts(connection, ids) if ids else ()
    return {
        row["id"]: headline(
            row["test"],
            row["participants"],
            row["spec"],
            None if row["pool"] is None else SeatRequest.model_validate(row["pool"]),
        )
        for row in rows
    }


async def _meshes_below_target(connection: Connection, terms: WebhookTerms, now: int) -> Found:
    names: Iterable[str] = [terms.mesh] if terms.mesh else []
    if not terms.mesh:
        names = [each.mesh for each in await meshes.find_all(connection, None, None)]
    below: Found = {}
    for name in names:
        delivery = meshes.delivery_of(
            await meshes.outcomes(connection, name, now - terms.span, now, None)
        )
        percent = delivery.good_percent
        if percent is not None and percent < terms.percent:
            below[Condition(WebhookEvent.MESH_BELOW, name)] = (
                f"mesh {name}: {percent:.1f} % of what was due in the last "
                f"{times.duration_text(terms.span)} was delivered and not bad, less than "
                f"{terms.percent:g} %: of {delivery.due} runs {delivery.delivered} were delivered, "
                f"{delivery.bad} of these with a bad result or without an answer"
            )
    return below
