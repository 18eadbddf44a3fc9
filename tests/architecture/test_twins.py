"""Every named query has a twin in memory, or is listed as not needing one."""

from __future__ import annotations

from lead.simulation.memory.twins import FILES
from node.store.queries import Queries
from tests.architecture.sources import REPOSITORY

WITHOUT = {
    # Queries for people: the simulation reads the tables themselves. No simulated node forgets
    # the others.
    "node.store/runs": {
        "run",
        "recorded_run",
        "runs_backward",
        "runs_forward",
        "named_runs",
        "named_gaps",
        "buckets",
        "gap",
        "at_slot",
        "decisions",
        "counts",
        "coming_with",
        # Simulated launchers send nothing.
        "booked_with",
        # Nobody reads their log either.
        "ended",
    },
    # Nobody asks simulated nodes what they had booked.
    "node.store/schedules": {"as_of", "changes"},
    # No simulated node is silent for days, and nobody asks who wants a task.
    "node.store/tasks": {
        "tasks",
        "measured_tasks",
        "requested",
        "count_open_for",
    },
    # Databases in memory have no marks: none goes back. Nobody pardons nodes, and none moves.
    "node.store/nodes": {
        "keep_mark",
        "compared",
        "uncompared",
        "heard",
        "silent_leads",
        "pardon",
        "announcement",
        "keep_announcement",
        "move",
        "give_up",
        "lock_outside",
    },
    # Nobody lists simulated nodes.
    "node.store/outbox": {"waiting_by_node"},
    # Nothing is led from outside there.
    "node.store/bookings": {"raise_rank"},
    "node.store/outside": set(Queries("node.store", "outside")),
    # All hosts of a simulated world have one owner, who sets no quotas.
    "node.store/host_limits": {
        "stop_counting",
        "drop_quotas",
        "keep_quotas",
        "recount",
        "claim_use",
        "take_returns",
        "reach",
        "reached_now",
        "use_between",
        "use_now",
        "at_once",
        "count_use",
        "rates",
        "keep_rates",
        "moving",
        "any_booked",
    },
    # The simulation has no archives, so the triggers of real tables would do nothing.
    "node.store/archives": set(Queries("node.store", "archives"))
    - {"purge_archives", "purge_destinations"},
    "node.store/campaigns": {
        "has_campaign",
        "change_campaign",
        "uses",
        "remove_campaign",
        "tasks_of",
        "waiting_of",
        "used_between",
        "charged_ahead",
        "plan_again",
        "plan_others",
        "hours",
        "notify",
    },
    "node.store/pools": {"asking", "change_pool", "remove_pool", "notify", "expected_misses"},
    "node.store/seats": {"before_in_turn", "seats", "waiting_in_seats"},
    "node.store/meshes": {
        "has_mesh",
        "meshes",
        "mesh_tasks",
        "mesh_keys",
        "mesh_outcomes",
        "mesh_outcomes_of",
        "worst_keys",
        "newest_of_keys",
        "latest_of_keys",
        "sum_up_hours",
        "lock_sums",
    },
    # Simulated runs have no intervals.
    "node.store/intervals": {
        "keep_intervals",
        "fill_intervals",
        "open_intervals",
        "merge_intervals",
        "told_intervals",
        "measured_intervals",
        "intervals_forward",
        "intervals_backward",
        "recorded_intervals",
    },
    "node.store/impacts": {"giving_way", "hours"},
    # Simulated nodes are not asked whether they are ready.
    "node.store/readiness": set(Queries("node.store", "readiness")),
    # Simulated clocks are set by seconds.
    "node.store/clock_steps": set(Queries("node.store", "clock_steps")),
    # Nothing in a simulation authenticates with a token.
    "node.store/tokens": set(Queries("node.store", "tokens")) - {"purge_tokens"},
    # Nobody asks a simulated node for anything over HTTP.
    "node.store/audit": set(Queries("node.store", "audit")) - {"keep_entries", "purge_entries"},
    # Nobody there runs pScheduler.
    "node.store/pscheduler_bookings": set(Queries("node.store", "pscheduler_bookings")),
    # Nobody has webhooks there.
    "node.store/webhooks": set(Queries("node.store", "webhooks")),
    # No client of pScheduler asks a simulated node.
    "node.store/pscheduler": set(Queries("node.store", "pscheduler")),
    # The tables in memory need no setup.
    "node.store/setup": set(Queries("node.store", "setup")),
}
"""By file, the queries that simulated nodes never use."""


def test_no_query_is_forgotten() -> None:
    """Every query has a twin in lead/simulation/memory, or is listed here with the reason."""
    twins = {f"{file.package}/{file.file}": set(file.statements) for file in FILES}
    missing = {}
    for path in sorted(REPOSITORY.glob("*/store/sql/*.sql")):
        package = f"{path.parts[-4]}.store"
        named = {name for name, _ in Queries(package, path.stem).items()}
        file = f"{package}/{path.stem}"
        if left := named - twins.get(file, set()):
            missing[file] = left
    assert missing == WITHOUT
