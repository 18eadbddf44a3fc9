"""``make soak``: simulate many worlds with faults, seed by seed, until one breaks a promise.

``python -m tests.soak --seeds 10000`` runs all seeds, prints the counts, and lists the seeds that
failed with the command that replays each of them. The exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

from tests.soak.seeds import BRIEF, Outcome, played


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="number of worlds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--scenario", default=BRIEF, help="a name or a file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--failures", type=int, default=5, help="stop after this many failures")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exiting ends the workers as well
    began, done, failed = time.monotonic(), 0, list[Outcome]()
    counts = {"promised": 0, "delivered": 0, "messages": 0, "faults": 0}
    seeds = range(options.first, options.first + options.seeds)
    for outcome in played(options.scenario, seeds, options.jobs):
        done += 1
        for what in counts:
            counts[what] += outcome.counts[what]
        if outcome.violations:
            failed.append(outcome)
            print(f"\n✗ seed {outcome.seed}: {outcome.violations[0]}")
            print(f"  replay with: parley simulate {options.scenario} --seed {outcome.seed}")
        elif sys.stderr.isatty():
            rate = done / (time.monotonic() - began)
            sys.stderr.write(f"\r{done:,} worlds, {rate:.1f} a second, {len(failed)} failed ")
        if len(failed) >= options.failures:
            break
    totals = ", ".join(f"{number:,} {what}" for what, number in counts.items())
    print(f"\n{done:,} worlds, {totals}, {len(failed)} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
