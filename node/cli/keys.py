"""``parley node rekey`` and ``revoke``: another key for this node, or an end of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from node.cli.bundles import file_bytes
from node.cli.options import options
from node.cli.session import Session, asks_node
from node.model.errors import NotAllowed

if TYPE_CHECKING:
    from node.model.wire.keys import Rekeying, RevocationReport


@click.command("rekey")
@asks_node
async def rekey(session: Session) -> None:
    """Replace the key of the node; those who know it follow, and no run is lost.

    The old key signs the new one, and the nodes that know the old one take the new one over, at
    once or when they hear from this node next. The node keeps its identity, by which all others
    name it. The old key counts for another day, for what is under way. Make a new backup: the
    key in an older one is the old key.
    """
    rekeyed = await session.client.rekey()
    session.output.print_report(rekeyed, rekeying_view(rekeyed))


def rekeying_view(rekeyed: Rekeying) -> str:
    """Return lines with the new key of the node, and the nodes that do not know it yet."""
    lines = [f"The node has the key {rekeyed.key} from now on."]
    if rekeyed.told:
        lines.append(f"Taken over by: {', '.join(rekeyed.told)}.")
    lines += [f"Not yet by {untold.name}: {untold.reason}." for untold in rekeyed.untold]
    return "\n".join(lines)


@click.command("revoke")
@click.argument("key", metavar="[ed25519:KEY|NAME]", required=False)
@options("""
    --prepare      Only print the statement, and revoke nothing.
    --file FILE|-  Take in a statement that was prepared.
    --yes          Do not ask.
""")
@asks_node
async def revoke(
    session: Session, key: str | None, file: str | None, *, prepare: bool, yes: bool
) -> None:
    """Revoke a key of the node, for good: the nodes that know it end what it has there.

    Without KEY that is the key of today, and the node ends with it. With a KEY that was replaced
    ('parley node rekey') only that key ends, at once, and the node goes on.

    With the NAME of another node, its keys count for nothing at this one any more. Others are
    not told, since they believe only a statement of the key itself.

    A revocation can be signed beforehand with --prepare, and kept where no thief of the host
    finds it. Any node that knows the key takes it in with --file, and tells the others.
    """
    if file is not None:
        if key is not None or prepare:
            raise click.UsageError("--file brings the key itself: leave out KEY and --prepare")
        written = file_bytes(file).decode("utf-8", "replace")
        report = await session.client.revoke_key(_revocation_in(written))
    else:
        other = key is not None and not key.startswith("ed25519:")
        if other and prepare:
            raise click.UsageError("only a node itself can sign that its key is revoked")
        if not (prepare or yes):
            what = key or "the key of this node, and end the node for good"
            what = f"{key}, and end for good what it has here" if other else what
            if not click.confirm(f"Revoke {what}?", err=True):
                raise NotAllowed("nothing was revoked")
        if other:
            report = await session.client.revoke_node(str(key))
            _show(session, report)
            return
        if key is None and not prepare:
            known = (await session.client.nodes()).items
            key = next(each.keys[-1] for each in known if each.is_self)
        report = await session.client.revoke_own_key(key, prepare=prepare)
    _show(session, report, statement=prepare)


def _revocation_in(text: str) -> str:
    """Return the revocation in a text: the statement itself, or the JSON report that has it."""
    try:
        report = json.loads(text)
        return str(report["statement"])
    except (ValueError, KeyError, TypeError):
        return text.strip()


def _show(session: Session, report: RevocationReport, *, statement: bool = False) -> None:
    text = report.statement if statement else revocation_view(report)
    session.output.print_report(report, text)


def revocation_view(report: RevocationReport) -> str:
    """Return lines with the revoked key, and the nodes that do not know of it yet."""
    ended = {
        "nothing": "It has nothing here.",
        "key": "The node that had it goes on with a later key.",
        "node": "All that it had here has ended.",
    }
    lines = [f"The key {report.key} is revoked. {ended[report.ended]}"]
    if report.told:
        lines.append(f"Told to: {', '.join(report.told)}.")
    lines += [f"Not yet to {untold.name}: {untold.reason}." for untold in report.untold]
    return "\n".join(lines)
