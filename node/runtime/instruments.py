"""Counters and histograms of the work of a process, for ``/metrics``.

Histograms are in seconds, from :meth:`node.runtime.clock.Clock.monotonic` or, between hosts, from
the clocks that the runs go by. Counters begin at 0 with the process and never fall. The figures of
a lead are in its row of ``lead_process``, as it may be a process of its own.
"""

from __future__ import annotations

import math

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from node.model import times

_ANSWERS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_STARTS = (0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1)
_DELIVERIES = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 3600, 86_400)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each, which Prometheus does not read


class Instruments:
    """The counters and histograms of one process; those that never observed have no samples."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._of_lead = CollectorRegistry()
        self._requests = self._histogram(
            "parley_request_seconds",
            "Time to answer a request, without long polls and streams",
            ("method", "route", "status"),
            _ANSWERS,
        )
        self._starts = self._histogram(
            "parley_start_error_seconds",
            "How much later than agreed this node began its parts of runs",
            ("test",),
            _STARTS,
        )
        self._messages = self._histogram(
            "parley_message_delivery_seconds",
            "Time from the writing of a message to another node until it was acknowledged",
            ("kind",),
            _DELIVERIES,
        )
        self._archived = self._histogram(
            "parley_archive_delivery_seconds",
            "Time from the end of a run, or of an interval, until an archive accepted its result",
            ("archiver",),
            _DELIVERIES,
        )
        self._tried = Counter(
            "parley_archive_deliveries",
            "Results given to archivers since the start, by outcome",
            ("archiver", "fate"),
            registry=self.registry,
        )
        self._add_planning()
        self._ended = Counter(
            "parley_runs_ended",
            "Runs that ended here, by the reason without times and ids where they have no result",
            ("role", "test", "outcome", "cause", "campaign"),
            registry=self.registry,
        )

    def _add_planning(self) -> None:
        self._planned = self._histogram(
            "parley_planning_seconds",
            "Time to plan a task once, from its claim until the decision is written",
            ("outcome",),
            _ANSWERS,
            self._of_lead,
        )
        self._planned_at = Gauge(
            "parley_last_plan_timestamp_seconds",
            "When this lead planned a task last, in seconds since 1970",
            registry=self._of_lead,
        )
        self._exchanged = self._histogram(
            "parley_exchange_seconds",
            "Time of the proposals and holds of one exchange with all participants",
            ("outcome",),
            _ANSWERS,
            self._of_lead,
        )
        self._planned_at.set(math.nan)  # nothing was planned yet

    def _histogram(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        buckets: tuple[float, ...],
        registry: CollectorRegistry | None = None,
    ) -> Histogram:
        registry = registry or self.registry
        return Histogram(name, text, labels, buckets=buckets, registry=registry)

    def lead_figures(self) -> str:
        """Return the figures of planning, in the text format of Prometheus."""
        return generate_latest(self._of_lead).decode()

    def request(self, method: str, route: str, status: int, took: int) -> None:
        """Note an answered request; ``took`` in µs, ``route`` with the names of its variables."""
        self._requests.labels(method, route, status).observe(took / times.SECOND)

    def start(self, test: str, late_by: int) -> None:
        """Note that a part began this much (µs) after its instant."""
        self._starts.labels(test).observe(max(0, late_by) / times.SECOND)

    def message(self, kind: str, age: int) -> None:
        """Note that a message of this age (µs) was acknowledged."""
        self._messages.labels(kind).observe(max(0, age) / times.SECOND)

    def count_delivery_attempt(self, archiver: str, fate: str) -> None:
        """Count a result that was given to an archiver, by what became of it."""
        self._tried.labels(archiver, fate).inc()

    def note_delivery_age(self, archiver: str, age: int) -> None:
        """Note that an archive accepted a result of this age (µs)."""
        self._archived.labels(archiver).observe(max(0, age) / times.SECOND)

    def note_planning(self, outcome: str, took: int, at: int) -> None:
        """Note that a task was planned in this time (µs), and when that was over."""
        self._planned.labels(outcome).observe(took / times.SECOND)
        self._planned_at.set(at / times.SECOND)

    def note_exchange(self, outcome: str, took: int) -> None:
        """Note that an exchange took this time (µs)."""
        self._exchanged.labels(outcome).observe(took / times.SECOND)

    def count_ended_run(
        self, role: str, test: str, outcome: str, cause: str, campaign: str
    ) -> None:
        """Count a run that ended; ``role`` is ``lead`` or ``participant``."""
        self._ended.labels(role, test, outcome, cause, campaign).inc()
