"""The services: ``parley up``, ``parley-node``, ``parley-lead``, and ``parley-api``.

``parley up`` is node and lead in one process; ``parley-api`` is one more process of a node's API.
``lead/assembly`` composes node and lead; here they are started, announced to the service
manager, and stopped. Root gives up its rights before the first thread starts. A signal during the
start breaks it off, one later ends the services in the reverse order. Each part is a context that
runs meanwhile (serving, leading, sending traces), so that whatever fails, what was started before
it is stopped. A hang-up makes the node read limits and certificates again. The watchdog waits for
nobody: a database that hangs is no reason to end measurements.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import click
import structlog
from pydantic import ValidationError

from node.api import app
from node.api.openapi import openapi_document
from node.api.page import routes as page_routes
from node.cli import logs
from node.cli.options import options
from node.cli.service_account import give_up_root
from node.execution.descriptors import allow_many
from node.model import times
from node.model.errors import HostError, ParleyError
from node.model.loopback import is_exposed, is_loopback
from node.peers.announcer import Announcer
from node.postgres.access import served_database
from node.pscheduler import archived, listener
from node.pscheduler.owamp import server as owamp
from node.results.traces import SpanExporter, missing_package
from node.runtime.clock import Clock, SystemClock
from node.runtime.housekeeping import Housekeeper, process_jobs
from node.runtime.resolver import ResolvingLoop
from node.runtime.settings import Settings, unknown_settings
from node.runtime.version import agent_of, program_version
from node.service import NodeService, assemble, require_key_of_service
from node.store import readiness
from node.store.mark import HostMarks
from node.store.readiness import LeadProgram
from node.trust.private_files import prepare_directory

if TYPE_CHECKING:
    from lead.assembly.lead import Lead
    from node.execution.contexts import Contexts
    from node.model.contexts import Context


log = structlog.get_logger()

_IDLE_S = app.HEAD_S / 2
_MORE_TIME = 20 * times.SECOND


def settings_of(options: dict[str, Any]) -> Settings:
    """Return the settings; options take precedence over the environment.

    :raises click.UsageError: a value is wrong; the message names it.
    """
    given = {name: value for name, value in options.items() if value not in (None, False)}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        sentence = str(first["msg"]).removeprefix("Value error, ")
        msg = f"{_setting_source(first['loc'], given)}: {sentence}" if first["loc"] else sentence
        raise click.UsageError(msg) from None


def _setting_source(place: Sequence[int | str], given: Mapping[str, Any]) -> str:
    """Return the option or environment variable that had the wrong value."""
    name, *inside = map(str, place)
    if name in given:
        return "--" + "-".join((name, *inside)).replace("_", "-")
    return "/".join((f"PARLEY_{name.upper()}", *inside))


_with_options = options("""
    --name TEXT       Name of this node.
    --listen TEXT     HOST:PORT of the API and the page.
    --url TEXT        URL at which other nodes reach the API.
    --address TEXT    Address used for measurements.
    --dsn TEXT        Postgres to use [a private one].
    --state-dir TEXT  Directory of the key, the token, and the private Postgres.
    --allow-remote    Allow --listen on other than loopback addresses.
    --plain-http      Serve plain HTTP to other hosts, too.
    --tls-cert TEXT   Certificate for people [one of its own].
    --tls-key TEXT    Its private key.
    --pull            Fetch work from other nodes, which cannot reach this one.
    --horizon TEXT    How far ahead runs are booked, such as P1D.
    --workers INTEGER  Number of the lead's planning workers.
""")


@click.command("up")
@_with_options
def up(**options: Any) -> None:
    """Run one node here: API, page, lead, and a private Postgres unless --dsn is given."""
    _run(settings_of(options), node=True, lead=True)


@click.command("parley-node")
@_with_options
def _node(**options: Any) -> None:
    """Run the node's service: API, page, launcher. Its lead runs as parley-lead."""
    _run(settings_of(options), node=True, lead=False)


@click.command("parley-lead")
@_with_options
def _lead(**options: Any) -> None:
    """Run the lead's service, which plans the tasks created on this host's node."""
    _run(settings_of(options), node=False, lead=True)


@click.command("parley-api")
@_with_options
def _api(**options: Any) -> None:
    """Run a further process of the API and the page, beside the node's service parley-node.

    It needs that service's settings and key, and --listen of its own. It answers people and
    programs; other nodes talk to parley-node, which also measures.
    """
    listen = options.pop("listen")
    settings = settings_of(options)
    if listen is None or listen == settings.listen:
        msg = f"it needs a place of its own: --listen HOST:PORT, other than {settings.listen}"
        raise click.UsageError(msg)
    _run(settings, node=False, lead=False, api=settings_of({**options, "listen": listen}))


