"""The users' client: the status of a node, and its checks."""

from __future__ import annotations

from node.client.responses import NodeApi, read
from node.model.wire.checks import DiagnosisAnswer, DiagnosisRequest
from node.model.wire.status import NodeStatus


class DiagnosisApi(NodeApi):
    """The part of the client for how nodes are."""

    async def status(self) -> NodeStatus:
        """Return how the node is, and what needs attention."""
        return read(NodeStatus, await self._ask("GET", "/status"))

    async def check(self, request: DiagnosisRequest) -> DiagnosisAnswer:
        """Have the node checked, or the way between two nodes."""
        body = request.model_dump(mode="json", by_alias=True)
        return read(DiagnosisAnswer, await self._ask("POST", "/checks", body=body))
