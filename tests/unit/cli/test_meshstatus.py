"""The total delivery of a mesh, summed up from its pairs."""

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
    """Pairs whose causes, the most frequent first, account for all missing runs."""
    pairs = []
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
        pairs.append(pair)
    return pairs


@given(_pairs())
def test_the_whole_is_the_sum_of_its_pairs(pairs: list[MeshPair]) -> None:
    """Each figure is a sum, and equal causes are merged, the twenty most frequent first."""
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
            other
            for pair in pairs
            for other in pair.causes
            if (other.state, other.cause) == (cause.state, cause.cause)
        ]
        assert cause.count == wanted[cause.state, cause.cause]
        most = max(other.count for other in alike)
        assert cause.example in {other.example for other in alike if other.count == most}
