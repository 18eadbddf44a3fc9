"""``parley admin``: look after the database of this host's node, whether it runs or not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from node.cli.failures import INTERRUPTED, print_error_lines, report
from node.cli.groups import CommandGroup
from node.cli.invocation import Invocation, global_options
from node.cli.output import OutputWriter, RecordLayout
from node.model.errors import ParleyError

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])

MIGRATION = RecordLayout(columns=(), fields=("version", "steps", "done"), empty="", key="version")


@click.group("admin", cls=CommandGroup)
def admin_group() -> None:
    """Look after the database of this host's node."""


def _names_database(command: AnyCommand) -> AnyCommand:
    command = click.option("--state-dir", help="The node's directory [PARLEY_STATE_DIR].")(command)
    return click.option("--dsn", help="Its Postgres [PARLEY_DSN, else the private one].")(command)


@admin_group.command("migrate")
@_names_database
@click.option("--yes", is_flag=True, help="Do not ask.")
@global_options
@click.pass_context
def migrate(context: click.Context, /, *, yes: bool, **options: Any) -> None:
    """Show the steps from the database's schema to this program's, and do them.

    \b
      parley admin migrate          # shows, and asks
      parley admin migrate --yes    # does

    All steps are one transaction: each is done, or none. Without --yes, and where nobody can be
    asked, nothing is changed.
    """  # noqa: D301 - click's mark for lines to keep
    invocation = context.ensure_object(Invocation)
    try:
        asyncio.run(_migrate(invocation, options, yes=yes))
    except ParleyError as error:
        context.exit(report(error, invocation))
    except KeyboardInterrupt:
        context.exit(INTERRUPTED)


async def _migrate(invocation: Invocation, options: Mapping[str, Any], *, yes: bool) -> None:
    from node.cli.services import settings_of
    from node.postgres.access import present_database
    from node.store import migrating

    async with present_database(settings_of(dict(options))) as dsn:
        standing = await migrating.look(dsn)
        steps = [{"version": it.version, "title": it.title} for it in standing.missing]
        record = {"version": standing.version, "steps": steps, "done": False}
        wanted = bool(steps) and (yes or _confirmed(_view(record)))
        if wanted:
            await migrating.migrate(dsn)
        output = OutputWriter(invocation.output, invocation.picked)
        output.one({**record, "done": wanted}, MIGRATION, _view)


def _confirmed(question: str) -> bool:
    """Return whether a person wants it; False if there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print_error_lines(question)
    return click.confirm("Do this now?", err=True)


def _view(record: Mapping[str, Any]) -> str:
    version, steps = record["version"], record["steps"]
    if not steps:
        return f"The database has schema version {version}; there is nothing to do."
    lines = [f"  {step['version']}  {step['title']}" for step in steps]
    if record["done"]:
        return "\n".join([f"The database had schema version {version}. Done:", *lines])
    return "\n".join([f"The database has schema version {version}. To be done:", *lines])
