"""Counted resources: the time in which they are full, and the runs that give way for them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.errors import InvalidDocument
from node.model.host_limits.document import parse_limits
from node.model.resources import (
    Use,
    admit,
    full_spans,
    full_time,
    parse_taking,
    peak,
    taking_text,
)

SPANS = st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda it: (it[0], it[0] + it[1]))


@st.composite
def uses_of(draw: st.DrawFn) -> list[Use]:
    """Return some runs, each with what it takes."""
    drawn = draw(
        st.lists(st.tuples(SPANS, st.integers(1, 3), st.integers(0, 3), st.booleans()), max_size=8)
    )
    return [
        Use(UUID(int=number), *span, amount, 0, priority, fixed)
        for number, (span, amount, priority, fixed) in enumerate(drawn, 1)
    ]


def taken_at(uses: list[Use], instant: int) -> int:
    """Return what is taken at an instant, by looking at each run."""
    return sum(use.amount for use in uses if use.starts_at <= instant < use.ends_at)


@given(uses_of(), st.integers(1, 5), st.integers(1, 3))
def test_full_time_is_where_too_little_is_left(uses: list[Use], number: int, amount: int) -> None:
    """A resource is full exactly where the amount would be more than there is."""
    full = full_spans(uses, number, min(amount, number))
    for instant in range(45):
        inside = any(start <= instant < end for start, end in full)
        assert inside == (taken_at(uses, instant) + min(amount, number) > number)


@given(uses_of(), SPANS, st.integers(1, 5), st.integers(1, 3), st.integers(0, 4))
def test_a_run_fits_after_what_gives_way(
    uses: list[Use], span: tuple[int, int], number: int, amount: int, priority: int
) -> None:
    """A run that is admitted fits; only lower priorities go, and none of them needlessly."""
    amount = min(amount, number)
    wanted = Use(UUID(int=99), *span, amount, 0, priority)

    def gives_way(use: Use) -> bool:
        return not use.fixed and use.priority < priority

    gone = admit(uses, number, wanted, gives_way)
    staying = [use for use in uses if use.run not in (gone or ())]
    if gone is None:
        least = [use for use in uses if not gives_way(use)]
        assert peak(least, span) + amount > number
        return
    assert all(gives_way(use) for use in uses if use.run in gone)
    assert max(taken_at(staying, at) for at in range(*span)) + amount <= number
    for use in uses:
        if use.run in gone:
            assert peak([*staying, use], span) + amount > number


def test_the_lowest_priority_gives_way_first() -> None:
    """The one of the lowest priority gives way, of several that could."""
    low, high = Use(UUID(int=1), 0, 10, 1, 0, 1), Use(UUID(int=2), 0, 10, 1, 0, 2)
    wanted = Use(UUID(int=3), 5, 6, 1, 0, 5)
    assert admit([high, low], 2, wanted, lambda use: use.priority < 5) == [low.run]


def test_no_two_runs_of_a_series_with_a_budget_give_way_at_once() -> None:
    """One run gives way of a series that may lose one more, and one of another task with it."""
    series = UUID(int=9)
    one, two = (Use(UUID(int=it), 0, 10, 1, 0, 0, series=series) for it in (1, 2))
    other = Use(UUID(int=3), 0, 10, 1, 0, 1)
    wanted = Use(UUID(int=4), 5, 6, 2, 0, 5)
    assert admit([one, two], 2, wanted, lambda _: True) is None
    owner = replace(wanted, rank=1)
    assert sorted(admit([one, two], 2, owner, lambda _: True) or ()) == [one.run, two.run]
    gone = admit([one, two, other], 3, wanted, lambda _: True)
    assert gone is not None
    assert sorted(gone) in ([one.run, other.run], [two.run, other.run])


def test_a_full_resource_names_who_has_most_of_the_time() -> None:
    """The reason counts the peak, and names the run that takes most of the span."""
    short, long = Use(UUID(int=1), 0, 3, 1, 0, 0), Use(UUID(int=2), 2, 9, 1, 0, 0)
    full = full_time("link-x", 2, 1, [short, long], (2, 3))
    assert (full.used, full.number, full.by) == (2, 2, short)
    nothing = full_time("link-x", 1, 2, [], (0, 5))
    assert str(nothing.why) == "resource 'link-x': 0 of 1 taken, and a run takes 2"


@pytest.mark.parametrize(
    ("text", "parts"),
    [("link-x@hub", ("link-x", "hub", 1)), ("licence@h.example:12", ("licence", "h.example", 12))],
)
def test_what_is_taken_is_written_as_it_is_read(text: str, parts: tuple[str, str, int]) -> None:
    """A resource has its keeper in its name, and the amount behind it unless that is 1."""
    assert parse_taking(text) == parts
    assert taking_text(*parts) == text


def test_the_owner_states_resources_in_the_limits() -> None:
    """The file of limits has the name and the number of each resource, and each name once."""
    head = "version = 1\n"
    assert parse_limits(f'{head}[[resource]]\nname = "x"\nnumber = 3\n').resources == {"x": 3}
    twice = f'{head}[[resource]]\nname = "x"\nnumber = 3\n[[resource]]\nname = "x"\nnumber = 1\n'
    with pytest.raises(InvalidDocument) as refused:
        parse_limits(twice)
    assert [fault.pointer for fault in refused.value.faults] == ["/resource/1/name"]
    with pytest.raises(InvalidDocument, match='is "link x"; write a letter or digit, then at most'):
        parse_limits(f'{head}[[resource]]\nname = "link x"\nnumber = 3\n')
