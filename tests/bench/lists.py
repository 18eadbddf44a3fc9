"""The speed at which a mesh file becomes tasks, through the command that operators type."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

from node.execution import process
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet

MEASURES = 1_000
HOSTS = 1_000
MANY = 27
"""Entries of the largest file: three nodes measure a thousand hosts each, 81,000 tasks."""

_HEAD = """
name = "bench"

[groups]
all = { match = {} }

world = { hosts = [%s] }

[tests.rtt]
type = "rtt"
spec = { count = 1 }

[tests.delay]
type = "latency"
spec = { count = 1 }

[schedules.daily]
repeat = "P1D"
"""
_MEASURE = """
[[measure]]
name = "m%d"
shape = "full-mesh"
members = "all"
test = "%s"
schedule = "daily"
"""

_OUTSIDE = """
[[measure]]
name = "m%d"
shape = "pairs"
pairs = [["all", "world"]]
direction = "one"
test = "%s"
schedule = "daily"
"""

_CREATED_PER_S = """
SELECT count(*) / extract(EPOCH FROM max(created_at) - min(created_at)) FROM task
"""


async def lists(fleet: Fleet) -> list[Figure]:
    """Measure ``mesh_apply_*``: tasks per second of files with few and with many tasks.

    Those with ``_alone`` are without the outlook, which asks for a pair of each entry first.
    """
    inside = MEASURES * 6
    return [
        *await _applied(fleet, "mesh_apply_one", _MEASURE, "rtt", MEASURES, inside),
        *await _applied(fleet, "mesh_apply_two", _MEASURE, "delay", MEASURES, inside),
        *await _applied(fleet, "mesh_apply_many", _OUTSIDE, "rtt", MANY, MANY * 3 * HOSTS),
    ]


async def _applied(
    fleet: Fleet, name: str, entry: str, test: str, entries: int, expected: int
) -> list[Figure]:
    node = fleet.node(fleet.names[0])
    hosts = ", ".join(f'"11.0.{n // 250}.{n % 250 + 1}"' for n in range(HOSTS))
    text = _HEAD % hosts + "".join(entry % (number, test) for number in range(entries))
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "bench.toml"
        file.write_text(text)
        script = "from node.cli.main import main; main()"
        ask = ("--server", node.url, "--token", node.token)
        began = time.monotonic()
        done = await process.finish(
            [sys.executable, "-c", script, *ask, "mesh", "apply", str(file)],
            timeout_s=1800,
        )
        seconds = time.monotonic() - began
    printed = done.stdout.decode() + done.stderr.decode()
    made = re.search(r"\"created\": (\d+)|(\d+) created", printed)
    assert made is not None, printed[:2000]
    created = int(made.group(1) or made.group(2))
    assert created == expected, printed[:2000]
    alone = float(await fleet.value(fleet.names[0], _CREATED_PER_S))
    await fleet.cancel_all()
    how = f"parley mesh apply of {created} {test} tasks of three nodes"
    return [
        Figure(name, created / seconds, "1/s", how),
        Figure(f"{name}_alone", alone, "1/s", f"{how}, from the first to the last creation"),
    ]
