"""Copies of the embedded server for an account that may not read the environment it is in.

Postgres does not run as root. When root's virtual environment lies in a folder that is root's alone
(``/root`` has mode 0700 on most systems), the account that runs the server can read neither its
programs nor their libraries. They are copied once for each version to a place everyone can read.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

PLACE = Path("/var/cache/parley/postgres")


def readable_copy(installation: Path, libraries: Path, version: str) -> Path:
    """A copy of a server's ``bin``, ``lib`` and ``share``, made unless it is there already.

    ``installation`` and ``libraries`` keep their place relative to each other, because the programs
    look for the libraries there. The copy appears complete or not at all. Returns the copy of
    ``installation``.

    :raises OSError: the copy cannot be written.
    """
    whole = PLACE / f"{version}-{installation.name}"
    copy = whole / installation.relative_to(libraries.parent)
    if copy.exists():
        return copy
    for folder in (PLACE.parent, PLACE):
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
    new = Path(tempfile.mkdtemp(prefix="new-", dir=PLACE))
    try:
        for part in (installation, libraries):
            target = new / part.relative_to(libraries.parent)
            shutil.copytree(part, target, symlinks=True, ignore=shutil.ignore_patterns("*.pyc"))
        _open(new)
        _move(new, whole)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return copy


def _open(top: Path) -> None:
    """Let everyone read a tree, whatever the umask was when it was installed."""
    top.chmod(0o755)
    for path in top.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)


def _move(new: Path, whole: Path) -> None:
    try:
        new.rename(whole)
    except OSError:
        if not whole.exists():  # otherwise another process was quicker, with the same copy
            raise
