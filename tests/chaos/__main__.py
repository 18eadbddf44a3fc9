"""``make chaos``: real nodes under fire, then the invariants in their tables."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from pathlib import Path

from node.clock import SystemClock
from tests.chaos.faults import Monkey
from tests.chaos.plan import Plan
from tests.chaos.sites import Sites, running
from tests.chaos.users import Ledger, keep_busy

_CLOCK = SystemClock()
_TELL_S = 5.0


def _arguments() -> Plan:
    default = Plan()
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--operations", type=int, default=default.operations)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--minutes", type=float, default=default.minutes)
    parser.add_argument("--clients", type=int, default=default.clients)
    given = parser.parse_args()
    return Plan(given.operations, given.seed, given.minutes, clients=given.clients)


async def _tell(ledger: Ledger, monkey: Monkey, began: float) -> None:
    """A line of progress every few seconds."""
    while True:
        await _CLOCK.sleep(_TELL_S)
        passed = time.monotonic() - began
        print(
            f"{passed:6.0f} s  {ledger.total:7d} operations  {ledger.total / passed:6.1f}/s  "
            f"{ledger.unanswered.total():6d} unanswered  {monkey.counts.total():5d} faults",
            flush=True,
        )


async def chaos(plan: Plan) -> int:
    keep: list[Path] = []
    print(f"seed {plan.seed}, {plan.operations} operations, {plan.nodes} nodes", flush=True)
    ledger = Ledger()
    async with running(plan, keep=keep) as sites:
        monkey = Monkey(sites, plan, random.Random(f"{plan.seed} faults"))
        began = time.monotonic()
        telling = asyncio.create_task(_tell(ledger, monkey, began))
        breaking = asyncio.create_task(monkey.run())
        try:
            async with asyncio.timeout(plan.minutes * 60):
                await keep_busy(sites, plan, ledger)
        except TimeoutError:
            print("time is up")
        finally:
            for task in (telling, breaking):
                task.cancel()
            await asyncio.gather(telling, breaking, return_exceptions=True)
        await monkey.heal()
        print(ledger.operations, ledger.refused, ledger.unanswered, ledger.faults, monkey.counts)
        print(sites.work)
        keep.append(sites.work)
    return 0


def main() -> int:
    plan = _arguments()
    return asyncio.run(chaos(plan))


if __name__ == "__main__":
    sys.exit(main())
