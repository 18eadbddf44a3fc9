"""The account of a node that root starts with ``parley up``: root prepares it, and becomes it.

What only root can do comes first: making the account, handing it the files of the node, and
starting the program that runs the tools, which are to have another account again. If something is
in the way, the node stays root and says why, unless the account was asked for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from node.execution import confinement, process
from node.execution.tool_runner import OwnRunner, program_places, start_runner
from node.execution.tool_runner_program import as_account, obstacle_to
from node.execution.tool_terms import Account
from node.model.contexts import ContextKind
from node.model.errors import HostError
from node.runtime.settings import ACCOUNT, TOOL_ACCOUNT, Settings
from node.trust.private_files import open_own, prepare_directory

log = structlog.get_logger()

_MADE_HERE: Final = frozenset({ACCOUNT, TOOL_ACCOUNT})
"""Accounts that are made if they do not exist; other ones are somebody's choice."""
_PORTS_OF_ROOT: Final = 1024
_POSTGRES: Final = "postgres"
_OWN_FOLDERS: Final = frozenset({_POSTGRES, "follows"})
"""The folders that Parley makes in a state directory: private Postgres, and followed meshes."""
_USERADD_S: Final = 30


def give_up_root(settings: Settings) -> tuple[Settings, OwnRunner | None]:
    """Become the node's account if this process is root; call it before there are threads.

    Return the settings with absolute paths, and the runner that was started before; None if this
    process is not root, or stays root, for a reason that a warning has.

    :raises HostError: the account was asked for, and cannot be used.
    """
    if os.geteuid() != 0 or settings.account == "root":
        return settings, None
    demanded = "account" in settings.model_fields_set
    settings = _with_absolute_paths(settings)
    try:
        account = _account(settings)
        _check_permissions(settings, account)
        hand_over(settings.state_dir, account)
        runner = start_runner(settings)
    except HostError as fault:
        if demanded:
            raise
        log.warning("this node stays root", reason=fault.detail)
        return settings, None
    _become(settings, account)
    return settings, runner


@contextlib.contextmanager
def acting_for(settings: Settings) -> Iterator[str | None]:
    """Have the permissions and the home of the services' account meanwhile, and yield its name.

    Yield None, and change nothing, if this process is not root, or the state directory is root's.
    In a directory of another account root would follow whatever links that account has put there.
    """
    if os.geteuid() != 0 or not settings.state_dir.is_dir():
        yield None
        return
    owner = settings.state_dir.stat()
    if owner.st_uid == 0:
        yield None
        return
    try:
        name = pwd.getpwuid(owner.st_uid).pw_name
    except KeyError:
        raise HostError(
            f"{settings.state_dir} belongs to the user id {owner.st_uid}, which has no account "
            "here; change its owner with chown, or make the account with useradd"
        ) from None
    before = dict(os.environ)
    _take_environment(name, settings.state_dir.absolute())
    os.environ.setdefault("PGUSER", name)  # clients of Postgres would take the real user's name
    try:
        with as_account((owner.st_uid, owner.st_gid)):
            yield name
    finally:
        os.environ.clear()
        os.environ.update(before)


def _with_absolute_paths(settings: Settings) -> Settings:
    names = ("state_dir", "limits", "tls_cert", "tls_key", "tool_socket")
    paths = {name: path for name in names if (path := getattr(settings, name)) is not None}
    return settings.model_copy(update={name: path.absolute() for name, path in paths.items()})


def _account(settings: Settings) -> Account:
    """Return the account, after making it and that of the tools if they do not exist."""
    for name in (settings.tool_account, settings.account):
        if name in _MADE_HERE and not _account_exists(name):
            _make_account(name, settings.state_dir if name == settings.account else Path("/"))
    try:
        entry = pwd.getpwnam(settings.account)
    except KeyError:
        raise HostError(
            f"there is no account {settings.account}; make it: useradd --system {settings.account}"
        ) from None
    if entry.pw_uid == 0:
        raise HostError(f"the account {settings.account} is root; name another one, or root")
    return entry.pw_uid, entry.pw_gid


def _account_exists(name: str) -> bool:
    with contextlib.suppress(KeyError):
        pwd.getpwnam(name)
        return True
    return False


def _make_account(name: str, home: Path) -> None:
    argv = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", str(home)]
    argv += ["--shell", shutil.which("nologin") or "/usr/sbin/nologin", "--", name]
    finished = process.run(argv, timeout_s=_USERADD_S, cwd=Path("/"))
    if finished.exit_code == 0:
        log.info("made a system account", account=name)
    elif not _account_exists(name):
        raise HostError(
            f"the account {name} could not be made: {process.tail(finished.stderr, 1)}; make it: "
            f"useradd --system {name}"
        )


