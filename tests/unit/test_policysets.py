"""The names of policy sets, as pools may be given them."""

from __future__ import annotations

from node.model import policysets


def test_whoever_mistypes_a_set_is_helped() -> None:
    """Names that are alike, or all of them."""
    assert policysets.near("gridserver-useage")[0] == "gridserver-usage"
    assert policysets.near("qwxzz") == list(policysets.SETS)


def test_the_recommended_set_is_there() -> None:
    """What a pool has that does not say is one of them."""
    assert policysets.DEFAULT in policysets.SETS
