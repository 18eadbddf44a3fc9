"""The wait for an engine with affinity, as GridServer has it: others are refused meanwhile.

A lead needs no such wait. It knows when nodes will be free, and a run waits within its slip.
"""

from __future__ import annotations


def starts_at(
    submitted: int, affine_at: int | None, other_at: int | None, wait: int | None
) -> tuple[bool, int] | None:
    """Return whether a node with affinity is chosen, and when; None if neither becomes free.

    ``affine_at`` and ``other_at`` are when nodes with and without affinity become free (None:
    never); for ``wait`` µs (None: forever) those without are refused.
    """
    affine = None if affine_at is None else max(submitted, affine_at)
    other = None
    if other_at is not None and (wait is not None or affine is None):
        other = max(submitted + (wait or 0), other_at)
    if affine is not None and (other is None or affine <= other):
        return True, affine
    return None if other is None else (False, other)
