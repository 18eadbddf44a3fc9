"""The key of a running node: read again when another process of the node has replaced it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from node.model.errors import Conflict
from node.trust.certificates import bridge
from node.trust.keys import NodeKey
from node.trust.lineage import SUCCESSIONS_MAX
from node.trust.private_files import replace_private


class CurrentKey(Protocol):
    """A source of the key with which to sign now."""

    @property
    def current(self) -> NodeKey:
        """The key of this instant."""
        ...


class FixedKey:
    """A key that is never replaced."""

    def __init__(self, key: NodeKey) -> None:
        self.current = key


class KeyFile:
    """The file with a node's key; a look at it costs some microseconds."""

    def __init__(self, path: Path) -> None:
        """Read the file; generate a key if there is none.

        :raises HostError: the file is damaged, open to others, or cannot be read or written.
        """
        self._path = path
        self._key = NodeKey.load_or_create(path)
        self._stamp = self._look()

    @property
    def current(self) -> NodeKey:
        """The key that is in the file now."""
        stamp = self._look()
        if stamp not in (None, self._stamp):
            self._key = NodeKey.load_or_create(self._path)
            self._stamp = stamp
        return self._key

    def _look(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - for each signature, and Path takes longer
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def replace(self, now: int) -> NodeKey:
        """Put a new key into the file, to which the one before has signed its succession.

        :raises Conflict: it was replaced too often.
        :raises HostError: the file cannot be written; the key stays.
        """
        former, latter = self.current, NodeKey.generate()
        if len(former.lineage.successions) >= SUCCESSIONS_MAX:
            msg = (
                f"the key of this node was replaced {SUCCESSIONS_MAX} times, and others follow no "
                "longer chain; begin a new node instead, with an empty state directory, and have "
                "it added by the others"
            )
            raise Conflict(msg)
        key = former.succeeded_by(latter, now, bridge(former, latter.public_text))
        replace_private(self._path, key.pem)
        return self.current
