"""``make points``: kill a process at each await point of what books, and see that nothing breaks.

The points are found in the source (:mod:`tests.points.scope`). Small simulated worlds
(:mod:`tests.points.stories`) are played once without a fault, to see which points their processes
cross, and then once for each point, process and side of it (before and after what is awaited): the
process, a node's or a lead's, is killed exactly there, started again some seconds later over the
same tables, and once all has settled the invariants of the simulation are checked. The exit code is
1 if one is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence

from tests.points.campaign import Row, Trial, Verdict, as_json, rehearse, rows, trials, tried
from tests.points.scope import Point, points
from tests.points.stories import STORIES, Story


def main() -> int:
    """Run the command and return its exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exiting ends the workers as well
    chosen = [it for it in STORIES if not options.story or it.name in options.story]
    rehearsals = rehearse(chosen)
    for name, played in rehearsals.items():
        for violation in played.violations:
            print(f"✗ {name}, though nothing was killed: {violation}")
    if any(played.violations for played in rehearsals.values()):
        return 1
    every = points()
    reached = {crossing.point for played in rehearsals.values() for crossing in played.crossed}
    wanted = [
        trial
        for trial in trials(rehearsals, visits=options.visits, downs_s=options.down)
        if options.point in str(trial.crossing.point)
    ][:: options.every]
    verdicts = _tried(wanted, options.jobs, quiet=options.json)
    table = rows(every, verdicts, reached)
    unreached = [point for point in every if point not in reached]
    if options.json:
        print(json.dumps(as_json(table, verdicts, unreached), indent=2, ensure_ascii=False))
    else:
        _print(table, verdicts, unreached, chosen)
    return 1 if any(it.violations or not it.killed for it in verdicts) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.points", description=__doc__)
    parser.add_argument("--story", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--point", default="", help="only points whose place has this text")
    parser.add_argument("--visits", type=int, default=1, help="crossings tried of each point")
    parser.add_argument("--every", type=int, default=1, help="only each N-th trial")
    parser.add_argument(
        "--down", type=float, nargs="+", default=[3.0], help="seconds until the next start"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def _tried(wanted: Sequence[Trial], jobs: int, *, quiet: bool) -> list[Verdict]:
    began, verdicts = time.monotonic(), list[Verdict]()
    for verdict in tried(wanted, jobs):
        verdicts.append(verdict)
        if len(verdicts) % 100 == 0 and not quiet and not sys.stderr.isatty():
            print(f"{len(verdicts):,} of {len(wanted):,} kills", flush=True)
        if verdict.violations and not quiet:
            print(f"\n✗ {verdict.trial}")
            for violation in verdict.violations[:3]:
                print(f"  {violation}")
        elif sys.stderr.isatty():
            rate = len(verdicts) / (time.monotonic() - began)
            sys.stderr.write(f"\r{len(verdicts):,} of {len(wanted):,} kills, {rate:.1f} a second ")
    return verdicts


def _print(
    table: Sequence[Row],
    verdicts: Sequence[Verdict],
    unreached: Sequence[Point],
    chosen: Sequence[Story],
) -> None:
    whole = Row(
        "all",
        *(sum(getattr(row, it) for row in table) for it in ("points", "reached", "killed")),
        *(sum(getattr(row, it) for row in table) for it in ("trials", "broken")),
    )
    print(f"\n{'file':40}{'points':>8}{'reached':>9}{'killed':>8}{'kills':>7}{'broken':>8}")
    for row in (*table, whole):
        print(
            f"{row.file:40}{row.points:8}{row.reached:9}{row.killed:8}{row.trials:7}{row.broken:8}"
        )
    print(f"\nStories: {', '.join(it.name for it in chosen)}")
    missed = [it for it in verdicts if not it.killed]
    for verdict in missed:
        print(f"not crossed again: {verdict.trial}")
    print(f"\nReached by no story ({len(unreached)}):")
    for point in unreached:
        print(f"  {point}")


if __name__ == "__main__":
    sys.exit(main())
