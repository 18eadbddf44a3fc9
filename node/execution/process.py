"""Starting and ending of programs; the only module that imports ``subprocess``.

A program gets an argv that no shell interprets, a small environment, and a session of its own. The
session makes it the leader of a process group, and ending the program means ending the group:
everything it forked, unless a child left the group on purpose. A program started with ``chased``
has a mark in its environment, and every process that inherited the mark is killed when the program
has ended (:mod:`.process_marks`).

Three measures keep a signal from hitting an unrelated process that reuses a freed number:

* The leader is reaped last. Until then it is a zombie that keeps its number, hence the number of
  its group, from being used again.
* Exits are awaited on pidfds, which name a process and not a number.
* After a restart of the service a recorded process is recognised by its number *and* the clock tick
  at which it started (:func:`.proctable.identity`).

If this service is killed, the kernel kills the program (``setpriv --pdeathsig``). Three gaps
remain. A service that dies within a millisecond of the start, before ``setpriv`` has called
``prctl``, leaves the program behind. So does a service without root that started a program with
file capabilities, because the kernel clears the death signal there (Debian's ``ping`` is such a
program). And the signal reaches the leader only. The systemd unit, which kills the whole cgroup,
closes all three; without it :mod:`.leftovers` ends the remaining programs after a restart. Code of
ours between ``fork`` and ``exec`` would close the first gap, but it costs 7 ms per start instead
of 1, and in a program with threads it can hang the whole service: a worse bargain.
Tools are not children of this process: a runner starts them (:mod:`.tool_runner`), and its keepers
end them with all their descendants, whatever becomes of this service.
The death signal follows the *thread* that forks, so call :func:`start` in the event loop's thread,
never in a worker thread that ends earlier.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from node.execution import process_marks, proctable
from node.execution.descriptors import check_spare, explain_exhaustion
from node.execution.leftovers import KILL_TIMEOUT_S, kill_group
from node.execution.streams import CHUNK, OutputStream, RecordStream
from node.execution.tool_terms import NAMESPACES
from node.model.errors import HostError
from node.plugins.contracts import Privilege
from node.runtime.clock import SystemClock

OUTPUT_BYTES_MAX = 10_000_000
PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_POPEN_DESCRIPTORS = 8
"""More than Popen opens at a time: three pipes, and /dev/null."""
DRAIN_S = 1.0
"""Seconds that a child may hold a stream open after the leader's exit."""
_HOST_CLOCK = SystemClock()


@dataclass(frozen=True)
class FinishedProcess:
    """The outcome of a program. A negative ``exit_code`` is minus the number of a signal.

    ``truncated``: at least one stream was longer than the part that was kept. ``worked_ticks`` is
    the program's processor time in clock ticks; None if unknown. ``killed`` is the limit that it
    exceeded and for which it was killed, as ``used more than …``.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    worked_ticks: int | None = field(default=None, compare=False)
    killed: str | None = None


@dataclass(frozen=True)
class ChildEnd:
    """The end of a program.

    ``left``: processes that it left behind and that cannot be killed. ``killed``: the limit for
    which it was killed.
    """

    exit_code: int
    worked_ticks: int | None
    left: tuple[int, ...] = ()
    killed: str | None = None


class Child(Protocol):
    """A process that was started for this one: by itself (:class:`_OwnChild`), or by a runner."""

    @property
    def pid(self) -> int:
        """Return the number of the process, which is also that of its group."""
        ...

    @property
    def started_ticks(self) -> int:
        """Return the start tick (:mod:`.proctable`)."""
        ...

    @property
    def reaped(self) -> bool:
        """Return whether its number may belong to another process by now."""
        ...

    async def wait_for_exit(self) -> None:
        """Return once the process has exited; it is not reaped yet."""
        ...

    def send_signal(self, number: signal.Signals, *, group: bool) -> None:
        """Send a signal to the process, or to its whole group; do nothing if it is gone."""
        ...

    async def reap(self) -> ChildEnd:
        """Kill what is left of the program that has exited, and return when it is gone."""
        ...

    def abandon(self) -> None:
        """Kill the program without waiting for its end, because the event loop is closing."""
        ...


class HeldChild(Child, Protocol):
    """A child that a runner has started, and that may be held: loaded, but not begun."""

    def release(self, at: int, latest: int) -> None:
        """Let it begin at an instant of the host's clock (µs), but not later than ``latest``."""
        ...

    async def begun(self) -> int | None:
        """Return when it began, once that is known; None if it will not begin any more."""
        ...


