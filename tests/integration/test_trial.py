"""A trial of a run on this host alone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence

import pytest

from node.execution import trial
from node.model.errors import HostError


def test_a_trial_gives_ports_in_a_row_and_none_twice() -> None:
    """Each participant has as many ports as its tool needs, and can listen on all of them."""
    taken: set[int] = set()
    given = [trial.ports_for(count, taken) for count in (4, 4, 1, 0)]
    assert [one.get("ports") for one in given] == [4, 4, None, None]
    rows = [range(one["port"], one["port"] + one.get("ports", 1)) for one in given[:3]]
    assert sorted(port for row in rows for port in row) == sorted(taken)
    assert len(taken) == 9


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_row_with_a_port_of_others_is_passed_over(
    kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row with a port that is in use, for TCP or UDP, is skipped."""
    with socket.socket(type=kind) as others:
        others.bind((trial.LOOPBACK, 0))
        theirs = others.getsockname()[1]
        drawn = _drawn([theirs - 1, trial._free_port()], trial._free_port)
        monkeypatch.setattr(trial, "_free_port", lambda: next(drawn))
        taken: set[int] = set()
        assert trial.ports_for(2, taken)["port"] != theirs - 1
        assert theirs not in taken


def test_where_there_is_no_row_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no row is free, the error says so."""
    monkeypatch.setattr(trial, "_free_port", lambda: 65_535)
    with pytest.raises(HostError, match="no 2 ports in a row are free"):
        trial.ports_for(2, set())


def _drawn(first: Sequence[int], real: Callable[[], int]) -> Iterator[int]:
    """Return these ports, then those of the kernel."""
    yield from first
    while True:
        yield real()
