"""The users' client: secrets of the owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node.client.responses import NodeApi, Page, page, read
from node.model.wire.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping


class SecretsApi(NodeApi):
    """The part of the client for secrets."""

    async def add_secret(self, document: Mapping[str, Any]) -> Secret:
        """Add a secret, or replace it; no answer has its value."""
        return read(Secret, await self._ask("POST", "/secrets", body=document))

    async def secrets(self, *, limit: int = 50, cursor: str | None = None) -> Page[Secret]:
        """Return a page of secrets by name, without their values."""
        query = {"limit": limit, "cursor": cursor}
        return page(Secret, await self._ask("GET", "/secrets", query=query))

    async def remove_secret(self, name: str) -> None:
        """Remove a secret."""
        await self._ask("DELETE", f"/secrets/{name}")
