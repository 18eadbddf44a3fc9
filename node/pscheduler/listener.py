"""The listener of the façade: TLS only, with the certificate of this node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog
from aiohttp import web

from node.api.app import runner, tls_of
from node.api.connections import ConnectionLimits
from node.api.heads import protocol_factory
from node.model.errors import HostError
from node.pscheduler.app import application
from node.pscheduler.facade import Facade
from node.service import NodeService

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def listening(node: NodeService) -> AsyncIterator[None]:
    """Serve clients and nodes of pScheduler meanwhile, if the settings say where.

    :raises HostError: this host cannot listen there.
    """
    address = node.settings.pscheduler_address
    if address is None:
        yield
        return
    serving = runner(application(Facade(node)))
    await serving.setup()
    try:
        server = await _listen(serving, node, *address)
        log.info(
            "clients of pScheduler are served, and known by their addresses alone",
            listen=node.settings.pscheduler_listen,
            certificate="proves nothing: these clients accept any",
            may_write=node.settings.pscheduler_allow or "nobody: set PARLEY_PSCHEDULER_ALLOW",
        )
        if node.settings.pscheduler_allow and not node.limits.limits.bounds_clients:
            log.warning(
                "clients of pScheduler have no limits: add [who.clients] with clients = true, and "
                "a rule for it",
                file=str(node.settings.limits),
            )
        try:
            yield
        finally:
            server.close()
    finally:
        await serving.cleanup()


async def _listen(
    serving: web.AppRunner, node: NodeService, host: str | None, port: int
) -> asyncio.Server:
    settings = node.settings
    limits = ConnectionLimits(
        protocol_factory(serving),
        settings.connections_max,
        settings.connections_per_address,
        tls_of(node),
    )
    try:
        return await asyncio.get_running_loop().create_server(limits, host, port)
    except OSError as error:
        msg = (
            f"cannot listen on {settings.pscheduler_listen}: {error.strerror}; choose another with "
            "PARLEY_PSCHEDULER_LISTEN, and stop the web server of pScheduler if it is still there"
        )
        raise HostError(msg) from error
