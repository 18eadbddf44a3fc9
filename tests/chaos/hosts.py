"""The host of a node, as far as a fault may change it: its disk, and its clock.

A *disk* is a file system in memory that can be full (root only). A *clock* is set by libfaketime
for the processes that were started with its environment: their wall clock steps, their monotonic
clock does not. Postgres and the programs that measure keep the host's clock: no statement of the
schema reads it, and a program that waits for its own start is waited for by its launcher.
"""

from __future__ import annotations

import os
from pathlib import Path

from node.execution import process
from node.model.errors import HostError

LIBRARIES = ("/usr/lib", "/usr/local/lib")
SHARED_MEMORY = Path("/dev/shm")
CACHED_S = 1
"""Seconds after which a process notices that its clock was set."""
_ROOM = 64 * 1024
_SIZE = "2g"
_MOUNT_S = 20.0


class Disk:
    """A file system in memory for all that a node stores."""

    def __init__(self, directory: Path) -> None:
        """Choose where it is to be mounted."""
        self.directory = directory
        self.full = False
        """True while it has no room."""

    async def mount(self) -> None:
        """Mount it.

        :raises HostError: the host does not allow it.
        """
        self.directory.mkdir()
        await _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=711", "tmpfs", self.directory)

    async def fill(self) -> None:
        """Leave no more room than a few pages."""
        self.full = True
        status = os.statvfs(self.directory)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        await self._resize(str(used + _ROOM))

    async def free(self) -> None:
        """Make room again."""
        await self._resize(_SIZE)
        self.full = False

    async def _resize(self, size: str) -> None:
        await _run("mount", "-o", f"remount,size={size}", self.directory)

    async def unmount(self) -> None:
        """Remove it with all that it has, even if a process still works there."""
        await _run("umount", "--lazy", self.directory)


class HostClock:
    """The wall clock of the processes that are started with :attr:`environment`."""

    def __init__(self, file: Path, library: Path) -> None:
        """Begin with the host's own time; ``file`` will say by how much it differs."""
        self._file = file
        self.ahead_s = 0
        """Seconds by which it is ahead of the host's; negative if it is behind."""
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": str(CACHED_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.set(0)

    def set(self, seconds: int) -> None:
        """Set the clock so far ahead of the host's (behind, if negative)."""
        self.ahead_s = seconds
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.rename(self._file)


def library() -> Path | None:
    """Return the library that sets clocks; None if it is not installed."""
    found = (
        path for place in LIBRARIES for path in Path(place).glob("*/faketime/libfaketime.so.1")
    )
    return next(found, None)


def forget_shared_memory(pid: int) -> None:
    """Remove what libfaketime shared between threads of a process that was killed."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        (SHARED_MEMORY / name).unlink(missing_ok=True)


async def _run(*words: str | Path) -> None:
    finished = await process.finish([str(word) for word in words], timeout_s=_MOUNT_S)
    if finished.exit_code != 0:
        raise HostError(f"{words[0]} failed: {process.tail(finished.stderr, 2)}")
