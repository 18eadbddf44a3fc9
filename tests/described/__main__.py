"""``make described``: schemathesis asks a real node for all that its API describes.

Exit code 0 if every phase ran, and all answers were as they are described.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from node.cli.lab.supervisor import Lab
from tests.described.running import PHASES, ask


async def _main(examples: int, seed: int, only: list[str]) -> int:
    print(f"seed {seed}: up to {examples} random requests of each operation in each phase")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="parley-described-") as directory:
        async with Lab(2) as lab:
            node = lab.nodes[0]
            found = await ask(
                node.url, node.token, Path(directory), examples=examples, seed=seed, only=only
            )
    if not found.is_whole:
        print(found.text)
    for phase in PHASES:
        print(f"{phase:10} {found.phases.get(phase, 'did not run'):8} {found.sent[phase]} requests")
    took_s = time.monotonic() - began
    print(f"{found.operations} operations, {found.followed} links followed, {took_s:.0f} s")
    return 0 if found.is_whole else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.described", description=__doc__)
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", nargs="+", default=[], metavar="TAG")
    given = parser.parse_args()
    sys.exit(asyncio.run(_main(given.examples, given.seed, given.only)))
