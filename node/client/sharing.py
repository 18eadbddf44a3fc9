"""The users' client: campaigns, pools, and attributes of nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from node.client.responses import NodeApi, Page, page, read
from node.model.times import format_instant
from node.model.wire.campaigns import Campaign, UsageHour
from node.model.wire.nodes import Node
from node.model.wire.pools import PolicySet, Pool

if TYPE_CHECKING:
    from collections.abc import Mapping


class SharingApi(NodeApi):
    """The part of the client for campaigns, pools, and nodes."""

    async def add_campaign(self, document: Mapping[str, Any]) -> Campaign:
        """Add a campaign; an identical one again changes nothing."""
        return read(Campaign, await self._ask("POST", "/campaigns", body=document))

    async def campaigns(self, *, limit: int = 50, cursor: str | None = None) -> Page[Campaign]:
        """Return a page of campaigns, by name."""
        query = {"limit": limit, "cursor": cursor}
        return page(Campaign, await self._ask("GET", "/campaigns", query=query))

    async def campaign(self, name: str) -> Campaign:
        """Return one campaign."""
        return read(Campaign, await self._ask("GET", f"/campaigns/{quote(name, safe='')}"))

    async def edit_campaign(self, name: str, patch: Mapping[str, Any]) -> Campaign:
        """Change a campaign by a merge patch."""
        path = f"/campaigns/{quote(name, safe='')}"
        return read(Campaign, await self._ask("PATCH", path, body=patch))

    async def remove_campaign(self, name: str) -> None:
        """Remove a campaign that was never used."""
        await self._ask("DELETE", f"/campaigns/{quote(name, safe='')}")

    async def usage(
        self,
        name: str | None,
        *,
        since: int | None = None,
        until: int | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[UsageHour]:
        """Return a page of the usage of one campaign, or of all, hour by hour."""
        path = "/usage" if name is None else f"/campaigns/{quote(name, safe='')}/usage"
        query = {
            "since": None if since is None else format_instant(since),
            "until": None if until is None else format_instant(until),
            "limit": limit,
            "cursor": cursor,
        }
        return page(UsageHour, await self._ask("GET", path, query=query))

    async def add_pool(self, document: Mapping[str, Any]) -> Pool:
        """Add a pool; an identical one again changes nothing."""
        return read(Pool, await self._ask("POST", "/pools", body=document))

    async def policy_sets(self) -> Page[PolicySet]:
        """Return the policy sets that a pool can have, the recommended one first."""
        return page(PolicySet, await self._ask("GET", "/policysets"))

    async def pools(self, *, limit: int = 50, cursor: str | None = None) -> Page[Pool]:
        """Return a page of pools, by name."""
        query = {"limit": limit, "cursor": cursor}
        return page(Pool, await self._ask("GET", "/pools", query=query))

    async def pool(self, name: str) -> Pool:
        """Return one pool."""
        return read(Pool, await self._ask("GET", f"/pools/{quote(name, safe='')}"))

    async def edit_pool(self, name: str, patch: Mapping[str, Any]) -> Pool:
        """Change a pool by a merge patch."""
        return read(Pool, await self._ask("PATCH", f"/pools/{quote(name, safe='')}", body=patch))

    async def remove_pool(self, name: str) -> None:
        """Remove a pool; its nodes stay."""
        await self._ask("DELETE", f"/pools/{quote(name, safe='')}")

    async def nodes(self, match: Mapping[str, Any] | None = None) -> Page[Node]:
        """Return the known nodes, itself included, or those that meet a predicate."""
        query = {"match": json.dumps(match) if match else None}
        return page(Node, await self._ask("GET", "/nodes", query=query))

    async def set_attributes(self, attributes: Mapping[str, Any]) -> Node:
        """Set attributes of the node; ``None`` removes one."""
        body = {"attributes": dict(attributes)}
        return read(Node, await self._ask("PATCH", "/nodes/self", body=body))
