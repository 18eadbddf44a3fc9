"""Thousands of simulated worlds in which everything that can break does: no promise is broken.

And what checks them is checked: programs that are broken on purpose are found.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tests.soak.seeds
from lead.simulation.scenario import named
from lead.simulation.world import simulate
from tests.soak.seeds import played
from tests.soak.variants import VARIANTS, Variant

BRIEF = str(Path(tests.soak.seeds.__file__).with_name("brief.toml"))
SEEDS = 2000
SEEDS_FOR_A_VARIANT = 60
SEEDS_OF_POOLS = 40


@pytest.mark.timeout(900)
def test_no_seed_breaks_a_promise() -> None:
    """Crashes at any await, losses, duplicates, cuts, wrong clocks: all promises hold."""
    broken = []
    delivered = faults = 0
    for outcome in played(BRIEF, range(1, SEEDS + 1), os.cpu_count() or 1):
        delivered += outcome.counts["delivered"]
        faults += outcome.counts["faults"]
        if outcome.violations:
            broken.append(f"--seed {outcome.seed}: {outcome.violations[0]}")
    assert broken == []
    assert delivered > 5 * SEEDS
    assert faults > 5 * SEEDS


@pytest.mark.timeout(300)
def test_no_seed_breaks_a_promise_of_a_pool() -> None:
    """Seats are given, lost and given anew while everything breaks that can."""
    outcomes = list(played("pools", range(1, SEEDS_OF_POOLS + 1), os.cpu_count() or 1))
    assert [f"--seed {it.seed}: {it.violations[0]}" for it in outcomes if it.violations] == []
    assert sum(outcome.counts["delivered"] for outcome in outcomes) > 50 * SEEDS_OF_POOLS


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
