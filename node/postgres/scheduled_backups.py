"""Backups that a node makes of itself at intervals, if its owner has set a directory for them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import structlog

from node.model import times
from node.model.errors import HostError, ParleyError
from node.postgres import backups
from node.postgres.backups import BackupDirectory
from node.runtime.threads import aside
from node.runtime.version import program_version
from node.store.core import Core
from node.store.schema import place_of

log = structlog.get_logger()

RETRY = 10 * times.MINUTE
"""Time after a failure until it is tried again."""


class ScheduledBackups:
    """Makes a backup when the latest one in the directory is older than it may be."""

    def __init__(self, core: Core, dsn: str | None) -> None:
        """Back up the database at ``dsn``; do nothing without one, or without a directory."""
        self._core = core
        self._dsn = dsn
        settings = core.settings
        self._directory = (
            None
            if settings.backup_directory is None
            else BackupDirectory(settings.backup_directory, settings.backup_keep)
        )
        self._not_before = 0
        self.fault: str | None = None
        """The reason why the last attempt failed; None if it did not."""
        self.latest: int | None = None
        """The time of the latest backup (µs since 1970), as far as known."""

    @property
    def place(self) -> str:
        """The address at which the database server listens; empty if that is not known."""
        return "" if self._dsn is None else place_of(self._dsn)

    @property
    def wanted(self) -> bool:
        """True if the owner has set a directory for backups, and the database is known."""
        return self._directory is not None and self._dsn is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The sentences that the owner ought to read."""
        if self.fault is None:
            return ()
        made = "none" if self.latest is None else times.format_instant(self.latest)
        return (f"no backup could be made: {self.fault}; the latest one: {made}",)

    async def run_once(self) -> None:
        """Make a backup if it is time."""
        if self._directory is None or self._dsn is None:
            return
        now = self._core.clock.now()
        if now < self._not_before:
            return
        try:
            with _lock_directory(self._directory.path) as alone:
                if alone:
                    await self._back_up_if_due(self._directory, self._dsn, now)
        except ParleyError as error:
            self.fault, self._not_before = error.detail, now + RETRY
            log.warning(
                "no backup could be made", reason=error.detail, again_in_s=RETRY // times.SECOND
            )

    async def _back_up_if_due(self, directory: BackupDirectory, dsn: str, now: int) -> None:
        settings, identity = self._core.settings, self._core.identity
        self.latest = await aside(partial(directory.latest, identity), "look at backups")
        if self.latest is not None and now < self.latest + settings.backup_every:
            self.fault = None
            return
        made_at = times.format_instant(now // times.SECOND * times.SECOND)
        file = directory.new_file(identity, made_at)
        await backups.back_up(
            dsn,
            settings.state_dir,
            file,
            with_key=settings.backup_with_key,
            program=program_version(),
            now=made_at,
        )
        await aside(partial(directory.delete_older, identity), "delete backups")
        self.latest, self.fault = now, None
        log.info("made a backup", file=str(file), bytes=file.stat().st_size)


@contextlib.contextmanager
def _lock_directory(directory: Path) -> Iterator[bool]:
    """Yield whether no other process makes a backup there.

    :raises HostError: the directory cannot be opened.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        msg = f"{directory} cannot be opened: {error.strerror}; see PARLEY_BACKUP_DIRECTORY"
        raise HostError(msg) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
