"""Promises compared with existing seats: warnings wherever they are shown, never refusals."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lead.policy.axes.share import ByPromise as PromisedRule
from lead.policy.settings import RULES
from lead.policy.share.promised import find_promise_refusal
from node.model import times
from node.model.policysets import PROMISING, expanded
from node.model.promises import (
    CampaignPromise,
    PoolSize,
    campaign_warnings,
    keeps_promises,
    pool_warnings,
    short_term,
)
from tests.support.policies import COMPOSITIONS


def seats(campaign: str, count: int) -> CampaignPromise:
    """Return a promise of ``count`` seats."""
    return CampaignPromise(campaign, count, None)


def part(campaign: str, share: str) -> CampaignPromise:
    """Return a promise of a part of the seats."""
    return CampaignPromise(campaign, None, Fraction(share))


FAST = PoolSize("fast", 3, keeps_promises=True)
OTHER = PoolSize("other", 1, keeps_promises=False)


@pytest.mark.parametrize("name", list(COMPOSITIONS))
def test_the_sets_that_keep_promises_are_known(name: str) -> None:
    """The node marks exactly the sets that the lead shares by promises."""
    assert keeps_promises(expanded(name, {}).set, {}) is isinstance(
        COMPOSITIONS[name].share, PromisedRule
    )
    assert keeps_promises(name, {"share": {"rule": PROMISING}})
    assert not keeps_promises(name, {"share": {"rule": "usage"}})
    assert RULES["share"][PROMISING].make is PromisedRule


def test_more_seats_than_a_pool_has() -> None:
    """The campaign and the pool get a warning with both figures and the remedy."""
    ops = seats("ops", 20)
    sentence = "ops is promised 20 seats, and pool fast has 3; lower its target, or widen the pool"
    assert campaign_warnings(ops, [ops], [FAST, OTHER]) == (sentence,)
    assert pool_warnings(FAST, [ops]) == (sentence,)
    assert pool_warnings(OTHER, [ops]) == ()


def test_promises_that_conflict() -> None:
    """Each promise could be kept alone, but their sum cannot, in seats or in parts."""
    two = [seats("ops", 2), seats("lab", 2)]
    sentence = (
        "ops, lab are promised 4 seats together, and pool fast has 3; lower a target, or widen "
    )
    assert pool_warnings(FAST, two) == (f"{sentence}the pool",)
    assert campaign_warnings(two[1], two, [FAST]) == (f"{sentence}the pool",)
    parts = [part("ops", "0.6"), part("lab", "0.5")]
    together = "ops, lab are promised 110% of each pool together; lower a target"
    assert pool_warnings(FAST, parts) == (together,)


def test_promises_that_can_be_kept_cause_no_warning() -> None:
    """Promises of exactly the existing seats, or of all parts, cause no warning."""
    for promised in ([seats("ops", 2), seats("lab", 1)], [part("ops", "0.5"), part("lab", "0.5")]):
        assert pool_warnings(FAST, promised) == ()
        assert campaign_warnings(promised[0], promised, [FAST]) == ()


def test_a_promise_without_effect() -> None:
    """A target has no effect if no pool has policies that keep promises."""
    [sentence] = campaign_warnings(seats("ops", 1), [seats("ops", 1)], [OTHER])
    assert sentence.startswith("its target has no effect: no pool here")
    assert sentence.endswith("parley pool set-policy POOL promised")


def test_a_pool_that_serves_promises_without_any() -> None:
    """A pool that would refuse everybody gets a warning with both remedies, and others none."""
    [sentence] = pool_warnings(FAST, [])
    assert sentence.startswith("its policies serve campaigns with a target only, and none has one")
    assert sentence.endswith("--target 20, or parley pool set-policy fast campaign-default")
    assert pool_warnings(OTHER, []) == ()


@pytest.mark.parametrize(
    ("promises", "code"),
    [({}, "share-no-group-promised"), ({"lab": 2}, "share-no-group")],
)
def test_a_campaign_without_promise_gets_the_remedy(promises: dict[str, int], code: str) -> None:
    """The refusal has the existing figures, and no empty list of groups."""
    refusal = find_promise_refusal("ops", None, promises)
    assert refusal is not None
    assert refusal.rule.name == "no-group"
    assert (refusal.reason.code, refusal.reason.figures["campaign"]) == (code, "ops")
    assert refusal.reason.figures.get("groups", "lab") == "lab"


def test_an_implausible_term() -> None:
    """A term below a minute causes a warning, and one without effect, too."""
    assert short_term("rotating", times.SECOND) is short_term("sticky", times.MINUTE) is None
    assert short_term("sticky", times.SECOND) == "1 s"
    [sentence] = pool_warnings(PoolSize("fast", 3, keeps_promises=False, short_term="1 s"), [])
    assert sentence.startswith("its nodes are chosen anew every 1 s")
    assert sentence.endswith("parley pool edit fast --term 6h")


def test_an_empty_pool() -> None:
    """The pool itself gets the warning, not only its tasks."""
    [sentence] = pool_warnings(PoolSize("solo", 0, keeps_promises=True), [seats("ops", 1)])
    assert sentence.startswith("no node known here belongs to solo now: its tasks wait; ")
