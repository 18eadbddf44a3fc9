"""Deselects the tests whose needs this host lacks, and counts them in the last line of the run.

A test, a module or a parameter declares its needs with ``pytest.mark.needs("prometheus")``; a
fixture does with :func:`fixture_needs`, for all tests that use it. Names are those of
``deploy/packages.py``, which also knows the package to install, and those of ``RIGHTS``. This is
the only way to deselect a test.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from deploy.packages import NEEDS, present
from node.execution.privileges import (
    Grant,
    missing_congestion_control,
    missing_privilege,
    process_privileges,
)
from node.plugins.contracts import Privilege
from node.postgres.binaries import ServerBinaries, locate

_SYS_ADMIN = 1 << 21  # linux/capability.h
_NET_ADMIN = 1 << 12


@cache
def _root() -> bool:
    """Return whether accounts can be changed and network namespaces created.

    In many containers not even root can.
    """
    mine = process_privileges()
    return mine.root and not (_SYS_ADMIN | _NET_ADMIN) & ~mine.effective


@cache
def _echo() -> bool:
    """Return whether a program without file capabilities may send echo requests."""
    return missing_privilege("ping", Privilege.ECHO, process_privileges(), Grant()) is None


@cache
def _cubic() -> bool:
    return missing_congestion_control("cubic", process_privileges()) is None


@cache
def _icu() -> bool:
    """Return whether the server that tests start sorts texts by ICU."""
    found = locate()
    return isinstance(found, ServerBinaries) and b"ucol_open" in (
        Path(found.program("postgres")).read_bytes()
    )


RIGHTS = {
    "root": ("root's rights missing", _root),
    "echo": ("echo sockets not allowed", _echo),
    "cubic": ("TCP's cubic not allowed", _cubic),
    "icu": ("a Postgres with ICU missing", _icu),
}
"""Needs that no package provides: the reason for deselecting, and a check for each."""

_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_PASSED_ON = pytest.StashKey[Path]()
"""The file by which workers pass their counts on; it is empty until one has counted."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def fixture_needs(*names: str) -> Callable[[_Function], _Function]:
    """Declare the needs of a fixture; apply it below ``@pytest.fixture``."""

    def declare(function: _Function) -> _Function:
        function.__dict__["needs"] = names
        return function

    return declare


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    line = "needs(*names): what the host must have; without it the test is left out and counted"
    config.addinivalue_line("markers", line)
    if not hasattr(config, "workerinput"):
        descriptor, name = tempfile.mkstemp(prefix="parley-left-out-")
        os.close(descriptor)
        config.stash[_PASSED_ON] = Path(name)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Name to a worker the file that passes its counts on, also when it is interrupted."""
    node.workerinput["left_out"] = str(node.config.stash[_PASSED_ON])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that cannot run here."""
    reasons = {item: reason for item in items if (reason := _reason(_needs(item)))}
    config.stash[_LEFT_OUT] = dict(Counter(reasons.values()))
    if (given := getattr(config, "workerinput", None)) is not None and reasons:
        _write_whole(Path(given["left_out"]), json.dumps(config.stash[_LEFT_OUT]))
    if reasons:
        items[:] = [item for item in items if item not in reasons]
        config.hook.pytest_deselected(items=list(reasons))


def _write_whole(file: Path, text: str) -> None:
    """Write a file that others write, too, so that whoever reads it finds all of one text."""
    new = file.with_name(f"{file.name}-{os.getpid()}")
    new.write_text(text)
    new.replace(file)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Take the workers' counts, which are the same in all workers, in the process that prints."""
    file = session.config.stash.get(_PASSED_ON, None)
    if file is None:
        return
    text = file.read_text()
    file.unlink()
    if text:
        counts: dict[str, int] = json.loads(text)
        session.config.stash[_LEFT_OUT] = counts
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.stats["deselected"] = [SimpleNamespace() for _ in range(sum(counts.values()))]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the last line, below pytest's own, if tests were deselected."""
    counts = config.stash.get(_LEFT_OUT, {})
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if counts and reporter is not None and not hasattr(config, "workeroutput"):
        passed, failed, faulty = (len(reporter.stats.get(what, ())) for what in _OUTCOMES)
        reporter.write_line(closing(passed, failed + faulty, counts))


_OUTCOMES = ("passed", "failed", "error")


def closing(passed: int, failed: int, left_out: Mapping[str, int]) -> str:
    """Return the last line of a run.

    >>> closing(5298, 0, {"prometheus missing": 12, "jq missing": 70})
    '5,298 passed, 82 not run: jq missing (70), prometheus missing (12)'
    """
    parts = [f"{passed:,} passed", *([f"{failed:,} failed"] if failed else [])]
    reasons = ", ".join(
        f"{reason} ({number:,})" for reason, number in Counter(left_out).most_common()
    )
    return f"{', '.join(parts)}, {sum(left_out.values()):,} not run: {reasons}"


def _needs(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers("needs"):
        yield from mark.args
    definitions = getattr(item, "_fixtureinfo", None)
    for fixtures in definitions.name2fixturedefs.values() if definitions else ():
        yield from getattr(fixtures[-1].func, "needs", ())


def _reason(names: Iterable[str]) -> str | None:
    """Return why a test is deselected: its first missing need, rights before packages."""
    wanted = set(names)
    if unknown := wanted - NEEDS.keys() - RIGHTS.keys():
        raise pytest.UsageError(f"deploy/packages.py has no need called {', '.join(unknown)}")
    for name, (reason, held) in RIGHTS.items():
        if name in wanted and not held():
            return reason
    return next((f"{name} missing" for name in NEEDS if name in wanted and not present(name)), None)
