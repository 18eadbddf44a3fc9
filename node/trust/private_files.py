"""Files that only the service may read: keys and tokens.

They are written under another name and renamed in one step, so that a crash leaves the old file,
the new one, or none, but never a partial one.
"""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from node.model.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER_ONLY = 0o600
_GROUP_OR_OTHERS = 0o077
_LARGEST = 65_536


def read_private(path: Path) -> bytes | None:
    """Return the content of the file, or ``None`` if there is no such file.

    :raises HostError: it cannot be read, or others than its owner may read it.
    """
    try:
        with open_own(path, os.O_RDONLY, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & _GROUP_OR_OTHERS:
                raise HostError(_exposed_message(path, mode))
            return file.read(_LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise HostError(msg) from error


def open_own(path: Path, flags: int, mode: str) -> IO[bytes]:
    """Open a file that exists, but by no link of somebody else, and nothing that is no file.

    Another account could have root read or write what is not that account's. ``flags`` are those
    of :func:`os.open`.

    :raises HostError: it is such a link, or no file.
    """
    # Without O_NONBLOCK, opening a pipe in place of the file would block forever.
    flags |= os.O_NONBLOCK
    try:
        file = _open(path, flags | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        refuse_foreign_link(path)
        file = _open(path, flags, mode)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        msg = f"{path} is not a file"
        raise HostError(msg)
    return file


def refuse_foreign_link(path: Path) -> None:
    """Refuse a link that neither root nor this account has made.

    :raises HostError: it is one.
    """
    if path.is_symlink() and path.lstat().st_uid not in {0, os.geteuid()}:
        msg = f"{path} is a link of another account; remove it, and put there what it leads to"
        raise HostError(msg)


def create_private(path: Path, content: bytes) -> bool:
    """Write the file with mode 0600 unless it exists; return whether it was written.

    :raises HostError: it cannot be written.
    """
    try:
        with _finished_copy(path, content) as copy:
            path.hardlink_to(copy)
    except FileExistsError:
        return False
    except OSError as error:
        raise HostError(_unwritable_message(path, error)) from error
    return True


def replace_private(path: Path, content: bytes) -> None:
    """Write the file with mode 0600, and replace an existing one.

    :raises HostError: it cannot be written.
    """
    try:
        with _finished_copy(path, content) as copy:
            copy.replace(path)
    except OSError as error:
        raise HostError(_unwritable_message(path, error)) from error


@contextmanager
def _finished_copy(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a complete temporary file beside ``path``, and remove its name afterwards."""
    copy = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with _open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, "wb") as file:
            os.fchmod(file.fileno(), OWNER_ONLY)  # regardless of the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield copy
    finally:
        copy.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _open(path: Path, flags: int, mode: str) -> IO[bytes]:
    """Open the file; ``flags`` are those of :func:`os.open`."""

    def opener(name: str, _: int) -> int:
        return os.open(name, flags, OWNER_ONLY)

    return open(path, mode, opener=opener)  # Path.open takes no opener


def _exposed_message(path: Path, mode: int) -> str:
    return (
        f"{path} is open to other users of this host (mode {stat.S_IMODE(mode):04o}), who could "
        f"then impersonate this node: chmod 600 {shlex.quote(str(path))}"
    )


def _unwritable_message(path: Path, error: OSError) -> str:
    return f"{path} cannot be written: {error.strerror}"


def prepare_directory(path: Path) -> None:
    """Create the state directory, readable only by its owner.

    Root's directory can be entered by others, who find nothing readable in it: the private Postgres
    does not run as root and must reach its own directory.

    :raises HostError: it cannot be created.
    """
    try:
        path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{path} cannot be created: {error.strerror}; choose another with --state-dir"
        raise HostError(msg) from error
