"""Checks that a test leaves no namespaces, links, processes or directories on the host.

Other sessions may use the same host, so leftovers of another living process are not counted.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from node.execution import tool_terms
from tests.support.command_line import ensure_server


def _names() -> set[str]:
    """Return the namespaces, bridges and lab directories of all processes, even of dead ones."""
    namespaces = [path.name for path in tool_terms.NAMESPACES.glob("*")]
    aliases = [path.read_text().strip() for path in Path("/sys/class/net").glob("*/ifalias")]
    places = [path.name for path in Path(tempfile.gettempdir()).glob("parley-lab-*")]
    return {*namespaces, *aliases, *places}


def _ours(name: str) -> bool:
    """Return whether ``parley-PID-…`` or ``parley-lab-PID-…`` is of this process or a dead one."""
    match = re.match(r"parley-(?:lab-)?(\d+)", name)
    if match is None:
        return False
    return int(match[1]) == os.getpid() or not Path(f"/proc/{match[1]}").exists()


def descendants(pid: int, but_below: AbstractSet[int] = frozenset()) -> set[int]:
    """Return the living descendants of a process at this moment, except those of ``but_below``."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal():
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    pids, pending = set[int](), [pid]
    while pending:
        below = children.get(pending.pop(), [])
        pids.update(below)
        pending.extend(child for child in below if child not in but_below)
    return pids


def _of_simulations() -> set[int]:
    """Return the servers of simulated worlds, which a process keeps until its end, and theirs."""
    files = Path(tempfile.gettempdir()).glob("parley-simulation-*/data/postmaster.pid")
    servers = {int(file.read_text().split()[0]) for file in files}
    return servers.union(*map(descendants, servers))


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Assert that the block leaves nothing behind.

    What was there before may lose its process meanwhile: another worker comes to its end.
    Children that existed before may start and end processes of their own: the tests' Postgres has
    one for each connection.
    """
    ensure_server()  # it stays, for the commands of other tests
    names_before, children = _names(), descendants(os.getpid())
    yield
    leftovers = set(filter(_ours, _names() - names_before))
    assert not leftovers, f"left behind: {leftovers}"
    processes = descendants(os.getpid(), but_below=children) - children - _of_simulations()
    assert not processes, f"left processes behind: {processes}"
