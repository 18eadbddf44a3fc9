"""The users' client: the audit."""

from __future__ import annotations

from collections.abc import Iterable

from node.client.responses import NodeApi, Page, page
from node.model.times import format_instant
from node.model.wire.audit import AuditRecord


class AuditApi(NodeApi):
    """The part of the client for the audit."""

    async def audit(  # noqa: PLR0913 - the API's filters, each by name
        self,
        *,
        principal: str | None = None,
        verb: str | None = None,
        thing: str | None = None,
        outcomes: Iterable[str] = (),
        since: int | None = None,
        until: int | None = None,
        oldest_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
        wait_s: int = 0,
    ) -> Page[AuditRecord]:
        """Return a page of the audit, by default newest first; with ``wait_s``, when it has rows.

        ``cursor`` may be the id of a row.
        """
        query = {
            "principal": principal,
            "verb": verb,
            "thing": thing,
            "outcome": ",".join(outcomes) or None,
            "since": None if since is None else format_instant(since),
            "until": None if until is None else format_instant(until),
            "order": "asc" if oldest_first else None,
            "limit": limit,
            "cursor": cursor,
        }
        return page(AuditRecord, await self._ask("GET", "/audit", query=query, wait_s=wait_s))
