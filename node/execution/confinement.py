"""System calls by which a process gives up what a tool does not need; Linux only.

They act on the calling process and what it becomes. :mod:`.tool_runner_program` calls them between
``fork`` and ``exec``, and a service that root starts calls them before it has threads. Nothing but
the standard library is imported here: a program that forks for each tool has to be small.

Landlock (since Linux 5.13) names what a process may read and write; all else is denied, and with
it looking into processes outside (``ptrace``, ``/proc/PID/environ``), since 6.12 also signals to
them. Connecting to a socket in the file system is not covered: a filter of system calls refuses it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL = 0, 1, 2, 3, 5  # linux/capability.h
SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_ADMIN, NET_RAW = 6, 7, 8, 10, 12, 13
SYS_CHROOT, SYS_PTRACE, SYS_ADMIN, SYS_NICE, SYS_RESOURCE = 18, 19, 21, 23, 24

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
_PR_SET_NAME, _PR_SET_TIMERSLACK = 15, 29
_PR_SET_SECCOMP, _SECCOMP_FILTER = 22, 2
_PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 24, 36, 38
_PR_CAP_AMBIENT, _AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 47, 2, 4
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES_MAX = 64

_CLONE_NEWNS, _CLONE_NEWNET = 0x0002_0000, 0x4000_0000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_SLAVE = 2, 4, 0x1000, 0x4000, 0x80000
_MNT_DETACH = 2
_INODES_MAX = 4096
_WAY_BYTES = 2**20

_CLOSE_RANGE, _CLOSE_RANGE_CLOEXEC = 436, 4
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_OF_FIRST = (1 << 13) - 1
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1
_ABI_REFER, _ABI_TRUNCATE, _ABI_SCOPES = 2, 3, 6
SCOPED_SIGNALS_ABI = _ABI_SCOPES
"""The Landlock version since which a tool cannot signal processes outside."""

_PTRACE_TRACEME, _PTRACE_DETACH = 0, 17

_AUDIT = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}  # linux/audit.h
_CALLS = {
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "ptrace": (101, 117),
    "setns": (308, 268),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "socket": (41, 198),
    "unshare": (272, 97),
    "clone": (56, 220),
    "clone3": (435, 435),
    "ioctl": (16, 29),
}
"""System calls that are refused to tools, or restricted, with their numbers on these machines."""
_WHOLLY = (
    *("shmget", "semget", "msgget", "memfd_create", "memfd_secret", "ptrace", "setns", "bpf"),
    *("perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl"),
)
_UNKNOWN = ("clone3", "io_uring_setup")
"""Calls that the filter cannot look into; programs use others if the kernel has none of these."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
_WITHOUT_CONNECTION = (socket.SOCK_DGRAM, socket.SOCK_RAW)
_KIND = 0xF
"""The part of a socket's type that is not flags."""
_NAMESPACES = 0x7E02_0000
"""All flags that make a namespace (``CLONE_NEWNS`` and its like), but that of time."""
_TYPING = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, by which a program types on the terminal that it was started from."""
_FOREIGN_CALLS = 0x4000_0000
"""On x86_64, the first number of calls of another kind (x32)."""
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT, _ARGUMENT_BYTES = 0, 4, 16, 8
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000

_Program = list[tuple[int, int, int, int]]

_libc = ctypes.CDLL(None, use_errno=True)


def _check_outcome(outcome: int) -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return outcome


def _prctl(option: int, *arguments: int) -> None:
    words = [*arguments, 0, 0, 0, 0][:4]
    _check_outcome(_libc.prctl(option, *map(ctypes.c_ulong, words)))


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends, so that none gets away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide() -> None:
    """Keep other processes of this account from looking into this one."""
    _prctl(_PR_SET_DUMPABLE, 0)


def show() -> None:
    """Allow a child to write its own files of ``/proc`` again."""
    _prctl(_PR_SET_DUMPABLE, 1)


def die_with_parent(parent: int, number: int) -> None:
    """Get a signal when the parent dies; leave at once if it has. Comes after a change of user."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def take_name(name: bytes) -> None:
    """Appear as ``name`` in lists of processes, of at most 15 bytes."""
    buffer = ctypes.create_string_buffer(name)
    _prctl(_PR_SET_NAME, ctypes.addressof(buffer))


def wake_exactly() -> None:
    """Let waits of this process end as exactly as the kernel can, instead of 50 µs later."""
    _prctl(_PR_SET_TIMERSLACK, 1)


def trace_me() -> bool:
    """Let the parent stop this process once it has loaded its program; False if that is forbidden.

    A file's capabilities are void then, so this is for processes that get none from a file.
    """
    return int(_libc.ptrace(_PTRACE_TRACEME, 0, None, None)) == 0


