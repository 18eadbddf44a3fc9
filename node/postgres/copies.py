"""Copies of the embedded server for an account that may not read the environment it is in.

Postgres does not run as root. If root's virtual environment is in a folder that only root can enter
(``/root`` has mode 0700 on most systems), the server's account can read neither its programs
nor their libraries. They are copied once for each version to a place that everyone can read.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

PLACE = Path("/var/cache/parley/postgres")


def readable_copy(installation: Path, libraries: Path, version: str) -> Path:
    """Return a copy of a server's ``bin``, ``lib`` and ``share``; create it unless it exists.

    ``installation`` and ``libraries`` keep their relative position, because the programs look for
    the libraries there. The copy appears complete or not at all. The result is the copy of
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
        for part in filter(Path.exists, (installation, libraries)):
            target = new / part.relative_to(libraries.parent)
            shutil.copytree(part, target, symlinks=True, ignore=shutil.ignore_patterns("*.pyc"))
        _open(new)
        _move(new, whole)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return copy


def _open(top: Path) -> None:
    """Make a tree readable by everyone, regardless of the umask when it was installed."""
    top.chmod(0o755)
    for path in top.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)


def _move(new: Path, whole: Path) -> None:
    try:
        new.rename(whole)
    except OSError:
        if not whole.exists():  # otherwise another process made the same copy first
            raise
