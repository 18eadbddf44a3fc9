"""``parley open``: the page of the node, logged in."""

from __future__ import annotations

import os
import webbrowser

import click

from node.cli.invocation import Invocation
from node.cli.options import options
from node.cli.output import RecordLayout
from node.cli.session import Session, asks_node

LINK = RecordLayout("url")


@click.command("open")
@options("--print as only_print  Print the link, and open no browser.")
@asks_node
async def open_command(session: Session, only_print: bool) -> None:
    """Open the page of the node in a browser, logged in, or print its link.

    The link has the token behind '#token=', which a browser keeps to itself and does not send; the
    page stores it for the browser's session and removes it from the address. Whoever has the link
    can do what the token permits. Without a display the link is printed.

    \b
      parley open
      parley open --print
      parley --server https://b.example:8642 open --print
    """  # noqa: D301 - click's mark for lines to keep
    invocation = click.get_current_context().ensure_object(Invocation)
    await session.client.nodes()  # the token is accepted, or the reason is told
    token = invocation.access_token()
    url = session.client.server + ("" if token is None else f"/#token={token}")
    opened = not only_print and session.output.terminal and _has_display() and webbrowser.open(url)
    if opened and session.output.format == "table":
        session.progress.note(f"Opened the page of {session.client.server}.")
        return
    session.output.print_one({"url": url}, LINK, lambda record: str(record["url"]))


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