def api_main() -> None:
    """Entry point of ``parley-api``."""
    _api(prog_name="parley-api")


def node_main() -> None:
    """Entry point of ``parley-node``."""
    _node(prog_name="parley-node")


def lead_main() -> None:
    """Entry point of ``parley-lead``."""
    _lead(prog_name="parley-lead")


def _run(settings: Settings, *, node: bool, lead: bool, api: Settings | None = None) -> None:
    """Serve until told to stop; ``api`` says where to listen beside the node's service."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            logs.RepetitionFilter(SystemClock()),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False)
            if sys.stderr.isatty()
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logs.route_library_logs()
    allow_many()
    try:
        if node or api:
            _check_listen(api or settings)
        prepare_directory(settings.state_dir)
    except HostError as fault:  # before anything else is said
        raise click.UsageError(fault.detail) from None
    try:
        runner = None
        if node and lead:  # as services of their own, they have a unit that says what they may do
            settings, runner = give_up_root(settings)
        tools = runner.control if runner else None
        serving = _serve(settings, with_node=node, with_lead=lead, api=api, tools=tools)
        with asyncio.Runner(loop_factory=ResolvingLoop) as loop:
            loop.run(serving)
    except ParleyError as error:
        click.echo(f"✗ {error.detail}", err=True)
        sys.exit(error.exit_code)


async def _serve(
    settings: Settings,
    *,
    with_node: bool,
    with_lead: bool,
    api: Settings | None = None,
    tools: socket.socket | None = None,
) -> None:
    """Serve until a signal asks to stop; one that comes during the start breaks that off."""
    stop, ready, reread = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, _hang_up, stop, reread, sys.stderr.isatty())
    starting = partial(_work, settings, tools, stop, ready, reread)
    work = starting(with_node=with_node, with_lead=with_lead, api=api)
    working = asyncio.create_task(work, name="services")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if ready.is_set():
        await working
        return
    working.cancel()  # what it waits for may never come
    with contextlib.suppress(asyncio.CancelledError):
        await working


def _hang_up(stop: asyncio.Event, reread: asyncio.Event, on_terminal: bool) -> None:
    """Read limits and certificates again; or stop, if the terminal of this service is gone."""
    (stop if on_terminal and not sys.stderr.isatty() else reread).set()


async def _reread(node: NodeService, reread: asyncio.Event) -> None:
    while True:
        await reread.wait()
        reread.clear()
        await node.limits.reload()
        await node.renew_certificates()


async def _work(
    settings: Settings,
    tools: socket.socket | None,
    stop: asyncio.Event,
    ready: asyncio.Event,
    reread: asyncio.Event,
    *,
    with_node: bool,
    with_lead: bool,
    api: Settings | None,
) -> None:
    """Start the services, set ``ready``, and end them once ``stop`` is set.

    Whenever ``reread`` is set, the node reads limits and certificates again.
    """
    clock = SystemClock()
    async with (
        served_database(settings, clock) as (dsn, keeping),
        aiohttp.ClientSession(connector=connector(), auto_decompress=False) as session,
    ):
        async with _startup_grace(clock):
            roles = {"serving": with_node, "beside": api is not None}
            node = await _assemble(settings, clock, dsn, session, tools, **roles)
        try:
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(_exporting_spans(node))
                if with_node:
                    await stack.enter_async_context(_running_service(node))
                owner = f"{socket.gethostname()}:{os.getpid()}"
                if with_lead:
                    await stack.enter_async_context(_running_lead(node, owner, alone=not with_node))
                if api:
                    await stack.enter_async_context(_serving_beside(node, api))
                if with_node or api:
                    reading = asyncio.create_task(_reread(node, reread), name="reread")
                    stack.callback(reading.cancel)
                _announce_ready(node, with_node=with_node)
                ready.set()
                housekeeper = Housekeeper(clock)
                housekeeper.start(
                    process_jobs(
                        ping_watchdog=_ping_watchdog,
                        watch_clock=node.watch_clock,
                        mark_database=node.mark_database,
                        show_lead=partial(_show_lead, node, owner) if with_lead else None,
                    )
                )
                naming = None if with_node else require_key_of_service(node.core)
                try:
                    await _await_stop(stop, keeping, naming, node.announcer)
                finally:
                    await housekeeper.stop()
                    _notify("STOPPING=1")
        finally:
            await node.database.close()


async def _assemble(
    settings: Settings,
    clock: Clock,
    dsn: str,
    session: aiohttp.ClientSession,
    tools: socket.socket | None,
    *,
    serving: bool,
    beside: bool,
) -> NodeService:
    """Return the node, with its lead's functions and its way to hosts that run pScheduler."""
    from lead.assembly.with_node import lead_functions
    from node.pscheduler.leading.hosts import pscheduler_hosts

    foreign, lead = pscheduler_hosts(session), lead_functions()
    return await assemble(
        settings,
        clock,
        dsn,
        session,
        lead,
        serving=serving,
        beside=beside,
        tools=tools,
        foreign=foreign,
    )


