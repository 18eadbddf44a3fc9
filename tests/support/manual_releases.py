"""Releases of held programs by a clock that tests move by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from node.execution.process import RunningProcess

Clock = Callable[[], int]


def follow_manual_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Release held programs when their node's clock says so, and not when the host's does.

    The releaser is asked once the node waits for the program to begin: at the instant, or later.
    """
    release, begun = RunningProcess.release, RunningProcess.begun
    asked: dict[RunningProcess, tuple[int, int]] = {}

    def note(running: RunningProcess, now: Clock, at: int, latest: int) -> None:
        asked[running] = at, latest

    async def begin(running: RunningProcess, now: Clock, timeout_s: float) -> bool:
        release(running, now, *asked.pop(running))
        return await begun(running, now, timeout_s)

    monkeypatch.setattr(RunningProcess, "release", note)
    monkeypatch.setattr(RunningProcess, "begun", begin)
