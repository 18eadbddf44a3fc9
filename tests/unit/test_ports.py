"""The assignment of ports: in the range, free, and none twice."""

from __future__ import annotations

import random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from node.model import ports

FIRST = 9000


@given(
    st.lists(st.integers(2, 6), max_size=6),
    st.integers(1, 24),
    st.sets(st.integers(FIRST, FIRST + 24), max_size=12),
    st.integers(0, 1_000),
)
def test_rows_lie_in_the_range_and_apart(
    counts: list[int], length: int, used: set[int], seed: int
) -> None:
    """A request is refused only if no aligned row of ports is free."""
    needing = {UUID(int=at): count for at, count in enumerate(counts)}
    every = range(FIRST, FIRST + length)
    taken = set(used)
    for who, first in ports.consecutive_ports(needing, every, used, random.Random(seed)).items():
        if first is None:
            bases = every[::2]
            rows = (set(range(base, base + needing[who])) for base in bases)
            assert not any(row <= set(every) and row.isdisjoint(taken) for row in rows)
            continue
        row = set(range(first, first + needing[who]))
        assert row <= set(every)
        assert row.isdisjoint(taken)
        taken |= row


@given(
    st.integers(1, 6),
    st.integers(1, 12),
    st.sets(st.integers(FIRST, FIRST + 12)),
    st.integers(0, 1_000),
)
def test_single_ports_are_free_as_long_as_there_are_some(
    count: int, length: int, used: set[int], seed: int
) -> None:
    """A port in use is assigned again only when all are in use."""
    every = range(FIRST, FIRST + length)
    result = ports.single_ports(
        map(UUID, map("{:032}".format, range(count))), every, used, random.Random(seed)
    )
    taken = set(used)
    bases = set(every[: length - 1 : 2] or every)
    for port in result.values():
        assert port in (bases - taken or bases)
        taken.add(port)
