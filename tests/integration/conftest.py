"""Seeds are played beside all other tests, by processes that give way: tests mostly wait.

Which tests look at them is told by their fixture ``soaked``; they come last.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.soak.seeds import BRIEF

SEEDS = {BRIEF: 2000, "pools": 40}
_GIVING_WAY = ("setpriv", "--pdeathsig", "TERM", "nice", "-n", "19")
"""And ending with whoever waits for them."""
_playing: dict[str, subprocess.Popen[str]] = {}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who looks at what is played beside comes last."""
    items.sort(key=_looks)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin."""
    if session.config.option.collectonly or not any(map(_looks, session.items)):
        return
    for scenario, seeds in SEEDS.items():
        soak = [sys.executable, "-m", "tests.soak", "--scenario", scenario, "--seeds", str(seeds)]
        _playing[scenario] = subprocess.Popen(
            [*_GIVING_WAY, *soak],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def pytest_sessionfinish() -> None:
    """Nothing goes on without a test that waits for it."""
    for playing in _playing.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(playing.pid, signal.SIGKILL)
        playing.wait()


def _looks(item: pytest.Item) -> bool:
    return "soaked" in getattr(item, "fixturenames", ())


@pytest.fixture
def soaked() -> Callable[[str], dict[str, int]]:
    """``soaked(scenario)`` waits until its seeds are played, and says how often what happened."""

    def wait(scenario: str) -> dict[str, int]:
        said, _ = _playing[scenario].communicate()
        assert _playing[scenario].returncode == 0, said
        found = re.findall(r"([\d,]+) (worlds|delivered|faults)", said)
        return {what: int(number.replace(",", "")) for number, what in found}

    return wait
