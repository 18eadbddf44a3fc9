"""The history of figures: what was measured, at which commit, on which machine.

A figure is compared with the last one of its name on a machine of the same kind: on others it says
nothing. The file is part of the repository, so that whoever makes something slower sees it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from node.model.times import format_instant
from node.runtime.clock import SystemClock
from tests.bench.figures import Figure

FILE = Path(__file__).with_name("history.jsonl")


@dataclass(frozen=True)
class Machine:
    """The machine on which figures were measured: they depend on it, besides the program."""

    processor: str
    cores: int
    python: str
    load: float
    """The load average of a minute before the benchmark began."""

    @property
    def kind(self) -> tuple[str, int, str]:
        """The values that two machines have in common if their figures are compared."""
        return self.processor, self.cores, self.python


@dataclass(frozen=True)
class Entry:
    """The figures of one run of the program, by name."""

    at: str
    commit: str
    machine: Machine
    figures: dict[str, float]


def this_machine() -> Machine:
    """Return the machine that this program runs on."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Machine(
        processor=models[0] if models else platform.machine(),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        load=round(os.getloadavg()[0], 2),
    )


def this_commit() -> str:
    """Return the commit of the checkout, with a + if something in it is not committed."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=FILE.parent,
        check=False,
        capture_output=True,
        text=True,
    )
    return described.stdout.strip() or "unknown"


def read(file: Path = FILE) -> list[Entry]:
    """Return the entries of a history, the oldest first."""
    if not file.exists():
        return []
    return [_entry(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def _entry(document: dict[str, Any]) -> Entry:
    return Entry(**{**document, "machine": Machine(**document["machine"])})


def keep(machine: Machine, figures: Sequence[Figure], file: Path = FILE) -> None:
    """Append the figures of a run to a history."""
    values = {figure.name: round(figure.value, 4) for figure in figures}
    entry = Entry(format_instant(SystemClock().now()), this_commit(), machine, values)
    with file.open("a", encoding="utf-8") as history:
        history.write(json.dumps(asdict(entry)) + "\n")


def ratio(figure: Figure, machine: Machine, history: Sequence[Entry]) -> str:
    """Return a figure over the last one of its name on such a machine, in words. Pure."""
    for entry in reversed(history):
        before = entry.figures.get(figure.name)
        if before is not None and entry.machine.kind == machine.kind:
            if not before:
                return f"({before:g} at {entry.commit})"
            return f"({figure.value / before:.2f} of {entry.commit})"
    return "(first on such a machine)"
