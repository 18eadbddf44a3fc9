"""The names of policy sets, as pools may be given them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from lead.policy import sets
from lead.policy.axes import share, throttle
from lead.policy.throttle import active_limits
from node.model import limits, policysets, times


def test_the_recommended_set_is_there() -> None:
    """What a pool has that does not say is one of them."""
    assert policysets.DEFAULT in policysets.SETS


def test_the_lead_knows_the_same_sets() -> None:
    """The names that a node accepts are those behind which the lead has policies."""
    assert policysets.SETS.keys() == sets.SETS.keys()
    assert policysets.DEFAULT == sets.DEFAULT
    assert {*sets.PolicyComposition.__dataclass_fields__} - {"apart"} == {*policysets.AXES}


def test_every_set_says_what_it_is_good_for() -> None:
    """The line that a node shows is that of the table beside the sets, which has no others."""
    text = (Path(sets.__file__).parent / "README.md").read_text(encoding="utf-8")
    table = text.split("## What each set is good for")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    found = {name.split("`")[1]: good_for.removesuffix(" |") for name, good_for in rows}
    assert found == {name: kind.good_for for name, kind in policysets.SETS.items()}
    assert len(set(found.values())) == len(found)
    assert [name for name, _ in rows if "recommended" in name] == [
        f"| `{policysets.DEFAULT}` (recommended)"
    ]


def test_who_divides_by_weight() -> None:
    """A set is said to divide by weight exactly if its shares are by usage."""
    dividing = {name for name, kind in policysets.SETS.items() if kind.divides}
    assert dividing == {n for n, policy in sets.SETS.items() if type(policy.share) is share.ByUsage}
    targets = {name for name, kind in policysets.SETS.items() if kind.targets}
    assert targets == {
        n for n, policy in sets.SETS.items() if type(policy.share) is share.ByPromise
    }


def test_limits_are_kept_as_policies_know_them() -> None:
    """Every word has a kind that the policies know, and comes back as it was."""
    kinds = {
        active_limits.RUNS,
        active_limits.NODES,
        active_limits.SEATS,
        active_limits.SEAT_TIME,
        active_limits.TIME,
    }
    known = kinds | {f"{throttle.DUE}{kind}" for kind in kinds}
    known |= {throttle.DELIVERED, throttle.DELIVERED_PERCENT}
    said = {
        word: {"soft": None, "hard": number} for number, word in enumerate(get_args(limits.Limited))
    }
    kept = limits.to_stored_limits(said)
    assert kept.keys() == known
    assert limits.to_worded_limits(kept) == said
    assert limits.to_stored_limits({"seconds": {"soft": 2, "hard": None}}) == {
        "time": {"soft": 2 * times.SECOND, "hard": None}
    }
