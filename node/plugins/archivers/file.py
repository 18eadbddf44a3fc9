"""``file``: appends results to a file, one JSON document per line, with rotation.

A batch is written completely or not at all: after a partial write on a full disk the file is
truncated again. A line that a crash left incomplete is terminated before the next one. The file is
rotated (renamed, with the instant appended) before it would grow beyond a size, or when its last
line is from an earlier period.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from node.model import times
from node.model.errors import ArchiverFailed
from node.model.wire.fields import Document, Duration
from node.plugins.contracts import (
    ArchivingHost,
    Batches,
    DeliveryItem,
    DeliveryOutcome,
)
from node.plugins.fields import between, duration_field, whole_field
from node.plugins.transport.batches import ACCEPTED, OwnArchiver, again, refused_outcome
from node.runtime.threads import aside

_MODE = 0o640


def _check_path(value: str) -> str:
    path = Path(value)
    if not path.is_absolute() or ".." in path.parts or value.endswith("/") or "\0" in value:
        msg = "must be the absolute path of a file, such as /var/lib/parley/results.jsonl"
        raise ValueError(msg)
    return value


class FileSpec(Document):
    """The file, and when to rotate it."""

    path: Annotated[str, StringConstraints(max_length=1000), AfterValidator(_check_path)] = Field(
        description="The file; its directory must be one that the node's owner allows "
        "(PARLEY_ARCHIVE_DIRECTORIES)."
    )
    rotate_bytes: int = whole_field(
        100_000_000, 1_000, 10**12, "The file is rotated before it grows beyond this many bytes."
    )
    rotate_after: Annotated[Duration, between(times.MINUTE, times.LONGEST)] = duration_field(
        times.DAY, "The file is also rotated when such a period begins (in UTC); 1 min to 366 d."
    )
    keep: int = whole_field(0, 0, 10_000, "Number of rotated files to keep; 0: all.")
    sync: Literal["batch", "never"] = Field(
        "batch", description="Whether each batch waits until it is on the disk (fsync)."
    )


class FileDestination:
    """The file to which results are appended; it is opened for each batch."""

    def __init__(self, spec: FileSpec, host: ArchivingHost, where: str) -> None:
        """Store the arguments; nothing is opened yet."""
        self._spec = spec
        self._host = host
        self._path = Path(spec.path)

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Append the batch, in another thread, because a disk may be slow."""
        if (reason := _refusal(self._spec, self._host)) is not None:
            return [refused_outcome(reason)] * len(batch)
        lines = b"".join(item.body + b"\n" for item in batch)
        try:
            await aside(partial(self._append, lines, self._host.now()), f"append to {self._path}")
        except OSError as error:
            return [again(_reason(error))] * len(batch)
        return [ACCEPTED] * len(batch)

    def _append(self, lines: bytes, now: int) -> None:
        self._rotate_if_due(len(lines), now)
        descriptor = self._open(os.O_RDWR)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                lines = b"\n" + lines
            try:
                _write_all(descriptor, lines)
                if self._spec.sync == "batch":
                    os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
            # The file's time tells its period, so it is set from the node's clock.
            os.utime(descriptor, ns=(now * 1000, now * 1000))
        finally:
            os.close(descriptor)

    def _open(self, flags: int) -> int:
        flags |= os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._path, flags, _MODE)

    def _rotate_if_due(self, more: int, now: int) -> None:
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return
        period = self._spec.rotate_after
        old = status.st_mtime_ns // 1000 // period < now // period
        if not status.st_size or not (old or status.st_size + more > self._spec.rotate_bytes):
            return
        self._path.rename(self._path.with_name(f"{self._path.name}.{_time_stamp(now)}"))
        if self._spec.keep:
            for path in self._rotated_files()[: -self._spec.keep]:
                path.unlink(missing_ok=True)

    def _rotated_files(self) -> list[Path]:
        """Return the rotated files, oldest first."""
        prefix = f"{self._path.name}."
        return sorted(
            path
            for path in self._path.parent.iterdir()
            if path.name.startswith(prefix) and path.name.removeprefix(prefix)[:1].isdecimal()
        )

    async def test(self) -> str:
        """Open the file for appending.

        :raises ArchiverFailed: it cannot be opened, or is not allowed.
        """
        if (reason := _refusal(self._spec, self._host)) is not None:
            raise ArchiverFailed(reason)
        try:
            os.close(await aside(partial(self._open, os.O_WRONLY), f"open {self._path}"))
        except OSError as error:
            raise ArchiverFailed(_reason(error)) from None
        return f"{self._path} can be appended to"

    async def close(self) -> None:
        """Do nothing: no file is open between batches."""


class FileArchiver(OwnArchiver):
    """Appends results to a file."""

    name = "file"
    title = "Append to a file on this host, one JSON document per line"
    ordered = True
    spec_model: type[Document] = FileSpec
    destination = FileDestination

    def label(self, spec: FileSpec) -> str:
        """Return the path."""
        return spec.path

    def batches(self, spec: FileSpec) -> Batches:
        """Return a thousand documents."""
        return Batches(1000, 8_000_000, 30 * times.SECOND)

    def refusal(self, spec: FileSpec, host: ArchivingHost) -> tuple[str, str] | None:
        """Refuse files outside the directories that the owner allows, symbolic links resolved."""
        reason = _refusal(spec, host)
        return None if reason is None else ("path", reason)


def _refusal(spec: FileSpec, host: ArchivingHost) -> str | None:
    """Return why the host's owner does not let the file be written; None if they do."""
    directory = Path(spec.path).parent.resolve()
    allowed = [each.resolve() for each in host.directories]
    if any(directory.is_relative_to(each) for each in allowed):
        return None
    listed = ", ".join(map(str, allowed)) or "nowhere"
    return (
        f"this node's owner lets files be written {'in ' if allowed else ''}{listed} "
        f"(PARLEY_ARCHIVE_DIRECTORIES), and {directory} is not in it"
    )


def _write_all(descriptor: int, lines: bytes) -> None:
    left = memoryview(lines)
    while left:
        left = left[os.write(descriptor, left) :]


def _time_stamp(now: int) -> str:
    """Return ``20261201T120000.000000Z``: sorting by name sorts by time."""
    return times.to_datetime(now).strftime("%Y%m%dT%H%M%S.%fZ")


def _reason(error: OSError) -> str:
    return f"{error.filename or 'the file'}: {error.strerror or error}"


ARCHIVER = FileArchiver()
