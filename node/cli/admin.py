"""``parley admin``: look after the database of this host's node, whether it runs or not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from node.cli.failures import can_ask, print_error_lines
from node.cli.groups import command_group
from node.cli.invocation import Invocation
from node.cli.options import options
from node.cli.output import RecordLayout, pairs_text
from node.cli.session import runs_here
from node.cli.transfer import export, import_
from node.model.errors import HostError
from node.model.times import SECOND

if TYPE_CHECKING:
    from node.postgres.backups import BackupDirectory, Manifest
    from node.runtime.settings import Settings

SERVICE_SETTINGS = Path("/etc/parley/parley.env")
"""The settings of a node that systemd runs."""

BACKUP = RecordLayout("file,bytes,identity,schema_version,made_at,program,with_key")
RECLAIMED = RecordLayout("identity")
REPAIRED = RecordLayout("vacuumed,indexed")
MIGRATION = RecordLayout("version,steps,done")


admin_group = command_group(
    "admin",
    more="Root need not name it where systemd runs the node: its settings are in "
    "/etc/parley/parley.env.",
)
admin_group.add_command(export)
admin_group.add_command(import_)


_database_options = options("""
    --dsn TEXT        Its Postgres [PARLEY_DSN, else the private one].
    --state-dir TEXT  The node's directory [PARLEY_STATE_DIR].
