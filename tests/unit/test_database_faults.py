"""The meaning of errors of the database, in the words that callers read."""

from __future__ import annotations

import asyncpg
import pytest

from node.store.faults import FAULTS, fault_of


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError(
            "cannot switch to state 12; another operation (2) is in progress"
        ),
        asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
        asyncpg.InterfaceError("cannot call Connection.fetch(): connection has been released"),
    ],
)
def test_a_broken_connection_is_told_in_our_words(error: Exception) -> None:
    """A caller reads what happened while a server is replaced, and no state of the driver."""
    fault = fault_of(error, 8)
    assert isinstance(error, FAULTS)
    assert fault is not None
    assert fault.status == 503
    assert fault.detail == (
        "the database does not answer: its connection was broken off, "
        "as when its server ends or another one takes over"
    )
