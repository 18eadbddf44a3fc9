"""``parley token``: the tokens of the node's users."""

from __future__ import annotations

import click

from node.cli.groups import command_group
from node.cli.options import Words, options
from node.cli.output import Column, Record, RecordLayout, records_of
from node.cli.references import find_token, short
from node.cli.session import Session, asks_node
from node.cli.times import local_time_text
from node.model.principals import Role


def _validity_text(token: Record) -> str:
    if token["revoked_at"]:
        return f"revoked {local_time_text(token['revoked_at'])}"
    return f"until {local_time_text(token['expires_at'])}" if token["expires_at"] else "yes"


TOKEN = RecordLayout(
    "id,label,role,created_at,created_by,expires_at,used_at,revoked_at",
    Column("token", lambda token: short(token["id"]), whole=True),
    Column("label", lambda token: token["label"]),
    Column("role", lambda token: token["role"]),
    Column("valid", _validity_text),
    Column("last used", lambda token: local_time_text(token["used_at"]) or "never"),
    Column(
        "made", lambda token: f"{local_time_text(token['created_at'])} by {token['created_by']}"
    ),
    empty="No tokens.",
)


token_group = command_group("token")


@token_group.command("add")
@options("--label TEXT  Whom it is for, such as alice.", required=True)
@click.option(
    "--role",
    required=True,
    type=Words([str(role) for role in Role]),
    help="What it permits.",
)
@options("--expires DURATION  How long it is valid: 12h, P30D. [for good]")
@asks_node
async def add(session: Session, label: str, role: str, expires: int | None) -> None:
    """Make a token, and print it; it is shown this once.

    \b
      parley token add --role run --label alice --expires P30D

    \b
      read      reads
      run       creates tasks, and sees and changes its own only
      operate   reads, and changes all tasks, campaigns, pools, archives and reservations
      own       and changes nodes, shares and tokens

    Several tokens of one label are those of one user.
    """  # noqa: D301 - click's mark for lines to keep
    from pydantic import ValidationError  # slow to load

    from node.model.errors import InvalidDocument
    from node.model.wire.tokens import TokenRequest
    from node.model.wire.validation import faults_of

    try:
        request = TokenRequest(label=label, role=Role(role), expires_in=expires)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, TokenRequest)) from error
    made = await session.client.add_token(request)
    session.output.print_one(made, TOKEN, lambda token: str(token["token"]))
    session.progress.note(
        f"This is the token of {made.label}, role {made.role}; it is shown this once. "
        f"To revoke it: parley token revoke {short(made.id)}"
    )


token_group.add_list(
    "/tokens", TOKEN, "List the tokens, newest first, with those that are valid no longer."
)


@token_group.command("revoke")
@click.argument("identifiers", nargs=-1, required=True, metavar="ID...")
@asks_node
async def revoke(session: Session, identifiers: tuple[str, ...]) -> None:
    """Revoke tokens: they are refused from now on, and their event streams end."""
    found = [await find_token(session, each) for each in identifiers]
    revoked = [await session.client.revoke_token(token) for token in found]
    session.output.print_list(records_of(revoked), TOKEN)
