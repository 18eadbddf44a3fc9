"""Steps of the commands that try an installation: programs, promises, and conditions."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from node.runtime.clock import SystemClock

_PROGRAM_S = 900


class Failed(Exception):
    """A step did not do what is promised."""


def complete(
    argv: Sequence[str | Path],
    *,
    given: str = "",
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; it gets no input unless some is given."""
    return subprocess.run(
        [str(it) for it in argv],
        check=False,
        capture_output=True,
        text=True,
        timeout=_PROGRAM_S,
        env=environment,
        input=given,
    )


def output(ended: subprocess.CompletedProcess[str], what: str) -> str:
    """Return what a program printed.

    :raises Failed: it failed.
    """
    if ended.returncode:
        said = f"{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        raise Failed(f"{what}\nfailed with {ended.returncode}:\n{said}")
    return ended.stdout


def run(*argv: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a program on this host; return its output.

    :raises Failed: it failed.
    """
    return output(complete(argv, environment=environment), " ".join(map(str, argv)))


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 90) -> None:
    """Wait for a condition.

    :raises Failed: it does not come true.
    """
    began = time.monotonic()
    while time.monotonic() - began < timeout_s:
        if condition():
            return
        asyncio.run(SystemClock().sleep(0.5))
    raise Failed(f"not within {timeout_s:.0f} s: {what}")


def require(condition: bool, what: str) -> None:  # noqa: FBT001 - like assert
    """Check a promise.

    :raises Failed: it is broken.
    """
    if not condition:
        raise Failed(f"this is not so: {what}")


def step(part: Callable[[], None], title: str | None = None) -> None:
    """Do a step, and print its title, by default its docstring, and how long it took."""
    title = title or (part.__doc__ or "").rstrip(".")
    print(f"  ..  {title}", flush=True)
    began = time.monotonic()
    try:
        part()
    except BaseException:
        print(f"FAIL  {title}")
        raise
    print(f"  ok  {title} ({time.monotonic() - began:.0f} s)", flush=True)


class Logging(Protocol):
    """A machine, or a group of containers, that a story is about."""

    def show_log(self) -> None:
        """Print the end of its log."""
        ...


def tell_story(
    parts: Iterable[Callable[[], None]], hosts: Iterable[Logging], clean_up: Callable[[], None]
) -> str | None:
    """Do the parts of a story up to the first that fails; return its error message.

    The logs of the hosts are printed then. ``clean_up`` is called in any case.
    """
    try:
        for part in parts:
            step(part)
    except Failed as fault:
        for host in hosts:
            host.show_log()
        return str(fault)
    finally:
        clean_up()
    return None
