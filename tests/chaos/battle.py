"""One round of chaos, from the first start to the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from node.execution.restores import PARTS_SENT_AGAIN_WITHIN
from node.runtime.clock import SystemClock
from tests.chaos.checks import REPAIR, Evidence, Promises, Times, Verdict, Violation, judge
from tests.chaos.faults import FaultInjector
from tests.chaos.plan import Plan
from tests.chaos.queries import SQL
from tests.chaos.sites import Site, Sites, running
from tests.chaos.users import Ledger, keep_busy

_PROGRESS_S = 5.0
_POLL_S = 1.0
_REPAIR_POLL_S = 10.0
_ASKED_AGAIN = timedelta(microseconds=PARTS_SENT_AGAIN_WITHIN)
_SCRATCH = "scratch"
_RETRY = timedelta(seconds=60)
"""Longest pause after which a message is sent again to a node that was away."""
_CHECKS = 3
"""Number of checks that a violation must appear in; one alone may be in the course of repair."""

_CLOCK = SystemClock()
Report = Callable[[str], None]


@dataclass
class Outcome:
    """The counts and violations of a round."""

    plan: Plan
    ledger: Ledger
    faults: Counter[str]
    seconds: float = 0.0
    took_s: float = 0.0
    settled_s: float = 0.0
    healed_at: datetime | None = None
    figures: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    logged: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, str] = field(default_factory=dict)
    """The faults that this host does not allow: how often each was left out, and why."""
    kept: Path | None = None


async def fight(plan: Plan, report: Report) -> Outcome:
    """Start the nodes, keep them busy under faults, heal them, and check their tables.

    Everything is removed afterwards, except the logs and databases after a violation.
    """
    keep: list[Path] = []
    began = time.monotonic()
    async with running(plan, keep=keep) as sites:
        report("every node knows every other one")
        injector = FaultInjector(sites, plan, random.Random(f"{plan.seed} faults"))
        outcome = Outcome(plan, Ledger(), injector.counts)
        try:
            await _under_fire(sites, injector, outcome, report)
            report("all faults are healed; waiting until the nodes settle")
            outcome.healed_at = datetime.now(UTC)
            outcome.settled_s, unsettled = await settle(sites)
            report("checking the tables")
            verdict = await _check_tables(sites, outcome, report)
        except Exception:
            keep.append(sites.work)
            report(f"broke off; logs and databases are in {sites.work}")
            raise
        outcome.figures, outcome.failures = verdict.figures, verdict.failures
        outcome.violations = sorted(verdict.violations) + unsettled + injector.violations
        outcome.logged = _logged(sites)
        outcome.left_out = {
            fault: f"{injector.left_out[fault]} times: {why}"
            for fault, why in sites.left_out.items()
        }
        outcome.took_s = time.monotonic() - began
        if outcome.violations:
            keep.append(sites.work)
            outcome.kept = sites.work
    return outcome


async def _under_fire(
    sites: Sites, injector: FaultInjector, outcome: Outcome, report: Report
) -> None:
    """Run users and faults until the operations or the time are used up; then heal."""
    began = time.monotonic()
    ledger, plan = outcome.ledger, outcome.plan
    background = [
        asyncio.create_task(injector.run(), name="faults"),
        asyncio.create_task(_progress(ledger, injector, began, report), name="progress"),
    ]
    try:
        async with asyncio.timeout(plan.minutes * 60):
            await keep_busy(sites, plan, ledger)
    except TimeoutError:
        report(f"the limit of {plan.minutes:g} minutes has passed")
    finally:
        outcome.seconds = time.monotonic() - began
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await injector.heal()


async def _progress(ledger: Ledger, injector: FaultInjector, began: float, report: Report) -> None:
    while True:
        await _CLOCK.sleep(_PROGRESS_S)
        passed = time.monotonic() - began
        report(
            f"{passed:6.0f} s  {ledger.total:7d} operations  {ledger.total / passed:6.1f}/s  "
            f"{ledger.unserved:6d} unserved  {injector.counts.total():5d} faults"
        )


async def settle(sites: Sites) -> tuple[float, list[Violation]]:
    """Wait for twice the life of a hold, and then until no node has old messages or holds left.

    A backlog of thousands is given the time it takes, as long as it becomes shorter. Return the
    seconds that it took, and the nodes that have some left all the same.
    """
    started_at, healed_at = time.monotonic(), datetime.now(UTC)
    await _CLOCK.sleep(max(2 * sites.plan.hold_life_s, sites.plan.young_s))
    shrunk_at = time.monotonic()
    least = math.inf
    unsettled: dict[str, int] = {}
    while time.monotonic() - shrunk_at < sites.plan.settle_s:
        counts = await asyncio.gather(*(_count_unsettled(site, healed_at) for site in sites.all))
        unsettled = {s.name: n for s, n in zip(sites.all, counts, strict=True) if n}
        if not unsettled:
            break
        if sum(counts) < least:
            least, shrunk_at = sum(counts), time.monotonic()
        await _CLOCK.sleep(_POLL_S)
    took = time.monotonic() - started_at
    violations = [
        Violation("at_rest", name, "", f"{count} messages or holds are left after {took:.0f} s")
        for name, count in unsettled.items()
    ]
    return took, violations


async def _count_unsettled(site: Site, healed_at: datetime) -> int:
    connection = await site.connect()
    try:
        return int(await connection.fetchval(SQL["unsaid"], _ASKED_AGAIN, healed_at))
    finally:
        await connection.close()


async def _check_tables(sites: Sites, outcome: Outcome, report: Report) -> Verdict:
    """Return the violations that persist over several checks, and beyond the time for repairs.

    That time begins anew whenever there are fewer of them.
    """
    plan, ledger = sites.plan, outcome.ledger
    promises = Promises(ledger.posted, ledger.ended_tasks, ledger.ended_runs)
    nodes = {site.name: Evidence(site.dsn, site.results) for site in sites.all}
    assert outcome.healed_at is not None
    times = Times(
        hold_life=timedelta(seconds=plan.hold_life_s),
        told=timedelta(seconds=max(plan.outage_s_max, plan.hang_s[1])) + _RETRY,
        asking=timedelta() if plan.wait_for_repairs else REPAIR,
        healed_at=outcome.healed_at,
        restored=[(it.node, it.dumped_at, it.restored_at) for it in sites.restored],
        stepped=[(it.node, it.began, it.ended, it.right_at) for it in sites.stepped],
        troubles=[(it.one, it.other, it.began, it.ended) for it in sites.troubles],
    )
    time_for_repairs = REPAIR if plan.wait_for_repairs else timedelta()
    repaired_at = datetime.now(UTC) + time_for_repairs
    least = math.inf
    cluster = sites.all[0].server.cluster
    await cluster.create_database(_SCRATCH)
    latest: Verdict | None = None
    for number in itertools.count(1):
        verdict = await judge(nodes, cluster.dsn(_SCRATCH), promises, times)
        persistent = verdict.violations & (latest or verdict).violations
        latest = Verdict(persistent, verdict.figures, verdict.failures)
        if len(persistent) < least:
            least, repaired_at = len(persistent), datetime.now(UTC) + time_for_repairs
        repairing = datetime.now(UTC) < repaired_at
        if not persistent or (number >= _CHECKS and not repairing):
            break
        if repairing:
            counts = Counter(violation.check for violation in persistent)
            named = ", ".join(f"{count} of {check}" for check, count in sorted(counts.items()))
            report(f"to be repaired: {named}")
        await _CLOCK.sleep(_REPAIR_POLL_S if repairing else 2 * plan.hold_life_s / _CHECKS)
    assert latest is not None
    return latest


def _logged(sites: Sites) -> Counter[str]:
    """Count the exceptions that the processes logged, by their last lines.

    Messages of a library (``by``) whose database was killed do not count.
    """
    counts: Counter[str] = Counter()
    for path in (service.log for site in sites.all for service in site.services):
        with contextlib.suppress(FileNotFoundError), path.open(errors="replace") as lines:
            for line in lines:
                if '"exception"' in line and '"by": "' not in line:
                    counts[line.rstrip()[-200:]] += 1
    return counts
