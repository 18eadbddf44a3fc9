"""The synchronous client of a node: each method waits for what that of the other one returns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from node.client.responses import Page
from node.client.session import run_without_loop
from node.runtime.clock import BlockingClock
from parley_client.asynchronous import PAGE, AsyncParley

P = ParamSpec("P")
T = TypeVar("T")


def _waited(
    method: Callable[Concatenate[AsyncParley, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Parley, P], T]:
    """Return the method that waits for what a method of the asynchronous client returns."""

    def call(parley: Parley, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return parley._run(method(parley._client, *args, **kwargs))  # noqa: SLF001 - a method of it

    update_wrapper(call, method)
    return call


def _iterated(
    method: Callable[Concatenate[AsyncParley, P], AsyncIterator[T]],
) -> Callable[Concatenate[Parley, P], Iterator[T]]:
    """Return the method that yields what a method of the asynchronous client yields."""

    def call(parley: Parley, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return parley._each(method(parley._client, *args, **kwargs))  # noqa: SLF001 - a method of it

    update_wrapper(call, method)
    return call


class _BlockingParley(AsyncParley):
    """The asynchronous client without a loop: what it does is done when a call returns."""

    _clock_kind = BlockingClock


class Parley:
    """A node's API; use it with ``with``, in one thread at a time.

    Methods return the documents that the API describes, or raise the error of a problem document.
    """

    def __init__(
        self,
        server: str = "http://127.0.0.1:8642",
        token: str | None = None,
        *,
        identity: str | None = None,
        patience_s: float = 30,
        plain_http: bool = False,
    ) -> None:
        """Take what :class:`AsyncParley` takes. Nothing is connected yet."""
        self._client = _BlockingParley(
            server, token, identity=identity, patience_s=patience_s, plain_http=plain_http
        )

    def __enter__(self) -> Self:
        """Open the session; see :class:`AsyncParley`."""
        self._run(self._client.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the session."""
        self._run(self._client.__aexit__(kind, error, trace))

    def every(self, list_: Callable[..., Page[T]], *args: Any, **filters: Any) -> Iterator[T]:
        """Yield all items of a list, page by page: ``every(client.runs, mesh="lab")``.

        It takes what ``list_`` takes: ``limit`` is the size of a page, ``cursor`` the first one's.
        """
        query = {"limit": PAGE, "cursor": None, **filters}
        while True:
            page = list_(*args, **query)
            yield from page.items
            if page.next is None:
                return
            query["cursor"] = page.next

    def _each(self, asking: AsyncIterator[T]) -> Iterator[T]:
        """Yield what an asynchronous iterator yields, and end it with this one."""
        try:
            while True:
                try:
                    yield self._run(_next(asking))
                except StopAsyncIteration:
                    return
        finally:
            if isinstance(asking, AsyncGenerator):
                self._run(_end(asking))

    def _run(self, asking: Coroutine[Any, Any, T]) -> T:
        return run_without_loop(asking)

    add_archive = _waited(AsyncParley.add_archive)
    add_campaign = _waited(AsyncParley.add_campaign)
    add_node = _waited(AsyncParley.add_node)
    add_pool = _waited(AsyncParley.add_pool)
    add_reservation = _waited(AsyncParley.add_reservation)
    add_secret = _waited(AsyncParley.add_secret)
    add_token = _waited(AsyncParley.add_token)
    add_webhook = _waited(AsyncParley.add_webhook)
    alerts = _waited(AsyncParley.alerts)
    archive = _waited(AsyncParley.archive)
    archiver = _waited(AsyncParley.archiver)
    archivers = _waited(AsyncParley.archivers)
    archives = _waited(AsyncParley.archives)
    archivings = _waited(AsyncParley.archivings)
    audit = _waited(AsyncParley.audit)
    backlog = _waited(AsyncParley.backlog)
    campaign = _waited(AsyncParley.campaign)
    campaigns = _waited(AsyncParley.campaigns)
    cancel_run = _waited(AsyncParley.cancel_run)
    cancel_task = _waited(AsyncParley.cancel_task)
    change_alert = _waited(AsyncParley.change_alert)
    change_tasks = _waited(AsyncParley.change_tasks)
    check = _waited(AsyncParley.check)
    check_node = _waited(AsyncParley.check_node)
    clock = _waited(AsyncParley.clock)
    compare_node = _waited(AsyncParley.compare_node)
    create_task = _waited(AsyncParley.create_task)
    create_tasks = _waited(AsyncParley.create_tasks)
    document = _waited(AsyncParley.document)
    edit_archive = _waited(AsyncParley.edit_archive)
    edit_campaign = _waited(AsyncParley.edit_campaign)
    edit_pool = _waited(AsyncParley.edit_pool)
    plan_policy = _waited(AsyncParley.plan_policy)
    edit_reservation = _waited(AsyncParley.edit_reservation)
    edit_task = _waited(AsyncParley.edit_task)
    events = _iterated(AsyncParley.events)
    explain_run = _waited(AsyncParley.explain_run)
    explain_task = _waited(AsyncParley.explain_task)
    intervals = _waited(AsyncParley.intervals)
    introduce = _waited(AsyncParley.introduce)
    limits = _waited(AsyncParley.limits)
    limits_of = _waited(AsyncParley.limits_of)
    listed = _waited(AsyncParley.listed)
    make_directory = _waited(AsyncParley.make_directory)
    mesh = _waited(AsyncParley.mesh)
    mesh_pairs = _waited(AsyncParley.mesh_pairs)
    mesh_tasks = _waited(AsyncParley.mesh_tasks)
    meshes = _waited(AsyncParley.meshes)
    nodes = _waited(AsyncParley.nodes)
    own_card = _waited(AsyncParley.own_card)
    pardon_node = _waited(AsyncParley.pardon_node)
    pause_task = _waited(AsyncParley.pause_task)
    plan = _waited(AsyncParley.plan)
    plan_together = _waited(AsyncParley.plan_together)
    policy_sets = _waited(AsyncParley.policy_sets)
    pool = _waited(AsyncParley.pool)
    pools = _waited(AsyncParley.pools)
    rekey = _waited(AsyncParley.rekey)
    release_task = _waited(AsyncParley.release_task)
    remove_archive = _waited(AsyncParley.remove_archive)
    remove_campaign = _waited(AsyncParley.remove_campaign)
    remove_node = _waited(AsyncParley.remove_node)
    remove_pool = _waited(AsyncParley.remove_pool)
    remove_reservation = _waited(AsyncParley.remove_reservation)
    remove_secret = _waited(AsyncParley.remove_secret)
    remove_webhook = _waited(AsyncParley.remove_webhook)
    reservation = _waited(AsyncParley.reservation)
    reservations = _waited(AsyncParley.reservations)
    resume_task = _waited(AsyncParley.resume_task)
    retry_archivings = _waited(AsyncParley.retry_archivings)
    revoke_key = _waited(AsyncParley.revoke_key)
    revoke_node = _waited(AsyncParley.revoke_node)
    revoke_own_key = _waited(AsyncParley.revoke_own_key)
    revoke_token = _waited(AsyncParley.revoke_token)
    run = _waited(AsyncParley.run)
    run_bundle = _waited(AsyncParley.run_bundle)
    runs = _waited(AsyncParley.runs)
    schedule = _waited(AsyncParley.schedule)
    schedule_changes = _waited(AsyncParley.schedule_changes)
    seats = _waited(AsyncParley.seats)
    secrets = _waited(AsyncParley.secrets)
    set_attributes = _waited(AsyncParley.set_attributes)
    shares = _waited(AsyncParley.shares)
    status = _waited(AsyncParley.status)
    task = _waited(AsyncParley.task)
    tasks = _waited(AsyncParley.tasks)
    test = _waited(AsyncParley.test)
    test_archive = _waited(AsyncParley.test_archive)
    test_webhook = _waited(AsyncParley.test_webhook)
    tests = _waited(AsyncParley.tests)
    tokens = _waited(AsyncParley.tokens)
    tools = _waited(AsyncParley.tools)
    try_limits = _waited(AsyncParley.try_limits)
    until_planned = _waited(AsyncParley.until_planned)
    until_run = _waited(AsyncParley.until_run)
    usage = _waited(AsyncParley.usage)
    webhooks = _waited(AsyncParley.webhooks)
    worst_mesh_pairs = _waited(AsyncParley.worst_mesh_pairs)


async def _next(asking: AsyncIterator[T]) -> T:
    return await anext(asking)


async def _end(asking: AsyncGenerator[Any, None]) -> None:
    await asking.aclose()
