"""The meshes that a node follows: a file for each in its state directory, and a lock."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from node.model import times
from node.model.errors import Conflict, HostError, NotFound
from node.trust.private_files import prepare_directory, read_private, replace_private

INTERVAL = times.HOUR
_SOON = 5 * times.MINUTE
_SERVING = ".serving"
_NODE = "node"
TOKEN = "token"  # noqa: S105 - the name of a file
"""The file of the token of the service that follows, which has the role ``operate``."""


@dataclass(frozen=True)
class FollowOutcome:
    """The outcome of a pass: a word, a sentence, and what led to it.

    ``at`` is an instant in µs, ``digest`` that of the mesh file that was applied last, ``drift``
    what somebody else had changed since, ``omissions`` what the file has not of its template.
    """

    at: int
    word: str
    sentence: str
    digest: str | None = None
    drift: tuple[str, ...] = ()
    omissions: int = 0

    @property
    def was_carried_out(self) -> bool:
        """Return whether the tasks were made as the file says."""
        return self.word in {"in step", "changed"}


@dataclass(frozen=True)
class FollowedMesh:
    """A published mesh that this node follows. ``whole``: all of it, not only this node's part."""

    name: str
    source: str
    interval: int = INTERVAL
    whole: bool = False
    insecure: bool = False
    named: Mapping[str, str] = field(default_factory=dict)
    last: FollowOutcome | None = None
    archives: tuple[str, ...] | None = None
    """Digests of the archives that it had when it was followed; None if that was not kept."""

    @property
    def due_at(self) -> int:
        """Return when its next pass is due; after one that failed it is soon."""
        if self.last is None:
            return 0
        pause = self.interval if self.last.was_carried_out else min(self.interval, _SOON)
        return self.last.at + pause


class FollowStore:
    """The followed meshes of one node."""

    def __init__(self, state_dir: Path) -> None:
        """Use the folder ``follows`` of the state directory, which is made if it is missing."""
        prepare_directory(state_dir)
        self.folder = state_dir / "follows"
        prepare_directory(self.folder)

    def owner(self) -> str | None:
        """Return the key of the node whose state directory this is; None if no file tells it."""
        if (kept := read_private(self.folder / _NODE)) is not None:
            return kept.decode().strip()
        from node.trust.keys import NodeKey  # loads cryptography

        key = self.folder.with_name("node.pem")
        if not key.exists() or not os.access(key, os.R_OK):  # the service may not read it
            return None
        return NodeKey.load_or_create(key).identity

    def keep_owner(self, identity: str) -> None:
        """Keep whose state directory this is, for a process that may not read the node's key."""
        if self.owner() is None or not (self.folder / _NODE).exists():
            replace_private(self.folder / _NODE, identity.encode())

    def token(self) -> str | None:
        """Return the token of the service that follows; None if none was made."""
        content = read_private(self.folder / TOKEN)
        return None if content is None else content.decode().strip()

    def meshes(self) -> list[FollowedMesh]:
        """Return all followed meshes, by name.

        :raises HostError: one of the files cannot be read.
        """
        names = sorted(path.stem for path in self.folder.glob("*.json"))
        return [self.mesh(name) for name in names]

    def mesh(self, name: str) -> FollowedMesh:
        """Return the mesh of this name.

        :raises NotFound: no mesh of this name is followed.
        """
        content = read_private(self._file(name))
        if content is None:
            raise NotFound(f"this node follows no mesh {name}; see: parley mesh follow --list")
        try:
            document = json.loads(content)
            last = document.pop("last")
            if last is not None:
                last = FollowOutcome(**{**last, "drift": tuple(last["drift"])})
            archives = document.pop("archives", None)
            kept = None if archives is None else tuple(archives)
            return FollowedMesh(**document, last=last, archives=kept)
        except (ValueError, TypeError, KeyError) as error:
            msg = f"{self._file(name)} is damaged ({error}); remove it, and follow the mesh again"
            raise HostError(msg) from None

    def has_mesh(self, name: str) -> bool:
        """Return whether a mesh of this name is followed."""
        return self._file(name).exists()

    def store(self, mesh: FollowedMesh) -> None:
        """Write the file of a mesh, whether or not it existed."""
        replace_private(self._file(mesh.name), json.dumps(asdict(mesh), indent=2).encode())

    def store_outcome(self, mesh: FollowedMesh, outcome: FollowOutcome) -> FollowedMesh:
        """Store the outcome of a pass over a mesh; return the mesh with it."""
        kept = replace(mesh, last=outcome)
        self.store(kept)
        return kept

    def remove(self, name: str) -> None:
        """Delete the files of a mesh, so that it is followed no more."""
        for path in (self._file(name), self.applied_file(name)):
            path.unlink(missing_ok=True)

    def applied_file(self, name: str) -> Path:
        """Return the file that has the mesh as it was applied last."""
        return self.folder / f"{name}.toml"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Keep others from the same mesh meanwhile.

        :raises Conflict: somebody else is at it, with the number of the process.
        """
        what = f"process {{}} is at work on mesh {name}; try again when it has finished"
        with self._lock(f"{name}.lock", what):
            yield

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Be the only one that follows the meshes of this node all the time.

        :raises Conflict: another process does.
        """
        with self._lock(_SERVING, "process {} follows the meshes of this node already"):
            yield

    @contextlib.contextmanager
    def _lock(self, name: str, sentence: str) -> Iterator[None]:
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 20).decode(errors="replace").strip() or "another"
                raise Conflict(sentence.format(owner)) from None
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(descriptor)


def as_record(mesh: FollowedMesh) -> dict[str, Any]:
    """Return a followed mesh as JSON, with written times."""
    last = mesh.last
    return {
        "name": mesh.name,
        "source": mesh.source,
        "interval": times.format_duration(mesh.interval),
        "whole": mesh.whole,
        "next_at": times.format_instant(mesh.due_at) if last is not None else None,
        "last": None
        if last is None
        else {
            **asdict(last),
            "at": times.format_instant(last.at),
            "drift": list(last.drift),
        },
    }
