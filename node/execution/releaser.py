"""The releaser: begins the tools that are held, each at its instant.

It is one process for all tools of a runner (:mod:`.tool_runner_program`) and does nothing else, so
that hundreds begin within milliseconds. At the instant a signal suffices, since a held tool is a
stopped process. Times are microseconds of the host's clock, since 1970.

A keeper hands its tool over with two descriptors: the tool's pidfd, and the connection to the node,
which is told when the tool began. If the releaser is lost, keepers begin their tools themselves.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import resource
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from node.execution import confinement

NAME = b"parley-releaser"
"""The name by which lists of processes show it."""
_MESSAGE_BYTES_MAX = 200
_DESCRIPTORS = 2
_STEP_NOTICED_S = 1.0
"""Time after which it notices that the host's clock was set."""
_GRACE = 100_000
"""Microseconds after its instant at which a tool that has not begun is begun by its keeper."""
_MICROSECONDS = 1_000_000
_GO = signal.SIGCONT


def host_time() -> int:
    """Return the host's time in microseconds."""
    return time.time_ns() // 1000


@dataclass(frozen=True, order=True)
class Release:
    """The instant at which a tool begins, and the last one at which it may."""

    at: int
    latest: int


@dataclass(order=True)
class _Held:
    """A tool that waits for its instant, and the connection to its node."""

    release: Release
    tool: int = field(compare=False)
    node: socket.socket = field(compare=False)
    begun: int | None = field(default=None, compare=False)


class Handover:
    """A keeper's side of the release of its tool: the releaser has it, or else the keeper."""

    def __init__(
        self, channel: socket.socket | None, release: Release, tool: int, node: socket.socket
    ) -> None:
        """Hand over a tool, by its pidfd; ``node`` is the connection to its node."""
        self._release = release
        self._node = node
        self._over = False
        self._channel = channel
        if channel is not None and not _hand_over(channel, release, [tool, node.fileno()]):
            self._channel = None

    def pause(self, longest_s: float) -> float:
        """Return the seconds until the next look is due, at most ``longest_s``."""
        if self._over:
            return longest_s
        return min(longest_s, max(0.0, (self._due - host_time()) / _MICROSECONDS))

    def look(self, pid: int) -> None:
        """Begin the tool if the releaser should have done so."""
        if self._over or host_time() < self._due:
            return
        self._over = True
        if not _was_continued(pid):
            tell_begun(self._node, begin(self._release, partial(os.kill, pid, _GO)))
        elif self._is_alone:  # the releaser began it, and was lost before it could tell
            tell_begun(self._node, host_time())

    def note_exit(self) -> None:
        """Take note that the tool has exited; if before its instant, nobody else tells the node."""
        if not self._over and host_time() < self._release.at:
            tell_begun(self._node, host_time())
        self._over = True

    @property
    def _is_alone(self) -> bool:
        return self._channel is None or is_lost(self._channel)

    @property
    def _due(self) -> int:
        return self._release.at + (0 if self._is_alone else _GRACE)


def _hand_over(channel: socket.socket, release: Release, descriptors: Sequence[int]) -> bool:
    packet = json.dumps([release.at, release.latest]).encode()
    try:
        socket.send_fds(channel, [packet], descriptors, socket.MSG_DONTWAIT)
    except OSError:
        return False
    return True


def _was_continued(pid: int) -> bool:
    """Return whether a child that was stopped has been continued."""
    options = os.WCONTINUED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, options) is not None


def begin(release: Release, proceed: Callable[[], None]) -> int | None:
    """Let a tool proceed, and return when it did; None if it is too late for it.

    :raises OSError: there is no such tool any more.
    """
    if host_time() > release.latest:
        return None
    proceed()
    return host_time()


def tell_begun(node: socket.socket, begun: int | None) -> None:
    """Tell the node when its tool began; None if it was too late."""
    with contextlib.suppress(OSError):  # the node is gone, or does not listen
        node.send(json.dumps({"begun": begun}).encode(), socket.MSG_DONTWAIT)


def is_lost(channel: socket.socket) -> bool:
    """Return whether nobody is at the other end of the channel."""
    looking = select.poll()
    looking.register(channel, 0)
    return bool(looking.poll(0))


class Releaser:
    """The tools that wait for their instants, and those whose nodes are not told yet."""

    def __init__(self, channel: socket.socket) -> None:
        """Take the end of the channel on which keepers hand over tools."""
        self._channel = channel
        self._waiting: list[_Held] = []
        self._untold: deque[_Held] = deque()

    def serve(self) -> None:
        """Begin tools until the runner and all keepers are gone."""
        while True:
            now = host_time()
            if self._waiting and self._waiting[0].release.at <= now:
                self._begin(heapq.heappop(self._waiting))
            elif self._untold:  # later than what is due: nobody waits for being told
                self._tell(self._untold.popleft())
            elif self._wait_for_next(now) and not self._take():
                return

    def _wait_for_next(self, now: int) -> bool:
        """Wait for the next instant; return whether something comes before it."""
        pause = _STEP_NOTICED_S
        if self._waiting:
            pause = min(pause, (self._waiting[0].release.at - now) / _MICROSECONDS)
        return bool(select.select([self._channel], [], [], pause)[0])  # poll has milliseconds only

    def _take(self) -> bool:
        """Take over a tool; return False once nobody can hand one over any more."""
        packet, descriptors, _, _ = socket.recv_fds(
            self._channel, _MESSAGE_BYTES_MAX, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        if len(descriptors) == _DESCRIPTORS:
            tool, connection = descriptors
            held = _Held(Release(*json.loads(packet)), tool, socket.socket(fileno=connection))
            heapq.heappush(self._waiting, held)
        else:  # there were none left for this process: the keeper begins the tool, a little later
            for descriptor in descriptors:
                os.close(descriptor)
        return bool(packet)

    def _begin(self, held: _Held) -> None:
        try:
            held.begun = begin(held.release, partial(signal.pidfd_send_signal, held.tool, _GO))
        except OSError:  # it has been ended
            self._close(held)
        else:
            self._untold.append(held)

    def _tell(self, held: _Held) -> None:
        tell_begun(held.node, held.begun)
        self._close(held)

    def _close(self, held: _Held) -> None:
        os.close(held.tool)
        held.node.close()


def start(*unneeded: socket.socket) -> socket.socket | None:
    """Fork a releaser, which closes what it does not need; return the channel to it, if it can be.

    Whoever calls this has no threads.
    """
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:
        return None
    with theirs:
        try:
            is_releaser = os.fork() == 0
        except OSError:
            ours.close()
            return None
        if is_releaser:
            _serve(theirs, [ours, *unneeded])
    return ours


def _serve(channel: socket.socket, unneeded: Sequence[socket.socket]) -> NoReturn:
    try:
        for each in unneeded:
            each.close()
        confinement.take_name(NAME)
        confinement.wake_exactly()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        with contextlib.suppress(OSError):  # only root may; it works for microseconds at a time
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        Releaser(channel).serve()
    except BaseException as fault:  # noqa: BLE001 - this is the end of a process
        os.write(2, f"the releaser of tools failed: {fault!r}\n".encode())
    finally:
        os._exit(0)
