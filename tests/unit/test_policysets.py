"""The names of policy sets that pools may use."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from lead.policy import limit_counting, sets
from lead.policy.axes import share, throttle
from lead.policy.throttle import active_limits
from node.model import limits, policysets, times


def test_the_recommended_set_exists() -> None:
    """The default set of pools is one of them."""
    assert policysets.DEFAULT in policysets.SETS


def test_the_lead_knows_the_same_sets() -> None:
    """The node accepts exactly the names for which the lead has policies."""
    assert policysets.SETS.keys() == sets.SETS.keys()
    assert policysets.DEFAULT == sets.DEFAULT
    assert {*sets.PolicyComposition.__dataclass_fields__} - {"apart", "keeps_nodes"} == {
        *policysets.AXES
    }


def test_every_set_has_a_description() -> None:
    """The node shows the line of the table in the README, which has no other sets."""
    text = (Path(sets.__file__).parent / "README.md").read_text(encoding="utf-8")
    table = text.split("## What each set is good for")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    result = {name.split("`")[1]: good_for.removesuffix(" |") for name, good_for in rows}
    assert result == {name: kind.good_for for name, kind in policysets.SETS.items()}
    assert len(set(result.values())) == len(result)
    assert [name for name, _ in rows if "recommended" in name] == [
        f"| `{policysets.DEFAULT}` (recommended)"
    ]


def test_every_recipe_is_documented() -> None:
    """The table of recipes has the former names, each with the set and options it stands for."""
    text = (Path(sets.__file__).parent / "README.md").read_text(encoding="utf-8")
    table = text.split("## Recipes")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    written = {
        name.strip("`| "): policysets.parsed(recipe.strip("`| ")) for recipe, _, name in rows
    }
    assert written == policysets.ALIASES


def test_the_sets_that_divide_by_weight() -> None:
    """A set is marked as dividing by weight exactly if its shares are by usage."""
    dividing = {name for name, kind in policysets.SETS.items() if kind.divides}
    assert dividing == {n for n, policy in sets.SETS.items() if type(policy.share) is share.ByUsage}
    targets = {name for name, kind in policysets.SETS.items() if kind.targets}
    assert targets == {
        n for n, policy in sets.SETS.items() if type(policy.share) is share.ByPromise
    }


def test_limits_are_stored_as_policies_know_them() -> None:
    """Every word has a kind that the policies know, and survives a round trip."""
    kinds = {
        active_limits.RUNS,
        active_limits.NODES,
        active_limits.SEATS,
        active_limits.SEAT_TIME,
        active_limits.TIME,
    }
    known = kinds | {f"{throttle.DUE}{kind}" for kind in kinds}
    known |= {limit_counting.DELIVERED, limit_counting.DELIVERED_PERCENT}
    worded = {
        word: {"soft": None, "hard": number} for number, word in enumerate(get_args(limits.Limited))
    }
    kept = limits.to_stored_limits(worded)
    assert kept.keys() == known
    assert limits.to_worded_limits(kept) == worded
    assert limits.to_stored_limits({"seconds": {"soft": 2, "hard": None}}) == {
        "time": {"soft": 2 * times.SECOND, "hard": None}
    }
