"""The users' client: tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.client.responses import NodeApi, Page, page, read
from node.model.wire.tokens import NewToken, Token, TokenRequest

if TYPE_CHECKING:
    from uuid import UUID


class TokensApi(NodeApi):
    """The part of the client for tokens."""

    async def add_token(self, request: TokenRequest) -> NewToken:
        """Make a token; only this answer has its secret."""
        body = request.model_dump(mode="json")
        return read(NewToken, await self._ask("POST", "/tokens", body=body))

    async def tokens(
        self, *, prefix: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Token]:
        """Return a page of tokens, newest first."""
        query = {"prefix": prefix, "limit": limit, "cursor": cursor}
        return page(Token, await self._ask("GET", "/tokens", query=query))

    async def revoke_token(self, token: UUID) -> Token:
        """Make a token invalid at once."""
        return read(Token, await self._ask("DELETE", f"/tokens/{token}"))