def connector() -> aiohttp.TCPConnector:
    """Return what connects to other nodes: so many to each, whatever there are in total.

    A silent node must not use up those of others. They are closed here before another node closes
    them, which a request might cross.
    """
    return aiohttp.TCPConnector(limit=0, limit_per_host=16, keepalive_timeout=_IDLE_S)


async def _await_stop(
    stop: asyncio.Event,
    keeping: asyncio.Task[None] | None,
    naming: Coroutine[Any, Any, None] | None,
    announcer: Announcer,
) -> None:
    """Wait until a signal asks this service to stop.

    ``naming`` returns once the key of secrets is known to be that of the node's service.

    :raises DatabaseUnavailable: its private Postgres ended and could not be started again.
    :raises MovedAway: the node goes on at another host.
    :raises HostError: the node's service has another key of secrets.
    """
    ends: set[asyncio.Task[Any]] = {
        asyncio.create_task(stop.wait(), name="stop"),
        asyncio.create_task(announcer.ended.wait(), name="moved away"),
    }
    named = {asyncio.create_task(naming, name="key of secrets")} if naming else set()
    kept = {keeping} if keeping else set()
    try:
        while True:
            done, _ = await asyncio.wait(ends | named | kept, return_when=asyncio.FIRST_COMPLETED)
            for each in done - ends:
                await each
            named -= done
            if done & (ends | kept):
                break
        announcer.require_here()
    finally:
        for each in (*ends, *named):
            each.cancel()


def _check_listen(settings: Settings) -> None:
    if not is_loopback(settings.listen_host) and not settings.allow_remote:
        raise HostError(
            f"{settings.listen} is reachable from other hosts; if that is intended, add "
            "--allow-remote (users then need the token for reading, too)"
        )
    if is_exposed(settings.public_url) and not settings.plain_http:
        raise HostError(
            f"other hosts are to use {settings.public_url}, and are not served plain HTTP, which "
            "others could read on the way; write https in the URL (PARLEY_URL), for which the node "
            "makes its own certificate, or allow plain HTTP with --plain-http (PARLEY_PLAIN_HTTP=1)"
        )


@contextlib.asynccontextmanager
async def _running_service(node: NodeService) -> AsyncIterator[None]:
    """Run everything of the node's service meanwhile."""
    async with _running_api(node, node.settings, node.start):
        node.result_delivery.add_form(archived.FORM, archived.ArchivedForm(node))
        async with listener.listening(node), owamp.listening(node):
            node.start_delivery()
            yield


@contextlib.asynccontextmanager
async def _serving_beside(node: NodeService, where: Settings) -> AsyncIterator[None]:
    """Serve people meanwhile, while the node's service is another process."""
    await _await_node(node)
    async with _running_api(node, where, node.start_beside):
        yield