@dataclass(frozen=True)
class Program:
    """A program to start: what it is called with, and the network namespace to start it in."""

    argv: tuple[str, ...]
    namespace: str | None = None

    @property
    def name(self) -> str:
        """The name of the program, without its directory."""
        return Path(self.argv[0]).name


@dataclass(frozen=True)
class Needs:
    """The needs of a program beyond what every tool has, and its duration (s).

    ``congestion``: the congestion control that it sets for TCP. ``connects``: it makes or takes
    connections.
    """

    duration_s: float
    privilege: Privilege | None = None
    congestion: str | None = None
    connects: bool = True


class Confining(Protocol):
    """A starter of programs that are not trusted (:class:`.tool_runner.ToolRunner`)."""

    async def start(
        self, program: Program, descriptors: Sequence[int], needs: Needs, *, held: bool
    ) -> HeldChild:
        """Start a program with its three streams; one that is ``held`` waits for its release."""
        ...


@dataclass(frozen=True)
class Confinement:
    """The runner of a program, and what the program needs."""

    runner: Confining
    needs: Needs


class _OwnChild:
    def __init__(self, popen: subprocess.Popen[bytes], mark: str | None) -> None:
        """Take over a program that has just been started."""
        self.pid = popen.pid
        self._popen = popen
        self._mark = mark

    @functools.cached_property
    def started_ticks(self) -> int:
        """The start tick (:mod:`.proctable`), by which :mod:`.leftovers` recognises the process.

        It is read on first use: right after the start the kernel is still loading the program, and
        reading would block the event loop for a millisecond.
        """
        return proctable.identity(self.pid)

    @property
    def reaped(self) -> bool:
        return self._popen.returncode is not None

    async def wait_for_exit(self) -> None:
        await proctable.wait_for_exits([self.pid])

    def send_signal(self, number: signal.Signals, *, group: bool) -> None:
        # The leader is not reaped, so the number is still ours. A group that belongs to another
        # user cannot be signalled; the bounded wait in end() reports that.
        if not self.reaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(self.pid, number)

    async def reap(self) -> ChildEnd:
        self.send_signal(signal.SIGKILL, group=True)
        _ = self.started_ticks  # the last moment to read it: reaping frees the number
        worked_ticks = proctable.processor_ticks(self.pid)
        exit_code = self._popen.wait()
        left: list[int] = []
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                while members := proctable.living_members(self.pid):
                    await proctable.wait_for_exits(members)
                if self._mark is not None:
                    await process_marks.kill_marked(self._mark)
        except TimeoutError:
            left = proctable.living_members(self.pid)
            if self._mark is not None:
                left += process_marks.marked_processes(self._mark)
        return ChildEnd(exit_code, worked_ticks, tuple(left))

    def abandon(self) -> None:
        self.send_signal(signal.SIGKILL, group=True)
        self._popen.wait()


class _Begun:
    """A program that :func:`start` has begun, and its output to read."""

    child: Child
    held: HeldChild | None = None
    started_at = 0

    def __init__(self) -> None:
        self.outputs: list[IO[bytes]] = []


