"""Reserved time of a pool, as an offer beside those of the participants."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.agenda import Slot
from lead.planning.placement import Offer, choose
from lead.planning.reserved import ReservedTime, reserved_for_others
from node.model.classes import SchedulingClass
from node.model.reservations import AccessList, Applicant, ReservationSpan

DURATION = 3
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=4)
STARTS = st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True)


def reserved(start: int, length: int, access: AccessList = AccessList()) -> ReservationSpan:  # noqa: B008
    """Return a span of a reservation of its own."""
    of = UUID(int=1000 * start + length)
    return ReservationSpan(of, "demo", "SC26", "alice", access, start, start + length)


def slots_at(starts: list[int], slip: int) -> list[Slot]:
    """Return slots that do not overlap."""
    return [Slot(5 * at, 1, 5 * at, 5 * at + DURATION + slip) for at in sorted(starts)]


@given(SPANS, STARTS, st.integers(0, 2))
def test_a_run_is_chosen_only_in_open_time(
    drawn: list[tuple[int, int]], starts: list[int], slip: int
) -> None:
    """Slots without a choice are those whose starts are all closed, and each has its reason."""
    spans = [reserved(*each) for each in drawn]
    slots = slots_at(starts, slip)
    reserved_time = ReservedTime("europe", spans)
    offer, proposal = reserved_time.offer(slots, DURATION, 0)
    everything = Offer("n1", [(0, 1000)], [(0, 1000)])
    chosen = {
        it.slot.nominal: it.starts_at for it in choose(slots, [everything, offer], DURATION, None)
    }
    open_at = {
        slot.nominal: next(
            (
                at
                for at in range(slot.start, slot.end - DURATION + 1)
                if all(it.ends_at <= at or at + DURATION <= it.starts_at for it in spans)
            ),
            None,
        )
        for slot in slots
    }
    assert chosen == {nominal: at for nominal, at in open_at.items() if at is not None}
    assert reserved_time.first_open(slots, DURATION) == next(iter(chosen), None)
    without = {slots[each.window].nominal for each in proposal.obstacles}
    assert without == {nominal for nominal, at in open_at.items() if at is None}


def test_only_inadmissible_reservations_are_closed() -> None:
    """Only the reservations that do not admit the task are closed to it."""
    whose = Applicant(
        task=UUID(int=7),
        lead="",
        own=True,
        campaign=None,
        test="rtt",
        scheduling_class=SchedulingClass.NORMAL,
        priority=0,
    )
    shut, admitting = reserved(1, 2), reserved(5, 2, AccessList(tests=frozenset({"rtt"})))
    assert reserved_for_others("europe", [shut, admitting], whose).spans == [shut]


def test_the_reason_names_the_reservation() -> None:
    """The reason quotes the reservation that covers most of the slot."""
    reserved_time = ReservedTime("europe", [reserved(0, 1), reserved(1, 20)])
    sentence = reserved_time.why(slots_at([0, 1], 0), DURATION)
    assert sentence.startswith("no 0.003 ms free: reserved for demo 'SC26' by alice until ")
    assert reserved_time.name == "pool europe"
