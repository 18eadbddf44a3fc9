"""The façade: this node as clients and nodes of pScheduler see it."""

from __future__ import annotations

from aiohttp import web

from node.pscheduler.admission import TaskPoster
from node.pscheduler.participating import Participating
from node.pscheduler.refusals import Refusal
from node.pscheduler.requesters import Gate, Need, Requester
from node.pscheduler.telling import Teller, ToldTask
from node.service import NodeService

API_LEVEL = 4
"""The level of the API that is told: the smallest at which everything works without drawings."""
LEVEL_MAX = 6
"""The highest level that a client may ask for."""


class Facade:
    """A node, and what its owner lets callers of the façade do."""

    def __init__(self, node: NodeService) -> None:
        """``node`` is complete; the façade uses its services and adds none to them."""
        self.node = node
        settings = node.settings
        self.gate = Gate(settings.pscheduler_writers, settings.pscheduler_readers)
        self.host = _host_of(settings.pscheduler_listen or "localhost:443")
        self.poster = TaskPoster(node)
        self.teller = Teller(node)
        self.participating = Participating(node)

    @property
    def name(self) -> str:
        """A name that no other node has; some clients leave out nodes whose name they have met."""
        card = self.node.card
        return card.name if card.name != "localhost" else f"localhost-{card.identity[8:20]}"

    async def end_task(self, told: ToldTask) -> None:
        """End a task and its runs; one that has ended stays as it is."""
        await self.node.termination.cancel_task(told.id)

    def requester(self, request: web.Request) -> Requester:
        """Return the caller of a request."""
        return self.gate.requester(request.remote or "")

    def spend(self, requester: Requester) -> None:
        """Count a request of a user, for which the owner has a limit.

        :raises Refusal: they sent too many.
        """
        allowance = self.node.request_rates.spend(requester.principal)
        if allowance is not None and allowance.wait_s:
            raise Refusal(
                429,
                f"{requester.address} has sent more than {allowance.most} requests within a "
                f"minute; ask again in {allowance.wait_s} s.",
            )

    def require(self, requester: Requester, need: Need) -> None:
        """Check that a caller has the right that a route needs.

        :raises Refusal: the owner does not let this address do it.
        """
        if need is Need.WRITE and not requester.may_write:
            raise Refusal(
                403,
                f"{requester.address} may not change anything on {self.name}; its owner allows "
                "networks with PARLEY_PSCHEDULER_ALLOW.",
            )
        if need is Need.READ and not requester.may_read:
            raise Refusal(
                403,
                f"{requester.address} may not read tasks and runs of {self.name}; its owner allows "
                "networks with PARLEY_PSCHEDULER_READ.",
            )


def _host_of(listen: str) -> str:
    return listen.removesuffix(":443")


FACADE: web.AppKey[Facade] = web.AppKey("facade")
"""The façade of an application."""