def _check_permissions(settings: Settings, account: Account) -> None:
    """Check that an account can do what a node does.

    :raises HostError: it cannot; the message says what is in the way, and what to do.
    """
    prepare_directory(settings.state_dir)
    _check_own(settings.state_dir)
    readable = [it for it in (settings.limits, settings.tls_cert, settings.tls_key) if it]
    refused = _first_refused_path(
        account,
        [
            (settings.state_dir, os.X_OK),
            *((path, os.R_OK) for path in readable if path.exists()),
            *((path, os.W_OK | os.X_OK) for path in settings.archive_places if path.exists()),
        ],
    )
    if refused is not None:
        raise HostError(
            f"the account {settings.account} may not use {refused}, or a directory above it; "
            f"permit it, or set PARLEY_ACCOUNT=root"
        )
    programs = [sys.executable, str(Path(__file__).parent)]
    if obstacle_to(account, programs, (), mounts=False) is None:
        return
    places = [it for it in program_places() if Path(it).is_dir()]
    mounts = confinement.separate_mounts()
    if (obstacle := obstacle_to(account, programs, places, mounts=mounts)) is not None:
        raise HostError(
            f"the account {settings.account} cannot read {obstacle}; install Parley where "
            "everybody can read it, as in /opt"
        )


def _first_refused_path(account: Account, wanted: Sequence[tuple[Path, int]]) -> Path | None:
    """Return the first path that an account may not use in this way; None if it may use all."""
    with as_account(account):
        for path, mode in wanted:
            if not os.access(path, mode, effective_ids=True):
                return path
    return None


def _check_own(state_dir: Path) -> None:
    """Check that a directory is the node's alone, so that it can change hands."""
    status = state_dir.stat()
    inside = (it.name for it in state_dir.iterdir() if it.is_dir())
    others = sorted(set(inside) - _OWN_FOLDERS)
    if others or status.st_mode & stat.S_IWOTH:
        what = f"contains other directories ({others[0]})" if others else "is everybody's"
        raise HostError(
            f"{state_dir} {what}; choose a directory of the node's own with --state-dir, or set "
            "PARLEY_ACCOUNT=root"
        )


def hand_over(state_dir: Path, account: Account) -> None:
    """Give an account the files of a node, and those of its private Postgres.

    :raises HostError: the files are in use by another service, or cannot be given.
    """
    try:
        with _locked_database(state_dir / _POSTGRES / "lock"):
            for _, folders, files, at in os.fwalk(state_dir, topdown=False):
                for name in (*folders, *files):
                    _give(name, at, account)
            os.chown(state_dir, *account)
            state_dir.chmod(0o700)
    except OSError as fault:
        raise HostError(f"{state_dir} cannot be given away: {fault.strerror}") from fault


@contextlib.contextmanager
def _locked_database(lock: Path) -> Iterator[None]:
    """Hold the lock of a private Postgres meanwhile, if there is one, so that no service has it."""
    if not os.path.lexists(lock):
        yield
        return
    with open_own(lock, os.O_RDONLY, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostError(f"the database in {lock.parent} is in use by another Parley") from None
        yield


def _give(name: str, at: int, account: Account) -> None:
    """Give an account what has this name in the directory with the descriptor ``at``.

    Nothing is followed, and a file that has a name elsewhere as well is left alone: the account
    may have put it there to get what is not its own. What was looked at is what is given, even if
    the name leads elsewhere by then.
    """
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        status = os.fstat(place)
        is_single = status.st_nlink == 1 or not stat.S_ISREG(status.st_mode)
        if status.st_uid != account[0] and is_single:
            os.chown(f"/proc/self/fd/{place}", *account)
    finally:
        os.close(place)


def _needs_port_of_root(settings: Settings) -> bool:
    facade = settings.pscheduler_address
    ports = [settings.listen_port, *([] if facade is None else [facade[1]])]
    return any(port < _PORTS_OF_ROOT for port in ports)


def _become(settings: Settings, account: Account) -> None:
    """Become the account, with no more than the capabilities that this node needs."""
    kept = {confinement.NET_BIND_SERVICE} if _needs_port_of_root(settings) else set()
    if any(it.kind is ContextKind.NAMESPACE for it in settings.allowed_contexts):
        kept |= {confinement.SYS_ADMIN, confinement.NET_RAW}
        log.warning(
            "this node keeps a capability by which it could become root again",
            capability="CAP_SYS_ADMIN",
            reason="PARLEY_CONTEXTS names network namespaces, which only this capability enters",
        )
    os.chdir("/")
    confinement.change_rights(account, kept)
    confinement.forbid_new_privileges()
    confinement.forbid_typing()
    _take_environment(settings.account, settings.state_dir)


def _take_environment(name: str, home: Path) -> None:
    """Let the environment name an account and its home, not root and root's."""
    os.environ.update(HOME=str(home), USER=name, LOGNAME=name)
    os.environ.pop("XDG_CONFIG_HOME", None)  # it follows from HOME
