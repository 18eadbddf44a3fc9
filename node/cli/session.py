"""Run the coroutine of a command with a client of the node, and turn its end into an exit code."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from node.cli.failures import INTERRUPTED, TIMED_OUT, print_error_lines, report, report_timeout
from node.cli.giving_up import Followed, KnownReason, find_known_reason
from node.cli.invocation import Invocation, global_options
from node.cli.output import OutputWriter
from node.cli.progress import Progress
from node.cli.servers import known_tls, tls_of
from node.cli.times import duration_in_words
from node.model import times
from node.model.errors import ParleyError, PeerUnreachable

if TYPE_CHECKING:
    from node.client.session import NodeSession
    from node.client.users import UserClient
    from node.runtime.clock import Clock
    from node.trust.tls import TlsOptions

CommandParameters = ParamSpec("CommandParameters")


_NAMES = ("SERVER", "TOKEN", "TOKEN_FILE", "IDENTITY", "PLAIN_HTTP", "STATE_DIR", "PROFILE")
_VARIABLES = frozenset(f"PARLEY_{name}" for name in _NAMES)
"""The variables of the environment that commands read."""


@dataclass
class ReadingSession:
    """The reader, clock, output and progress of a command that only shows documents."""

    reader: NodeSession
    clock: Clock
    output: OutputWriter
    progress: Progress


@dataclass
class Session(ReadingSession):
    """The client, clock, output and progress of one command."""

    reader: UserClient
    followed: Followed | None = None
    """The run or task that is followed, to name on an interruption."""
    connect: Callable[[str], UserClient] | None = None
    """Makes another client of the node, for another token, which is not open yet."""

    @property
    def client(self) -> UserClient:
        """The client with all calls; a :class:`ReadingSession` has only those that read."""
        return self.reader


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
        context.exit(run_command(context, lambda session: command(session, *args, **kwargs)))

    return callback


def reads_node(
    command: Callable[
        Concatenate[ReadingSession, CommandParameters], Coroutine[Any, Any, int | None]
    ],
) -> Callable[CommandParameters, None]:
    """Turn a coroutine that only shows documents into a click callback, like :func:`asks_node`.

    The command takes two thirds of the time of others.
    """

    @global_options
    @functools.wraps(command)
    def callback(*args: CommandParameters.args, **kwargs: CommandParameters.kwargs) -> None:
        context = click.get_current_context()
        context.exit(run_reading(context, lambda session: command(session, *args, **kwargs)))

    return callback


def run_reading(
    context: click.Context,
    command: Callable[[ReadingSession], Coroutine[Any, Any, int | None]],
) -> int:
    """Run a coroutine that only shows documents, without loading a loop; return its exit code.

    The certificate of a known server is enough; one that has another certificate is asked who it
    is.
    """
    from node.client.exchanges import UntrustedError  # loads http

    invocation = context.ensure_object(Invocation)
    invocation.command = context.info_name
    server = invocation.server_url()
    if not invocation.quiet:
        _warn_of_settings()
    try:
        if (tls := known_tls(invocation, server)) is not None:
            try:
                return _read(invocation, server, tls, command)
            except PeerUnreachable as error:
                if not isinstance(error.__cause__, UntrustedError):
                    raise
        return _read(invocation, server, tls_of(invocation, server), command)
    except TimeoutError:
        return report_timeout(_timeout_text(invocation), "", invocation, TIMED_OUT)
    except ParleyError as error:
        return report(error, invocation)
    except KeyboardInterrupt:
        print_error_lines("interrupted")
        return INTERRUPTED


def _read(
    invocation: Invocation,
    server: str,
    tls: TlsOptions,
    command: Callable[[ReadingSession], Coroutine[Any, Any, int | None]],
) -> int:
    from node.client.session import NodeSession, run_without_loop
    from node.runtime.clock import BlockingClock

    clock = BlockingClock()
    reader = NodeSession(
        server,
        invocation.access_token(),
        clock,
        wary=invocation.is_token_borrowed,
        limit_s=None if invocation.timeout is None else invocation.timeout / times.SECOND,
        tls=tls,
        plain_http=invocation.allows_plain_http,
    )
    progress = Progress(quiet=invocation.quiet)
    session = ReadingSession(reader, clock, invocation.writer(), progress)
    return run_without_loop(_run_in(session, command)) or 0


async def _run_in(
    session: ReadingSession, command: Callable[[ReadingSession], Coroutine[Any, Any, int | None]]
) -> int | None:
    async with session.reader:
        return await command(session)


def _timeout_text(invocation: Invocation) -> str:
    return f"not finished within {duration_in_words(invocation.timeout or 0)}"


def run_command(
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
    import asyncio

    from node.client.users import UserClient  # loads http, which --help does not need
    from node.runtime.clock import SystemClock

    clock = SystemClock()
    if not invocation.quiet:
        _warn_of_settings()
    try:
        tls = tls_of(invocation, server)
    except ParleyError as error:
        return report(error, invocation)
    except KeyboardInterrupt:
        print_error_lines("interrupted")
        return INTERRUPTED
    connect = functools.partial(
        UserClient,
        server,
        clock=clock,
        wary=invocation.is_token_borrowed,
        tls=tls,
        plain_http=invocation.allows_plain_http,
    )
    session = Session(
        reader=connect(token),
        clock=clock,
        output=invocation.writer(),
        progress=Progress(quiet=invocation.quiet),
        connect=connect,
    )
    seconds = None if invocation.timeout is None else invocation.timeout / times.SECOND
    try:
        return asyncio.run(_run_with_timeout(session, seconds, command)) or 0
    except _TimedOutError as error:
        session.progress.clear()
        known = error.known or KnownReason("")
        reason = f": {known.sentence}" if known.sentence else ""
        detail = f"{_timeout_text(invocation)}{reason}"
        return report_timeout(detail, _how_to_resume(session), invocation, known.exit_code)
    except ParleyError as error:
        session.progress.clear()
        return report(error, invocation)
    except KeyboardInterrupt:
        session.progress.clear()
        print_error_lines(_interruption_text(session))
        return INTERRUPTED


def _warn_of_settings() -> None:
    """Warn of variables of the environment that look like settings and are none."""
    if all(name in _VARIABLES for name in os.environ if name.startswith("PARLEY_")):
        return
    from node.runtime.settings import unknown_settings

    for sentence in unknown_settings(os.environ):
        print_error_lines(f"! {sentence}")


class _TimedOutError(Exception):
    """The time of ``--timeout`` has passed; ``known`` is why, as far as it is known."""

    def __init__(self, known: KnownReason | None) -> None:
        super().__init__()
        self.known = known


async def _run_with_timeout(
    session: Session,
    seconds: float | None,
    command: Callable[[Session], Coroutine[Any, Any, int | None]],
) -> int | None:
    import asyncio

    limit = asyncio.timeout(seconds)
    async with session.client:
        try:
            async with limit:
                return await command(session)
        except TimeoutError:
            if limit.expired():
                raise _TimedOutError(
                    await find_known_reason(session.client, session.followed)
                ) from None
            raise


def _interruption_text(session: Session) -> str:
    if session.followed is None:
        return "interrupted"
    return f"{session.followed} continues in the background" + _how_to_resume(session)


def _how_to_resume(session: Session) -> str:
    """Return the commands that follow the run or task again, and that cancel it."""
    if session.followed is None:
        return ""
    noun, identifier = session.followed.noun, session.followed.digits
    return (
        f"\n  follow it again:  parley run follow {identifier}"
        f"\n  cancel it:        parley {noun} cancel {identifier}"
    )


def runs_here(
    command: Callable[
        Concatenate[Invocation, CommandParameters], int | Coroutine[Any, Any, int | None] | None
    ],
) -> Callable[CommandParameters, None]:
    """Turn a function that asks no node into a click callback with the global options.

    It returns the exit code, or a coroutine that does; ``None`` means 0. Errors are reported.
    """

    @global_options
    @functools.wraps(command)
    def callback(*args: CommandParameters.args, **kwargs: CommandParameters.kwargs) -> None:
        context = click.get_current_context()
        invocation = context.ensure_object(Invocation)
        try:
            code = command(invocation, *args, **kwargs)
            if isinstance(code, Coroutine):
                import asyncio  # slow to load

                code = asyncio.run(code)
        except ParleyError as error:
            code = report(error, invocation)
        except KeyboardInterrupt:
            code = INTERRUPTED
        context.exit(code or 0)

    return callback
