"""``parley webhook``: addresses that are told when something is wrong."""

from __future__ import annotations

from typing import Any

import click

from node.cli.groups import command_group
from node.cli.options import given_values, options
from node.cli.output import Column, RecordLayout
from node.cli.session import Session, asks_node
from node.cli.times import local_time_text
from node.model import times

WEBHOOK = RecordLayout(
    "name,url,events,failures,mesh,percent,span,created_at,waiting,delivered_at,last_error",
    Column("webhook", lambda webhook: webhook["name"]),
    Column("url", lambda webhook: webhook["url"]),
    Column("events", lambda webhook: ", ".join(webhook["events"])),
    Column("waiting", lambda webhook: str(webhook["waiting"])),
    Column("delivered", lambda webhook: local_time_text(webhook["delivered_at"]) or "never"),
    Column("last error", lambda webhook: webhook["last_error"] or ""),
    empty="No webhooks.",
)


webhook_group = command_group("webhook")


@webhook_group.command("add")
@click.argument("name")
@click.argument("url")
@options("""
    --event [node-away|task-failing|mesh-below|alert]... as events  What it is told of; often. [all]
    --failures INTEGER          Failed runs of a task in a row. [3]
    --mesh TEXT                 The only mesh to be told of. [all]
""")
@click.option("--percent", type=float, help="What a mesh has to deliver. [95]")
@options("--span DURATION  The time in which that is counted. [1h]")
@asks_node
async def add(session: Session, /, name: str, span: int | None, **given: Any) -> None:
    """Add a webhook, and print the secret that signs its messages; it is shown this once.

    \b
      parley webhook add pager https://alerts.example/parley
      parley webhook add lab http://127.0.0.1:9000/ --event mesh-below --percent 90
    """  # noqa: D301 - click's mark for lines to keep
    document = {
        "name": name,
        **given,
        "events": list(given["events"]) or None,
        "span": None if span is None else times.format_duration(span),
    }
    added = await session.client.add_webhook(given_values(document))
    session.output.print_one(added, WEBHOOK, lambda webhook: str(webhook["secret"]))
    session.progress.note(
        f"This is the secret of {name}; it is shown this once. Try: parley webhook test {name}"
    )


webhook_group.add_list("/webhooks", WEBHOOK, "List the webhooks, and how their last delivery went.")


@webhook_group.command("test")
@click.argument("name")
@asks_node
async def test(session: Session, name: str) -> None:
    """Send a message of the type test to a webhook; exit code 5 if it is not accepted."""
    tested = await session.client.test_webhook(name)
    session.progress.note(f"{name} has accepted message {tested.message}")


@webhook_group.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@asks_node
async def remove(session: Session, names: tuple[str, ...]) -> None:
    """Remove webhooks, and drop what they were not told yet."""
    for name in names:
        await session.client.remove_webhook(name)
        session.progress.note(f"webhook {name} was removed")
