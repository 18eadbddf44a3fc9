"""The first simulated worlds in which everything breaks that can; ``make soak`` plays thousands.

What checks them is checked: programs that are broken on purpose are found.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from lead.simulation.scenario import named_scenario
from lead.simulation.world import simulate
from tests.soak.seeds import BRIEF, HARD
from tests.soak.variants import VARIANTS, Variant

SEEDS_FOR_A_VARIANT = 60
_WORLDS = 20
_HARD_WORLDS = 10
_POOL_WORLDS = 1
_GIVING_WAY = ("setpriv", "--pdeathsig", "KILL", "nice", "-n", "19")
"""The command that lets tests which measure time run undisturbed beside it."""


def played(scenario: str, seeds: int) -> dict[str, int]:
    """Play the first seeds of a scenario, none of which may break a promise; returns the counts."""
    soak = (sys.executable, "-m", "tests.soak", "--scenario", scenario, "--seeds", str(seeds))
    finished = subprocess.run([*_GIVING_WAY, *soak], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    counts = re.findall(r"([\d,]+) (worlds|delivered|faults)", finished.stdout)
    return {name: int(number.replace(",", "")) for number, name in counts}


@pytest.mark.timeout(1200)
@pytest.mark.nightly
def test_no_seed_breaks_a_promise() -> None:
    """Crashes at any await, losses, duplicates, cuts, and wrong clocks break no promise."""
    counts = played(BRIEF, _WORLDS)
    assert counts["worlds"] == _WORLDS
    assert counts["delivered"] > 5 * counts["worlds"]
    assert counts["faults"] > 5 * counts["worlds"]


@pytest.mark.timeout(1200)
@pytest.mark.nightly
def test_no_seed_breaks_a_promise_where_more_breaks() -> None:
    """Nor do leads and APIs that die, databases that are away, and clocks that are days wrong."""
    counts = played(HARD, _HARD_WORLDS)
    assert counts["worlds"] == _HARD_WORLDS
    assert counts["delivered"] > counts["worlds"]
    assert counts["faults"] > 5 * counts["worlds"]


@pytest.mark.timeout(1200)
@pytest.mark.nightly
def test_no_seed_breaks_a_promise_of_a_pool() -> None:
    """Seats are granted, lost, and granted again while everything breaks that can."""
    counts = played("pools", _POOL_WORLDS)
    assert counts["worlds"] == _POOL_WORLDS
    assert counts["delivered"] > 50 * counts["worlds"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.nightly
def test_a_broken_program_is_found(variant: Variant) -> None:
    """A few dozen seeds find it, and the violation says what is broken."""
    brief = named_scenario(BRIEF)
    faults = brief.faults.model_copy(update=variant.faults or {})
    violations: list[str] = []
    with variant.patched():
        for seed in range(1, SEEDS_FOR_A_VARIANT + 1):
            world = brief.model_copy(update={"seed": seed, "faults": faults})
            violations += simulate(world, broken=variant.broken).violations
            if any(variant.says in violation for violation in violations):
                return
    pytest.fail(f"{variant.name} was not found by {SEEDS_FOR_A_VARIANT} seeds, only {violations}")
