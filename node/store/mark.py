"""The mark of the database, kept in a file outside of it.

A database that is put back in its place, from a snapshot of its file system, does not know that it
has been in a later state. The file does: its mark is the later one.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from node.model import times
from node.model.errors import HostError
from node.trust.private_files import read_private, replace_private

log = structlog.get_logger()


class MarkFile:
    """A file with the latest mark of a database, an instant.

    A file that cannot be read or written is told, once, and does not matter otherwise.
    """

    def __init__(self, path: Path) -> None:
        """Use ``path``, which need not exist yet."""
        self._path = path
        self._reported = False

    def read(self) -> int | None:
        """Return the mark (µs); None if there is none."""
        try:
            content = read_private(self._path)
            return None if content is None else times.parse_instant(content.decode().strip())
        except (HostError, ValueError) as error:
            self._warn_once(error)
            return None

    def write(self, marked_at: int) -> None:
        """Replace the mark (µs)."""
        try:
            replace_private(self._path, f"{times.format_instant(marked_at)}\n".encode())
        except HostError as error:
            self._warn_once(error)

    def _warn_once(self, error: Exception) -> None:
        if not self._reported:
            log.warning(
                "the mark of the database is not kept outside of it; if its data goes back to an "
                "earlier state, only other nodes can tell",
                file=str(self._path),
                error=str(error),
            )
        self._reported = True
