"""What a test of the host must not leave behind: namespaces, links, processes, directories.

Other sessions may be busy on the same host, so what belongs to another living process is theirs.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from node.execution import process


def _state() -> set[str]:
    """Namespaces, bridges and lab directories that are ours, or that nobody alive owns."""
    namespaces = [path.name for path in process.NAMESPACES.glob("*")]
    aliases = [path.read_text().strip() for path in Path("/sys/class/net").glob("*/ifalias")]
    places = [path.name for path in Path(tempfile.gettempdir()).glob("parley-lab-*")]
    return {name for name in (*namespaces, *aliases, *places) if _ours(name)}


def _ours(name: str) -> bool:
    """Whether a name like ``parley-PID-…`` or ``parley-lab-PID-…`` is not another living one's."""
    match = re.match(r"parley-(?:lab-)?(\d+)", name)
    if match is None:
        return False
    return int(match[1]) == os.getpid() or not Path(f"/proc/{match[1]}").exists()


def descendants(pid: int, but_below: AbstractSet[int] = frozenset()) -> set[int]:
    """The living processes below one, as they are at one look; not those below some of them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal():
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = set[int](), [pid]
    while left:
        below = children.get(left.pop(), [])
        found.update(below)
        left.extend(each for each in below if each not in but_below)
    return found


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Assert that what is there afterwards was there before.

    What was there before may have children of its own: the tests' Postgres has one for each
    connection, and starts and ends others by itself.
    """
    before, children = _state(), descendants(os.getpid())
    yield
    left = _state() - before
    assert not left, f"left behind: {left}"
    behind = descendants(os.getpid(), but_below=children) - children
    assert not behind, f"left processes behind: {behind}"