""")


@admin_group.command("migrate")
@_database_options
@options("--yes  Do not ask.")
@runs_here
async def migrate(invocation: Invocation, /, *, yes: bool, **options: Any) -> None:
    """Show the steps from the database's schema to this program's, and do them.

    \b
      parley admin migrate          # shows, and asks
      parley admin migrate --yes    # does

    All steps are one transaction: each is done, or none. Without --yes, and where nobody can be
    asked, nothing is changed.
    """  # noqa: D301 - click's mark for lines to keep
    from node.postgres.access import present_database
    from node.store import migrating

    async with contextlib.AsyncExitStack() as stack:
        settings, _ = stack.enter_context(node_of_host(options))
        dsn = await stack.enter_async_context(present_database(settings))
        standing = await migrating.find_standing(dsn)
        steps = [{"version": it.version, "title": it.title} for it in standing.missing]
        record = {"version": standing.version, "steps": steps, "done": False}
        wanted = bool(steps) and (yes or _is_confirmed(_migration_view(record)))
        if wanted:
            await migrating.migrate(dsn)
        output = invocation.writer()
        output.print_one({**record, "done": wanted}, MIGRATION, _migration_view)


@admin_group.command("backup")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@options(
    """
    --to DIRECTORY as directory  Write a file named for the node and the time into this directory.
    --keep 1..                   With --to: delete older backups of this node there, but this many.
    --without-key                Leave out the node's private key.
    """,
    {"DIRECTORY": click.Path(exists=True, file_okay=False, path_type=Path)},
)
@_database_options
@runs_here
async def backup(
    invocation: Invocation,
    /,
    file: Path | None,
    directory: Path | None,
    keep: int | None,
    without_key: bool,
    **options: Any,
) -> None:
    """Write the node's database and key to FILE; the node may run meanwhile.

    \b
      parley admin backup /backup/a.parley
      parley admin backup --to /backup --keep 14     # every night, from cron or a timer

    What was written is read again and compared before the file gets its name. The key is what
    other nodes know this one by: keep the file like a password, or leave the key out.
    """  # noqa: D301 - click's mark for lines to keep
    from node.model.times import format_instant
    from node.postgres import backups
    from node.postgres.access import present_database
    from node.runtime.clock import SystemClock
    from node.runtime.version import program_version

    if keep is not None and directory is None:
        raise click.UsageError("--keep needs --to")
    place = file if directory is None else backups.BackupDirectory(directory, keep)
    if place is None or (file is not None and directory is not None):
        raise click.UsageError("give FILE, or --to DIRECTORY")

    with node_of_host(options) as (settings, account):
        async with present_database(settings) as dsn:
            identity = backups.identity_in(settings.state_dir)
            now = format_instant(SystemClock().now() // SECOND * SECOND)
            file = _new_file(place, identity, now, account)
            manifest = await backups.back_up(
                dsn,
                settings.state_dir,
                file,
                with_key=not without_key,
                program=program_version(),
                now=now,
            )
        if not isinstance(place, Path):
            await asyncio.to_thread(place.delete_older, identity)
        _show(invocation, file, manifest, "Written and read again")


@admin_group.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options("--replace  Replace what the database and the state directory have.")
@_database_options
@runs_here
async def restore(invocation: Invocation, /, file: Path, *, replace: bool, **options: Any) -> None:
    """Restore the database and the key in FILE, while the node does not run.

    \b
      parley admin restore /backup/a.parley              # on a new host, or after a loss
      parley admin restore --replace /backup/a.parley    # back to an earlier state

    The whole file is checked first. At its next start the node notices that its database is older
    than what other nodes have seen, and compares with them what was agreed meanwhile.
    """  # noqa: D301 - click's mark for lines to keep
    from node.postgres import backups
    from node.postgres.access import idle_database
    from node.trust.private_files import prepare_directory

    with node_of_host(options) as (settings, account), _readable_copy(file, account) as readable:
        manifest = backups.read(readable)
        prepare_directory(settings.state_dir)
        backups.check_key(manifest, settings.state_dir, replace=replace)
        async with idle_database(settings) as dsn:
            await backups.restore_database(dsn, readable, manifest, replace=replace)
        if manifest.with_key:
            backups.restore_keys(readable, settings.state_dir)
        _show(invocation, readable, manifest, "Restored")
    if not manifest.with_key:
        note = (
            "The backup has no key: nodes that know another key of this one have to add it again."
        )
        print_error_lines(note)


@admin_group.command("reclaim")
@_database_options
@runs_here
async def reclaim(invocation: Invocation, /, **options: Any) -> None:
    """Let this host have the node again that went on at another one.

    \b
      parley admin reclaim     # while the node does not run; then start it

    A node of which a backup was restored on another host ends here, and other nodes follow it
    there. Use this if that was a mistake, or a trial. Stop the other host first. At its next start
    the node here is taken for one that was just restored, and compares with the others.
    """  # noqa: D301 - click's mark for lines to keep
    await _reclaim(invocation, options)


@admin_group.command("take-over")
@_database_options
@runs_here
async def take_over(invocation: Invocation, /, **options: Any) -> None:
    """Let this copy of a node be the node from now on.

    \b
      parley admin take-over     # while neither of the two runs; then start this one

    A clone of a node's machine or disk begins nothing as long as the original answers. Use this if
    the node is to go on here, and stop the original first: the other nodes follow this one, and the
    original ends once it is told so.
    """  # noqa: D301 - click's mark for lines to keep
    await _reclaim(invocation, options)


@admin_group.command("repair")
@_database_options
@runs_here
async def repair(invocation: Invocation, /, **options: Any) -> None:
    """Vacuum the database, and make all its indexes anew, while the node does not run.

    \b
      parley admin repair      # after "the database is damaged", or "its ids are used up"

    Copy the files of the database first. What is damaged in a table is not repaired: then this
    fails and says so, and a backup is the way back.
    """  # noqa: D301 - click's mark for lines to keep
    from node.postgres.access import idle_database
    from node.store import maintenance

    with node_of_host(options) as (settings, _):
        async with idle_database(settings) as dsn:
            done = await maintenance.repair(dsn)
    invocation.writer().print_one(asdict(done), REPAIRED, _repaired_view)


@contextlib.contextmanager
def node_of_host(options: Mapping[str, Any]) -> Iterator[tuple[Settings, str | None]]:
    """Yield the settings of this host's node, and the account that root acts for, if any.

    Root gets the settings of the node that systemd runs, unless another one is named, and acts for
    the account that the node's directory belongs to.
    """
    from dotenv import dotenv_values

    from node.cli.service_account import acting_for
    from node.cli.services import settings_of

    named = any(options.values()) or {"PARLEY_DSN", "PARLEY_STATE_DIR"} & os.environ.keys()
    served = os.geteuid() == 0 and not named and SERVICE_SETTINGS.exists()
    if served:
        for name, value in dotenv_values(SERVICE_SETTINGS, interpolate=False).items():
            os.environ.setdefault(name, value or "")
    settings = settings_of(dict(options))
    with acting_for(settings) as account:
        yield settings, account


@contextlib.contextmanager
def _readable_copy(file: Path, account: str | None) -> Iterator[Path]:
    """Yield a file that the account may read: this one, or a copy of it, which only root could."""
    if account is None or os.access(file, os.R_OK, effective_ids=True):
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="parley-restore-") as work:
        copy, uid = Path(work) / file.name, os.geteuid()
        os.seteuid(0)
        try:
            shutil.copyfile(file, copy)
            shutil.chown(copy, account)
        finally:
            os.seteuid(uid)
        yield copy


def _new_file(place: Path | BackupDirectory, identity: str, now: str, account: str | None) -> Path:
    """Return the file for a new backup of a node.

    :raises HostError: it exists, or the account that root acts for may not write it.
    """
    file = place if isinstance(place, Path) else place.new_file(identity, now)
    if file.exists():
        raise HostError(f"{file} exists; name a new file, or remove that one")
    if account and not os.access(file.parent, os.W_OK | os.X_OK, effective_ids=True):
        msg = f"the account {account} may not write to {file.parent}; name a directory of its own"
        raise HostError(msg)
    return file


async def _reclaim(invocation: Invocation, options: Mapping[str, Any]) -> None:
    from node.postgres import backups
    from node.postgres.access import idle_database
    from node.store import maintenance

    with node_of_host(options) as (settings, _):
        identity = backups.identity_in(settings.state_dir)
        async with idle_database(settings) as dsn:
            await maintenance.begin_generation_at_next_start(dsn)
    output = invocation.writer()
    output.print_one({"identity": identity}, RECLAIMED, _reclaimed_view)


def _reclaimed_view(record: Mapping[str, Any]) -> str:
    return f"{record['identity']} goes on here at its next start."


def _repaired_view(record: Mapping[str, Any]) -> str:
    return (
        f"Vacuumed: {', '.join(record['vacuumed'])}. "
        f"The indexes of {len(record['indexed'])} tables were made anew."
    )


def _show(invocation: Invocation, file: Path, manifest: Manifest, what: str) -> None:
    record = {**asdict(manifest), "file": str(file), "bytes": file.stat().st_size}

    def view(_: Mapping[str, Any]) -> str:
        return f"{what}: {file}\n" + pairs_text(
            [
                ("node", manifest.identity),
                ("made", f"{manifest.made_at} by version {manifest.program}"),
                ("schema", manifest.schema_version),
                ("key", "included" if manifest.with_key else "left out"),
                ("size", f"{file.stat().st_size:,} bytes"),
            ],
            "  ",
        )

    invocation.writer().print_one(record, BACKUP, view)


def _is_confirmed(question: str) -> bool:
    """Return whether the person at the terminal agrees; False without a terminal."""
    if not can_ask():
        return False
    print_error_lines(question)
    return click.confirm("Do this now?", err=True)


def _migration_view(record: Mapping[str, Any]) -> str:
    version, steps = record["version"], record["steps"]
    if not steps:
        return f"The database has schema version {version}; there is nothing to do."
    lines = [f"  {step['version']}  {step['title']}" for step in steps]
    if record["done"]:
        return "\n".join([f"The database had schema version {version}. Done:", *lines])
    return "\n".join([f"The database has schema version {version}. To be done:", *lines])
