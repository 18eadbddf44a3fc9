"""The mark of the database, kept in a file outside of it, and the marks of its host.

A database that is put back in its place, from a snapshot of its file system, does not know that it
has been in a later state. The file does: its mark is the later one. Nor does a database whose files
were copied to another host, or whose host was cloned, know that there are two of it: the marks of
the host say so.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

import structlog

from node.model import times
from node.model.errors import HostError
from node.trust.private_files import read_private, replace_private

log = structlog.get_logger()


@dataclass(frozen=True)
class HostMarks:
    """Digests of what hosts differ in: their machine id, network cards, and state directory.

    A clone may have the machine id and the directory of its original, but not its network cards; a
    copy on the same host has another directory. One that has all of it is found by other nodes.
    """

    machine: str
    cards: frozenset[str]
    directory: frozenset[str]

    @classmethod
    def of(cls, directory: Path) -> HostMarks:
        """Return those of this host, for a node with this state directory."""
        try:
            machine = Path("/etc/machine-id").read_text("ascii").strip()
        except (OSError, ValueError):
            machine = ""
        inode = str(directory.stat().st_ino)
        where = {_digest("path", str(directory.resolve())), _digest("inode", inode)}
        return cls(_digest("machine", machine), frozenset(_cards()), frozenset(where))

    def __str__(self) -> str:
        """Return them as they are stored."""
        sets = (" ".join(sorted(each)) for each in (self.cards, self.directory))
        return "/".join((self.machine, *sets))

    def are_those_of(self, stored: str | None) -> bool:
        """Return whether stored ones are of the same host, as far as they are known."""
        if stored is None:
            return True
        machine, cards, directory = stored.split("/")
        known = frozenset(cards.split())
        same_cards = not known or not self.cards or bool(known & self.cards)
        same_directory = bool(self.directory & frozenset(directory.split()))
        return machine == self.machine and same_cards and same_directory


def _cards(devices: Path = Path("/sys/class/net")) -> set[str]:
    """Return digests of the addresses that network cards have for good, none that was made up."""
    cards = set()
    for device in devices.glob("*/device"):
        card = device.parent
        try:
            if (card / "addr_assign_type").read_text("ascii").strip() == "0":
                cards.add(_digest("card", (card / "address").read_text("ascii").strip()))
        except (OSError, ValueError):
            continue
    return cards


def _digest(kind: str, value: str) -> str:
    """Return a digest that does not show the value, as systemd asks for machine ids."""
    return hmac.new(f"parley {kind}".encode(), value.encode(), hashlib.sha256).hexdigest()[:32]


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
