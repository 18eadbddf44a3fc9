"""The sentence on what ended with a node that was removed."""

from __future__ import annotations

from node.cli.nodes import removal_view
from node.model.wire.nodes import NodeRemoval


def _removal(there: int, here: int, runs: int) -> NodeRemoval:
    return NodeRemoval.model_construct(
        identity="ed25519:b", name="b", tasks_led_there=there, tasks_led_here=here, runs=runs
    )


def test_what_ended_is_said() -> None:
    """The counts of both kinds of tasks are named, or that there were none."""
    assert removal_view(_removal(1, 2, 30)) == (
        "b was removed. Ended: 1 task that it led here, 2 tasks led here that it took part in. "
        "Runs cancelled: 30."
    )
    assert removal_view(_removal(0, 0, 0)) == "b was removed; there were no open tasks with it."
