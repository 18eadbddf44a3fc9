"""The tool runner: a small program that starts the tools of a node, confined, and ends them.

It is a program of its own so that tools never share a process with the node's key, and so that the
code between ``fork`` and ``exec`` runs where there are no threads and little memory. It has one of
three places:

* started by root, before the node itself gives up being root: tools become another account, and
  nothing that the node sends makes one root;
* started by systemd as the account ``parley-tool``, where a node of another account reaches it by
  a socket (``parley-tools.socket``);
* started by a node of an ordinary user: tools keep that account, with what Landlock and the limits
  take away.

Every tool has a connection of its own and a *keeper*: a child of the runner that starts the tool,
watches what it takes, and ends it with all its descendants, at the latest when the node is gone.
Whatever a descendant does to its session or environment, the keeper becomes its parent in the end.
So the runner itself only forks, and no two tools have anything in common but the releaser
(:mod:`.releaser`), which begins those that are held.

Messages are JSON, one a packet. The node sends ``start`` (with the tool's descriptors), then
``release`` if the tool is held, ``signal`` and ``reap``; it gets ``started`` or ``failed``,
``begun``, ``exited``, ``ended``. For ``describe`` it gets ``described``. What holds for all tools
is in no message but that of a runner that systemd has started (:mod:`.tool_terms`).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pwd
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node.execution import confinement, releaser
from node.execution.releaser import Handover, Release
from node.execution.tool_terms import MARK, Account, ToolTerms

MESSAGE_BYTES_MAX = 150_000
"""Longest message; a socket takes 200 kB by default."""
KILL_TIMEOUT_S = 10.0
CANNOT_START = 126
"""Exit code of a tool that could not be started, as of a shell."""
LOOK_S = 0.25
"""Pause between two looks at what a tool takes."""

_LISTENING = 3  # sd_listen_fds(3)
_DESCRIPTORS_MAX = 3
_STOPS_MAX = 50
_PAUSE_S = 0.005
_PREFIX = "parley-tool-"
_NEVER_MORE = 2
"""Multiple of its memory that a process cannot exceed between two looks."""
_ADDRESS_SPACE = 8
"""Multiple of its memory that a process may reserve without using it, or share."""
_TOOLS_AT_ONCE = 16
"""Multiple of a tool's processes that all tools of an account cannot exceed."""
_STACK = 8 * 2**20
_WAIT = 'kill -STOP $$ && exec "$@"'
"""Shell code: stop, and become the program after SIGCONT."""

_READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/sys"),
    *("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"),
    *("/proc/self", "/proc/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg"),
    *("/proc/uptime", "/proc/version", "/proc/filesystems"),
)
"""Places that every tool may read; in ``/proc`` its own process, and nothing of another one."""
_ETC = ("/etc",)
_ETC_OF_ROOT = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs"),
)
"""Files that no permission keeps from root, so that only those are shown that a tool needs."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_KEPT: Mapping[str | None, tuple[int, ...]] = {
    None: (),
    "echo": (confinement.NET_RAW,),
    "raw": (confinement.NET_RAW,),
    "root": (
        *(confinement.NET_RAW, confinement.SETUID),
        *(confinement.SETGID, confinement.SYS_CHROOT),
    ),
}
"""The capabilities of tools, by the privilege that they declare."""

_FAMILIES: Mapping[str | None, tuple[int, ...]] = {
    **dict.fromkeys(_KEPT, ()),
    "root": (socket.AF_PACKET,),
}
"""The sockets of tools beside those of IP and routes, by the privilege that they declare."""
_LENT = (
    *(confinement.CHOWN, confinement.DAC_OVERRIDE, confinement.DAC_READ_SEARCH, confinement.FOWNER),
    *(confinement.KILL, confinement.SETGID, confinement.SETUID, confinement.SETPCAP),
    *(confinement.NET_RAW, confinement.SYS_PTRACE, confinement.SYS_ADMIN),
    *(confinement.SYS_NICE, confinement.SYS_RESOURCE),
)
"""The capabilities that root's runner keeps for a node of another account, to confine tools."""


