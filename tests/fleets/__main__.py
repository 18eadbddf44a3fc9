"""``make fleets``: play simulated fleets with ten seeds, and print the worst beside its bound.

The promises are shares of pools, guarantees, and deadlines; ``leads``, the shares that the owners
of hosts give leads, is played by whole leads and nodes for four days and only if it is named.
``python -m tests.fleets shares guarantees --seeds 3`` chooses. The exit code is 1 if a bound is
broken.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from lead.simulation.fleet.report import FleetCheck
from tests.fleets.seeds import PROMISES, WHOLE, Play, Worst, played, plays, worst

_HEADINGS = ("trial", "set", "who", "worst", "bound", "seed")


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleets", description=__doc__)
    parser.add_argument("promises", nargs="*", help=", ".join([*PROMISES, *WHOLE]))
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=1000, help="runs over which shares count")
    parser.add_argument("--nodes", type=int, default=6, help="nodes of the fleet")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    if unknown := set(options.promises) - PROMISES.keys() - WHOLE.keys():
        parser.error(f"there is no promise {unknown.pop()}; use {', '.join([*PROMISES, *WHOLE])}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exiting ends the workers as well
    seeds = range(options.first, options.first + options.seeds)
    listed = plays(options.promises or PROMISES, seeds, options.runs, options.nodes)
    began = time.monotonic()
    found = worst(_told(played(listed, options.jobs), len(listed)))
    for line in table(found):
        print(line)
    broken = [it for it in found if not it.check.holds]
    print(f"\n{options.seeds} seeds, {len(broken)} bounds broken, {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


def _told(
    outcomes: Iterator[tuple[Play, list[FleetCheck]]], count: int
) -> Iterator[tuple[Play, list[FleetCheck]]]:
    """Pass on the outcomes, and write to standard error which broke a bound and how many came."""
    for number, (play, checks) in enumerate(outcomes, 1):
        for check in checks:
            if not check.holds:
                sys.stderr.write(f"\n✗ seed {play.seed}: {check.sentence}\n")
        sys.stderr.write(f"\r{number} of {count} plays")
        yield play, checks
    sys.stderr.write("\n")


def table(found: Sequence[Worst]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(_HEADINGS)} |"
    yield "|---" * len(_HEADINGS) + "|"
    for it in found:
        check = it.check
        cells = (check.trial, f"`{check.policy}`", check.who, f"{check.found:g} {check.unit}")
        yield f"| {' | '.join(cells)} | {bounds(check)} | {it.seed} |"


def bounds(check: FleetCheck) -> str:
    """Return the bounds of a check in words."""
    least = "" if check.least is None else f"≥ {check.least:g}"
    most = "" if check.most is None else f"≤ {check.most:g}"
    return ", ".join(filter(None, (least, most))) or "none"


if __name__ == "__main__":
    sys.exit(main())
