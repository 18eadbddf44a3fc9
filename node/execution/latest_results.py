"""The last figures of each task that this node leads, for ``/metrics``; bounded, and in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from uuid import UUID

from node.model import times
from node.model.samples import Sample

TASKS_MAX = 1_000
SAMPLES_MAX = 50
"""Of each task."""
RESULTS_RETENTION = times.DAY


class LatestResults:
    """What each task measured last. After a restart nothing is known until it measures again."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._kept: OrderedDict[UUID, tuple[int, tuple[Sample, ...]]] = OrderedDict()

    def keep(self, task: UUID, at: int, samples: Sequence[Sample]) -> None:
        """In the place of what the task had; the task that was heard of longest ago may go."""
        self._kept.pop(task, None)
        self._kept[task] = at, tuple(samples[:SAMPLES_MAX])
        while len(self._kept) > TASKS_MAX:
            self._kept.popitem(last=False)

    def samples(self, now: int) -> Iterator[tuple[int, Sample]]:
        """Each with the instant when its run was over, of the last day."""
        for task, (at, samples) in list(self._kept.items()):
            if at < now - RESULTS_RETENTION:
                del self._kept[task]
            else:
                yield from ((at, sample) for sample in samples)
