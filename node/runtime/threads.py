"""Threads for calls that may hang: each call has one of its own, which nothing else waits for.

asyncio's pool has a handful of threads for the whole process. A call that hangs there, in a disk
that is away or in the host's resolver, keeps one of them, and a few such calls stop everything that
uses the pool. So the pool is for computations, which end (``asyncio.to_thread``), and whatever
waits for something outside of the process is called here. Nothing can end a hanging thread, so
those here do not hold up the end of the process, and their number is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

_Result = TypeVar("_Result")

AT_ONCE_MAX = 256
"""Maximum number of such calls under way in this process."""

_under_way = threading.Semaphore(AT_ONCE_MAX)


async def aside(call: Callable[[], _Result], what: str) -> _Result:
    """Return what ``call()`` returns in a thread of its own.

    ``what`` is the name of the thread. Whoever is cancelled meanwhile leaves the thread to its end.

    :raises OSError: too many calls hang.
    """
    if not _under_way.acquire(blocking=False):
        msg = f"{AT_ONCE_MAX} calls hang already (of disks or name servers that do not answer)"
        raise OSError(msg)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Result] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: Callable[[], None]) -> None:
        if not answer.cancelled():
            outcome()

    def work() -> None:
        outcome: Callable[[], None]
        try:
            outcome = partial(answer.set_result, context.run(call))
        except BaseException as fault:  # noqa: BLE001 - whoever waits gets it
            outcome = partial(answer.set_exception, fault)
        finally:
            _under_way.release()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=what, daemon=True).start()
    return await answer
