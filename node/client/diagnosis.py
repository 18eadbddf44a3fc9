"""The users' client: the status of a node."""

from __future__ import annotations

from node.client.responses import NodeApi, read
from node.model.wire.status import NodeStatus


class DiagnosisApi(NodeApi):
    """The part of the client for how nodes are."""

    async def status(self) -> NodeStatus:
        """Return how the node is, and what needs attention."""
        return read(NodeStatus, await self._ask("GET", "/status"))
