"""The nodes that could have the seats of pool tasks: judged once, and anew after changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from lead.model.records import PoolTaskCriteria
from lead.pool.membership import Membership
from node.model import predicates
from node.model.predicates import Attributes
from node.model.reasons import lacks_tools, takes_part_already
from node.model.terms import NodeRequirements
from node.model.wire.seats import SeatRequest
from node.store.pools import StoredPool
from tests.support.booking import HOUR
from tests.support.clocks import START
from tests.support.episodes import Host, case_of

TOOLS = ("ping",)


@dataclass
class Judge:
    """A judge that states what is wanted, and counts its calls."""

    asked: list[str] = field(default_factory=list)

    def wanted(
        self,
        test: str,
        spec: dict[str, Any],
        tools: Collection[str],
        request: SeatRequest,
        pool_match: Mapping[str, Any],
    ) -> NodeRequirements:
        """Return the match of the pool and of the request; ``dest`` takes part in it already."""
        del test, tools
        self.asked.append(str(spec.get("dest")))
        return NodeRequirements(
            request.pool,
            predicates.parse(pool_match),
            predicates.parse(request.match, "/participants/match"),
            frozenset([spec["dest"]] if "dest" in spec else []),
            TOOLS,
        )


def pools(**match: Any) -> dict[str, StoredPool]:
    """Return the pool ``europe``."""
    europe = StoredPool("europe", match, "campaign-default", {}, "sticky", HOUR, HOUR, None)
    return {"europe": europe}


def asking(dest: str | None = None, **match: Any) -> PoolTaskCriteria:
    """Return a task that wants a node of it."""
    request = {"pool": "europe", "k": 1, "match": match}
    spec = {} if dest is None else {"dest": dest}
    task = case_of("a", "ops", []).pool_task.id
    return PoolTaskCriteria(task, "rtt", spec, [], "europe", request, None)


def hosts(*facts: Attributes) -> list[Host]:
    """Return the nodes n1, n2, … with these attributes."""
    return [Host(f"n{number}", facts=each) for number, each in enumerate(facts, 1)]


def of(judge: Judge, nodes: Sequence[Host]) -> Membership:
    """Return the membership of these nodes in the pool of all that are ``in`` europe."""
    return Membership(pools(**{"in": "europe"}), nodes, judge.wanted)


def test_equal_requests_are_judged_once() -> None:
    """Two tasks that differ in nothing that matters to a node get the very same nodes."""
    judge = Judge()
    there = of(judge, hosts({"in": "europe"}, {"in": "europe", "tool:ping": False}, {"in": "asia"}))
    one, again, other = asking("example.net"), asking("example.net"), asking("example.org")
    able, unable = there.judgement_of(one)
    assert able == ("n1",)
    assert unable == {"n2": lacks_tools(("ping",))}
    assert there.judgement_of(again)[0] is able
    assert there.judgement_of(other)[0] is able
    assert judge.asked == ["example.net", "example.org"]


def test_participants_are_excluded_from_shared_results() -> None:
    """A participant is excluded only for the task that names it."""
    there = of(Judge(), hosts({"in": "europe"}, {"in": "europe"}, {"in": "asia"}))
    assert there.judgement_of(asking("n2")) == (("n1",), {"n2": takes_part_already()})
    assert there.judgement_of(asking("n3")) == (("n1", "n2"), {})
    assert there.judgement_of(asking()) == (("n1", "n2"), {})


def test_verdicts_are_reused_while_nothing_changes() -> None:
    """An unreachable node does not change which nodes could have a seat."""
    judge = Judge()
    before = of(judge, hosts({"in": "europe"}))
    able, _ = before.judgement_of(asking())
    silent = hosts({"in": "europe"})
    silent[0].unreachable_since = START
    after = before.refreshed_membership(pools(**{"in": "europe"}), silent)
    assert after.judgement_of(asking())[0] is able
    assert len(judge.asked) == 1
    assert after.seat_loss_reason(asking(), silent[0].identity, START + 2 * HOUR) is not None


@pytest.mark.parametrize(
    ("match", "facts"),
    [
        ({"in": "europe"}, {"in": "europe", "fast": 1}),
        ({"in": "europe"}, {"in": "asia", "fast": True}),
        ({"in": "asia"}, {"in": "europe", "fast": True}),
        ({"in": "europe", "fast": 1}, {"in": "europe", "fast": True}),
    ],
)
def test_a_change_is_judged_anew(match: dict[str, Any], facts: Attributes) -> None:
    """Another attribute or another pool is judged anew, and 1 differs from true."""
    before = of(Judge(), hosts({"in": "europe", "fast": True}))
    assert before.judgement_of(asking(fast=True))[0] == ("n1",)
    after = before.refreshed_membership(pools(**match), hosts(facts))
    assert after.judgement_of(asking(fast=True))[0] == ()
    assert before.judgement_of(asking(fast=True))[0] == ("n1",), "who asked before is told the same"


def test_matches_differ_by_type() -> None:
    """A match with 1 differs from one with true."""
    there = of(Judge(), hosts({"in": "europe", "fast": True}))
    assert there.judgement_of(asking(fast=True))[0] == ("n1",)
    assert there.judgement_of(asking(fast=1))[0] == ()


def test_the_cache_is_bounded() -> None:
    """Requests beyond the limit of the cache are judged correctly all the same."""
    there = of(Judge(), hosts({"in": "europe", "rank": 3}))
    for rank in range(1200):
        assert there.judgement_of(asking(rank=rank))[0] == (("n1",) if rank == 3 else ())
    assert len(there._verdicts.judged) <= 500