class RunningProcess:
    """A started program. Its output is collected and its exit noticed even if nobody waits.

    ``pid`` is also the number of its process group. ``started_at`` is the caller's time when the
    kernel had started or released the program; 0 without a clock.
    """

    def __init__(self, begun: _Begun, name: str, output_bytes_max: int, *, streams: bool) -> None:
        """Take over a program that has just been started; called by :func:`start` only."""
        self.pid = begun.child.pid
        self.started_at = begun.started_at
        self._name = name
        self._child = begun.child
        self._held = begun.held
        stdout_type = RecordStream if streams else OutputStream
        outputs = begun.outputs
        self._stdout = stdout_type(outputs[0], output_bytes_max) if outputs else None
        self._stderr = OutputStream(outputs[1], output_bytes_max) if outputs else None
        self._streams = [s for s in (self._stdout, self._stderr) if s is not None]
        self._supervision = asyncio.create_task(self._supervise(), name=f"watch {name}")

    @property
    def started_ticks(self) -> int:
        """The start tick (:mod:`.proctable`), by which :mod:`.leftovers` recognises the process."""
        return self._child.started_ticks

    def release(self, now: Callable[[], int], at: int, latest: int) -> None:
        """Let a program that is ``held`` begin at an instant, exactly, but not after ``latest``."""
        if self._held is not None:
            ahead = _HOST_CLOCK.now() - now()
            self._held.release(at + ahead, latest + ahead)

    async def begun(self, now: Callable[[], int], timeout_s: float) -> bool:
        """Return whether a program has begun that was released, once that is known.

        From then on ``started_at`` is the instant at which it began.
        """
        at: int | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                at = None if self._held is None else await self._held.begun()
        if at is not None:
            self.started_at = at - (_HOST_CLOCK.now() - now())
        return at is not None

    @property
    def ended(self) -> bool:
        """True once the program and its group are gone."""
        return self._supervision.done()

    async def wait(self) -> FinishedProcess:
        """Wait for the exit and return the outcome; cancelling the wait does not end the program.

        Group members that outlive the leader are killed: at once, or up to ``DRAIN_S`` later while
        they hold an output stream open. With ``chased``, so are those that left the group.

        :raises HostError: the group did not disappear although it was killed.
        """
        return await asyncio.shield(self._supervision)

    async def wait_for_output(self, text: bytes) -> None:
        """Return as soon as ``text`` has appeared on the standard output.

        :raises HostError: the program ended, or closed the stream, without printing it.
        """
        stream = self._stdout
        while stream is not None and text not in stream.kept:
            if stream.ended.is_set():
                break
            stream.grew.clear()
            await stream.grew.wait()
        if stream is None or text not in stream.kept:
            finished = await self.wait()
            raise HostError(
                f"{self._name} ended with exit code {finished.exit_code} before it was ready: "
                f"{tail(finished.stderr) or 'it printed no error'}"
            )

    async def records(self) -> AsyncIterator[bytes]:
        """Yield the records on the standard output as they come, without RS and line end.

        Ends with the stream. Yields only for a program that was started with ``streams``.
        """
        stream = self._stdout
        while isinstance(stream, RecordStream):
            while stream.records:
                yield stream.records.popleft()
            if stream.ended.is_set():
                return
            stream.grew.clear()
            await stream.grew.wait()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the leader alone; do nothing if it is gone."""
        self._child.send_signal(number, group=False)

    async def end(self, grace_s: float) -> None:
        """Send TERM to the whole group, and KILL after ``grace_s``; return when all are gone.

        Safe to call twice, and concurrently. A cancelled call kills at once.

        :raises HostError: the group did not disappear although it was killed.
        """
        self._signal_group(signal.SIGTERM)
        try:
            await asyncio.wait({self._supervision}, timeout=grace_s)
        finally:
            self._signal_group(signal.SIGKILL)
        done, _ = await asyncio.wait({self._supervision}, timeout=2 * KILL_TIMEOUT_S)
        if not done:
            raise HostError(
                f"{self._name} (process {self.pid}) did not end although it was killed: it hangs "
                "in the kernel, often in a device or a network file system; look at its state "
                "with ps, and restart the host if it stays"
            )
        await self.wait()

    def _signal_group(self, number: signal.Signals) -> None:
        self._child.send_signal(number, group=True)

    async def _supervise(self) -> FinishedProcess:
        try:
            await self._child.wait_for_exit()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    for stream in self._streams:
                        await stream.ended.wait()
            end = await self._child.reap()
        finally:
            for stream in self._streams:
                stream.close()
            if not self._child.reaped:  # cancelled because the event loop is closing
                self._child.abandon()
        if end.left:
            raise HostError(
                f"{self._name} left processes behind that did not end although they were "
                f"killed: {list(end.left)}; look at them with ps"
            )
        return FinishedProcess(
            end.exit_code,
            bytes(self._stdout.kept) if self._stdout else b"",
            bytes(self._stderr.kept) if self._stderr else b"",
            any(stream.truncated for stream in self._streams),
            end.worked_ticks,
            end.killed,
        )


@dataclass(frozen=True)
class Companion:
    """A program that lives as long as this process."""

    popen: subprocess.Popen[bytes]


def start_companion(argv: Sequence[str], channel: int) -> Companion:
    """Start a program for the whole life of this process, before there is an event loop.

    ``channel`` is a descriptor that becomes its standard input.

    :raises HostError: it cannot be started.
    """
    options = _options(argv, None, Path("/"), None) | {"stdin": channel}
    return Companion(_spawn([*_setpriv(None, signal.SIGKILL), *argv], options))


async def start(  # noqa: PLR0913 - independent facts about the program, all but argv keyword-only
    argv: Sequence[str],
    *,
    now: Callable[[], int] | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output_bytes_max: int = OUTPUT_BYTES_MAX,
    user: str | None = None,
    log: Path | None = None,
    owner_death: signal.Signals = signal.SIGKILL,
    namespace: str | None = None,
    streams: bool = False,
    chased: bool = False,
    channel: int | None = None,
    confinement: Confinement | None = None,
    held: bool = False,
) -> RunningProcess:
    """Start a program in its own session and return while it runs.

    ``env`` is added to PATH, LANG and HOME. ``output_bytes_max`` is kept of each stream, unless
    both streams are appended to the file ``log``. ``user`` is the account to run as (as root only).
    ``owner_death`` is the signal that the program gets when this process dies, if ``setpriv`` is
    installed.
    ``namespace`` names the network namespace to start it in (needs CAP_SYS_ADMIN).
    ``streams``: lines that begin with RS are not output but :meth:`RunningProcess.records`.
    ``chased``: when it has ended, also kill descendants that left its group.
    ``channel`` is a descriptor that becomes its standard input, instead of ``stdin``.
    ``confinement``: a runner starts it, and chases it; what is for our own children is ignored.
    ``held``: the runner prepares everything; it begins after :meth:`RunningProcess.release`.

    :raises HostError: the program is not installed, or cannot be started.
    """
    begun = _Begun()
    with contextlib.ExitStack() as failing, contextlib.ExitStack() as stack:
        if confinement is not None:
            program = Program(tuple(argv), namespace)
            streams_of_it = _open_streams(begun, stdin, failing, stack)
            child = await confinement.runner.start(
                program, streams_of_it, confinement.needs, held=held
            )
            begun.child, begun.held = child, child if held else None
        else:
            mark = process_marks.new_mark() if chased else None
            mark_entry = {} if mark is None else {process_marks.VARIABLE: mark}
            options = _options(argv, {**(env or {}), **mark_entry}, cwd, user)
            output = subprocess.PIPE if log is None else stack.enter_context(_open_log(log))
            given = _memory_file(stdin, stack) if channel is None else channel
            options |= {"stdin": given, "stdout": output, "stderr": output}
            popen = _spawn([*_setpriv(user, owner_death), *_nsenter(namespace), *argv], options)
            begun.outputs = [pipe for pipe in (popen.stdout, popen.stderr) if pipe is not None]
            begun.child = _OwnChild(popen, mark)
        begun.started_at = now() if now else 0
        failing.pop_all()
    return RunningProcess(begun, Path(argv[0]).name, output_bytes_max, streams=streams)


def _open_streams(
    begun: _Begun, stdin: bytes, failing: contextlib.ExitStack, stack: contextlib.ExitStack
) -> list[int]:
    """Return the descriptors for a runner to pass on, which ``stack`` closes here."""
    check_spare(_POPEN_DESCRIPTORS, "the pipes of a program")
    given = _memory_file(stdin, stack)
    if given == subprocess.DEVNULL:
        given = os.open(os.devnull, os.O_RDONLY)
        stack.callback(os.close, given)
    descriptors = [given]
    for _ in range(2):
        ours, theirs = os.pipe()
        stack.callback(os.close, theirs)
        begun.outputs.append(failing.enter_context(os.fdopen(ours, "rb", buffering=0)))
        descriptors.append(theirs)
    return descriptors


async def finish(
    argv: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    user: str | None = None,
    chased: bool = False,
    confinement: Confinement | None = None,
) -> FinishedProcess:
    """Run a short program to its end and return its output, whatever its exit code.

    :raises HostError: the program is not installed, or was killed because it took too long.
    """
    running = await start(argv, cwd=cwd, user=user, chased=chased, confinement=confinement)
    try:
        async with asyncio.timeout(timeout_s):
            return await running.wait()
    except TimeoutError:
        raise _timeout_error(argv, timeout_s) from None
    finally:
        await running.end(0)


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: str | None = None,
) -> FinishedProcess:
    """Run a program like :func:`finish`, but without an event loop. Blocks.

    :raises HostError: the program is not installed, or was killed because it took too long.
    """
    options = _options(argv, env, cwd, user)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    popen = _spawn([*_setpriv(user, None), *argv], options | pipes)
    with popen:
        try:
            stdout, stderr = popen.communicate(stdin, timeout=timeout_s)
        except BaseException as fault:
            kill_group(popen.pid)
            if not isinstance(fault, subprocess.TimeoutExpired):
                raise
            raise _timeout_error(argv, timeout_s) from None
    return FinishedProcess(popen.returncode, stdout, stderr)


def tail(output: bytes, lines: int = 5) -> str:
    """Return the last lines of a program's output, for an error message."""
    return "\n".join(output.decode(errors="replace").strip().splitlines()[-lines:])


