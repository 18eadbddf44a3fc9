"""What a mesh has delivered as a whole, out of what each pair has."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from node.cli.meshstatus import total_delivery
from node.model.wire.meshes import Cause, MeshPair

_CAUSES = st.builds(
    Cause,
    state=st.sampled_from(["failed", "missed", "unplaced"]),
    cause=st.integers(0, 9).map(lambda number: f"b: busy with {number}"),
    count=st.integers(1, 50),
    example=st.text(max_size=5),
)


@st.composite
def _pairs(draw: st.DrawFn) -> list[MeshPair]:
    """Pairs with causes, the most frequent first, that are all that is missing."""
    made = []
    for number in range(draw(st.integers(0, 8))):
        causes = draw(st.lists(_CAUSES, max_size=6, unique_by=lambda c: (c.state, c.cause)))
        causes.sort(key=lambda cause: -cause.count)
        delivered = draw(st.integers(0, 99))
        pair = MeshPair(
            key=f"x/a/{number}",
            test="rtt",
            source="a",
            dest=str(number),
            state="active",
            due=delivered + sum(cause.count for cause in causes),
            delivered=delivered,
            open=draw(st.integers(0, 3)),
            causes=tuple(causes),
        )
        made.append(pair)
    return made


@given(_pairs())
def test_the_whole_is_the_sum_of_its_pairs(pairs: list[MeshPair]) -> None:
    """Each figure is; causes alike are one, the most frequent first, at most twenty of them."""
    whole = total_delivery(pairs)
    for figure in ("due", "delivered", "open"):
        assert getattr(whole, figure) == sum(getattr(pair, figure) for pair in pairs)
    wanted: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        wanted.update({(cause.state, cause.cause): cause.count for cause in pair.causes})
    counts = [cause.count for cause in whole.causes]
    assert counts == sorted(wanted.values(), reverse=True)[:20]
    for cause in whole.causes:
        alike = [
            found
            for pair in pairs
            for found in pair.causes
            if (found.state, found.cause) == (cause.state, cause.cause)
        ]
        assert cause.count == wanted[cause.state, cause.cause]
        most = max(found.count for found in alike)
        assert cause.example in {found.example for found in alike if found.count == most}
