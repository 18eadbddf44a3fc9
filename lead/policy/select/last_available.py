"""The nodes whose free time a run fills best: the least left before their next booking. Pure.

Nodes with long free time are left to runs that need it.
"""

from __future__ import annotations

from collections.abc import Mapping


def ranking(free_for: Mapping[str, int | None], duration: int) -> list[str]:
    """Return the nodes that are free for ``duration`` µs, the best first; None is without an end.

    Ties go to the node listed first.
    """
    fitting = [name for name, free in free_for.items() if free is None or free >= duration]
    return sorted(fitting, key=lambda name: _left(free_for[name]))


def _left(free: int | None) -> tuple[bool, int]:
    return free is None, free or 0
