"""``parley login`` and ``parley profile``: keep servers with tokens, and choose among them."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from node.cli.failures import print_error_lines
from node.cli.groups import command_group
from node.cli.invocation import Invocation, url_of
from node.cli.output import Column, Record, RecordLayout, printable_text
from node.cli.profiles import (
    Profile,
    Profiles,
    checked_name,
    config_path,
    read_profiles,
    write_profiles,
)
from node.cli.servers import pinned_identity
from node.cli.session import Session, run_command, runs_here
from node.model.loopback import is_loopback

if TYPE_CHECKING:
    from node.model.wire.nodes import NodeCard

_OTHER = re.compile(r"[^A-Za-z0-9_-]+")

PROFILE = RecordLayout(
    "name,server,default,has_token,identity,output,plain_http",
    Column("profile", lambda one: one["name"], whole=True),
    Column("server", lambda one: one["server"], whole=True),
    Column("used", lambda one: "by default" if one["default"] else ""),
    Column("token", lambda one: "yes" if one["has_token"] else ""),
    Column("output", lambda one: one["output"] or "", optional=True),
    empty="No profiles. Make one: parley login https://HOST:8642",
)


@click.command("login")
@click.argument("url", required=False)
@runs_here
def login(invocation: Invocation, url: str | None) -> int:
    """Keep a node with your token as a profile, and use it from now on.

    \b
      parley login https://a.example:8642
      parley login https://b.example:8642 --profile b < token-of-b
      parley login                                      # this host's node

    The token is asked for, or read from standard input. It is kept once the node has accepted it,
    in a file that only you may read. The key of the node is confirmed as with any command.
    """  # noqa: D301 - click's mark for lines to keep
    wanted, invocation.profile, invocation.without_profiles = invocation.profile, None, True
    invocation.server = server = url_of(url) if url else invocation.server_url()
    name = checked_name(wanted or _name_of(server))
    known = read_profiles()
    invocation.token = token = invocation.token or _token(server)
    cards: list[NodeCard] = []

    async def check(session: Session) -> None:
        cards.append(await session.client.own_card())
        await session.client.listed("/tasks", {"limit": 1})

    if code := run_command(click.get_current_context(), check):
        return code
    before = known.by_name.get(name, Profile(server))
    profile = replace(
        before if url_of(before.server) == server else Profile(server),
        server=server,
        token=token,
        token_file=None,
        identity=invocation.server_identity or pinned_identity(server),
        output=invocation.output or before.output,
        plain_http=invocation.allows_plain_http,
    )
    write_profiles(Profiles(name, {**known.by_name, name: profile}))
    print_error_lines(
        f"{printable_text(cards[0].name)} at {server} has accepted the token; "
        f"profile {name} is used from now on ({config_path()})"
    )
    return 0


def _name_of(server: str) -> str:
    host = urlsplit(server).hostname or ""
    return "local" if is_loopback(host) else _OTHER.sub("-", host).strip("-")


def _token(server: str) -> str:
    """Return the token that a person types, or the first line of standard input.

    :raises click.UsageError: there is none.
    """
    if sys.stdin.isatty():
        typed = click.prompt(f"Token for {server}", hide_input=True, err=True)
    else:
        typed = sys.stdin.readline()
    if not typed.strip():
        msg = "no token was given; its owner makes one: parley token add --role run --label NAME"
        raise click.UsageError(msg)
    return str(typed).strip()


profile_group = command_group("profile")


@profile_group.command("list")
@runs_here
def list_profiles(invocation: Invocation) -> None:
    """List the profiles; their tokens are not shown.

    \b
      parley profile list
      parley profile list -o yaml
    """  # noqa: D301 - click's mark for lines to keep
    known = read_profiles()
    invocation.without_profiles = True
    invocation.writer().print_list(
        [_record(known, name, each) for name, each in known.by_name.items()], PROFILE
    )


def _record(known: Profiles, name: str, profile: Profile) -> Record:
    kept: dict[str, Any] = dict(vars(profile))
    has_token = bool(kept.pop("token")) or profile.token_file is not None
    return {"name": name, "default": name == known.default, "has_token": has_token, **kept}


@profile_group.command("use")
@click.argument("name")
@runs_here
def use(_: Invocation, name: str) -> None:
    """Use a profile whenever no other one is named.

    \b
      parley profile use lab
    """  # noqa: D301 - click's mark for lines to keep
    known = read_profiles()
    known.profile(name)
    write_profiles(replace(known, default=name))


@profile_group.command("remove")
@click.argument("name")
@runs_here
def remove(_: Invocation, name: str) -> None:
    """Remove a profile with its token; the token stays valid.

    \b
      parley profile remove lab
    """  # noqa: D301 - click's mark for lines to keep
    known = read_profiles()
    known.profile(name)
    others = {other: each for other, each in known.by_name.items() if other != name}
    write_profiles(Profiles(None if known.default == name else known.default, others))
