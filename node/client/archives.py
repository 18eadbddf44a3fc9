"""What a node's users ask about where results go."""

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
    """A part of the client of a node's API: archivers, archives and deliveries."""

    async def archiver(self, name: str) -> ArchiverKind:
        """One archiver, with the schema of its spec."""
        return read(ArchiverKind, await self._ask("GET", f"/archivers/{quote(name, safe='')}"))

    async def archivers(self) -> Page[ArchiverKind]:
        """The archivers that there are."""
        return page(ArchiverKind, await self._ask("GET", "/archivers"))

    async def add_archive(self, document: Mapping[str, Any]) -> Archive:
        """Add an archive of the node's own; the very same again changes nothing."""
        return read(Archive, await self._ask("POST", "/archives", body=document))

    async def archives(self, *, limit: int = 50, cursor: str | None = None) -> Page[Archive]:
        """The node's own archives, by name."""
        query = {"limit": limit, "cursor": cursor}
        return page(Archive, await self._ask("GET", "/archives", query=query))

    async def archive(self, name: str) -> Archive:
        """One of the node's own archives."""
        return read(Archive, await self._ask("GET", _path(name)))

    async def edit_archive(self, name: str, patch: Mapping[str, Any]) -> Archive:
        """Change an archive by a merge patch."""
        return read(Archive, await self._ask("PATCH", _path(name), body=patch))

    async def remove_archive(self, name: str) -> None:
        """Nothing goes there any more."""
        await self._ask("DELETE", _path(name))

    async def test_archive(self, name: str) -> ArchiveTested:
        """Whether results can be delivered there."""
        return read(ArchiveTested, await self._ask("POST", f"{_path(name)}/test"))

    async def archivings(
        self, query: Mapping[str, object], *, limit: int = 50, cursor: str | None = None
    ) -> Page[Archiving]:
        """Deliveries, newest first; ``query`` are the API's filters."""
        asked = {**query, "limit": limit, "cursor": cursor}
        return page(Archiving, await self._ask("GET", "/archivings", query=asked))

    async def backlog(self) -> Page[Backlog]:
        """What waits, by destination."""
        return page(Backlog, await self._ask("GET", "/archivings/backlog"))

    async def retry_archivings(self, document: Mapping[str, Any]) -> Retried:
        """Have deliveries tried at once."""
        return read(Retried, await self._ask("POST", "/archivings/retry", body=document))
