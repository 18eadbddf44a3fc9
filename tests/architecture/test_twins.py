"""Every named query has a twin in memory, or is known not to need one."""

from __future__ import annotations

from lead.simulation.memory.twins import FILES
from node.store.database import Queries
from tests.architecture.sources import REPOSITORY

WITHOUT = {
    # What only people ask for: the simulation reads the tables themselves.
    "node.store/runs": {"run", "runs_backward", "runs_forward", "decisions", "counts"},
    "node.store/tasks": {"tasks"},
    # Nobody archives anything in the simulation: the trigger of real tables has no work there.
    "node.store/archives": set(Queries("node.store", "archives"))
    - {"purge_archives", "purge_destinations"},
    "node.store/reservations": {"reservations", "inside"},
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
        "hours",
        "notify",
    },
    "node.store/pools": {"asking", "change_pool", "remove_pool", "notify"},
    "node.store/seats": {"before_in_turn", "seats", "waiting_in_seats"},
    "node.store/meshes": {
        "has_mesh",
        "meshes",
        "mesh_tasks",
        "mesh_keys",
        "mesh_outcomes",
        "mesh_outcomes_of",
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
    },
    "node.store/impacts": {"giving_way", "hours"},
    # The tables in memory need not be made.
    "node.store/setup": {"lock_set_up", "has_version", "count_tables", "version"},
}
"""By file, the queries that the simulated nodes never ask."""


def test_no_query_is_forgotten() -> None:
    """Whoever adds a query gives it a twin in lead/simulation/memory, or says why it needs none."""
    twins = {f"{file.package}/{file.file}": set(file.statements) for file in FILES}
    missing = {}
    for path in sorted(REPOSITORY.glob("*/store/sql/*.sql")):
        package = f"{path.parts[-4]}.store"
        named = {name for name, _ in Queries(package, path.stem).items()}
        file = f"{package}/{path.stem}"
        if left := named - twins.get(file, set()):
            missing[file] = left
    assert missing == WITHOUT
