"""``parley mesh``: list meshes; what changes them and counts what they deliver is loaded late."""

from __future__ import annotations

from node.cli.groups import command_group
from node.cli.listing import limit_option, print_documents
from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout
from node.cli.session import ReadingSession, reads_node
from node.cli.times import local_time_text


def _tasks_text(counts: Record) -> str:
    states = ", ".join(f"{number} {state}" for state, number in counts.items())
    return f"removed ({states})" if set(counts) == {"cancelled"} else states


MESH = RecordLayout(
    "name,tasks,campaigns,created_at,changed_at",
    Column("mesh", lambda mesh: mesh["name"], whole=True),
    Column("tasks", lambda mesh: _tasks_text(mesh["tasks"])),
    Column("campaigns", lambda mesh: " ".join(mesh["campaigns"])),
    Column("made", lambda mesh: local_time_text(mesh["created_at"]), whole=True),
    Column("changed", lambda mesh: local_time_text(mesh["changed_at"]), whole=True),
    empty="No meshes. Make one: parley mesh apply FILE",
    model="node.model.wire.meshes:Mesh",
)

_LATE = {
    "plan": "node.cli.meshplan:mesh",
    "apply": "node.cli.meshcommands:apply",
    "status": "node.cli.meshcommands:status",
    "remove": "node.cli.meshcommands:remove",
    "import": "node.cli.meshimport:import_template",
    "follow": "node.cli.meshfollow:follow",
    "rules": "node.cli.meshrules:rules",
}


mesh_group = command_group("mesh", _LATE)


@mesh_group.command("list")
@options("--all as removed  Include those that were removed.")
@limit_option
@reads_node
async def list_meshes(session: ReadingSession, removed: bool, limit: int) -> None:
    """List the meshes that this node leads, except those whose tasks were all cancelled."""
    query = {"removed": "true" if removed else None}
    await print_documents(session, MESH, "/meshes", query, limit)
