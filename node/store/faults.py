"""The meaning of an error of Postgres to its node: the server is away, full, or damaged.

Whatever is in :data:`FAULTS` is no fault of the program. It is told to whoever asked, with what to
do, and the same request may succeed later. A server is called damaged if it says so of its files
(SQLSTATE XX001 and XX002, or an "internal" error, which sound data never cause; class 58 for a file
that it cannot read or misses), and worn if it has no transaction ids left, which only a vacuum
gives back.
"""

from __future__ import annotations

import asyncpg

from node.model.errors import DatabaseDamaged, DatabaseUnavailable, NoRoom, reason_of

AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server ended the connection while nobody used it
    asyncpg.PostgresConnectionError,
    asyncpg.LockNotAvailableError,  # somebody has locked the table for longer than lock_timeout
    asyncpg.OperatorInterventionError,  # being shut down, or not up yet
    asyncpg.InsufficientResourcesError,  # disk full, too many connections
)
_OF_THE_DRIVER = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors of the driver, whose words ("cannot switch to state 12") help nobody who reads them."""
_DAMAGED = (asyncpg.InternalServerError, asyncpg.PostgresSystemError)
_READ_ONLY = (
    asyncpg.ReadOnlySQLTransactionError,  # after a fail-over: still the old one
    asyncpg.InsufficientPrivilegeError,  # Postgres says so, too, of a read-only file system
)
FAULTS = (*AWAY, *_DAMAGED, *_READ_ONLY, asyncpg.ProgramLimitExceededError)
"""Errors of which :func:`fault_of` says what they mean; a limit may be one of the program's own."""

_NO_IDS_LEFT = frozenset({"GetNewTransactionId", "GetNewMultiXactId"})
"""Functions of Postgres; what they say may be in any language."""


def fault_of(error: BaseException, lock_s: float) -> DatabaseUnavailable | None:
    """Return what an error means; None if it is a fault of the program.

    :param lock_s: how long a statement waits for what others have locked.
    """
    said = reason_of(error).partition("\n")[0]
    if isinstance(error, asyncpg.DiskFullError):
        return NoRoom(
            f"nothing was stored, because the disk of the database is full ({said}); "
            "make room there, then send the request again"
        )
    if isinstance(error, asyncpg.ProgramLimitExceededError):
        return _worn(error, said)
    if isinstance(error, _DAMAGED):
        is_ = "may be" if type(error) is asyncpg.InternalServerError else "is"
        return DatabaseDamaged(
            f"the database {is_} damaged: {said}. See its disk, stop the services, copy its files, "
            "then repair it with parley admin repair, or restore a backup"
        )
    if isinstance(error, _READ_ONLY):
        return DatabaseDamaged(
            f"the database takes no change: {said}. See whether its server is a standby, its file "
            "system is mounted read-only, or its role lacks a right"
        )
    if isinstance(error, asyncpg.LockNotAvailableError):
        said = f"other changes have kept locked for {lock_s:g} s what it needs"
    if isinstance(error, _OF_THE_DRIVER):
        said = "its connection was broken off, as when its server ends or another one takes over"
    return DatabaseUnavailable(f"the database does not answer: {said or reason_of(error)}")


def _worn(error: asyncpg.ProgramLimitExceededError, said: str) -> DatabaseDamaged | None:
    if error.server_source_function not in _NO_IDS_LEFT:
        return None
    return DatabaseDamaged(
        f"the database takes no change, because its transaction ids are used up: {said}. Stop "
        "the services, end what keeps old ones (prepared transactions, replication slots), then "
        "vacuum it with parley admin repair"
    )
