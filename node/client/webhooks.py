"""The users' client: webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node.client.responses import NodeApi, Page, page, read
from node.model.wire.webhooks import NewWebhook, Webhook, WebhookTested

if TYPE_CHECKING:
    from collections.abc import Mapping


class WebhooksApi(NodeApi):
    """The part of the client for webhooks."""

    async def add_webhook(self, document: Mapping[str, Any]) -> NewWebhook:
        """Add a webhook; only this answer has its secret."""
        return read(NewWebhook, await self._ask("POST", "/webhooks", body=document))

    async def webhooks(self, *, limit: int = 50, cursor: str | None = None) -> Page[Webhook]:
        """Return a page of webhooks, by name."""
        query = {"limit": limit, "cursor": cursor}
        return page(Webhook, await self._ask("GET", "/webhooks", query=query))

    async def test_webhook(self, name: str) -> WebhookTested:
        """Send a message of the type test; return when it was accepted."""
        return read(WebhookTested, await self._ask("POST", f"/webhooks/{name}/test"))

    async def remove_webhook(self, name: str) -> None:
        """Remove a webhook, and drop what it was not told yet."""
        await self._ask("DELETE", f"/webhooks/{name}")
