"""Metrics for Prometheus: what this process has counted, and what the tables have now.

They answer while the database does not, without what is in it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from node.model import times
from node.model.errors import DatabaseUnavailable
from node.model.host_limits.quotas import Quantity
from node.model.leads import LeadState
from node.model.readiness import LEAD_SILENT, Readiness
from node.operation.readiness import damage, free_bytes, leads_of, readiness_of, refused_write
from node.runtime.clock import synchronisation
from node.runtime.version import program_version
from node.service import NodeService
from node.sharing.deliveries import DeliveryFigures
from node.store import archives, host_limits, outbox, pools, readiness, runs
from node.store.database import Record
from node.store.schema import schema_version

_DATABASE_PATIENCE_S = 2.0
"""Less than the 10 s after which Prometheus gives a scrape up, so that the rest is told."""


async def exposition(node: NodeService) -> bytes:
    """Return all metrics in the text format of Prometheus."""
    counted = generate_latest(node.core.instruments.registry)
    return counted + generate_latest(await registry_of(node))


async def registry_of(node: NodeService) -> CollectorRegistry:
    """Return a registry filled with the current values.

    While the database does not answer, it has those that this process knows without it.
    """
    registry = CollectorRegistry()
    _add_process(registry, node)
    _add_transport(registry, node)
    _add_backups(registry, node)
    registry.register(_Results(node))
    await _add_disk(registry, node)
    answered, ready = True, False
    try:
        async with asyncio.timeout(_DATABASE_PATIENCE_S):
            ready = await _add_stored(registry, node)
    except (DatabaseUnavailable, TimeoutError):
        answered = False
    Gauge("parley_ready", "Whether /readyz says that it is ready", registry=registry).set(ready)
    _add_reachability(registry, node)
    Gauge("parley_database_up", "Whether the database answers", registry=registry).set(answered)
    return registry


def _add_process(registry: CollectorRegistry, node: NodeService) -> None:
    """Add version, start, clock, and streams of this process, which need no database."""
    build = Gauge(
        "parley_build_info",
        "Always 1; the version of the program and of its schema",
        ["version", "schema"],
        registry=registry,
    )
    build.labels(program_version(), str(schema_version())).set(1)
    started = Gauge("parley_start_time_seconds", "When this service started", registry=registry)
    started.set(node.started / times.SECOND)
    clock = synchronisation()
    bound = math.nan if clock.error_bound is None else clock.error_bound / times.SECOND
    for name, text, value in (
        (
            "parley_clock_error_seconds",
            "Bound of the error of this host's clock, as the kernel estimates it",
            bound,
        ),
        (
            "parley_clock_synchronised",
            "Whether the kernel says that this host's clock is synchronised",
            math.nan if clock.synchronised is None else clock.synchronised,
        ),
        ("parley_event_streams", "Open event streams", node.hub.listeners),
    ):
        Gauge(name, text, registry=registry).set(value)
    steps = Counter("parley_clock_steps", "How often this host's clock was set", registry=registry)
    steps.inc(node.clock_steps.watcher.count)


async def _add_disk(registry: CollectorRegistry, node: NodeService) -> None:
    """Add the free bytes of the state directory, and whether the database is damaged or full."""
    for name, text, value in (
        ("parley_state_free_bytes", "Free bytes in the state directory", await free_bytes(node)),
        (
            "parley_database_damaged",
            "Whether the database lately said that it is damaged, or takes no change any more",
            damage(node) is not None,
        ),
        (
            "parley_database_full",
            "Whether the database had no room for a write lately",
            refused_write(node) is not None,
        ),
    ):
        Gauge(name, text, registry=registry).set(value)


def _add_reachability(registry: CollectorRegistry, node: NodeService) -> None:
    reachable = Gauge(
        "parley_node_reachable",
        "Whether a known node answered last time",
        ["node"],
        registry=registry,
    )
    for peer in node.directory.all:
        if not peer.is_self:
            reachable.labels(peer.name).set(0 if peer.unreachable_since else 1)


async def _add_stored(registry: CollectorRegistry, node: NodeService) -> bool:
    """Add what is read from the database; return whether the node is ready."""
    async with node.database.connection() as connection:
        counted = await runs.count_by_state(connection)
        backlog = await outbox.count_waiting(connection)
        archived = await archives.backlog(connection)
        missed = await pools.expected_misses(connection, node.clock.now())
        server = await readiness.server_state(connection)
    Gauge(
        "parley_database_oldest_id_age",
        "Transactions since the oldest transaction id in use at the database's server; it takes no "
        "change any more shortly before 2147483648",
        registry=registry,
    ).set(server.oldest_id_age)
    by_state = Gauge(
        "parley_runs",
        "Runs in the table, by state and class; falls when old runs are deleted",
        ["state", "scheduling_class"],
        registry=registry,
    )
    for state, scheduling_class, count in counted:
        by_state.labels(state, scheduling_class).set(count)
    misses = Gauge(
        "parley_pool_expected_misses",
        "Due runs that will miss their latest start as things are, by pool and campaign",
        ["pool", "campaign"],
        registry=registry,
    )
    for each in missed:
        misses.labels(each.pool, each.campaign).set(each.runs)
    Gauge("parley_outbox_messages", "Messages not yet acknowledged", registry=registry).set(backlog)
    _add_archives(registry, node, archived)
    _add_deliveries(registry, await node.deliveries.figures())
    await _add_limits(registry, node)
    facts = await readiness_of(node)
    _add_readiness(registry, facts)
    await _add_leads(registry, node)
    await node.directory.refresh()
    return not facts.faults


async def _add_limits(registry: CollectorRegistry, node: NodeService) -> None:
    """Add the use of limits, summed up over all other nodes."""
    used = Gauge(
        "parley_limit_used",
        "Use of the quotas of limits in the present period, by all nodes: runs, seconds, or bytes",
        ["rule", "quantity", "period"],
        registry=registry,
    )
    async with node.database.connection() as connection:
        uses = await host_limits.use_now(connection, node.clock.now())
        reached_now = await host_limits.reached_limits(connection, node.clock.now())
    for rule, quantity, period, amount in uses:
        value = amount / times.SECOND if quantity == Quantity.TIME else amount
        used.labels(rule, quantity, times.format_duration(period)).set(value)
    reached = Gauge(
        "parley_limit_reached",
        "Whether a rule or cap of the limits has refused something in its present period",
        ["rule"],
        registry=registry,
    )
    for rule in node.limits.limits.names:
        reached.labels(rule).set(rule in reached_now)
    refused = Gauge(
        "parley_limit_refused_tasks",
        "Open tasks of other nodes that the present limits refuse",
        registry=registry,
    )
    refused.set((await node.limits.for_people()).refused_tasks)


def _add_readiness(registry: CollectorRegistry, facts: Readiness) -> None:
    """Add the facts by which ``/readyz`` judges; operators should have alerts on them."""
    seen_for = math.nan if facts.lead_seen_at is None else facts.now - facts.lead_seen_at
    for name, text, value in (
        ("parley_leads", "Processes that plan and were heard lately", facts.leads),
        ("parley_lead_seen_seconds", "Time since a lead was last heard", seen_for / times.SECOND),
        (
            "parley_oldest_due_task_seconds",
            "Time that the task which has been due longest has waited to be planned",
            facts.due_for / times.SECOND,
        ),
    ):
        Gauge(name, text, registry=registry).set(value)


async def _add_leads(registry: CollectorRegistry, node: NodeService) -> None:
    """Add each lead that plans here, or did until lately: its age, leases, and takeovers."""
    now = node.clock.now()
    family = {
        name: Gauge(f"parley_lead_{name}", text, ["lead"], registry=registry)
        for name, text in (
            ("heartbeat_age_seconds", "Time since the last sign of this lead"),
            ("workers", "Tasks that this lead plans at once"),
            ("leases", "Tasks that this lead plans now"),
            ("lease_age_seconds", "Age of the oldest lease of this lead, 0 without one"),
        )
    }
    takeovers = Counter(
        "parley_lead_takeovers",
        "Tasks that this lead took over from others, whose leases had run out",
        ["lead"],
        registry=registry,
    )
    async with node.database.connection() as connection:
        figures = await readiness.lead_figures(connection, now - LEAD_SILENT)
    registry.register(_LeadFigures(figures))
    for lead, state in await leads_of(node):
        takeovers.labels(lead.owner).inc(lead.takeovers)
        if state in {LeadState.STOPPED, LeadState.REPLACED}:
            continue  # nobody misses it
        oldest = lead.oldest_lease_age(now, node.settings.lease) or 0
        for name, value in (
            ("heartbeat_age_seconds", lead.age(now) / times.SECOND),
            ("workers", lead.workers or 0),
            ("leases", lead.leases),
            ("lease_age_seconds", oldest / times.SECOND),
        ):
            family[name].labels(lead.owner).set(value)


def _add_transport(registry: CollectorRegistry, node: NodeService) -> None:
    """Add whether plain HTTP is served, and the time until the certificate expires (s)."""
    plain = Gauge(
        "parley_plain_http", "Whether plain HTTP is served to other hosts", registry=registry
    )
    plain.set(node.settings.plain_warning is not None)
    if (certificates := node.certificates) is None:
        return
    left = Gauge(
        "parley_certificate_expires_seconds",
        "Time until the certificate that people are shown expires",
        registry=registry,
    )
    left.set((certificates.expires_at - node.clock.now()) / times.SECOND)
    broken = Gauge(
        "parley_certificate_broken",
        "Whether the files of the certificate could not be read again after a change",
        registry=registry,
    )
    broken.set(certificates.fault is not None)


def _add_backups(registry: CollectorRegistry, node: NodeService) -> None:
    """Add the age of the latest backup (seconds), where backups are made."""
    if not node.backups.wanted:
        return
    age = Gauge("parley_backup_age_seconds", "Age of the latest backup", registry=registry)
    made = node.backups.latest
    age.set(math.inf if made is None else (node.clock.now() - made) / times.SECOND)
    failed = Gauge("parley_backup_failed", "Whether the last attempt failed", registry=registry)
    failed.set(node.backups.fault is not None)


def _add_archives(registry: CollectorRegistry, node: NodeService, backlog: list[Record]) -> None:
    names = ["destination", "archiver", "label"]
    waiting = Gauge(
        "parley_archive_backlog",
        "Results to be delivered, by destination and state",
        [*names, "state"],
        registry=registry,
    )
    oldest = Gauge(
        "parley_archive_oldest_seconds",
        "Age of the oldest result that waits or is parked",
        names,
        registry=registry,
    )
    for row in backlog:
        labels = (str(row["destination"]), row["archiver"], row["label"])
        for state in ("waiting", "parked"):
            waiting.labels(*labels, state).set(row[state])
        since = row["oldest_at"]
        age = 0.0 if since is None else max(0, node.clock.now() - since) / times.SECOND
        oldest.labels(*labels).set(age)


def _add_deliveries(registry: CollectorRegistry, figures: DeliveryFigures) -> None:
    """Add what campaigns and meshes were promised, and got, in the last day."""
    promised = Gauge(
        "parley_campaign_promised_share",
        "Share of all seat time that a campaign's weight promises it; none for urgent ones",
        ["campaign"],
        registry=registry,
    )
    had = Gauge(
        "parley_campaign_delivered_share",
        "Share of the seat time of the last 24 hours that a campaign had; none if nobody had any",
        ["campaign"],
        registry=registry,
    )
    for campaign in figures.campaigns:
        for family, share in ((promised, campaign.used.promised), (had, campaign.used.delivered)):
            if share is not None:
                family.labels(campaign.name).set(share)
    due = Gauge(
        "parley_mesh_due_runs",
        "Runs of a mesh that were due in the last 24 hours, from a whole hour on",
        ["mesh"],
        registry=registry,
    )
    delivered = Gauge(
        "parley_mesh_delivered_runs", "Runs among them with a result", ["mesh"], registry=registry
    )
    bad = Gauge(
        "parley_mesh_bad_runs",
        "Runs among the delivered ones whose result is bad, or to which nothing arrived",
        ["mesh"],
        registry=registry,
    )
    for mesh, delivery in figures.meshes.items():
        due.labels(mesh).set(delivery.due)
        delivered.labels(mesh).set(delivery.delivered)
        bad.labels(mesh).set(delivery.bad)


class _LeadFigures(Collector):
    """The figures of the leads, each with the name of its lead as a label."""

    def __init__(self, figures: Sequence[tuple[str, str]]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield one family per name."""
        families: dict[str, Metric] = {}
        for lead, text in self._figures:
            for family in text_string_to_metric_families(text):
                known = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    known.add_sample(sample.name, {**sample.labels, "lead": lead}, sample.value)
        yield from families.values()


class _Results(Collector):
    """The latest figures of each task led here, under the names that remote write uses."""

    def __init__(self, node: NodeService) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """Yield one family per name; a figure is as old as its run."""
        families: dict[str, GaugeMetricFamily] = {}
        ended: dict[str, int] = {}
        for at, sample in self._node.collector.latest.samples(self._node.clock.now()):
            if sample.name not in families:
                figure = sample.name.removeprefix("parley_result_").replace("_", " ")
                text = f"Of each task's last result: {figure}"
                families[sample.name] = GaugeMetricFamily(sample.name, text)
            families[sample.name].add_sample(sample.name, dict(sample.labels), sample.value)
            ended[dict(sample.labels).get("task", "")] = at
        yield from families.values()
        over = GaugeMetricFamily(
            "parley_result_time_seconds", "When each task's last run was over", labels=["task"]
        )
        for task, at in ended.items():
            over.add_metric([task], at / times.SECOND)
        yield over