def stop_loaded(pid: int) -> None:
    """Wait until a child has loaded its program, and leave it stopped before its first instruction.

    It has called :func:`trace_me`, or stops itself; SIGCONT lets it go on. Return as well if it has
    exited, without reaping it.
    """
    state = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if state is not None and state.si_code == os.CLD_TRAPPED:
        # Traced no more, but stopped: a signal that comes before the stop prevents it.
        _libc.ptrace(_PTRACE_DETACH, pid, None, ctypes.c_void_p(signal.SIGSTOP))


def close_at_exec() -> None:
    """Let no descriptor but the three streams reach the program that this process becomes."""
    _check_outcome(_libc.syscall(_CLOSE_RANGE, 3, ctypes.c_uint(0xFFFF_FFFF), _CLOSE_RANGE_CLOEXEC))


def enter_network(namespace: Path) -> None:
    """Enter a network namespace; needs CAP_SYS_ADMIN."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check_outcome(_libc.setns(descriptor, _CLONE_NEWNET))
    finally:
        os.close(descriptor)


def separate_mounts() -> bool:
    """Let only this process and its children see what they mount from now on.

    Return whether that was allowed; it needs CAP_SYS_ADMIN. Mounts made later elsewhere, such as
    those of new network namespaces, still appear.
    """
    try:
        _check_outcome(_libc.unshare(_CLONE_NEWNS))
        _check_outcome(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
    except OSError:
        return False
    return True


def mount_bounded(directory: Path, size: int) -> bool:
    """Mount a file system of ``size`` bytes that only this process and its children see.

    Return whether that was allowed, as of :func:`separate_mounts`.
    """
    options = f"size={size},nr_inodes={_INODES_MAX},mode=0700".encode()
    path = os.fsencode(directory)
    if not separate_mounts():
        return False
    try:
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        _check_outcome(_libc.mount(b"tmpfs", path, b"tmpfs", flags, options))
    except OSError:
        return False
    return True


def open_way(places: Iterable[str], blocked: str) -> bool:
    """Show ``places`` beneath a directory that others may not enter, and hide the rest of it.

    In the mounts of :func:`separate_mounts`, with the same permissions. Return whether it worked.
    """
    opened = {place: os.open(place, os.O_PATH | os.O_CLOEXEC) for place in places}
    try:
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        options = f"size={_WAY_BYTES},mode=0755".encode()
        _check_outcome(_libc.mount(b"tmpfs", os.fsencode(blocked), b"tmpfs", flags, options))
        for place, descriptor in opened.items():
            Path(place).mkdir(parents=True, exist_ok=True)
            source = f"/proc/self/fd/{descriptor}".encode()
            _check_outcome(
                _libc.mount(source, os.fsencode(place), None, ctypes.c_ulong(_MS_BIND), None)
            )
    except OSError:
        return False
    finally:
        for descriptor in opened.values():
            os.close(descriptor)
    return True


def unmount(directory: Path) -> None:
    """Undo :func:`mount_bounded`, even if something still uses it."""
    with contextlib.suppress(OSError):
        _check_outcome(_libc.umount2(os.fsencode(directory), _MNT_DETACH))


def limit(limits: Mapping[str, int]) -> None:
    """Set limits, by the kernel's names (``DATA``); those that are lower already stay."""
    for name, value in limits.items():
        number: int = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(number)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (most, most))


def change_rights(account: tuple[int, int] | None, kept: Iterable[int]) -> None:
    """Become another account, if one is given, and keep of all capabilities those ``kept``.

    Capabilities that this process does not have are not given; the caller knows. CAP_NET_RAW stays
    in the bounding set: without it a file that has it, such as ping's, could not be executed at
    all. :func:`forbid_new_privileges` keeps a tool from getting it.
    """
    kept = frozenset(kept) & capabilities()
    with contextlib.suppress(OSError):  # there are no more, or this process may not (SETPCAP)
        for number in range(_CAPABILITIES_MAX):
            if number not in kept and number != NET_RAW:
                _prctl(_PR_CAPBSET_DROP, number)
    if account is not None:
        _prctl(_PR_SET_KEEPCAPS, 1)
        os.setgroups([])
        os.setresgid(account[1], account[1], account[1])
        os.setresuid(account[0], account[0], account[0])
    _set_capabilities(kept)
    with contextlib.suppress(OSError):
        _prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    for number in kept:
        _prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, number)


