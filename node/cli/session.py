"""One command's conversation with a node: run the coroutine, turn its end into an exit code."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from node.cli.failures import INTERRUPTED, print_error_lines, report, report_timeout
from node.cli.invocation import Invocation, global_options
from node.cli.output import OutputWriter
from node.cli.progress import Progress
from node.cli.times import duration_in_words
from node.model import times
from node.model.errors import ParleyError

if TYPE_CHECKING:
    from node.client.users import UserClient
    from node.clock import Clock

CommandParameters = ParamSpec("CommandParameters")


@dataclass
class Session:
    """What a command works with."""

    client: UserClient
    clock: Clock
    output: OutputWriter
    progress: Progress
    followed: str | None = None
    """What is being followed, such as ``run 7c1e90ab``: to be named if the person walks away."""


def asks_node(
    command: Callable[Concatenate[Session, CommandParameters], Coroutine[Any, Any, int | None]],
) -> Callable[CommandParameters, None]:
    """Make a coroutine that takes a :class:`Session` into a click callback with global options.

    What it returns is the exit code; ``None`` is 0.
    """

    @global_options
    @functools.wraps(command)
    def callback(*args: CommandParameters.args, **kwargs: CommandParameters.kwargs) -> None:
        context = click.get_current_context()
        invocation = context.ensure_object(Invocation)
        invocation.command = context.info_name
        server, token = invocation.server_url(), invocation.access_token()
        context.exit(
            _converse(invocation, server, token, lambda session: command(session, *args, **kwargs))
        )

    return callback


def _converse(
    invocation: Invocation,
    server: str,
    token: str | None,
    command: Callable[[Session], Coroutine[Any, Any, int | None]],
) -> int:
    from node.client.users import UserClient  # loads aiohttp: only to speak
    from node.clock import SystemClock

    clock = SystemClock()
    session = Session(
        client=UserClient(server, token, clock, wary=invocation.borrowed),
        clock=clock,
        output=OutputWriter(invocation.output, invocation.picked),
        progress=Progress(quiet=invocation.quiet),
    )
    seconds = None if invocation.timeout is None else invocation.timeout / times.SECOND
    try:
        return asyncio.run(_limited(session, seconds, command)) or 0
    except _TimedOutError:
        session.progress.clear()
        detail = f"not done within {duration_in_words(invocation.timeout or 0)}"
        return report_timeout(detail, _way_on(session), invocation)
    except ParleyError as error:
        session.progress.clear()
        return report(error, invocation)
    except KeyboardInterrupt:
        session.progress.clear()
        print_error_lines(_farewell(session))
        return INTERRUPTED


class _TimedOutError(Exception):
    """``--timeout`` was over."""


async def _limited(
    session: Session,
    seconds: float | None,
    command: Callable[[Session], Coroutine[Any, Any, int | None]],
) -> int | None:
    limit = asyncio.timeout(seconds)
    try:
        async with limit, session.client:
            return await command(session)
    except TimeoutError:
        if limit.expired():
            raise _TimedOutError from None
        raise


def _farewell(session: Session) -> str:
    if session.followed is None:
        return "interrupted"
    return f"{session.followed} goes on without you" + _way_on(session)


def _way_on(session: Session) -> str:
    """How to follow again, and how to cancel, what was being followed."""
    if session.followed is None:
        return ""
    noun, _, identifier = session.followed.partition(" ")
    return (
        f"\n  follow it again:  parley run follow {identifier}"
        f"\n  cancel it:        parley {noun} cancel {identifier}"
    )
