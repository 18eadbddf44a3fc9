"""System calls by which a process gives up what a tool does not need; Linux only.

They act on the calling process and what it becomes. :mod:`.tool_runner_program` calls them between
``fork`` and ``exec``, and a service that root starts calls them before it has threads. Nothing but
the standard library is imported here: a program that forks for each tool has to be small.

Landlock (since Linux 5.13) names what a process may read and write; all else is denied, and with
it looking into processes outside (``ptrace``, ``/proc/PID/environ``), since 6.12 also signals to
them. Connecting to a socket in the file system is not covered: there only permissions help.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import stat
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

SETGID, SETUID, NET_BIND_SERVICE, NET_ADMIN, NET_RAW = 6, 7, 10, 12, 13  # linux/capability.h
SYS_CHROOT, SYS_ADMIN = 18, 21

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

# linux/audit.h; then shmget, semget, msgget, memfd_create, ptrace
_FORBIDDEN = {
    "x86_64": (0xC000_003E, (29, 64, 68, 319, 101)),
    "aarch64": (0xC000_00B7, (194, 190, 186, 279, 117)),
}
"""By machine, its number and those of the calls that :func:`forbid_calls` forbids."""
_FOREIGN_CALLS = 0x4000_0000
"""On x86_64, the first number of calls of another kind (x32)."""
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _MACHINE_AT = 0, 4
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000 | errno.EPERM

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(outcome: int) -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return outcome


def _prctl(option: int, *arguments: int) -> None:
    words = [*arguments, 0, 0, 0, 0][:4]
    _checked(_libc.prctl(option, *map(ctypes.c_ulong, words)))


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
    _checked(_libc.syscall(_CLOSE_RANGE, 3, ctypes.c_uint(0xFFFF_FFFF), _CLOSE_RANGE_CLOEXEC))


def enter_network(namespace: Path) -> None:
    """Enter a network namespace; needs CAP_SYS_ADMIN."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(_libc.setns(descriptor, _CLONE_NEWNET))
    finally:
        os.close(descriptor)


def own_mounts() -> bool:
    """Let only this process and its children see what they mount from now on.

    Return whether that was allowed; it needs CAP_SYS_ADMIN. Mounts made later elsewhere, such as
    those of new network namespaces, still appear.
    """
    try:
        _checked(_libc.unshare(_CLONE_NEWNS))
        _checked(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
    except OSError:
        return False
    return True


def mount_bounded(directory: Path, size: int) -> bool:
    """Mount a file system of ``size`` bytes that only this process and its children see.

    Return whether that was allowed, as of :func:`own_mounts`.
    """
    options = f"size={size},nr_inodes={_INODES_MAX},mode=0700".encode()
    path = os.fsencode(directory)
    if not own_mounts():
        return False
    try:
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        _checked(_libc.mount(b"tmpfs", path, b"tmpfs", flags, options))
    except OSError:
        return False
    return True


def open_way(places: Iterable[str], blocked: str) -> bool:
    """Show ``places`` beneath a directory that others may not enter, and hide the rest of it.

    In the mounts of :func:`own_mounts`, and with the same permissions. Return whether it worked.
    """
    opened = {place: os.open(place, os.O_PATH | os.O_CLOEXEC) for place in places}
    try:
        flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        options = f"size={_WAY_BYTES},mode=0755".encode()
        _checked(_libc.mount(b"tmpfs", os.fsencode(blocked), b"tmpfs", flags, options))
        for place, descriptor in opened.items():
            Path(place).mkdir(parents=True, exist_ok=True)
            source = f"/proc/self/fd/{descriptor}".encode()
            _checked(_libc.mount(source, os.fsencode(place), None, ctypes.c_ulong(_MS_BIND), None))
    except OSError:
        return False
    finally:
        for descriptor in opened.values():
            os.close(descriptor)
    return True


def unmount(directory: Path) -> None:
    """Undo :func:`mount_bounded`, even if something still uses it."""
    with contextlib.suppress(OSError):
        _checked(_libc.umount2(os.fsencode(directory), _MNT_DETACH))


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


def forbid_calls() -> None:
    """Refuse tracing, and memory that belongs to no process: System V's, and files without a name.

    Such memory would not count where memory is looked at, and System V's would outlive the tool.
    Programs for another machine, whose calls have other numbers, cannot run then. Needs
    :func:`forbid_new_privileges` before it; does nothing on machines that are not listed.
    """
    machine, calls = _FORBIDDEN.get(os.uname().machine, (0, ()))
    if not machine or sys.maxsize < 2**32:
        return
    to_refuse = len(calls) + 2  # from the first comparison of a number
    program = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 0, to_refuse + 1, machine),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, to_refuse - 1, 0, _FOREIGN_CALLS),
        *((_EQUAL, to_refuse - 2 - at, 0, call) for at, call in enumerate(calls)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    filter_ = struct.pack("@HP", len(program), ctypes.addressof(code))
    _checked(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_FILTER), filter_))


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
    _checked(_libc.capset(header, struct.pack("=6I", low, low, low, high, high, high)))


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
    rules = _checked(_libc.syscall(_LANDLOCK_CREATE, attributes, size, 0))
    try:
        for path in readable:
            _allow(rules, path, _READ)
        for path in writable:
            _allow(rules, path, handled)
        _checked(_libc.syscall(_LANDLOCK_RESTRICT, rules, 0))
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
        _checked(_libc.syscall(_LANDLOCK_ADD, rules, _PATH_BENEATH, rule, 0))
    finally:
        os.close(place)
