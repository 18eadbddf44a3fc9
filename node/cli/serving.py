"""Keeping a lab up while there is something to do, and taking it down whatever happens.

The signals belong to this module from before the first process starts until after the last one has
ended: another Ctrl-C during the clean-up changes nothing, so nothing is left behind.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from node.cli.failures import INTERRUPTED
from node.cli.progress import Progress

if TYPE_CHECKING:
    from node.lab.wan import WanSettings


class LabNode(Protocol):
    """What is shown of a node of the lab."""

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
        """Its users' token."""
        ...

    @property
    def dsn(self) -> str:
        """Its database."""
        ...

    @property
    def address(self) -> str:
        """What measurements to and from it use."""
        ...

    @property
    def state(self) -> str:
        """Its state directory, with its users' token in the file ``token``."""
        ...


class Lab(Protocol):
    """Several nodes on this host."""

    @property
    def nodes(self) -> Sequence[LabNode]:
        """The nodes, once they are up."""
        ...

    async def start(self) -> None:
        """Start them all; returns when they answer."""
        ...

    async def stop(self) -> None:
        """Stop them and remove everything that was made for them."""
        ...


def lab_of(count: int, progress: Progress, wan: WanSettings | None = None) -> Lab:
    """A lab that tells of its start, and of nodes that die."""
    from node.lab.supervisor import Lab as RealLab  # loads the whole service: only when asked to

    def died(name: str, why: str) -> None:
        progress.note(f"! {name}: {why}")

    return RealLab(count, wan, progress=progress.note, died=died)


Done = TypeVar("Done")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def with_lab(
    lab: Lab, progress: Progress, work: Callable[[], Coroutine[Any, Any, int]]
) -> int:
    """Start the lab and do the work until it is done or a signal comes; the exit code.

    Work that a signal ends has served its time: 0. A signal before that: 130.
    """
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, ending.set)
    try:
        progress.status("starting the nodes", "starting")
        started = await _unless(ending, lab.start())
        if started.cancelled():
            return INTERRUPTED
        started.result()
        progress.clear()
        worked = await _unless(ending, work())
        return 0 if worked.cancelled() else worked.result()
    finally:
        if progress.terminal:  # in a pipe the last line is the work's own
            progress.status("taking the lab down", "ending")
        await lab.stop()
        progress.clear()


async def _unless(ending: asyncio.Event, work: Coroutine[Any, Any, Done]) -> asyncio.Task[Done]:
    """The work's task when it is done, or cancelled because a signal came."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(ending.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        working.cancel()  # nothing happens to what is done
        await asyncio.wait({working, waiting})
    return working
