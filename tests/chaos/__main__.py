"""``make chaos``: real nodes under faults, then the invariants in their tables.

With ``--boots`` it is the boots under a wrong clock (``boots.py``) in place of that.

Exit code 0 if all hold, 1 if one is violated (logs and databases are then kept), 130 if
interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from tests.chaos import boots, report
from tests.chaos.battle import fight
from tests.chaos.plan import Plan


def _arguments() -> tuple[Plan, Path | None] | None:
    """Return the plan and the file of its report; None if the boots are asked for."""
    default = Plan()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--operations", type=int, default=default.operations)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--minutes", type=float, default=default.minutes, help="at most")
    parser.add_argument("--nodes", type=int, default=default.nodes, help="3 or more")
    parser.add_argument("--clients", type=int, default=default.clients)
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write it as JSON")
    parser.add_argument(
        "--boots", action="store_true", help="boots under a wrong clock instead (20 min)"
    )
    arguments = parser.parse_args()
    if arguments.boots:
        return None
    if arguments.nodes < 3:
        parser.error(
            f"--nodes {arguments.nodes}: tasks have up to three participants; use 3 or more"
        )
    plan = Plan(
        arguments.operations,
        arguments.seed,
        arguments.minutes,
        nodes=arguments.nodes,
        clients=arguments.clients,
    )
    return plan, arguments.report


def _print(line: str) -> None:
    print(line, flush=True)


async def _main(plan: Plan, file: Path | None) -> int:
    _print(f"seed {plan.seed}: {plan.operations} operations on {plan.nodes} nodes")
    fighting = asyncio.create_task(fight(plan, _print))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, fighting.cancel)
    try:
        outcome = await fighting
    except asyncio.CancelledError:
        _print("interrupted; all nodes were removed")
        return 130
    for line in report.lines_of(outcome):
        _print(line)
    if file is not None:
        report.write(outcome, file)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    chosen = _arguments()
    sys.exit(not asyncio.run(boots.play()) if chosen is None else asyncio.run(_main(*chosen)))
