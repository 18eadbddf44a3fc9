"""Figures for Prometheus, read from the run table when they are asked for."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from node.service import Node
from node.store import outbox, runs


async def registry_of(node: Node) -> CollectorRegistry:
    """A registry filled with what is true now."""
    registry = CollectorRegistry()
    async with node.database.connection() as connection:
        counted = await runs.counts(connection)
        backlog = await outbox.backlog(connection)
    by_state = Gauge(
        "parley_runs",
        "Runs in the table, by state and class",
        ["state", "scheduling_class"],
        registry=registry,
    )
    for state, scheduling_class, count in counted:
        by_state.labels(state, scheduling_class).set(count)
    Gauge("parley_outbox_messages", "Messages not yet acknowledged", registry=registry).set(backlog)
    Gauge("parley_event_streams", "Open event streams", registry=registry).set(node.hub.listeners)
    reachable = Gauge(
        "parley_node_reachable",
        "Whether a known node answered last time",
        ["node"],
        registry=registry,
    )
    await node.directory.refresh()
    for known in node.directory.all:
        if not known.is_self:
            reachable.labels(known.name).set(0 if known.unreachable_since else 1)
    served = Counter(
        "parley_requests", "Requests served, by who may call", ["access"], registry=registry
    )
    for access, count in node.served.items():
        served.labels(access).inc(count)
    started = Gauge("parley_start_time_seconds", "When this service started", registry=registry)
    started.set(node.started / 1_000_000)
    return registry
