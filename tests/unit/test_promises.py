"""What is promised beside what there is: told wherever it is shown, and never refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lead.policy.axes.share import ByPromise as PromisedRule
from lead.policy.sets import SETS
from lead.policy.settings import RULES
from lead.policy.share.promised import admit
from node.model import times
from node.model.policysets import PROMISING
from node.model.promises import (
    CampaignPromise,
    PoolSize,
    campaign_warnings,
    keeps_promises,
    pool_warnings,
    short_term,
)


def seats(campaign: str, count: int) -> CampaignPromise:
    """A promise of so many seats."""
    return CampaignPromise(campaign, count, None)


def part(campaign: str, share: str) -> CampaignPromise:
    """A promise of a part of the seats."""
    return CampaignPromise(campaign, None, Fraction(share))


FAST = PoolSize("fast", 3, keeps_promises=True)
OTHER = PoolSize("other", 1, keeps_promises=False)


@pytest.mark.parametrize("name", list(SETS))
def test_the_sets_that_keep_promises_are_known(name: str) -> None:
    """What a node says of a set is what the lead does: it shares by promises, or does not."""
    assert keeps_promises(name, {}) is isinstance(SETS[name].share, PromisedRule)
    assert keeps_promises(name, {"share": {"rule": PROMISING}})
    assert not keeps_promises(name, {"share": {"rule": "usage"}})
    assert RULES["share"][PROMISING].make is PromisedRule


def test_more_seats_than_a_pool_has() -> None:
    """It is said of the campaign and of the pool, with both figures and the remedy."""
    ops = seats("ops", 20)
    said = "ops is promised 20 seats, and pool fast has 3; lower its target, or widen the pool"
    assert campaign_warnings(ops, [ops], [FAST, OTHER]) == (said,)
    assert pool_warnings(FAST, [ops]) == (said,)
    assert pool_warnings(OTHER, [ops]) == ()


def test_promises_that_do_not_go_together() -> None:
    """Each could be kept alone; those of all cannot, in seats or in parts of them."""
    two = [seats("ops", 2), seats("lab", 2)]
    said = "ops, lab are promised 4 seats together, and pool fast has 3; lower a target, or widen "
    assert pool_warnings(FAST, two) == (f"{said}the pool",)
    assert campaign_warnings(two[1], two, [FAST]) == (f"{said}the pool",)
    parts = [part("ops", "0.6"), part("lab", "0.5")]
    together = "ops, lab are promised 110% of each pool together; lower a target"
    assert pool_warnings(FAST, parts) == (together,)


def test_what_can_be_kept_is_not_talked_about() -> None:
    """As many seats as there are, or all of the parts, are nothing to be told."""
    for promised in ([seats("ops", 2), seats("lab", 1)], [part("ops", "0.5"), part("lab", "0.5")]):
        assert pool_warnings(FAST, promised) == ()
        assert campaign_warnings(promised[0], promised, [FAST]) == ()


def test_a_promise_that_nobody_heeds() -> None:
    """Where no pool has policies that keep promises, a target has no effect."""
    [said] = campaign_warnings(seats("ops", 1), [seats("ops", 1)], [OTHER])
    assert said.startswith("its target has no effect: no pool here")
    assert said.endswith("parley pool set-policy POOL gridserver-sla")


def test_a_pool_that_serves_promises_where_there_are_none() -> None:
    """It would refuse everybody: that is said with both remedies, and of other pools it is not."""
    [said] = pool_warnings(FAST, [])
    assert said.startswith("its policies serve campaigns with a target only, and none has one")
    assert said.endswith("--target 20, or parley pool set-policy fast campaign-default")
    assert pool_warnings(OTHER, []) == ()


@pytest.mark.parametrize(
    ("promises", "begins"),
    [
        ({}, "no campaign has promised seats"),
        ({"lab": 2}, "ops belongs to no group with promised seats (groups: lab); give it a "),
    ],
)
def test_who_has_no_promise_is_told_the_remedy(promises: dict[str, int], begins: str) -> None:
    """One rule, with the figures that there are: no empty list of groups."""
    no = admit("ops", None, promises)
    assert no is not None
    assert no.rule.name == "no-group"
    assert no.sentence.startswith(begins)
    assert "parley campaign edit ops --target" in no.sentence


def test_a_term_that_is_hardly_meant() -> None:
    """Below a minute it is warned of; where nodes take turns the term has no effect."""
    assert short_term("rotating", times.SECOND) is short_term("sticky", times.MINUTE) is None
    assert short_term("sticky", times.SECOND) == "PT1S"
    [said] = pool_warnings(PoolSize("fast", 3, keeps_promises=False, short_term="PT1S"), [])
    assert said.startswith("its nodes are chosen anew every PT1S")
    assert said.endswith("parley pool edit fast --term 6h")


def test_a_pool_of_nobody() -> None:
    """It says so itself, not only on its tasks."""
    [said] = pool_warnings(PoolSize("solo", 0, keeps_promises=True), [seats("ops", 1)])
    assert said.startswith("no node known here belongs to solo now: its tasks wait; ")
