"""``parley mesh import``: a template of psConfig as a mesh file, with what it does not have."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from node.cli.options import options
from node.cli.output import RecordLayout, plural, printable_text
from node.cli.session import Session, asks_node
from node.model.errors import FieldFault, InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from node.pscheduler.psconfig.template import Omission

IMPORTED = RecordLayout(
    "mesh,omissions,tasks,left_out,file",
    key="file",
)

named_option = options("""
    --node ADDRESS=NAME... as named  The node that an address of the template is, where they differ;
                                repeat for more.
""")
insecure_option = options(
    "--insecure  Accept any certificate, as psConfig does; follow over plain HTTP."
)


@click.command("import")
@click.argument("source", metavar="FILE|URL")
@options("--write FILE as file  Write it there: TOML, or JSON (.json).")
@options("--name NAME  The name of the mesh [that of the template].")
@named_option
@insecure_option
@asks_node
async def import_template(
    session: Session,
    source: str,
    *,
    file: str | None,
    name: str | None,
    named: tuple[str, ...],
    insecure: bool,
) -> int:
    """Make a mesh file of a template of psConfig, and report what has no counterpart.

    \b
      parley mesh import https://config.example/psconfig.json --write backbone.toml
      parley mesh plan backbone.toml

    Addresses become the nodes that are known here by these names or addresses. What the mesh file
    does not have is told with its place in the template, on standard error and at the beginning of
    the file. Nothing is applied. The exit code is 2 if nothing of the template can be measured.
    """  # noqa: D301 - click's mark for lines to keep
    from node.cli import templates  # loads aiohttp and all tests
    from node.cli.published import Documents
    from node.pscheduler.psconfig.template import is_template
    from node.pscheduler.psconfig.writing import to_toml

    read = Documents(insecure=insecure)
    text = await read.read_named(source)
    if not is_template(text):
        fault = "is no template of psConfig; a mesh file is applied: parley mesh apply FILE"
        raise InvalidDocument([FieldFault("", fault)])
    made = await templates.translate_template(
        session, text, source, read, name=name, named=nodes_by_address(named)
    )
    session.progress.note("\n".join([*omission_lines(made.omissions), *made.effect_lines]))
    if not made.tasks:
        session.progress.note("Nothing of the template can be measured with the nodes known here.")
        return InvalidDocument.exit_code
    written = to_toml(made.mesh, made.omissions, source)
    if file is not None:
        as_json = file.endswith(".json")
        write_private(Path(file), json.dumps(made.mesh, indent=2) + "\n" if as_json else written)
        session.progress.note(
            f"{plural(made.tasks, 'task')} in {file}. Next: parley mesh plan {file}"
        )
    record = {
        "mesh": made.mesh,
        "omissions": [vars(omission) for omission in made.omissions],
        "tasks": made.tasks,
        "left_out": made.left_out,
        "file": file,
    }
    session.output.print_one(record, IMPORTED, lambda _: "" if file else written.rstrip())
    return 0


def nodes_by_address(words: Sequence[str]) -> Mapping[str, str]:
    """Parse words of the form ``ADDRESS=NAME``; return the names of nodes by address.

    :raises click.BadParameter: a word is not of this form.
    """
    pairs = {}
    for word in words:
        address, equals, name = word.partition("=")
        if not (address and equals and name):
            raise click.BadParameter(f"{word} is not ADDRESS=NAME", param_hint="--node")
        pairs[address] = name
    return pairs


def omission_lines(omissions: Sequence[Omission]) -> list[str]:
    """Return lines on what the mesh file lacks or says differently than the template."""
    return [printable_text(f"! {omission.sentence}") for omission in omissions]


def write_private(path: Path, text: str) -> None:
    """Write a mesh file, which may have passwords of archives, for its owner only.

    :raises click.BadParameter: it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror}"
        raise click.BadParameter(msg, param_hint="--write") from error