@contextlib.asynccontextmanager
async def _running_api(
    node: NodeService, where: Settings, start: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    """Start the node, serve its API meanwhile where the settings say, and stop it.

    :raises HostError: the place is taken, or not this host's.
    """
    node.openapi = openapi_document(app.ROUTES, program_version(), node.capabilities.tests)
    runner = app.runner(app.application(node, page_routes()))
    await runner.setup()
    await node.prepare_tools()
    await start()
    try:
        server = await app.listen(runner, where, tls=app.tls_of(node))
    except OSError as error:
        await node.stop()
        await runner.cleanup()
        msg = f"cannot listen on {where.listen}: {error.strerror}; choose another with --listen"
        raise HostError(msg) from error
    try:
        yield
    finally:
        await node.stop()
        server.close()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _exporting_spans(node: NodeService) -> AsyncIterator[None]:
    if (endpoint := node.settings.traces_endpoint) is None:
        yield
        return
    if (missing := missing_package()) is not None:
        log.warning("traces are not sent", reason=missing)
        yield
        return
    resource = {
        "service.name": "parley",
        "service.version": program_version(),
        "host.name": node.card.name,
    }
    exporter = SpanExporter(endpoint, node.clock, resource, agent_of(node.settings))
    sending = asyncio.create_task(exporter.run(), name="traces")
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await exporter.close()


@contextlib.asynccontextmanager
async def _running_lead(node: NodeService, owner: str, *, alone: bool) -> AsyncIterator[None]:
    """Plan meanwhile; ``alone``: the node's service is another process."""
    from lead.assembly.with_node import lead_of

    lead = lead_of(node, owner=owner, rng=random.Random())
    listening: asyncio.Task[None] | None = None
    node.add_notification_listener(lead.on_notice)
    if alone:
        await _await_node(node)
        await node.begin_clock()
        await node.wait_until_in_use(HostMarks.of(node.settings.state_dir))
        await node.ask_others()
        listening = asyncio.create_task(node.listen(lead.on_notice))
    await _show_lead(node, owner)
    starting = asyncio.create_task(_plan_once_believed(node, lead), name="start the lead")
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await lead.stop()
        with contextlib.suppress(ParleyError):  # then it is missed, as if it had been killed
            async with node.database.connection() as connection:
                await readiness.stop_lead(connection, owner, node.clock.now())
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


async def _plan_once_believed(node: NodeService, lead: Lead) -> None:
    await node.clock_steps.wait_until_believed()
    await lead.start()


async def _show_lead(node: NodeService, owner: str) -> None:
    """Write that this process plans; forget those of which nothing was heard for a week."""
    now = node.clock.now()
    program = LeadProgram(
        node.started,
        program_version(),
        node.settings.workers,
        node.core.instruments.lead_figures(),
    )
    async with node.database.connection() as connection:
        await readiness.keep_lead(connection, owner, now, now - 7 * times.DAY, program)


async def _await_node(node: NodeService) -> None:
    """Wait for the node's card, which a lead in its own process needs; both start together."""
    log.info("waiting for the node's service", node=node.card.name)
    while node.card.identity not in {known.identity for known in node.directory.all}:
        await node.directory.refresh()
        await node.clock.sleep(0.2)


def _announce_ready(node: NodeService, *, with_node: bool) -> None:
    settings = node.settings
    _notify("READY=1")
    for sentence in unknown_settings(os.environ):
        log.warning(sentence)
    if with_node:
        warn_of_contexts(node.contexts, settings.allowed_contexts)
        if (plain := settings.plain_warning) is not None:
            log.warning(plain)
    if not with_node or not sys.stderr.isatty():
        log.info("ready", node=node.card.name, identity=node.card.identity, url=settings.public_url)
        return
    missing = [
        f"{name} ✗ ({reason})"
        if (reason := node.capabilities.missing_program(tool))
        else f"{name} ✓"
        for name, tool in sorted(node.capabilities.tools.items())
    ]
    unnamed = "" if "name" in settings.model_fields_set else " (give it a name: --name a.example)"
    click.echo(f"Node      {node.card.name}{unnamed}, {node.card.identity}", err=True)
    token = (settings.state_dir / "token").read_text().strip()
    click.echo(f"API       {settings.public_url}", err=True)
    click.echo(f"Page      {settings.public_url}/#token={token}", err=True)
    click.echo(f"Token     {settings.state_dir / 'token'}", err=True)
    click.echo(f"Tools     {'  '.join(missing)}", err=True)
    click.echo("Try       parley rtt HOST     (Ctrl-C here stops the node)", err=True)


def warn_of_contexts(contexts: Contexts, allowed: Iterable[Context]) -> None:
    """Warn of contexts that are allowed but cannot be used, for example because of a typo."""
    for context in allowed:
        if (why := contexts.refusal(context)) is not None:
            log.warning("a context is allowed but cannot be used", context=str(context), why=why)


@contextlib.asynccontextmanager
async def _startup_grace(clock: Clock) -> AsyncIterator[None]:
    """Extend the service manager's start timeout meanwhile: large migrations take minutes."""

    async def ask() -> None:
        while True:
            _notify(f"EXTEND_TIMEOUT_USEC={3 * _MORE_TIME}")
            await clock.sleep(_MORE_TIME / times.SECOND)

    asking = asyncio.create_task(ask(), name="more time to start")
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def _ping_watchdog() -> None:
    """Tell the service manager that the event loop turns.

    It waits for nobody: if the database hangs, ending this process would end its measurements too,
    and mend nothing.
    """
    _notify("WATCHDOG=1")


def _notify(state: str) -> None:
    """Send one datagram to the service manager, if there is one (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, contextlib.suppress(OSError):
        notify.connect(address)
        notify.sendall(state.encode())
