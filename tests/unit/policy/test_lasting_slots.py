"""Slots that outlive an episode: a task keeps its slot, whichever comes first later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lead.policy.axes import fill
from lead.policy.fill.reservations import slot_of, slots_to_remember, still_usable_slots
from lead.policy.placement_requests import EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.view import CampaignView, KeptSlot, PostedRun, RememberedState, View
from node.model import times
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

HALF_PAST = NOW + 30 * times.MINUTE
SLOT = KeptSlot(("n0", "n1", "n2"), HALF_PAST, HALF_PAST + 10 * times.MINUTE)


def _view(*tasks: str, **others: RememberedState) -> View:
    """Return a view: two of three nodes are busy for half an hour, ``c`` is one long run."""
    nodes = nodes_of(3)
    run = PostedRun("r", "other", "ops", ("n0", "n1"), NOW, HALF_PAST)
    listed = {
        "a": due("a", "ops", nodes, k=3, together=True, added_at=1),
        "b": due("b", "ops", nodes, k=3, together=True, added_at=0),
        "c": due("c", "ops", nodes, duration=45 * times.MINUTE, slip=0, added_at=2),
    }
    candidates = [listed[name] for name in tasks]
    return view_of(nodes, [CampaignView("ops")], candidates, runs=[run], **others)


def _hold(view: View, *, keeping: bool, blocked: str = "ab") -> EpisodeOutcome:
    """Drive an episode in which the tasks in ``blocked`` find no time."""
    driver = Driver(view, has_time=lambda ask: ask.candidate.task not in blocked)
    return driver.drive(PolicyComposition(fill=fill.Protected(depth=1, lasting=keeping)))


@pytest.mark.parametrize(("keeping", "holder"), [(True, "a"), (False, "b")])
def test_a_slot_is_kept_or_reassigned(*, keeping: bool, holder: str) -> None:
    """A lasting slot stays with ``a`` even if ``b`` comes first, and any other goes to ``b``."""
    first = _hold(_view("a"), keeping=keeping)
    assert [it.name for it in first.reservations] == ["slot of a"]
    assert first.state.slots == ({"a": SLOT} if keeping else {})
    later = _hold(_view("b", "a", "c", state=first.state), keeping=keeping)
    [slot] = later.reservations
    assert (slot.name, slot.start, set(slot.nodes)) == (
        f"slot of {holder}",
        HALF_PAST,
        {"n0", "n1", "n2"},
    )
    reasons = [
        refusal.reason for refusal in later.refused["c"] if refusal.rule.name == "protected slot"
    ]
    assert reasons[0].figures["holder"] == holder


def test_a_started_task_gives_its_slot_back() -> None:
    """A placed task loses its slot; one that comes before it is not placed behind the slot."""
    before = RememberedState(slots={"a": SLOT})
    outcome = _hold(_view("a", "b", state=before), keeping=True, blocked="")
    assert outcome.state.slots == {}
    assert {run.task for run in outcome.placed} == {"a"}


def test_an_unused_slot_expires() -> None:
    """A slot that should have begun by now is dropped, whatever is left of it."""
    slots = {"a": SLOT, "b": replace(SLOT, start=NOW - 1)}
    assert still_usable_slots(slots, NOW) == [slot_of("a", SLOT.nodes, SLOT.start, SLOT.end)]
    assert slots_to_remember(still_usable_slots(slots, NOW)) == {"a": SLOT}
