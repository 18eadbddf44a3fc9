"""One round of chaos from the first start to the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from node.clock import SystemClock
from tests.chaos.checks import Promises, Verdict, Violation, judge
from tests.chaos.faults import Monkey
from tests.chaos.plan import Plan
from tests.chaos.queries import SQL
from tests.chaos.sites import Site, Sites, running
from tests.chaos.users import Ledger, keep_busy

_TELL_S = 5.0
_LOOK_S = 1.0
_LOOKS = 3
"""What breaks an invariant in so many looks is broken; in one, it may have been on its way."""

_CLOCK = SystemClock()
Tell = Callable[[str], None]


@dataclass
class Outcome:
    """What happened, and what was found."""

    plan: Plan
    ledger: Ledger
    faults: Counter[str]
    seconds: float = 0.0
    settled_s: float = 0.0
    figures: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    logged: Counter[str] = field(default_factory=Counter)
    kept: Path | None = None


async def fight(plan: Plan, tell: Tell) -> Outcome:
    """Start the nodes, keep them busy under fire, heal them, and look at what they have.

    Nothing is left of them but, after a violation, the directory with logs and databases.
    """
    keep: list[Path] = []
    async with running(plan, keep=keep) as sites:
        tell("every node knows every other one")
        monkey = Monkey(sites, plan, random.Random(f"{plan.seed} faults"))
        outcome = Outcome(plan, Ledger(), monkey.counts)
        await _under_fire(sites, monkey, outcome, tell)
        tell("all is healed; waiting until nothing is left to say")
        outcome.settled_s, restless = await _settle(sites)
        tell("looking at the tables")
        verdict = await _look(sites, outcome.ledger)
        outcome.figures = verdict.figures
        outcome.violations = sorted(verdict.violations) + restless
        outcome.logged = _logged(sites)
        if outcome.violations:
            keep.append(sites.work)
            outcome.kept = sites.work
    return outcome


async def _under_fire(sites: Sites, monkey: Monkey, outcome: Outcome, tell: Tell) -> None:
    """Users and faults at once, until enough was asked or the time is over; then heal."""
    began = time.monotonic()
    ledger, plan = outcome.ledger, outcome.plan
    beside = [
        asyncio.create_task(monkey.run(), name="faults"),
        asyncio.create_task(_progress(ledger, monkey, began, tell), name="progress"),
    ]
    try:
        async with asyncio.timeout(plan.minutes * 60):
            await keep_busy(sites, plan, ledger)
    except TimeoutError:
        tell(f"{plan.minutes:g} minutes are over")
    finally:
        outcome.seconds = time.monotonic() - began
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await monkey.heal()


async def _progress(ledger: Ledger, monkey: Monkey, began: float, tell: Tell) -> None:
    while True:
        await _CLOCK.sleep(_TELL_S)
        passed = time.monotonic() - began
        tell(
            f"{passed:6.0f} s  {ledger.total:7d} operations  {ledger.total / passed:6.1f}/s  "
            f"{ledger.unserved:6d} unserved  {monkey.counts.total():5d} faults"
        )


async def _settle(sites: Sites) -> tuple[float, list[Violation]]:
    """Wait for twice the life of a hold, and then until no node has anything left to say."""
    began = time.monotonic()
    await _CLOCK.sleep(2 * sites.plan.hold_life_s)
    restless: dict[str, int] = {}
    while time.monotonic() - began < sites.plan.settle_s:
        counted = await asyncio.gather(*(_unsaid(site) for site in sites.all))
        restless = {s.name: n for s, n in zip(sites.all, counted, strict=True) if n}
        if not restless:
            break
        await _CLOCK.sleep(_LOOK_S)
    took = time.monotonic() - began
    said = [
        Violation("at_rest", name, "", f"{count} letters or holds are left after {took:.0f} s")
        for name, count in restless.items()
    ]
    return took, said


async def _unsaid(site: Site) -> int:
    connection = await site.connect()
    try:
        return int(await connection.fetchval(SQL["unsaid"]))
    finally:
        await connection.close()


async def _look(sites: Sites, ledger: Ledger) -> Verdict:
    """What breaks an invariant and still does when one looks again."""
    court = sites.all[0].cluster
    promises = Promises(
        {task: name for task, (name, _) in ledger.posted.items()},
        ledger.ended_tasks,
        ledger.ended_runs,
    )
    nodes = {site.name: site.dsn for site in sites.all}
    found: Verdict | None = None
    for look in range(_LOOKS):
        name = f"court_{look}"
        await court.create_database(name)
        verdict = await judge(nodes, court.dsn(name), promises, sites.plan.hold_life_s)
        lasting = verdict.violations & (found or verdict).violations
        found = Verdict(lasting, verdict.figures)
        if not lasting:
            break
        await _CLOCK.sleep(2 * sites.plan.hold_life_s / _LOOKS)
    assert found is not None
    return found


def _logged(sites: Sites) -> Counter[str]:
    """What the processes logged as a fault of their own, by its last line.

    What a library says (``by``) while its database is killed is not.
    """
    found: Counter[str] = Counter()
    for path in (log for site in sites.all for log in site.log_files):
        with contextlib.suppress(FileNotFoundError), path.open(errors="replace") as lines:
            for line in lines:
                if '"exception"' in line and '"by": "' not in line:
                    found[line.rstrip()[-200:]] += 1
    return found
