"""``parley node drain`` and ``undrain``: no new runs on a host that is about to be changed.

A drained node has its time reserved, for nobody and without end, and the attribute ``drained``:
leads hear the reason with each refusal, and others read it in the node's card.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from node.cli.listing import collect, expected_members
from node.cli.options import options
from node.cli.output import Record, RecordLayout, printable_text
from node.cli.session import Session, asks_node
from node.cli.times import api_instant, local_time_text
from node.model.errors import NotFound
from node.model.moments import Moment
from node.model.times import format_instant

if TYPE_CHECKING:
    from node.model.wire.reservations import Reservation

ATTRIBUTE = "drained"
DRAIN_NAME = "drained: "
"""Prefix of the names of the reservations that drain a node."""

_DAY = "P1D"
_MOST = 10_000

DRAINED = RecordLayout("node,from,reason,displaced,staying")


@click.command("drain")
@click.argument("reason", default="maintenance")
@options("--from COMING as start  From then on: 10m, 22:00, tomorrow [now].")
@options("--keep  Keep the runs that are booked already.")
@asks_node
async def drain(session: Session, /, reason: str, start: Moment | None, keep: bool) -> None:
    """Take no new runs on this node, until undrain; runs in progress continue to their end.

    \b
      parley node drain "new disks" --from +30m
      parley node undrain

    A node drains itself alone; --server names another one, whose token you have.

    Runs that are booked after that time give way: their leads plan them again, and learn the
    reason. With --keep they take place. Other nodes see the attribute drained. Draining again
    changes time and reason.
    """  # noqa: D301 - click's mark for lines to keep
    client = session.client
    known = await session.reader.listed("/nodes", {})
    with expected_members():
        other = {node["name"]: node["url"] for node in known.items if not node["is_self"]}
    if reason in other:
        server = f" --server {other[reason]}" if other[reason] else ", typed on its host"
        raise click.UsageError(
            f"{reason} is another node; its own owner drains it: parley node drain{server}"
        )
    before = await _draining_reservations(session)
    at = {} if start is None else {"start": api_instant(start, session.clock.now())}
    document = {
        "kind": "maintenance",
        "name": f"{DRAIN_NAME}{reason}"[:100],
        "schedule": {"repeat": _DAY, **at},
        "duration": _DAY,
        "displace": not keep,
    }
    if not keep:
        session.progress.status("having the booked runs give way", "displacing")
    made = await client.add_reservation(document)
    session.progress.clear()
    await asyncio.gather(*(client.remove_reservation(each.id) for each in before))
    begins = format_instant(made.schedule.start)
    node = await client.set_attributes({ATTRIBUTE: f"{reason} (from {begins})"[:200]})
    displaced = made.displaced_count or 0
    record = {
        "node": node.name,
        "from": begins,
        "reason": reason,
        "displaced": displaced,
        "staying": (made.inside_count or 0) - displaced,
    }
    session.output.print_one(record, DRAINED, _drained_view)


def _drained_view(record: Record) -> str:
    return (
        f"{record['node']} takes no new runs from {local_time_text(record['from'])} on: "
        f"{printable_text(record['reason'])}\n"
        f"  {record['displaced']} booked runs gave way, {record['staying']} stay\n"
        "  To end this: parley node undrain"
    )


@click.command("undrain")
@asks_node
async def undrain(session: Session) -> None:
    """Take runs on this node again.

    \b
      parley node undrain
    """  # noqa: D301 - click's mark for lines to keep
    client = session.client
    drains = await _draining_reservations(session)
    node = await client.set_attributes({ATTRIBUTE: None})
    if not drains:
        raise NotFound(f"{node.name} is not drained; see: parley reservation list")
    await asyncio.gather(*(client.remove_reservation(each.id) for each in drains))
    record = {"node": node.name, "from": None, "reason": None, "displaced": 0, "staying": 0}
    session.output.print_one(record, DRAINED, lambda it: f"{it['node']} takes runs again.")


async def _draining_reservations(session: Session) -> list[Reservation]:
    listed, _ = await collect(session.client.reservations, _MOST)
    return [each for each in listed if each.pool is None and each.name.startswith(DRAIN_NAME)]
