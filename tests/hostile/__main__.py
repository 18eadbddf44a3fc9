"""``make hostile``: 21,000 hostile requests to three real nodes beside an honest user.

Exit code 0 if all promises hold, 1 if one is broken (logs are then kept), 130 if interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from tests.hostile import report
from tests.hostile.battle import attack
from tests.hostile.plan import FAMILIES, Plan


def _arguments() -> tuple[Plan, Path | None]:
    default = Plan()
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--requests", type=int, default=default.requests)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--seconds", type=float, default=default.seconds, help="at most")
    parser.add_argument("--rest", type=float, default=default.rest_s, help="seconds")
    parser.add_argument("--clients", type=int, default=default.clients)
    parser.add_argument("--drawn", type=int, default=default.drawn, help="of each operation")
    parser.add_argument(
        "--only", nargs="+", choices=FAMILIES, default=default.families, metavar="KIND",
        help=f"kinds of requests: {', '.join(FAMILIES)}",
    )  # fmt: skip
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write it as JSON")
    given = parser.parse_args()
    plan = Plan(
        given.requests,
        given.seed,
        given.seconds,
        rest_s=given.rest,
        clients=given.clients,
        families=tuple(given.only),
        drawn=given.drawn,
    )
    return plan, given.report


def _print(line: str) -> None:
    print(line, flush=True)


async def _main(plan: Plan, file: Path | None) -> int:
    _print(f"seed {plan.seed}: {plan.requests} requests to three nodes")
    attacking = asyncio.create_task(attack(plan, _print))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, attacking.cancel)
    try:
        outcome = await attacking
    except asyncio.CancelledError:
        _print("interrupted; all nodes were removed")
        return 130
    for line in report.lines_of(outcome):
        _print(line)
    if file is not None:
        report.write(outcome, file)
    return 1 if outcome.record.found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*_arguments())))