def tail_of(log: Path, lines: int = 5) -> str:
    """Return the last lines of a log; nothing if it does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - CHUNK))
            return tail(file.read(), lines)
    except FileNotFoundError:
        return ""


def _timeout_error(argv: Sequence[str], timeout_s: float) -> HostError:
    return HostError(
        f"{Path(argv[0]).name} was killed because it did not finish within {timeout_s:g} s"
    )


def _options(
    argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None, user: str | None
) -> dict[str, Any]:
    account = pwd.getpwnam(user) if user is not None else None
    environment = _environment(env, account)
    if shutil.which(argv[0], path=environment["PATH"]) is None:
        raise HostError(
            f"the program {argv[0]} was not found (looked in {environment['PATH']}); "
            "install it, or add its directory to PATH"
        )
    options: dict[str, Any] = {"env": environment, "cwd": cwd, "start_new_session": True}
    if account is None and _is_acting_for_another() and _setpriv_path() is None:
        options |= {"user": os.geteuid(), "group": os.getegid()}
    if account is not None and _setpriv_path() is None:
        groups = os.getgrouplist(account.pw_name, account.pw_gid)
        options |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
    return options


def _environment(
    env: Mapping[str, str] | None, account: pwd.struct_passwd | None
) -> dict[str, str]:
    home = account.pw_dir if account else os.environ.get("HOME", "/")
    path = os.environ.get("PATH", PATH_DEFAULT)
    return {"PATH": path, "LANG": "C.UTF-8", "HOME": home, **(env or {})}


def _setpriv(user: str | None, death: signal.Signals | None) -> list[str]:
    """Return the words to put before an argv; setpriv becomes the program: same number and group.

    It is also faster than Popen's own ``user=``, which rules out ``vfork``.
    """
    setpriv = _setpriv_path()
    if setpriv is None or (user is None and death is None and not _is_acting_for_another()):
        return []
    words = [setpriv]
    if user is None and _is_acting_for_another():
        words += ["--reuid", str(os.geteuid()), "--regid", str(os.getegid()), "--keep-groups"]
    if user is not None:
        gid = pwd.getpwnam(user).pw_gid
        words += ["--reuid", user, "--regid", str(gid), "--init-groups"]
    if death is not None:
        words += ["--pdeathsig", death.name.removeprefix("SIG")]
    return [*words, "--"]


def _is_acting_for_another() -> bool:
    """Return whether root acts for another account: a program must not find root in its own ids."""
    return os.getuid() != os.geteuid()


def _nsenter(namespace: str | None) -> list[str]:
    """Return the words to put before an argv; like setpriv, nsenter becomes the program."""
    return [] if namespace is None else ["nsenter", f"--net={NAMESPACES / namespace}", "--"]


@functools.cache
def _setpriv_path() -> str | None:
    """Return the path of util-linux's setpriv; other implementations lack the death signal."""
    setpriv = shutil.which("setpriv", path=PATH_DEFAULT)
    if setpriv is None:
        return None
    answer = _spawn(
        [setpriv, "--help"],
        {"env": {}, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
    ).communicate()[0]
    return setpriv if b"--pdeathsig" in answer else None


def _spawn(argv: Sequence[str], options: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    # Popen of Python before 3.11.4 loses the pipes that it has made if there is none for the next.
    check_spare(_POPEN_DESCRIPTORS, "the pipes of a program")
    try:
        return subprocess.Popen(argv, **options)
    except OSError as fault:
        raise HostError(f"{argv[0]} cannot be started: {fault.strerror or fault}") from fault


def _memory_file(content: bytes, stack: contextlib.ExitStack) -> int:
    """Return a descriptor of an in-memory file with ``content``, so that neither side blocks."""
    if not content:
        return subprocess.DEVNULL
    with explain_exhaustion("a program's input"):
        descriptor = os.memfd_create("stdin")
    stack.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _open_log(log: Path) -> IO[bytes]:
    # By no link: root may write into the directory of another account.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(log, flags, 0o600), "ab", buffering=0)