class Keeper:
    """The keeper of one tool."""

    def __init__(
        self, connection: socket.socket, channel: socket.socket | None, terms: ToolTerms | None
    ) -> None:
        """Take over a connection, whose first message is to come, and the channel to a releaser.

        Without ``terms`` the first message has them.
        """
        self._connection = connection
        self._terms = terms
        self._channel = channel
        self._handover: Handover | None = None
        self._pid = os.getpid()
        self._directory: Path | None = None
        self._bounded = False
        self._exited = False
        self._killed: str | None = None
        self._limits: Mapping[str, int] = {}
        self._seconds = 0.0
        os.setsid()  # what ends the runner, and all of its group, leaves the tools alone
        confinement.adopt_orphans()

    def serve(self) -> None:
        """Do what the first message asks for."""
        message, descriptors = self._receive()
        if "describe" in message:
            content = message["describe"]
            self._send("described", _description(content["uid"], self._terms_in(content)))
        elif "start" in message:
            try:
                self._keep(message["start"], descriptors)
            finally:
                self._remove_directory()

    def _terms_in(self, content: dict[str, Any]) -> ToolTerms:
        return self._terms or ToolTerms(**content["terms"])

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        """Return a message with its descriptors; nothing once the node is gone."""
        try:
            packet, descriptors, flags, _ = socket.recv_fds(
                self._connection, MESSAGE_BYTES_MAX, _DESCRIPTORS_MAX
            )
        except OSError:
            return {}, []
        message = {} if not packet or flags & socket.MSG_TRUNC else json.loads(packet)
        return message, descriptors

    def _send(self, verb: str, content: object) -> None:
        with contextlib.suppress(OSError):  # the node is gone, and the next message says so
            self._connection.send(json.dumps({verb: content}).encode())

    def _keep(self, content: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Start the tool, and end it."""
        terms = self._terms_in(content)
        self._limits, self._seconds = terms.limits, content["seconds"]
        try:
            path = terms.program(content["argv"][0])
            network = terms.network(content["namespace"])
            account = self._prepare(terms, content["privilege"], path)
            others = _threads_of(os.geteuid()) if account is None else 0
            told, telling = os.pipe()
            pid = os.fork()
        except OSError as fault:
            self._send("failed", fault.strerror or str(fault))
            return
        if pid == 0:
            os.write(telling, str(_own_start_ticks()).encode())
            tool = _Tool(terms, content, path, network, account)
            self._become(tool, descriptors, others)
        for descriptor in (*descriptors, telling):
            os.close(descriptor)
        if content["held"]:
            confinement.stop_loaded(pid)
        self._send("started", {"pid": pid, "ticks": int(os.read(told, 32) or 0)})
        os.close(told)
        shown = os.open(f"/proc/{pid}", os.O_PATH | os.O_CLOEXEC)  # it stays what Landlock allows
        try:
            self._watch(pid, time.monotonic() + self._seconds)
        finally:
            self._end(pid)
            os.close(shown)

    def _watch(self, pid: int, deadline: float) -> None:
        """Return when the tool is to be reaped, or the node is gone."""
        exited = os.pidfd_open(pid)
        looking = select.poll()
        looking.register(exited, select.POLLIN)
        looking.register(self._connection, select.POLLIN)
        while True:
            pause = LOOK_S if self._handover is None else self._handover.pause(LOOK_S)
            ready = [descriptor for descriptor, _ in looking.poll(pause * 1000)]
            if self._connection.fileno() in ready:
                if not self._obey(pid, exited):
                    break
            elif exited in ready:
                looking.unregister(exited)
                self._note_exit()
            else:
                self._look(pid, deadline)
        os.close(exited)

    def _obey(self, pid: int, exited: int) -> bool:
        """Do what a message asks for; return False if the tool is to be ended."""
        message, _ = self._receive()
        if "signal" in message:
            _signal(pid, **message["signal"])
        elif "release" in message:
            release = Release(**message["release"])
            self._handover = Handover(self._channel, release, exited, self._connection)
            if self._exited:
                self._handover.note_exit()
        else:
            return False
        return True

    def _look(self, pid: int, deadline: float) -> None:
        """Begin the tool if nobody else has, and kill it if it takes too much."""
        if self._handover is not None:
            self._handover.look(pid)
        if self._killed is None and (excess := self._excess(deadline)) is not None:
            self._killed = excess
            _kill_all(lambda: _descendants(self._pid))

    def _note_exit(self) -> None:
        self._exited = True
        if self._handover is not None:
            self._handover.note_exit()
        self._send("exited", None)

    def _excess(self, deadline: float) -> str | None:
        """Return the limit that a tool and its descendants exceed together, if any."""
        limits = self._limits
        processes = list(_descendants(self._pid))
        if len(processes) > limits["processes"]:
            return f"had more than {limits['processes']} processes"
        if sum(map(_memory_bytes, processes)) > limits["memory"]:
            return _memory_excess(limits)
        if self._directory and not self._bounded and _size_bytes(self._directory) > limits["disk"]:
            return f"kept more than {limits['disk'] >> 20} MiB of files"
        if not self._exited and time.monotonic() > deadline:
            return f"ran longer than {self._seconds:g} s"
        return None

    def _end(self, pid: int) -> None:
        """End a tool with all that it has started, and report how it ended."""
        deadline = time.monotonic() + KILL_TIMEOUT_S
        _signal(pid, signal.SIGKILL, group=True)
        _, status, usage = os.wait4(pid, 0)
        while (left := _reap(self._pid)) and time.monotonic() < deadline:
            _kill_all(lambda: _descendants(self._pid))
            time.sleep(_PAUSE_S)
        exit_code = os.waitstatus_to_exitcode(status)
        if self._killed is None and exit_code == -signal.SIGXFSZ:
            self._killed = f"wrote a file of more than {self._limits['file_size'] >> 20} MiB"
        elif self._killed is None and exit_code and usage.ru_maxrss << 10 > self._limits["memory"]:
            self._killed = _memory_excess(self._limits)
        worked = usage.ru_utime + usage.ru_stime
        end = {"exit_code": exit_code, "worked_ticks": round(worked * os.sysconf("SC_CLK_TCK"))}
        self._send("ended", end | {"left": left, "killed": self._killed})

    def _prepare(self, terms: ToolTerms, privilege: str | None, path: str) -> Account | None:
        """Make the tool's own directory, and return its account; None if it keeps this one.

        The directory is of limited size and seen by no other program, if that can be.
        """
        self._directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{self._pid}-"))
        self._bounded = confinement.mount_bounded(self._directory, self._limits["disk"])
        if privilege == "root":
            terms.refuse_root("it needs to be root")
        found = None if privilege == "root" else terms.account()
        if found is None:
            return None
        own = os.path.realpath(path) == os.path.realpath(sys.executable)
        programs = [path, *(terms.programs if own else ())]
        obstacle = obstacle_to(found[1], programs, terms.places(), mounts=self._bounded)
        if obstacle is not None:
            why = f"the account {found[0]} cannot execute {obstacle}"
            if not own:
                raise PermissionError(1, why)
            terms.refuse_root(why)
            return None  # said at the start of the node
        os.chown(self._directory, *found[1])
        return found[1]

    def _remove_directory(self) -> None:
        if self._directory is not None:
            if self._bounded:
                confinement.unmount(self._directory)
            shutil.rmtree(self._directory, ignore_errors=True)

    def _become(self, tool: _Tool, descriptors: Sequence[int], others: int) -> None:
        """Become a tool, in a child of this process; never returns."""
        path, argv = tool.path, tool.content["argv"]
        try:
            os.setsid()
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            stops = self._confine(tool, others)
            if (
                tool.content["held"] and not stops
            ):  # from a shell it becomes the tool faster than from here
                path, argv = "/bin/sh", ["sh", "-c", _WAIT, "sh", *argv]
            _arrange(descriptors)
            own = dict.fromkeys(("HOME", "TMPDIR"), str(self._directory))
            given = {"PATH": tool.terms.path, "LANG": "C.UTF-8", MARK: tool.content["mark"]}
            os.execve(path, argv, given | own)
        except BaseException as fault:  # noqa: BLE001 - nothing may get out of the child
            why = fault.strerror if isinstance(fault, OSError) else repr(fault)
            os.write(descriptors[2], f"{path} cannot be started: {why}\n".encode())
        finally:
            os._exit(CANNOT_START)

    def _confine(self, tool: _Tool, others: int) -> bool:
        """Give up all that the tool does not need.

        Return whether a tool that is held will stop once it is loaded.
        """
        stops = False
        terms, content = tool.terms, tool.content
        confinement.close_at_exec()
        kept, mine = _KEPT[content["privilege"]], confinement.capabilities()
        kept += (confinement.NET_ADMIN,) if content["network"] else ()
        stays_root = tool.account is None and os.geteuid() == 0
        readable = [*_READABLE, *(_ETC_OF_ROOT if stays_root else _ETC), *terms.readable]
        readable += terms.path.split(":")
        if tool.network is not None:
            confinement.enter_network(tool.network)
        confinement.show()
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        os.umask(0o077)
        os.chdir(self._directory or "/")
        confinement.limit(_kernel_limits(self._limits, others))
        confinement.change_rights(tool.account, kept)
        # Without the capability the program's file has to give it, as to an ordinary user's ping.
        if terms.lent or mine >= set(kept) or not content["by_file"]:
            confinement.forbid_new_privileges()
            shown = _places_without(readable, Path(terms.hidden))
            confinement.restrict_files(shown, [".", *_DEVICES])
            stops = bool(content["held"]) and confinement.trace_me()
            families = _FAMILIES[content["privilege"]]
            confinement.forbid_calls(families, connects=content["connects"])
        confinement.die_with_parent(self._pid, signal.SIGKILL)
        return stops


@dataclass(frozen=True)
class _Tool:
    """A tool to become: what the node asked for, and what it got of that."""

    terms: ToolTerms
    content: dict[str, Any]
    path: str
    network: Path | None
    account: Account | None


def _places_without(places: Sequence[str], hidden: Path) -> Iterator[str]:
    """Yield places, and of one that contains the hidden one what lies beside the way to it."""
    for place in places:
        real = Path(place).resolve()
        if real in hidden.parents:
            with contextlib.suppress(OSError), os.scandir(real) as entries:
                beside = [entry.path for entry in entries if not entry.is_symlink()]
                yield from _places_without(beside, hidden)
        elif not real.is_relative_to(hidden):
            yield place


def _arrange(descriptors: Sequence[int]) -> None:
    """Put the descriptors where the program expects them."""
    spare = [os.dup(descriptor) for descriptor in descriptors]  # none is overwritten unread
    for at, descriptor in enumerate(spare):
        os.dup2(descriptor, at)


def _kernel_limits(limits: Mapping[str, int], others: int) -> dict[str, int]:
    return {
        "DATA": limits["memory"] * _NEVER_MORE,
        "AS": limits["memory"] * _ADDRESS_SPACE,
        "NPROC": others + limits["processes"] * _TOOLS_AT_ONCE,
        "FSIZE": limits["file_size"],
        "NOFILE": limits["open_files"],
        "STACK": _STACK,
        "CORE": 0,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
    }


def _memory_excess(limits: Mapping[str, int]) -> str:
    return f"used more than {limits['memory'] >> 20} MiB of memory"


def _description(asking: int, terms: ToolTerms) -> dict[str, Any]:
    """Return what a node of the account ``asking`` has to know of the rights of its tools."""
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as trial:
        bounded = confinement.mount_bounded(Path(trial), 2**20)
        if bounded:
            confinement.unmount(Path(trial))
    found, weaker = _account_and_weaknesses(terms, bounded=bounded)
    uid = os.geteuid() if found is None else found[0]
    return {
        "account": _account_name(uid),
        "separate": uid != asking,
        "gid": os.getegid() if found is None else found[1],
        "status": Path("/proc/self/status").read_text(),
        "landlock": confinement.landlock_version(),
        "filtered": confinement.can_forbid_calls(),
        "bounded": bounded,
        "weaker": weaker,
    }


def _account_and_weaknesses(terms: ToolTerms, *, bounded: bool) -> tuple[Account | None, list[str]]:
    """Return the account of tools, if it is another one than this, and what is weaker."""
    weaker: list[str] = []
    try:
        found = terms.account()
    except PermissionError as fault:
        return None, [str(fault.strerror)]
    if found is None:
        if os.geteuid() == 0:
            weaker.append("there is no account for tools, so they stay root")
        return None, weaker
    name, account = found
    if name != terms.accounts[0]:
        missing = terms.accounts[0]
        weaker.append(f"there is no account {missing} (useradd --system {missing}), but {name}")
    unreadable = obstacle_to(account, terms.programs, terms.places(), mounts=bounded)
    if unreadable is not None:
        own = "run not at all" if terms.lent else "stay root, without its capabilities"
        weaker.append(f"{name} cannot read {unreadable}, so Parley's own programs {own}")
    return account, weaker


def obstacle_to(
    account: Account, programs: Sequence[str], needed: Sequence[str], *, mounts: bool
) -> str | None:
    """Return the first of these programs that an account cannot read; None if it can read all.

    ``needed``: the directories that it has to reach besides.
    ``mounts``: this process has mounts of its own, in which a way to the programs is opened.
    """
    blocked: dict[str, list[str]] = {}
    if mounts:
        with as_account(account):
            for place in needed:
                above = [str(it) for it in reversed(Path(place).parents)]
                first = next((it for it in above if not _is_accessible(it, os.X_OK)), None)
                if first is not None:
                    blocked.setdefault(first, []).append(place)
    for directory, places in blocked.items():
        confinement.open_way(places, directory)
    with as_account(account):
        return next((it for it in programs if not _is_accessible(it, os.R_OK | os.X_OK)), None)


@contextlib.contextmanager
def as_account(account: Account) -> Iterator[None]:
    """Have the permissions of an account meanwhile."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(account[1])
    os.seteuid(account[0])
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def _is_accessible(path: str, mode: int) -> bool:
    return os.access(path, mode, effective_ids=True)


def _account_name(uid: int) -> str:
    """Return the name of an account; its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _signal(pid: int, number: int, *, group: bool) -> None:
    """Send a signal to a tool that is not reaped yet, so that its number is still its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
                return
        os.kill(pid, number)  # it has no group yet, being just forked


def _kill_all(processes: Any) -> None:
    """Kill all that ``processes()`` yields.

    All are stopped before any is killed: one that forks faster than it is killed would live on.
    """
    stopped = set[int]()
    for _ in range(_STOPS_MAX):
        fresh = set(processes()) - stopped
        if not fresh:
            break
        for pid in fresh:
            _signal(pid, signal.SIGSTOP, group=False)
        stopped |= fresh
    for pid in stopped:
        _signal(pid, signal.SIGKILL, group=False)


def _reap(parent: int) -> list[int]:
    """Reap the children that have ended, and return the descendants that are left."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return list(_descendants(parent))


def _descendants(parent: int) -> Iterator[int]:
    pending = [parent]
    while pending:
        for pid in _children(pending.pop()):
            pending.append(pid)
            yield pid


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - three times faster
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as it:  # noqa: PTH123 - faster
                children += map(int, it.read().split())
    return children


def _memory_bytes(pid: int) -> int:
    """Return the bytes that a process has in memory, except those of files."""
    kibibytes = 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:  # noqa: PTH123 - faster
        for line in file:
            if line.startswith(("RssAnon:", "RssShmem:")):
                kibibytes += int(line.split()[1])
    return kibibytes << 10


def _size_bytes(directory: Path) -> int:
    size, pending = 0, [os.fspath(directory)]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return size


def _threads_of(account: int) -> int:
    """Return how many threads the processes of an account have, those of other programs too."""
    count = 0
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - three times faster
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == account:  # noqa: PTH116 - faster
                count += len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    return count


def _own_start_ticks() -> int:
    """Return when this process started; where ``/proc`` is restricted, nobody else may see it."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def _remove_abandoned() -> None:
    """Remove the directories of keepers that were killed."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(directory.name.removeprefix(_PREFIX).partition("-")[0])
            if directory.lstat().st_uid == os.geteuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(directory, ignore_errors=True)


def _connections(source: socket.socket) -> Iterator[socket.socket]:
    """Yield the connections of tools: accepted ones, or those that the node passes on."""
    if source.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        while True:
            yield source.accept()[0]
    while True:
        packet, descriptors, _, _ = socket.recv_fds(source, 1, 1)
        if not packet:
            return
        yield from (socket.socket(fileno=descriptor) for descriptor in descriptors)


def _refuse(connection: socket.socket, why: str) -> None:
    with connection, contextlib.suppress(OSError):
        connection.send(json.dumps({"failed": why}).encode(), socket.MSG_DONTWAIT)


def serve(source: socket.socket, terms: ToolTerms | None) -> None:
    """Fork a keeper for each connection, until the node is gone."""
    confinement.hide()
    if terms is not None and terms.lent:
        confinement.change_rights(None, _LENT)
    _remove_abandoned()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need not be reaped
    gc.disable()
    gc.freeze()  # keepers share the memory of this process
    channel, keepers = None, 0
    for connection in _connections(source):
        if terms is not None and keepers >= terms.at_once:
            keepers = len(_children(os.getpid()))
            if keepers >= terms.at_once:
                _refuse(connection, f"{keepers} programs run already")
                continue
        keepers += 1
        if channel is None or releaser.is_lost(channel):
            channel = releaser.start(source, connection)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            source.close()
            try:
                Keeper(connection, channel, terms).serve()
            except BaseException as fault:  # noqa: BLE001 - this is the end of a process
                os.write(2, f"a tool's keeper failed: {fault!r}\n".encode())
            finally:
                os._exit(0)
        connection.close()


def main() -> None:
    """Serve the node at the other end of standard input, or those that connect (systemd).

    The terms of the tools are an argument; those that connect bring theirs.
    """
    if os.environ.pop("LISTEN_FDS", None) == "1":
        serve(socket.socket(fileno=_LISTENING), None)
    elif len(sys.argv) > 1 and stat.S_ISSOCK(os.fstat(0).st_mode):
        source = socket.socket(fileno=os.dup(0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        serve(source, ToolTerms(**json.loads(sys.argv[1])))
    else:
        sys.exit("this program is started by systemd (parley-tools.socket) or by a node")


if __name__ == "__main__":
    main()
