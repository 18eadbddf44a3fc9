"""Half a minute of ``make chaos``: real nodes and databases are killed, and the invariants hold."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from node.cli.lab.nodes import module_environment
from node.execution import process
from tests.chaos.battle import fight
from tests.chaos.plan import Plan
from tests.integration.host_leftovers import nothing_left

SMALL = Plan(
    operations=1500,
    minutes=0.15,
    nodes=3,
    clients=12,
    fault_every_s=1.6,
    hold_life_s=4.0,
    lease_s=4.0,
    peer_timeout_s=1.0,
    outage_s_max=3.0,
    hang_s=(1.0, 5.0),
    host_faults=False,
    wait_for_repairs=False,
)


UNLIKE = replace(
    SMALL,
    minutes=0.5,
    hang_s=(0.5, 2.0),
    only=(
        "copy_machine",
        "clone_machine",
        "move_node",
        "damage_index",
        "use_up_ids",
        "fail_over",
    ),
    wait_for_repairs=True,
)
"""The faults of a machine and its database, each once; those of processes are in the other one."""


def _left_of(pid: int) -> list[str]:
    """Return the directories of a round of this process, and the processes that work in them."""
    name = f"parley-chaos-{pid}-"
    leftovers = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{name}*")]
    for process_directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            where = str((process_directory / "cwd").readlink())
            leftovers += [f"{process_directory} in {where}"] if name in where else []
    return leftovers


@pytest.mark.timeout(400)
@pytest.mark.nightly
async def test_the_invariants_hold_under_fire() -> None:
    """No invariant is violated, whatever is killed or cut off while users book and cancel."""
    progress: list[str] = []
    with nothing_left():
        outcome = await fight(SMALL, progress.append)
    assert outcome.violations == [], (outcome.kept, progress)
    assert _left_of(os.getpid()) == []
    assert outcome.logged.total() == 0, outcome.logged
    # On a busy host fewer operations fit into the time.
    assert outcome.ledger.total > 50
    assert outcome.faults.total() > 4
    assert outcome.figures["runs committed"] > 20


@pytest.mark.timeout(600)
@pytest.mark.nightly
async def test_the_invariants_hold_beside_a_copy_and_under_a_worn_database() -> None:
    """A copy waits for its owner's word; a damaged, worn, or lost database loses nothing."""
    progress: list[str] = []
    with nothing_left():
        outcome = await fight(UNLIKE, progress.append)
    assert outcome.violations == [], (outcome.kept, progress)
    assert _left_of(os.getpid()) == []
    assert outcome.left_out == {}
    assert outcome.faults.keys() == {
        "machine copied",
        "machine cloned",
        "node taken over by a copy",
        "index damaged",
        "transaction ids used up",
        "failed over to a standby",
    }
    assert outcome.figures["runs committed"] > 20


@pytest.mark.timeout(120)
@pytest.mark.nightly
async def test_an_interrupted_round_leaves_nothing() -> None:
    """Ctrl-C ends every process, removes every file, and gives exit code 130."""
    with nothing_left():
        few = ["--seed", "1", "--nodes", "3", "--clients", "2"]
        argv = [sys.executable, "-m", "tests.chaos", *few]
        running = await process.start(argv, env=module_environment())
        await running.wait_for_output(b" faults\n")
        assert _left_of(running.pid) != []
        running.send(signal.SIGINT)
        finished = await running.wait()
    assert finished.exit_code == 130, finished.stderr
    assert _left_of(running.pid) == []
