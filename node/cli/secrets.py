"""The command ``parley secret``: values that specs of tests name, and the tool alone is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from node.cli.groups import command_group
from node.cli.options import options
from node.cli.output import Column, RecordLayout
from node.cli.session import Session, asks_node
from node.cli.times import local_time_text

SECRET = RecordLayout(
    "name,hosts,users,leads,created_at,changed_at",
    Column("secret", lambda secret: secret["name"]),
    Column("hosts", lambda secret: ", ".join(secret["hosts"]) or "any"),
    Column("users", lambda secret: ", ".join(secret["users"])),
    Column("leads", lambda secret: ", ".join(secret["leads"])),
    Column("changed", lambda secret: local_time_text(secret["changed_at"])),
    empty="No secrets.",
)


secret_group = command_group("secret")


@secret_group.command("add")
@click.argument("name")
@options(
    "--file FILE  The file with the value, without the newline at its end. [standard input]",
    {"FILE": click.Path(path_type=Path, exists=True, dir_okay=False)},
)
@options("""
    --host TEXT... as hosts  Where it may be sent: HOST, HOST:PORT. [any]
    --user TEXT... as users  A token of the role run that may use it.
    --lead TEXT... as leads  Another node whose tasks may use it here.
    --replace                Replace the one of this name.
""")
@asks_node
async def add(session: Session, /, name: str, file: Path | None, **given: Any) -> None:
    """Add a secret; its value is never an argument, which others on the host could read.

    A test names it in place of a value: headers={"Authorization": {"secret": "NAME"}}.

    \b
      parley secret add api-token --host api.example < token.txt
      parley secret add api-token --file token.txt --host api.example:443 --user alice
    """  # noqa: D301 - click's mark for lines to keep
    document = {"name": name, "value": _value(name, file), **given}
    added = await session.client.add_secret(document)
    session.output.print_one(added, SECRET, lambda secret: str(secret["name"]))
    use = f'{{"secret": "{name}"}}'
    session.progress.note(f"Specs name it in place of the value: {use}")


def _value(name: str, file: Path | None) -> str:
    if file is not None:
        return file.read_text().removesuffix("\n")
    if sys.stdin.isatty():
        return str(click.prompt(f"Value of {name}", hide_input=True, err=True))
    return sys.stdin.read().removesuffix("\n")


secret_group.add_list(
    "/secrets",
    SECRET,
    "List the secrets, without their values: who may use them, and where they may be sent.",
)


@secret_group.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@asks_node
async def remove(session: Session, names: tuple[str, ...]) -> None:
    """Remove secrets; runs of tasks that name them fail with that as their reason."""
    for name in names:
        await session.client.remove_secret(name)
        session.progress.note(f"secret {name} was removed")
