"""Thousands of simulated worlds in which everything that can break does: no promise is broken.

And what checks them is checked: programs that are broken on purpose are found.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from lead.simulation.scenario import named
from lead.simulation.world import simulate
from tests.soak.seeds import BRIEF
from tests.soak.variants import VARIANTS, Variant

SEEDS_FOR_A_VARIANT = 60
_CHUNK = 500
_GIVING_WAY = ("setpriv", "--pdeathsig", "KILL", "nice", "-n", "19")
"""What measures time runs beside it."""


def played(scenario: str, first: int, seeds: int) -> dict[str, int]:
    """How often what happened in these worlds, none of which may break a promise."""
    asked = ["--scenario", scenario, "--first", str(first), "--seeds", str(seeds)]
    soak = [*_GIVING_WAY, sys.executable, "-m", "tests.soak", *asked]
    done = subprocess.run(soak, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"([\d,]+) (worlds|delivered|faults)", done.stdout)
    return {what: int(number.replace(",", "")) for number, what in found}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1, 2001, _CHUNK))
def test_no_seed_breaks_a_promise(first: int) -> None:
    """Crashes at any await, losses, duplicates, cuts, wrong clocks: all promises hold."""
    counts = played(BRIEF, first, _CHUNK)
    assert counts["worlds"] == _CHUNK
    assert counts["delivered"] > 5 * counts["worlds"]
    assert counts["faults"] > 5 * counts["worlds"]


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_promise_of_a_pool() -> None:
    """Seats are given, lost and given anew while everything breaks that can."""
    counts = played("pools", 1, 40)
    assert counts["worlds"] == 40
    assert counts["delivered"] > 50 * counts["worlds"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_broken_program_is_found(variant: Variant) -> None:
    """Within a few dozen seeds, and by the words that fit."""
    brief = named(BRIEF)
    faults = brief.faults.model_copy(update=variant.faults or {})
    said: list[str] = []
    with variant.patched():
        for seed in range(1, SEEDS_FOR_A_VARIANT + 1):
            world = brief.model_copy(update={"seed": seed, "faults": faults})
            said += simulate(world, broken=variant.broken).violations
            if any(variant.says in violation for violation in said):
                return
    pytest.fail(f"{variant.name} was not found by {SEEDS_FOR_A_VARIANT} seeds; said was {said}")
