"""The users' client: meshes."""

from __future__ import annotations

from urllib.parse import quote

from node.client.responses import Page, page, read
from node.client.sharing import SharingApi
from node.model.times import format_instant
from node.model.wire.meshes import Mesh, MeshDelivery, MeshPair, MeshTask

_PAGE = 500


class MeshesApi(SharingApi):
    """The part of the client for meshes and what they deliver."""

    async def meshes(
        self, *, removed: bool = False, limit: int = 50, cursor: str | None = None
    ) -> Page[Mesh]:
        """Return a page of meshes; with ``removed``, also those with only cancelled tasks."""
        query = {"removed": "true" if removed else None, "limit": limit, "cursor": cursor}
        return page(Mesh, await self._ask("GET", "/meshes", query=query))

    async def mesh(self, name: str, since: int, until: int) -> MeshDelivery:
        """Return one mesh, and what it has delivered in ``[since, until)``, up to now at most."""
        query = {"from": format_instant(since), "to": format_instant(until)}
        return read(MeshDelivery, await self._ask("GET", _path(name), query=query))

    async def mesh_pairs(
        self, name: str, since: int, until: int, cursor: str | None = None
    ) -> Page[MeshPair]:
        """Return a page of what each pair of a mesh has delivered, in the order of their keys."""
        span = {"from": format_instant(since), "to": format_instant(until)}
        query = {**span, "limit": _PAGE, "cursor": cursor}
        return page(MeshPair, await self._ask("GET", f"{_path(name)}/pairs", query=query))

    async def worst_mesh_pairs(
        self, name: str, since: int, until: int, limit: int
    ) -> Page[MeshPair]:
        """Return the pairs of a mesh with the smallest share of delivered slots, worst first."""
        span = {"from": format_instant(since), "to": format_instant(until)}
        query = {**span, "order": "worst", "limit": limit}
        return page(MeshPair, await self._ask("GET", f"{_path(name)}/pairs", query=query))

    async def mesh_tasks(self, name: str, cursor: str | None = None) -> Page[MeshTask]:
        """Return a page of the tasks of a mesh: those not over, and the newest of each key."""
        query = {"limit": _PAGE, "cursor": cursor}
        return page(MeshTask, await self._ask("GET", f"{_path(name)}/tasks", query=query))


def _path(name: str) -> str:
    return f"/meshes/{quote(name, safe='')}"
