"""The privileges of programs that this process starts: raw sockets, echo requests, root.

A tool that is installed but lacks a privilege would fail in each of its runs, so this is checked
beforehand. The rules are the kernel's (capabilities(7), "transformation of capabilities during
execve"), as far as they matter to programs that need raw sockets or to be root for a moment.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from node.model.reason import Reason
from node.model.reasons import (
    congestion_control_of_root,
    no_congestion_control,
    no_raw_sockets,
    no_rights_of_root,
)
from node.plugins.contracts import Privilege

NET_ADMIN = 1 << 12  # linux/capability.h
_NET_RAW = 1 << 13
_SETUID = 1 << 7
_SYS_CHROOT = 1 << 18
_TO_BE_ROOT = _SETUID | _SYS_CHROOT
_STATUS = Path("/proc/self/status")
_ECHO_GROUPS = Path("/proc/sys/net/ipv4/ping_group_range")
_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_OPEN_CONTROLS = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
_FILE_CAPABILITIES = "security.capability"
_VFS_CAPABILITIES = struct.Struct("<II")  # magic with flags, the lower 32 permitted capabilities
_EFFECTIVE = 1

_RAW_ADVICE = "AmbientCapabilities=CAP_NET_RAW in parley-tools.service gives it"
_ECHO_ADVICE = f"{_RAW_ADVICE}, or sysctl net.ipv4.ping_group_range='0 2147483647'"


@dataclass(frozen=True)
class ProcessPrivileges:
    """The privileges of this process; capabilities are the kernel's bit sets.

    ``echo``: the kernel lets its group send echo requests without any capability. ``controls``:
    the congestion controls that the kernel has for TCP; ``open_controls``: those that every user
    may set; None where the kernel does not report them.
    """

    root: bool
    effective: int
    bounding: int
    ambient: int
    no_new: bool
    echo: bool
    controls: frozenset[str] | None = None
    open_controls: frozenset[str] | None = None


_ALL = (1 << 64) - 1
UNLIMITED = ProcessPrivileges(
    root=True, effective=_ALL, bounding=_ALL, ambient=0, no_new=False, echo=True
)
"""The privileges of root on a host whose kernel forbids nothing."""


@dataclass(frozen=True)
class Grant:
    """The privileges that a program's file grants to whoever starts it."""

    root: bool = False
    capabilities: int = 0


def missing_privilege(
    program: str, needed: Privilege, standing: ProcessPrivileges, grant: Grant
) -> Reason | None:
    """Return why a program started here lacks a privilege, and what would help; None if it has it.

    >>> nobody = ProcessPrivileges(False, 0, 0, 0, True, True)
    >>> missing_privilege("ping", Privilege.ECHO, nobody, Grant()) is None
    True
    """
    if needed is Privilege.ROOT:
        return _missing_root(program, standing, grant)
    if _has_raw_sockets(standing, grant) or (needed is Privilege.ECHO and standing.echo):
        return None
    advice = _ECHO_ADVICE if needed is Privilege.ECHO else _RAW_ADVICE
    return no_raw_sockets(program, advice)


def missing_congestion_control(wanted: str, standing: ProcessPrivileges) -> Reason | None:
    """Return why programs started here cannot set this congestion control, and what would help."""
    controls, open_controls = standing.controls, standing.open_controls
    if controls is not None and wanted not in controls:
        return no_congestion_control(wanted, sorted(controls))
    if open_controls is None or wanted in open_controls or standing.effective & NET_ADMIN:
        return None
    return congestion_control_of_root(wanted, sorted(open_controls))


def needs_network_rights(wanted: str | None, standing: ProcessPrivileges) -> bool:
    """Return whether only a program with CAP_NET_ADMIN may set this congestion control here."""
    return wanted is not None and wanted not in (standing.open_controls or {wanted})


def _has_raw_sockets(standing: ProcessPrivileges, grant: Grant) -> bool:
    if standing.root:
        return bool(standing.effective & _NET_RAW)
    if standing.ambient & _NET_RAW:
        return True
    granted = bool(grant.capabilities & _NET_RAW) or grant.root
    return granted and not standing.no_new and bool(standing.bounding & _NET_RAW)


def _missing_root(program: str, standing: ProcessPrivileges, grant: Grant) -> Reason | None:
    if standing.root:
        capabilities, why = standing.effective, "this service has dropped them"
    elif standing.no_new:
        capabilities, why = 0, "tools get no new privileges here"
    elif not grant.root:
        why = f"its file is not set-user-ID root (chmod u+s on {program}'s file grants that)"
        capabilities = 0
    else:
        capabilities = standing.bounding
        why = "the CapabilityBoundingSet of this service forbids that"
    if capabilities & _TO_BE_ROOT == _TO_BE_ROOT and capabilities & _NET_RAW:
        return None
    return no_rights_of_root(program, why)


def process_privileges() -> ProcessPrivileges:
    """Return the current privileges of this process."""
    return privileges_in(_STATUS.read_text(), (os.getegid(), *os.getgroups()))


def privileges_in(text: str, groups: Iterable[int]) -> ProcessPrivileges:
    """Return the privileges of a process of these groups with this ``/proc/PID/status``."""
    lines = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    status = {name: value.strip() for name, value in lines}
    return ProcessPrivileges(
        root=status["Uid"].split()[1] == "0",
        effective=int(status["CapEff"], 16),
        bounding=int(status["CapBnd"], 16),
        ambient=int(status.get("CapAmb", "0"), 16),
        no_new=status.get("NoNewPrivs") == "1",
        echo=_may_echo(groups),
        controls=_words_in(_CONTROLS),
        open_controls=_words_in(_OPEN_CONTROLS),
    )


def _words_in(path: Path) -> frozenset[str] | None:
    try:
        return frozenset(path.read_text().split())
    except OSError:
        return None


def grant_of(path: str) -> Grant:
    """Return what the file of a program grants; nothing if it cannot be read."""
    try:
        status = Path(path).stat()
    except OSError:
        return Grant()
    return Grant(bool(status.st_mode & stat.S_ISUID) and status.st_uid == 0, _capabilities(path))


def _capabilities(path: str) -> int:
    """Return the capabilities a program starts with, not those that it would have to raise."""
    try:
        attribute = os.getxattr(path, _FILE_CAPABILITIES)
    except OSError:
        return 0
    if len(attribute) < _VFS_CAPABILITIES.size:
        return 0
    flags, permitted = _VFS_CAPABILITIES.unpack_from(attribute)
    return int(permitted) if flags & _EFFECTIVE else 0


def _may_echo(groups: Iterable[int]) -> bool:
    try:
        least, most = (int(word) for word in _ECHO_GROUPS.read_text().split())
    except (OSError, ValueError):
        return False
    return any(least <= group <= most for group in groups)
