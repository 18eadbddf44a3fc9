"""``make chaos``: real nodes under faults, then the invariants in their tables.

Exit code 0 if all hold, 1 if one is violated (logs and databases are then kept), 130 if
interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Mapping

from tests.chaos.battle import Outcome, fight
from tests.chaos.checks import CHECKS
from tests.chaos.plan import Plan

_SHOWN = 20


def _arguments() -> Plan:
    default = Plan()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--operations", type=int, default=default.operations)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--minutes", type=float, default=default.minutes, help="at most")
    parser.add_argument("--nodes", type=int, default=default.nodes, help="3 or more")
    parser.add_argument("--clients", type=int, default=default.clients)
    arguments = parser.parse_args()
    if arguments.nodes < 3:
        parser.error(
            f"--nodes {arguments.nodes}: tasks have up to three participants; use 3 or more"
        )
    return Plan(
        arguments.operations,
        arguments.seed,
        arguments.minutes,
        nodes=arguments.nodes,
        clients=arguments.clients,
    )


def _print(line: str) -> None:
    print(line, flush=True)


def _table(title: str, counts: Mapping[str, int]) -> None:
    _print(f"\n{title} ({sum(counts.values())})")
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        _print(f"  {count:8d}  {name}")


def report(outcome: Outcome) -> None:
    """Print the counts and the violations."""
    ledger = outcome.ledger
    rate = ledger.total / outcome.seconds
    _table("operations answered", ledger.operations)
    _table("of these refused", ledger.refused)
    _table("requests without an answer", ledger.unanswered)
    _table("requests that a node could not serve then", ledger.unable)
    _table("faults", outcome.faults)
    _table("exceptions in the logs", outcome.logged)
    _print("\nin the tables")
    for name, count in outcome.figures.items():
        _print(f"  {count:8d}  {name}")
    _table("runs that were due and have no result", outcome.failures)
    _print(f"\nseed {outcome.plan.seed}: {ledger.total} operations in {outcome.seconds:.0f} s")
    _print(f"({rate:.1f}/s), settled {outcome.settled_s:.0f} s after the last fault")
    broken = {violation.check for violation in outcome.violations}
    for check in (name.removeprefix("checks_") for name in CHECKS):
        count = sum(violation.check == check for violation in outcome.violations)
        _print(f"  {'BROKEN' if check in broken else 'holds '}  {check:20} {count:6d}")
    for violation in outcome.violations[:_SHOWN]:
        _print(f"  {violation.check} on {violation.node}: {violation.id} {violation.what}")
    if len(outcome.violations) > _SHOWN:
        _print(f"  and {len(outcome.violations) - _SHOWN} more")
    if outcome.kept is not None:
        _print(f"logs and databases are kept in {outcome.kept}")


async def _main(plan: Plan) -> int:
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
    report(outcome)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(_arguments())))
