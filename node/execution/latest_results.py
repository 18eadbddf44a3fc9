"""The latest figures of each task that this node leads, for ``/metrics``; bounded, in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from uuid import UUID

from node.model import times
from node.model.samples import Sample, stale_samples

TASKS_MAX = 1_000
SAMPLES_MAX = 50
"""Maximum number of samples per task."""
RESULTS_RETENTION = times.DAY


class LatestResults:
    """The latest figures of each task; empty after a restart until the task measures again."""

    def __init__(self) -> None:
        self._kept: OrderedDict[UUID, tuple[int, tuple[Sample, ...], int | None]] = OrderedDict()

    def keep(
        self, task: UUID, at: int, samples: Sequence[Sample], every: int | None = None
    ) -> None:
        """Replace the samples of a task; with too many tasks, drop the one updated longest ago.

        ``every`` is the interval (µs) at which it measures, if it has one.
        """
        self._kept.pop(task, None)
        self._kept[task] = at, tuple(samples[:SAMPLES_MAX]), every
        while len(self._kept) > TASKS_MAX:
            self._kept.popitem(last=False)

    def samples(self, now: int) -> Iterator[tuple[int, Sample]]:
        """Yield the samples of the last day, each with the end of its run.

        Of a task that should have measured twice since then, only that this is stale.
        """
        for task, (at, samples, every) in list(self._kept.items()):
            if at < now - RESULTS_RETENTION:
                del self._kept[task]
                continue
            is_stale = every is not None and now > at + 2 * every
            yield from (
                (at, sample) for sample in (stale_samples(samples) if is_stale else samples)
            )
