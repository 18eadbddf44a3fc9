"""Thousands of simulated worlds in which everything that can break does: no promise is broken.

And what checks them is checked: programs that are broken on purpose are found.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lead.simulation.scenario import named
from lead.simulation.world import simulate
from tests.soak.seeds import BRIEF
from tests.soak.variants import VARIANTS, Variant

SEEDS_FOR_A_VARIANT = 60


@pytest.mark.timeout(1200)
def test_no_seed_breaks_a_promise(soaked: Callable[[str], dict[str, int]]) -> None:
    """Crashes at any await, losses, duplicates, cuts, wrong clocks: all promises hold."""
    counts = soaked(BRIEF)
    assert counts["worlds"] == 2000
    assert counts["delivered"] > 5 * counts["worlds"]
    assert counts["faults"] > 5 * counts["worlds"]


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_promise_of_a_pool(soaked: Callable[[str], dict[str, int]]) -> None:
    """Seats are given, lost and given anew while everything breaks that can."""
    counts = soaked("pools")
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
