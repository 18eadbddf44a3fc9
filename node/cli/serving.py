"""Keep a lab up while there is work, and always take it down.

This module handles the signals from before the first process starts until after the last one has
ended: another Ctrl-C during the clean-up changes nothing, so nothing is left behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from node.cli.failures import INTERRUPTED, print_error_lines
from node.cli.progress import Progress
from node.model.errors import ParleyError
from node.model.loopback import is_exposed

if TYPE_CHECKING:
    from node.lab.wan import WanSettings


class LabNodeHandle(Protocol):
    """A node of the lab."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def url(self) -> str:
        """Its API and page."""
        ...

    @property
    def token(self) -> str:
        """The token of its users."""
        ...

    @property
    def dsn(self) -> str:
        """The connection string of its Postgres database."""
        ...

    @property
    def address(self) -> str:
        """The address that measurements to and from it use."""
        ...

    @property
    def state(self) -> str:
        """Its state directory, which has its users' token in the file ``token``."""
        ...

    @property
    def identity(self) -> str:
        """The node's public key, as ``ed25519:…``."""
        ...


class LabHandle(Protocol):
    """Several nodes on this host."""

    @property
    def nodes(self) -> Sequence[LabNodeHandle]:
        """The nodes, once they are up."""
        ...

    async def start(self) -> None:
        """Start all nodes, and return when they answer."""
        ...

    async def stop(self) -> None:
        """Stop all nodes, and remove everything created for them."""
        ...

    async def restart_ended(self) -> None:
        """Restart the nodes that have ended."""
        ...


def tls_variables(node: LabNodeHandle) -> str:
    """Return the shell variables by which commands trust a node's TLS; empty without TLS."""
    if node.url.startswith("https:"):
        return f" PARLEY_IDENTITY={node.identity}"
    return " PARLEY_PLAIN_HTTP=1" if is_exposed(node.url) else ""


def usage_lines(node: LabNodeHandle) -> list[str]:
    """Tell how to use a node: its page, logged in by the link, and the exports of a terminal."""
    return [
        f"The page of {node.name}: {node.url}/#token={node.token}",
        "In another terminal:",
        f"  export PARLEY_SERVER={node.url} PARLEY_TOKEN={node.token}{tls_variables(node)}",
    ]


def new_lab(
    count: int, progress: Progress, wan: WanSettings | None = None, *, tls: bool = False
) -> LabHandle:
    """Return a lab that reports its start, and nodes that die."""
    from node.lab.supervisor import Lab as RealLab  # loads the whole service

    def note_death(name: str, why: str) -> None:
        progress.clear()
        print_error_lines(
            f"! {death_reason(name, why, {node.name for node in lab.nodes})}"
        )  # even with --quiet

    lab = RealLab(count, wan, tls=tls, progress=progress.note, died=note_death)
    return lab


def death_reason(name: str, why: str, nodes: Collection[str]) -> str:
    """Describe that a part of a lab has ended by itself, and how to continue."""
    if name in nodes:
        return f"node {why}\n  The others continue. To start it again: kill -USR1 {os.getpid()}"
    return (
        f"{why}\n  Nothing can be measured any more: stop the lab (Ctrl-C), and start another one"
    )


Done = TypeVar("Done")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_with_lab(
    lab: LabHandle, progress: Progress, work: Callable[[], Coroutine[Any, Any, int]]
) -> int:
    """Start the lab, work until the work is done or a signal comes, and return the exit code.

    A signal during the work is a normal end: 0. A signal before that: 130. USR1 restarts nodes
    that have ended.
    """
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    restarts: set[asyncio.Task[None]] = set()

    def restart() -> None:
        if not restarts:
            task = asyncio.create_task(_restart_ended(lab))
            restarts.add(task)
            task.add_done_callback(restarts.discard)

    loop.add_signal_handler(signal.SIGUSR1, restart)
    for number in _ENDING:
        loop.add_signal_handler(number, ending.set)
    try:
        progress.status("starting the nodes", "starting")
        started = await _run_until(ending, lab.start())
        if started.cancelled():
            return INTERRUPTED
        started.result()
        progress.clear()
        worked = await _run_until(ending, work())
        return 0 if worked.cancelled() else worked.result()
    finally:
        if progress.terminal:  # in a pipe the last line must be that of the work
            progress.status("taking the lab down", "ending")
        loop.add_signal_handler(signal.SIGUSR1, lambda: None)  # no restart from now on
        for task in restarts:
            task.cancel()
        await lab.stop()
        progress.clear()


async def _restart_ended(lab: LabHandle) -> None:
    try:
        await lab.restart_ended()
    except ParleyError as error:
        print_error_lines(f"✗ {error.detail}")


async def _run_until(ending: asyncio.Event, work: Coroutine[Any, Any, Done]) -> asyncio.Task[Done]:
    """Run ``work`` until it is done, or the event is set, which cancels it; return its task."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(ending.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        working.cancel()  # no effect if it is done
        await asyncio.wait({working, waiting})
    return working
