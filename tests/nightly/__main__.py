"""``make nightly``: all long checks in small rounds, one after the other, and one table of them.

``ARGS="chaos hostile"`` chooses checks, ``ARGS=--list`` prints them with their commands, each of
which can be typed alone and made larger. What a check prints is in ``build/nightly/NAME.log``. Exit
code 0 if all that ran have passed, 1 if one failed, 130 if it was interrupted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LOGS = REPOSITORY / "build" / "nightly"
_ENDING_S = 60


@dataclass(frozen=True)
class Check:
    """A long check: the command of its small round, and the minutes after which it is ended."""

    name: str
    command: tuple[str, ...]
    minutes: int
    as_root: bool = False


def _make(*words: str) -> tuple[str, ...]:
    return ("make", "--no-print-directory", *words)


def _bare(account: str, suite: str) -> Check:
    command = ("tests/bare_machine", "--as", account, "--suite", suite)
    return Check(f"bare-{suite}-{account}", command, minutes=60, as_root=True)


CHECKS: tuple[Check, ...] = (
    Check("tests", _make("test", "ARGS=-m nightly"), minutes=40),
    Check("docs", _make("docs"), minutes=10),
    Check("soak", _make("soak", "SEEDS=300"), minutes=20),
    Check("fleets", _make("fleets", "ARGS=--seeds 1"), minutes=20),
    Check("points", _make("points", "ARGS=--every 10"), minutes=20),
    Check("chaos", _make("chaos", "ARGS=--operations 3000 --minutes 10"), minutes=30),
    Check("hostile", _make("hostile", "ARGS=--requests 5000"), minutes=15),
    Check("described", _make("described", "ARGS=--examples 2"), minutes=10),
    Check("bench", _make("bench", "ARGS=--small"), minutes=40),
    Check("beside", _make("beside"), minutes=15),
    Check("package", _make("package", "released"), minutes=20, as_root=True),
    Check("booted", _make("booted"), minutes=30, as_root=True),
    Check("playbook", _make("playbook"), minutes=30, as_root=True),
    Check("contained", _make("contained"), minutes=30, as_root=True),
    *(_bare(account, suite) for suite in ("bookworm", "trixie") for account in ("root", "user")),
)
"""All checks, in the order in which they run: ``booted`` and ``playbook`` need the package."""


@dataclass(frozen=True)
class Outcome:
    """The end of a check: ``passed``, ``failed``, or ``left out``, and its last line."""

    check: Check
    word: str
    seconds: float
    said: str


def run(check: Check, log: Path, *, is_root: bool) -> Outcome:
    """Run a check, write what it prints to a file, and return how it ended."""
    if check.as_root and not is_root:
        return Outcome(check, "left out", 0, "needs root")
    began = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            check.command,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(check.minutes * 60)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    said = f"ended after {check.minutes} minutes" if code is None else _last_line(log)
    word = "passed" if code == 0 else "failed"
    return Outcome(check, word, time.monotonic() - began, said)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End all that a check has started, if it has not ended by itself."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            continue


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "nothing was printed")


def run_all(
    checks: Sequence[Check], logs: Path, tell: Callable[[str], None], *, is_root: bool
) -> int:
    """Run checks in turn, tell a line of the table as each ends, and return the exit code."""
    logs.mkdir(parents=True, exist_ok=True)
    width = max(len(check.name) for check in checks)
    tell(f"{'check':{width}}  {'outcome':8}  seconds  last line")
    outcomes = []
    for check in checks:
        outcome = run(check, logs / f"{check.name}.log", is_root=is_root)
        outcomes.append(outcome)
        tell(f"{check.name:{width}}  {outcome.word:8}  {outcome.seconds:7.0f}  {outcome.said}")
    failed = [each.check.name for each in outcomes if each.word == "failed"]
    left_out = sum(each.word == "left out" for each in outcomes)
    passed = len(outcomes) - len(failed) - left_out
    tell(f"{passed} passed, {len(failed)} failed, {left_out} left out; logs in {logs}")
    for name in failed:
        tell(f"failed: {name}, see {logs / name}.log")
    return 1 if failed else 0


def _chosen() -> list[Check]:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CHECK")
    parser.add_argument("--list", action="store_true", help="print the checks and end")
    options = parser.parse_args()
    known = {check.name: check for check in CHECKS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"there is no check {unknown[0]}; there are {', '.join(known)}")
    chosen = [check for check in CHECKS if not options.names or check.name in options.names]
    if options.list:
        for check in chosen:
            print(f"{check.name:20} {shlex.join(check.command)}")
        sys.exit(0)
    return chosen


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(run_all(_chosen(), LOGS, _print, is_root=os.geteuid() == 0))
    except KeyboardInterrupt:
        sys.exit(130)
