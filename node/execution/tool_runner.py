"""A node's side of the tool runner (:mod:`.tool_runner_program`): starting it, and speaking to it.

The runner is started with the first tool, and again if it has ended. Where another process has
started it, systemd (``PARLEY_TOOL_SOCKET``) or ``parley up`` as root, it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.execution import confinement, process, process_marks
from node.execution.descriptors import explain_exhaustion
from node.execution.privileges import ProcessPrivileges, needs_network_rights, privileges_in
from node.execution.process import ChildEnd, HeldChild, Needs, Program
from node.execution.tool_runner_program import KILL_TIMEOUT_S, MESSAGE_BYTES_MAX
from node.execution.tool_terms import ToolTerms
from node.model.contexts import ContextKind
from node.model.errors import HostError
from node.model.tool_limits import MEBIBYTE, ToolLimits
from node.plugins.contracts import Privilege
from node.runtime.settings import Settings

FALLBACK_ACCOUNT = "nobody"
"""The account of tools of a root without the right one; other services have it as well."""
_ANSWER_S = 30.0
_SLACK_S = 30.0
"""Time beyond the end of its run after which a keeper ends a tool; the launcher does it before."""
_ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
    "from node.execution.tool_runner_program import main; main()"
)
_GONE = "the program that runs the tools has ended"


@dataclass(frozen=True)
class ToolRights:
    """The rights of the tools of this node.

    ``separate``: as another account than the node. ``landlock``: the kernel's version of Landlock.
    ``filtered``: they have only the system calls that they need.
    ``bounded``: each has a directory of limited size. ``weaker``: reasons for less.
    """

    account: str
    separate: bool
    gid: int
    landlock: int
    filtered: bool
    bounded: bool
    standing: ProcessPrivileges
    weaker: tuple[str, ...] = ()

    def weaknesses(self, uid: int) -> list[str]:
        """Return what is not kept from the tools of a node of the account ``uid``."""
        gaps = list(self.weaker)
        if uid == 0:
            gaps.append(
                "this node itself is root; a unit, or an ordinary user, would have fewer rights"
            )
        if not self.filtered:
            gaps.append("their system calls are not filtered on this machine")
            if not self.separate:
                gaps.append("they have this node's own account, and reach its database")
        if not self.landlock:
            gaps.append("the kernel has no Landlock, so they read what their account may read")
        elif self.landlock < confinement.SCOPED_SIGNALS_ABI and not self.separate:
            gaps.append("the kernel does not keep them from ending this node")
        if not self.separate and not self.standing.no_new:
            gaps.append(
                "programs with file capabilities keep these, and reach this account's files and "
                "database"
            )
        return gaps


@dataclass
class _RunnerChild:
    """A tool that a keeper has started."""

    connection: socket.socket
    mark: str
    pid: int = 0
    started_ticks: int = 0
    reaped: bool = False
    released: bool = False
    begun_at: int | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    has_exited: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    failed: str | None = None
    end: dict[str, Any] | None = None

    def listen(self) -> None:
        """Take messages from now on."""
        asyncio.get_running_loop().add_reader(self.connection.fileno(), self._receive)

    def _receive(self) -> None:
        try:
            packet = self.connection.recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._close()
            return
        [(verb, content)] = json.loads(packet).items()
        self._note(verb, content)

    def _note(self, verb: str, content: Any) -> None:
        if verb == "started":
            self.pid, self.started_ticks = content["pid"], content["ticks"]
            self.started.set()
        elif verb == "begun" and not self.has_begun.is_set():
            self.begun_at = content
            self.has_begun.set()
        elif verb == "exited":
            self.has_exited.set()
        elif verb == "ended":
            self.end = content
            self.has_ended.set()
        elif verb == "failed":
            self.failed = content

    def _close(self) -> None:
        """Take note that the keeper has ended: after its tool, unless somebody killed it."""
        if self.connection.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.connection.fileno())
            self.connection.close()
        for event in (self.started, self.has_begun, self.has_exited, self.has_ended):
            event.set()

    def _send_message(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it is gone, which is noticed on the connection
            self.connection.send(json.dumps(message).encode())

    def release(self, at: int, latest: int) -> None:
        self.released = True
        self._send_message({"release": {"at": at, "latest": latest}})

    async def begun(self) -> int | None:
        await self.has_begun.wait()
        return self.begun_at

    async def wait_for_exit(self) -> None:
        await self.has_exited.wait()

    def send_signal(self, number: signal.Signals, *, group: bool) -> None:
        if not self.reaped:
            self._send_message({"signal": {"number": int(number), "group": group}})

    async def reap(self) -> ChildEnd:
        self.reaped = True
        self._send_message({"reap": None})
        try:
            async with asyncio.timeout(2 * KILL_TIMEOUT_S):
                await self.has_ended.wait()
                if self.released:  # told by another process, so perhaps later
                    await self.has_begun.wait()
        except TimeoutError:
            raise HostError(f"process {self.pid} did not end although it was killed") from None
        finally:
            self._close()
        if self.end is None:
            await process_marks.kill_marked(self.mark)
            raise HostError("what ran this tool was killed, and the tool with it")
        left = tuple(self.end["left"])
        return ChildEnd(self.end["exit_code"], self.end["worked_ticks"], left, self.end["killed"])

    def abandon(self) -> None:
        self._close()


class ToolRunner:
    """Starts tools by the runner."""

    def __init__(self, settings: Settings, control: socket.socket | None = None) -> None:
        """Start nothing yet; ``control`` leads to a runner that runs already."""
        self._settings = settings
        self._given = control is not None
        self._control = control
        self._opening, self._passing = asyncio.Lock(), asyncio.Lock()
        self._server: process.RunningProcess | None = None
        self._rights: ToolRights | None = None

    async def rights(self) -> ToolRights:
        """Return what tools run with here.

        :raises HostError: the runner cannot be started, or does not answer.
        """
        async with self._opening:
            if self._rights is None:
                self._rights = await self._ask_rights()
            return self._rights

    async def start(
        self, program: Program, descriptors: Sequence[int], needs: Needs, *, held: bool
    ) -> HeldChild:
        """Start a tool with its three streams; if it is ``held``, load it, and leave it stopped.

        :raises HostError: it cannot be started.
        """
        standing, mark = (await self.rights()).standing, process_marks.new_mark()
        content = {
            "argv": list(program.argv),
            "mark": mark,
            "namespace": program.namespace,
            "held": held,
            "privilege": needs.privilege,
            "network": needs_network_rights(needs.congestion, standing),
            "connects": needs.connects,
            "by_file": not (needs.privilege is Privilege.ECHO and standing.echo),
            "seconds": needs.duration_s + _SLACK_S,
            **self._terms_to_send(),
        }
        connection = await self._connection()
        child = _RunnerChild(connection, mark)
        try:
            _send(connection, {"start": content}, descriptors)
            child.listen()
            async with asyncio.timeout(_ANSWER_S):
                await child.started.wait()
        except TimeoutError:
            child.abandon()
            raise HostError(
                f"{program.name} was not started within {_ANSWER_S:g} s: this host is overloaded"
            ) from None
        except BaseException:
            child.abandon()
            raise
        if not child.pid:
            raise HostError(f"{program.name} cannot be started: {child.failed or _GONE}")
        return child

    async def close(self) -> None:
        """End the runner."""
        self._close_control()
        if self._server is not None:
            await self._server.end(KILL_TIMEOUT_S)
            self._server = None

    def _terms_to_send(self) -> dict[str, Any]:
        """Return the terms of tools for a runner that systemd has started; others have them."""
        if self._settings.tool_socket is None:
            return {}
        return {"terms": terms_of(self._settings, lent=False).as_words()}

    async def _ask_rights(self) -> ToolRights:
        connection = await self._connection()
        try:
            content = {"uid": os.geteuid(), **self._terms_to_send()}
            _send(connection, {"describe": content}, ())
            async with asyncio.timeout(_ANSWER_S):
                packet = await asyncio.get_running_loop().sock_recv(connection, MESSAGE_BYTES_MAX)
        except TimeoutError:
            raise HostError("the program that runs the tools does not answer") from None
        finally:
            connection.close()
        if not packet:
            raise HostError(_GONE)
        content = json.loads(packet)["described"]
        standing = privileges_in(content.pop("status"), [content["gid"]])
        weaker = tuple(content.pop("weaker"))
        return ToolRights(standing=standing, weaker=weaker, **content)

    async def _connection(self) -> socket.socket:
        """Return a connection to a new keeper."""
        if self._settings.tool_socket is not None:
            return await self._connect(self._settings.tool_socket)
        with explain_exhaustion("the connection to the program that runs the tools"):
            ours, theirs = _connected_pair()
        with theirs:
            try:
                await self._pass(theirs)
            except BaseException:
                ours.close()
                raise
        return ours

    async def _pass(self, connection: socket.socket) -> None:
        """Pass a connection on to the runner, after starting one if there is none."""
        async with self._passing:
            for _ in range(2):  # the first one may have ended meanwhile
                if self._control is None:
                    if self._given:
                        raise HostError(f"{_GONE}; restart this node")
                    self._control = await self._spawn()
                with contextlib.suppress(OSError):
                    socket.send_fds(self._control, [b"t"], [connection.fileno()])
                    return
                self._close_control()
            raise HostError(_GONE)

    async def _connect(self, path: Path) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(0)
            await asyncio.get_running_loop().sock_connect(connection, str(path))
        except OSError as fault:
            connection.close()
            raise HostError(
                f"no tool can run: {path} cannot be reached ({fault.strerror}); start "
                "parley-tools.socket, or remove PARLEY_TOOL_SOCKET"
            ) from fault
        return connection

    async def _spawn(self) -> socket.socket:
        ours, theirs = _connected_pair()
        try:
            with theirs:
                argv = _argv(terms_of(self._settings, lent=False))
                self._server = await process.start(argv, channel=theirs.fileno(), cwd=Path("/"))
        except BaseException:
            ours.close()
            raise
        return ours

    def _close_control(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            control.close()


@dataclass(frozen=True)
class OwnRunner:
    """A runner that this process has started before it gave up being root, and the way to it."""

    control: socket.socket
    program: process.Companion


def start_runner(settings: Settings) -> OwnRunner:
    """Start a runner with root's rights, for a node that gives them up.

    :raises HostError: it cannot be started.
    """
    ours, theirs = _connected_pair()
    argv = _argv(terms_of(settings, lent=True))
    with theirs:
        return OwnRunner(ours, process.start_companion(argv, theirs.fileno()))


def _argv(terms: ToolTerms) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", BOOTSTRAP, terms.as_argument()]


def terms_of(settings: Settings, *, lent: bool) -> ToolTerms:
    """Return the terms of a node's tools; ``lent``: by a runner of root, for a node that is not."""
    limits = ToolLimits(
        memory=settings.tool_memory * MEBIBYTE,
        processes=settings.tool_processes,
        file_size=settings.tool_file_size * MEBIBYTE,
        disk=settings.tool_disk * MEBIBYTE,
        open_files=settings.tool_open_files,
    )
    contexts = settings.allowed_contexts
    return ToolTerms(
        accounts=[settings.tool_account, FALLBACK_ACCOUNT],
        programs=[sys.executable, str(_ROOT / "node" / "plugins" / "tools" / "programs")],
        readable=program_places(),
        hidden=str(settings.state_dir.resolve()),
        path=os.environ.get("PATH", process.PATH_DEFAULT),
        namespaces=[it.name for it in contexts if it.kind is ContextKind.NAMESPACE],
        limits=limits.as_words(),
        lent=lent,
    )


def program_places() -> list[str]:
    """Return where this program and its plug-ins are, which may lie around the node's own files."""
    places = {_ROOT / "node", *map(Path, (sys.prefix, sys.base_prefix))}
    places |= {Path(entry) for entry in sys.path if Path(entry).is_absolute()}
    return sorted(map(str, places))


def _connected_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection; the first one does not block."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(0)
    return ours, theirs


def _send(connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Send the first message on a connection, for which there is always room."""
    packet = json.dumps(message).encode()
    if len(packet) > MESSAGE_BYTES_MAX:
        raise HostError("the command of the tool is too long")
    try:
        socket.send_fds(connection, [packet], descriptors)
    except OSError as fault:
        raise HostError(f"no tool can be started: {fault.strerror or fault}") from fault