def forbid_new_privileges() -> None:
    """Make set-user-ID bits and file capabilities give nothing from now on."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def can_forbid_calls() -> bool:
    """Return whether the calls of this machine are known."""
    return os.uname().machine in _AUDIT and sys.maxsize > 2**32


def forbid_calls(more_families: Sequence[int] = (), *, connects: bool = True) -> None:
    """Refuse what a tool does not need, and what would get around its other limits.

    Tracing; memory that belongs to no process (System V's, files without a name), which would not
    count where memory is looked at; namespaces of its own; sockets but those of networks, so that
    no socket in the file system is reached (``more_families`` are allowed as well), and without
    ``connects`` those of TCP and its like neither; and what opens
    much of the kernel for no measurement. Programs for another machine, whose calls have other
    numbers, cannot run then. Needs :func:`forbid_new_privileges` before it; does nothing on
    machines that are not listed.
    """
    lines = [line for name in _WHOLLY for line in _refusal_of_call(name, errno.EPERM)]
    lines += [line for name in _UNKNOWN for line in _refusal_of_call(name, errno.ENOSYS)]
    for name in ("unshare", "clone"):
        lines += _refusal_if(name, 0, [(_ANY_BIT, _NAMESPACES)])
    kinds = (*_WITHOUT_CONNECTION, *((socket.SOCK_STREAM,) if connects else ()))
    lines += _socket_filter((*_FAMILIES, *more_families), kinds)
    _install_filter([*lines, *_typing_filter()])


def forbid_typing() -> None:
    """Refuse to type on the terminal of whoever started this process, for it and its children.

    Does nothing on machines that are not listed; needs :func:`forbid_new_privileges` before it.
    """
    _install_filter(_typing_filter())


def _typing_filter() -> _Program:
    return _refusal_if("ioctl", 1, [(_EQUAL, request) for request in _TYPING])


def _call_number(call: str) -> int:
    return _CALLS[call][list(_AUDIT).index(os.uname().machine)] if can_forbid_calls() else 0


def _refusal_of_call(call: str, error: int) -> _Program:
    return [(_EQUAL, 0, 1, _call_number(call)), (_RETURN, 0, 0, _REFUSE | error)]


def _refusal_if(call: str, argument: int, tests: Sequence[tuple[int, int]]) -> _Program:
    """Return what refuses a call if one of the tests holds for the lower half of its argument."""
    count = len(tests)
    return [
        (_EQUAL, 0, count + 3, _call_number(call)),
        (_LOAD, 0, 0, _ARGUMENTS_AT + argument * _ARGUMENT_BYTES),
        *((test, count - at, 0, value) for at, (test, value) in enumerate(tests)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
    ]


def _socket_filter(families: Sequence[int], kinds: Sequence[int]) -> _Program:
    """Return what refuses sockets of other families and kinds."""
    lines = [
        (_LOAD, 0, 0, _ARGUMENTS_AT + _ARGUMENT_BYTES),
        (_AND, 0, 0, _KIND),
        *((_EQUAL, len(kinds) - at, 0, kind) for at, kind in enumerate(kinds)),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_LOAD, 0, 0, _ARGUMENTS_AT),
        *((_EQUAL, len(families) - at, 0, family) for at, family in enumerate(families)),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return [(_EQUAL, 0, len(lines), _call_number("socket")), *lines]


def _install_filter(lines: _Program) -> None:
    if not can_forbid_calls():
        return
    program = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 1, 0, _AUDIT[os.uname().machine]),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _FOREIGN_CALLS),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        *lines,
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    filter_ = struct.pack("@HP", len(program), ctypes.addressof(code))
    _check_outcome(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_FILTER), filter_))


def capabilities() -> frozenset[int]:
    """Return the permitted capabilities of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            mask = int(line.split()[1], 16)
            return frozenset(n for n in range(_CAPABILITIES_MAX) if mask >> n & 1)
    return frozenset()


def _set_capabilities(kept: Iterable[int]) -> None:
    mask = sum(1 << number for number in kept)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    low, high = mask & 0xFFFF_FFFF, mask >> 32
    _check_outcome(_libc.capset(header, struct.pack("=6I", low, low, low, high, high, high)))


@cache
def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0 without it."""
    version: int = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _VERSION)
    return max(version, 0)


def restrict_files(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Allow what lies beneath these paths that exist, and nothing else, for good.

    What is writable may be read and executed as well. Does nothing without Landlock; needs
    :func:`forbid_new_privileges` before it.
    """
    version = landlock_version()
    if not version:
        return
    handled = _ALL_OF_FIRST
    handled |= _REFER if version >= _ABI_REFER else 0
    handled |= _TRUNCATE if version >= _ABI_TRUNCATE else 0
    attributes = struct.pack("=Q", handled)
    if version >= _ABI_SCOPES:
        attributes += struct.pack("=QQ", 0, _ABSTRACT_SOCKETS | _SIGNALS)
    size = ctypes.c_size_t(len(attributes))
    rules = _check_outcome(_libc.syscall(_LANDLOCK_CREATE, attributes, size, 0))
    try:
        for path in readable:
            _allow(rules, path, _READ)
        for path in writable:
            _allow(rules, path, handled)
        _check_outcome(_libc.syscall(_LANDLOCK_RESTRICT, rules, 0))
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, place)
        _check_outcome(_libc.syscall(_LANDLOCK_ADD, rules, _PATH_BENEATH, rule, 0))
    finally:
        os.close(place)
