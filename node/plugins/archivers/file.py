"""``file``: appends results to a file, a JSON document a line; full files are set aside.

A batch is written whole or not at all: what a full disk cut off is taken back. A line that a crash
left unfinished is ended before the next one. Files are set aside under their name and the instant,
when they would grow beyond a size, or when their last line is of an earlier period.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
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
    DeliveryStatus,
)
from node.plugins.fields import between, duration_field

_MODE = 0o640


def _path(value: str) -> str:
    path = Path(value)
    if not path.is_absolute() or ".." in path.parts or value.endswith("/") or "\0" in value:
        msg = "must be the whole path of a file, such as /var/lib/parley/results.jsonl"
        raise ValueError(msg)
    return value


class FileSpec(Document):
    """Which file, and when a new one is begun."""

    path: Annotated[str, StringConstraints(max_length=1000), AfterValidator(_path)] = Field(
        description="The file; its directory must be one that the node's owner allows "
        "(PARLEY_ARCHIVE_DIRECTORIES)."
    )
    rotate_bytes: int = Field(
        100_000_000,
        ge=1_000,
        le=10**12,
        strict=True,
        description="The file is set aside before it grows beyond so many bytes.",
    )
    rotate_after: Annotated[Duration, between(times.MINUTE, 400 * times.DAY)] = duration_field(
        times.DAY, "And when such a period begins (in UTC); PT1M to P400D."
    )
    keep: int = Field(
        0, ge=0, le=10_000, strict=True, description="So many files set aside are kept; 0: all."
    )
    sync: Literal["batch", "never"] = Field(
        "batch", description="Whether each batch waits until it is on the disk (fsync)."
    )


class FileArchiver:
    """Appends results to a file."""

    name = "file"
    title = "Append to a file on this host, a JSON document a line"
    ordered = True
    spec_model: type[Document] = FileSpec

    def label(self, spec: FileSpec) -> str:
        """The path."""
        return spec.path

    def batches(self, spec: FileSpec) -> Batches:  # noqa: ARG002 - the contract's
        """A thousand at a time."""
        return Batches(1000, 8_000_000, 30 * times.SECOND)

    def refusal(self, spec: FileSpec, host: ArchivingHost) -> tuple[str, str] | None:
        """Files are written only where the owner says, links followed."""
        directory = Path(spec.path).parent.resolve()
        allowed = [each.resolve() for each in host.directories]
        if any(directory.is_relative_to(each) for each in allowed):
            return None
        listed = ", ".join(map(str, allowed)) or "nowhere"
        said = (
            f"this node's owner lets files be written {'in ' if allowed else ''}{listed} "
            f"(PARLEY_ARCHIVE_DIRECTORIES), and {directory} is not in it"
        )
        return "path", said

    def open(self, spec: FileSpec, host: ArchivingHost) -> FileDestination:
        """The file is opened for each batch."""
        return FileDestination(self, spec, host)


class FileDestination:
    """One file."""

    def __init__(self, archiver: FileArchiver, spec: FileSpec, host: ArchivingHost) -> None:
        """Nothing is opened yet."""
        self._archiver = archiver
        self._spec = spec
        self._host = host
        self._path = Path(spec.path)

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Append all of it, in another thread: a disk may be slow."""
        if (refused := self._archiver.refusal(self._spec, self._host)) is not None:
            return [DeliveryOutcome(DeliveryStatus.REFUSED, refused[1])] * len(batch)
        lines = b"".join(one.body + b"\n" for one in batch)
        try:
            await asyncio.to_thread(self._append, lines, self._host.now())
        except OSError as error:
            return [DeliveryOutcome(DeliveryStatus.AGAIN, _said(error))] * len(batch)
        return [DeliveryOutcome(DeliveryStatus.ACCEPTED)] * len(batch)

    def _append(self, lines: bytes, now: int) -> None:
        self._set_aside_if_full(len(lines), now)
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
            # What a period is, the file's time says: it is the node's clock, not the disk's.
            os.utime(descriptor, ns=(now * 1000, now * 1000))
        finally:
            os.close(descriptor)

    def _open(self, flags: int) -> int:
        flags |= os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(self._path, flags, _MODE)

    def _set_aside_if_full(self, more: int, now: int) -> None:
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return
        period = self._spec.rotate_after
        old = found.st_mtime_ns // 1000 // period < now // period
        if not found.st_size or not (old or found.st_size + more > self._spec.rotate_bytes):
            return
        aside = self._path.with_name(f"{self._path.name}.{_stamp(now)}")
        self._path.rename(aside)
        if self._spec.keep:
            for path in self._aside()[: -self._spec.keep]:
                path.unlink(missing_ok=True)

    def _aside(self) -> list[Path]:
        """The files set aside, oldest first."""
        prefix = f"{self._path.name}."
        return sorted(
            path
            for path in self._path.parent.iterdir()
            if path.name.startswith(prefix) and path.name.removeprefix(prefix)[:1].isdecimal()
        )

    async def test(self) -> str:
        """Open the file for appending.

        :raises ArchiverFailed: it cannot be, or must not.
        """
        if (refused := self._archiver.refusal(self._spec, self._host)) is not None:
            raise ArchiverFailed(refused[1])
        try:
            os.close(await asyncio.to_thread(self._open, os.O_WRONLY))
        except OSError as error:
            raise ArchiverFailed(_said(error)) from None
        return f"{self._path} can be appended to"

    async def close(self) -> None:
        """Nothing is held between batches."""


def _write_all(descriptor: int, lines: bytes) -> None:
    left = memoryview(lines)
    while left:
        left = left[os.write(descriptor, left) :]


def _stamp(now: int) -> str:
    """``20261201T120000.000000Z``: in the order of names is in the order of time."""
    return times.to_datetime(now).strftime("%Y%m%dT%H%M%S.%fZ")


def _said(error: OSError) -> str:
    return f"{error.filename or 'the file'}: {error.strerror or error}"


ARCHIVER = FileArchiver()
