"""The memory of nonces, without signatures."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from node.model.times import SECOND
from node.trust.nonces import NonceMemory

patient = settings(deadline=None)


@patient
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(-4, 8)), max_size=60)
)
def test_nonce_memory_forgets_nothing_that_is_fresh(steps: list[tuple[str, int, int]]) -> None:
    """A nonce is not accepted again within its lifetime, even if the clock jumps."""
    memory = NonceMemory(10 * SECOND, 1000)
    now = 1000
    accepted: set[tuple[str, str]] = set()
    for signer, number, seconds in steps:
        now += seconds
        nonce = f"{number}-{now // 5}"
        created = (now // 5) * 5
        if memory.objection(signer, nonce, created, now * SECOND) is None:
            assert (signer, nonce) not in accepted
            accepted.add((signer, nonce))


def test_nonce_memory_gives_memory_back() -> None:
    """After two lifetimes only one number per signer is left."""
    memory = NonceMemory(10 * SECOND, 1000)
    for number in range(100):
        assert memory.objection("a", str(number), 1000, 1000 * SECOND) is None
    assert memory.objection("b", "x", 1020, 1020 * SECOND) is None
    assert sum(len(seen.nonces) for seen in memory._current.values()) == 1
    assert memory._previous == {}
