"""The global options: which node, which token, which form of output. Valid before and after verbs.

``parley -o json run list`` and ``parley run list -o json`` are the same. A token found in a file is
sent to a loopback address only: it is this host's, and another host must not learn it. One of the
environment is sent to another server, which ``--server`` names, once that has shown to be a node.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from node.cli.times import SECONDS

FORMATS = ("table", "json", "jsonl", "csv", "ids")
DEFAULT_SERVER = "http://127.0.0.1:8642"

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


@dataclass
class Invocation:
    """What was given of the global options, wherever it stood; the last one wins."""

    server: str | None = None
    token: str | None = None
    output: str | None = None
    fields: str | None = None
    timeout: int | None = None
    quiet: bool = False
    command: str | None = None
    """The command's own name, as far as it asks a node."""

    @property
    def machine(self) -> bool:
        """Whether JSON was asked for by name, so that errors are JSON as well."""
        return self.output in {"json", "jsonl"}

    @property
    def picked(self) -> tuple[str, ...]:
        """The fields asked for."""
        names = (name.strip() for name in (self.fields or "").split(","))
        return tuple(name for name in names if name)

    @property
    def borrowed(self) -> bool:
        """Whether the token is of the environment, and goes to another node than is meant there."""
        if self.token or not self.server or not os.environ.get("PARLEY_TOKEN"):
            return False
        try:
            return Invocation().server_url() != self.server_url()
        except click.BadParameter:
            return True  # what is meant there is no address

    def server_url(self) -> str:
        """Scheme, host and port of the node to speak to."""
        given = self.server or os.environ.get("PARLEY_SERVER") or DEFAULT_SERVER
        url = given if "://" in given else f"http://{given}"
        try:
            base = _base(url)
        except ValueError:
            base = None
        if base is None:
            msg = f"{given!r} is not the address of a node; write {DEFAULT_SERVER}"
            raise click.BadParameter(msg, param_hint="--server")
        return base

    def access_token(self) -> str | None:
        """The token to show: the one given, else this host's own where that is safe."""
        given = self.token or os.environ.get("PARLEY_TOKEN")
        if given:
            return given.strip()
        return _stored_token() if _is_loopback(urlsplit(self.server_url()).hostname or "") else None


def _base(url: str) -> str | None:
    """The URL without a slash at its end, if it is scheme, host and port and nothing more."""
    parts = urlsplit(url)
    complete = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    more = parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if complete and not more else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _stored_token() -> str | None:
    state = os.environ.get("PARLEY_STATE_DIR")
    home = Path("~").expanduser()
    places = [Path(state)] if state else []
    for folder in (*places, home / ".local/state/parley", Path("/var/lib/parley")):
        try:
            return (folder / "token").read_text(encoding="ascii").strip() or None
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None and parameter.name is not None:
        setattr(context.ensure_object(Invocation), parameter.name, value)


def _shared(*names: str, **settings: Any) -> Callable[[AnyCommand], AnyCommand]:
    return click.option(*names, default=None, expose_value=False, callback=_remember, **settings)


def global_options(command: AnyCommand) -> AnyCommand:
    """Give a command the global options."""
    for option in (
        _shared("-q", "--quiet", is_flag=True, help="No progress on standard error."),
        _shared("--timeout", type=SECONDS, help="Give up waiting after this long (exit code 7)."),
        _shared("--fields", metavar="A,B.C", help="Only these fields, in this order."),
        _shared(
            "-o", "--output", type=click.Choice(FORMATS), help="Default: table, or JSON in a pipe."
        ),
        _shared(
            "--token",
            help="Access token, which may do everything [PARLEY_TOKEN, else the token file].",
        ),
        _shared("--server", metavar="URL", help=f"Node [PARLEY_SERVER, else {DEFAULT_SERVER}]."),
    ):
        command = option(command)
    return command
