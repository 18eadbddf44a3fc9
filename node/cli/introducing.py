"""``parley node introduce``: many nodes at once, from one file that one of their owners signed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from node.cli.bundles import file_bytes, write_new
from node.cli.failures import can_ask, print_error_lines
from node.cli.invocation import with_scheme
from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout, plural, printable_text, records_of
from node.cli.session import Session, asks_node
from node.cli.times import local_time_text
from node.cli.values import json_object
from node.model.errors import NotAllowed

if TYPE_CHECKING:
    from node.model.wire.directories import IntroductionReport

_TRIPLE = 3
_PULL = "pull"
_TO_ADD = frozenset({"added", "changed"})
_REFUSED = 1
"""Exit code: a node of the directory was not added."""


def _detail_text(node: Record) -> str:
    if node["reason"]:
        return str(node["reason"])
    return "does not know this node yet" if node["knows_this"] is False else ""


INTRODUCED = RecordLayout(
    "name,url,identity,state,reason,knows_this",
    Column("node", lambda node: node["name"], whole=True),
    Column("state", lambda node: node["state"], whole=True),
    Column("url", lambda node: node["url"] or _PULL),
    Column("detail", _detail_text),
    empty="The directory has no nodes.",
    model="node.model.wire.directories:IntroducedNode",
)

_WRITTEN = RecordLayout("file,nodes")


@click.command("introduce")
@click.argument("file", metavar="FILE|-")
@click.argument("entries", nargs=-1, metavar="[NAME URL IDENTITY]...")
@options("""
    --write                 Write FILE, signed with the key of the node.
    --identity ed25519:KEY  The key that has to have signed FILE.
    --dry-run               Only show what would be added or changed.
    --yes                   Do not ask.
""")
@asks_node
async def introduce(
    session: Session,
    /,
    file: str,
    entries: tuple[str, ...],
    identity: str | None,
    *,
    write: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Add all nodes of a directory: names, URLs and keys in one file that one node has signed.

    \b
      parley node introduce --write nodes.json                  # the coordinator: all nodes known
      parley node introduce --write nodes.json b https://b.example:8642 ed25519:… c pull ed25519:…
      parley node introduce nodes.json                          # each owner: shows, asks, adds
      parley node introduce nodes.json --identity ed25519:… --yes   # in a script

    Each owner sends the coordinator a line: name, URL and key of their node ('parley node show').
    The file names the node that signed it; a file that was altered is refused. If its key is not
    known here, compare it with what that owner sees, or give it with --identity.

    A node is added as 'parley node add URL --identity KEY' adds it: it has to answer with that key
    and that name. Known nodes with another URL in the file are asked there, and followed. The exit
    code is 1 if a node was refused; the same command again tries only what is missing.
    """  # noqa: D301 - click's mark for lines to keep
    if write:
        if identity is not None or dry_run:
            raise click.UsageError("--identity and --dry-run are for reading FILE, not for --write")
        await _write(session, file, _typed_entries(entries))
        return 0
    if entries:
        raise click.UsageError(f"nodes are written with --write only; without it, give {file}")
    directory = json_object(file_bytes(file).decode(errors="replace"), file)
    preview = await session.client.introduce(directory, dry_run=True)
    _check_signer(preview, identity, asks=not yes)
    if dry_run or not _has_new_nodes(preview):
        return _print_report(session, preview, dry_run=dry_run)
    if not yes and not _is_confirmed(preview, identity):
        session.progress.note("nothing was added")
        return 0
    return _print_report(session, await session.client.introduce(directory), dry_run=False)


async def _write(session: Session, file: str, entries: Sequence[Mapping[str, Any]] | None) -> None:
    directory = await session.client.make_directory(entries)
    text = (json.dumps(directory, indent=2, ensure_ascii=False) + "\n").encode()
    if file == "-":
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return
    write_new(Path(file), text)
    names = [node["name"] for node in directory["nodes"]]
    session.output.print_one(
        {"file": file, "nodes": names, **directory["made"]}, _WRITTEN, _written_view
    )


def _written_view(written: Record) -> str:
    file = printable_text(written["file"])
    return (
        f"✓ {file}: {plural(len(written['nodes']), 'node')}: {', '.join(written['nodes'])}\n"
        f"  signed by {written['name']}, {written['node']}\n"
        f"  each owner types: parley node introduce {file} --identity {written['node']}"
    )


def _typed_entries(words: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return the entries that were typed; None if none was.

    :raises click.UsageError: they are no triples.
    """
    if len(words) % _TRIPLE:
        raise click.UsageError(f"write NAME URL IDENTITY for each node, not {' '.join(words)}")
    each = zip(words[::_TRIPLE], words[1::_TRIPLE], words[2::_TRIPLE], strict=True)
    return [
        {"name": name, "url": _url_of_node(url), "identity": identity}
        for name, url, identity in each
    ] or None


def _url_of_node(written: str) -> str | None:
    if written == _PULL:
        return None
    return (written if "://" in written else with_scheme(written)).rstrip("/")


def _check_signer(report: IntroductionReport, expected: str | None, *, asks: bool) -> None:
    """Check that a directory is signed by a key that is known or given, or that a person can look.

    :raises NotAllowed: it is signed by another key than the one that was given.
    :raises click.UsageError: the key is not known, and nobody can be asked.
    """
    made = report.made
    if expected is not None and expected != made.node:
        raise NotAllowed(f"the directory is signed with {made.node}, not with {expected}")
    if expected is not None or report.signer != "unknown" or (asks and can_ask()):
        return
    raise click.UsageError(
        f"the directory is signed by {printable_text(made.name)} with {made.node}, a key that is "
        "not known here, and nobody is asked. Compare it with what the owner of that node sees "
        "('parley node show'), and give it: --identity ed25519:KEY"
    )


def _is_confirmed(report: IntroductionReport, expected: str | None) -> bool:
    """Return whether a person agrees; True if nobody can be asked."""
    if not can_ask():
        return True
    lines = [_signer_text(report)]
    if expected is None and report.signer == "unknown":
        lines.append("  This key is not known here. Compare all of it with what that owner sees.")
    width = max(len(node.name) for node in report.nodes)
    lines += [
        f"  {node.state.value:8} {node.name:{width}}  {node.url or _PULL}  {node.reason or ''}"
        for node in report.nodes
        if node.state.value in _TO_ADD
    ]
    print_error_lines("\n".join(lines))
    return click.confirm("Add them, and let them ask this node to measure?", err=True)


def _print_report(session: Session, report: IntroductionReport, *, dry_run: bool) -> int:
    session.output.print_list(records_of(report.nodes), INTRODUCED)
    session.progress.note(_signer_text(report))
    counts = Counter(node.state.value for node in report.nodes)
    done = "would be " if dry_run else ""
    parts = [f"{counts[state]} {done}{state}" for state in ("added", "changed") if counts[state]]
    parts += [f"{counts[state]} {state}" for state in ("known", "refused") if counts[state]]
    session.progress.note(", ".join(parts) or "nothing to add")
    return _REFUSED if counts["refused"] else 0


def _signer_text(report: IntroductionReport) -> str:
    made = report.made
    known = {
        "self": "this node itself",
        "known": f"known here as {report.signer_name}",
        "unknown": "not known here",
    }[report.signer]
    return printable_text(
        f"Signed by {made.name}, {made.node} ({known}), {local_time_text(made.at)}"
    )


def _has_new_nodes(report: IntroductionReport) -> bool:
    return any(node.state.value in _TO_ADD for node in report.nodes)
