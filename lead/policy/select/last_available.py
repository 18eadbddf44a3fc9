"""The nodes whose free time a run fills best: the least left before their next booking. Pure.

It leaves the nodes that are free for long to what needs long.
"""

from __future__ import annotations

from collections.abc import Mapping


def rank(free_for: Mapping[str, int | None], duration: int) -> list[str]:
    """The nodes that are free for ``duration`` µs, best first; None is free without an end.

    Of two with the same time left the one listed first.
    """
    fitting = [name for name, free in free_for.items() if free is None or free >= duration]
    return sorted(fitting, key=lambda name: _left(free_for[name]))


def _left(free: int | None) -> tuple[bool, int]:
    return free is None, free or 0
