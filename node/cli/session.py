"""Run the coroutine of a command with a client of the node, and turn its end into an exit code."""

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
from node.cli.servers import tls_of
from node.cli.times import duration_in_words
from node.model import times
from node.model.errors import ParleyError

if TYPE_CHECKING:
    from node.client.users import UserClient
    from node.clock import Clock

CommandParameters = ParamSpec("CommandParameters")


@dataclass
class Session:
    """The client, clock, output and progress of one command."""

    client: UserClient
    clock: Clock
    output: OutputWriter
    progress: Progress
    followed: str | None = None
    """The run or task that is followed, such as ``run 7c1e90ab``, to name on an interruption."""


def asks_node(
    command: Callable[Concatenate[Session, CommandParameters], Coroutine[Any, Any, int | None]],
) -> Callable[CommandParameters, None]:
    """Turn a coroutine that takes a :class:`Session` into a click callback with the global options.

    The coroutine returns the exit code; ``None`` means 0.
    """

    @global_options
    @functools.wraps(command)
    def callback(*args: CommandParameters.args, **kwargs: CommandParameters.kwargs) -> None:
        context = click.get_current_context()
        context.exit(ask(context, lambda session: command(session, *args, **kwargs)))

    return callback


def ask(
    context: click.Context, command: Callable[[Session], Coroutine[Any, Any, int | None]]
) -> int:
    """Run a coroutine with a session of the node of the global options; return its exit code."""
    invocation = context.ensure_object(Invocation)
    invocation.command = context.info_name
    return _converse(invocation, invocation.server_url(), invocation.access_token(), command)


def _converse(
    invocation: Invocation,
    server: str,
    token: str | None,
    command: Callable[[Session], Coroutine[Any, Any, int | None]],
) -> int:
    from node.client.users import UserClient  # loads aiohttp, which --help does not need
    from node.clock import SystemClock

    clock = SystemClock()
    try:
        tls = asyncio.run(tls_of(invocation, server))
    except ParleyError as error:
        return report(error, invocation)
    except KeyboardInterrupt:
        print_error_lines("interrupted")
        return INTERRUPTED
    session = Session(
        client=UserClient(
            server,
            token,
            clock,
            wary=invocation.borrowed,
            tls=tls,
            plain_http=invocation.allows_plain_http,
        ),
        clock=clock,
        output=OutputWriter(invocation.output, invocation.picked),
        progress=Progress(quiet=invocation.quiet),
    )
    seconds = None if invocation.timeout is None else invocation.timeout / times.SECOND
    try:
        return asyncio.run(_limited(session, seconds, command)) or 0
    except _TimedOutError:
        session.progress.clear()
        detail = f"not finished within {duration_in_words(invocation.timeout or 0)}"
        return report_timeout(detail, _how_to_resume(session), invocation)
    except ParleyError as error:
        session.progress.clear()
        return report(error, invocation)
    except KeyboardInterrupt:
        session.progress.clear()
        print_error_lines(_interruption(session))
        return INTERRUPTED


class _TimedOutError(Exception):
    """The time of ``--timeout`` has passed."""


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


def _interruption(session: Session) -> str:
    if session.followed is None:
        return "interrupted"
    return f"{session.followed} continues in the background" + _how_to_resume(session)


def _how_to_resume(session: Session) -> str:
    """Return the commands that follow the run or task again, and that cancel it."""
    if session.followed is None:
        return ""
    noun, _, identifier = session.followed.partition(" ")
    return (
        f"\n  follow it again:  parley run follow {identifier}"
        f"\n  cancel it:        parley {noun} cancel {identifier}"
    )
