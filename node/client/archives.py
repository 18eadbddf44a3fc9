"""The users' client: archivers, archives and deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from node.client.responses import NodeApi, Page, page, read
from node.model.wire.archives import (
    Archive,
    ArchiverKind,
    ArchiveTested,
    Archiving,
    Backlog,
    Retried,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def _path(name: str) -> str:
    return f"/archives/{quote(name, safe='')}"


class ArchivesApi(NodeApi):
    """The part of the client for archivers, archives and deliveries."""

    async def archiver(self, name: str) -> ArchiverKind:
        """Return one archiver, with the schema of its spec."""
        return read(ArchiverKind, await self._ask("GET", f"/archivers/{quote(name, safe='')}"))

    async def archivers(self) -> Page[ArchiverKind]:
        """Return the archivers."""
        return page(ArchiverKind, await self._ask("GET", "/archivers"))

    async def add_archive(self, document: Mapping[str, Any]) -> Archive:
        """Add an archive of the node; an identical one again changes nothing."""
        return read(Archive, await self._ask("POST", "/archives", body=document))

    async def archives(self, *, limit: int = 50, cursor: str | None = None) -> Page[Archive]:
        """Return a page of the node's archives, by name."""
        query = {"limit": limit, "cursor": cursor}
        return page(Archive, await self._ask("GET", "/archives", query=query))

    async def archive(self, name: str) -> Archive:
        """Return one archive of the node."""
        return read(Archive, await self._ask("GET", _path(name)))

    async def edit_archive(self, name: str, patch: Mapping[str, Any]) -> Archive:
        """Change an archive by a merge patch."""
        return read(Archive, await self._ask("PATCH", _path(name), body=patch))

    async def remove_archive(self, name: str) -> None:
        """Remove an archive and its waiting deliveries."""
        await self._ask("DELETE", _path(name))

    async def test_archive(self, name: str) -> ArchiveTested:
        """Check whether results can be delivered, without delivering one."""
        return read(ArchiveTested, await self._ask("POST", f"{_path(name)}/test"))

    async def archivings(
        self, query: Mapping[str, object], *, limit: int = 50, cursor: str | None = None
    ) -> Page[Archiving]:
        """Return a page of deliveries, newest first; ``query`` has the API's filters."""
        full_query = {**query, "limit": limit, "cursor": cursor}
        return page(Archiving, await self._ask("GET", "/archivings", query=full_query))

    async def backlog(self) -> Page[Backlog]:
        """Return the waiting and parked deliveries by destination."""
        return page(Backlog, await self._ask("GET", "/archivings/backlog"))

    async def retry_archivings(self, document: Mapping[str, Any]) -> Retried:
        """Retry deliveries at once."""
        return read(Retried, await self._ask("POST", "/archivings/retry", body=document))
