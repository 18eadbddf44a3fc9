"""The global options: server, profile, token, output format, fields, timeout, quiet.

Options come before ``--profile``, this before variables of the environment, these before the
profile of PARLEY_PROFILE or the default one, and that before what is built in. The token and the
key of a profile are used for its own server only.

They are valid before and after the verbs: ``parley -o json run list`` and ``parley run list -o
json`` are the same. A token found in a file is sent only to a loopback address: it belongs to
this host, and another host must not learn it. A token of the environment is sent to another
server, named by ``--server``, only if that server has shown a key that is known, or, on this host,
has answered like a node. No token is sent to another host over plain HTTP, unless that is allowed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import click

from node.cli.options import AnyCommand, options
from node.cli.output import OutputWriter, field_names
from node.cli.profiles import Profile, read_profiles
from node.cli.times import SECONDS
from node.model.errors import HostError
from node.model.loopback import is_loopback

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "csv", "ids")
_MAKE = "parley token add --role run --label NAME"
DEFAULT_SERVER = "http://127.0.0.1:8642"
_TOKEN_FILE_MAX = 4096


@dataclass
class Invocation:
    """The values of the global options, wherever they were given; the last one wins."""

    server: str | None = None
    token: str | None = None
    output: str | None = None
    server_identity: str | None = None
    plain_http: bool = False
    fields: str | None = None
    jq: str | None = None
    timeout: int | None = None
    quiet: bool = False
    profile: str | None = None
    without_profiles: bool = False
    """True for commands that write profiles: they are not to stumble over what they mend."""
    command: str | None = None
    """The name of the command, if it is one that asks a node."""

    @property
    def wants_json(self) -> bool:
        """Return whether JSON output was requested explicitly, so that errors are JSON as well."""
        return self.output in {"json", "jsonl"}

    @property
    def selected_fields(self) -> tuple[str, ...]:
        """Return the fields of ``--fields``."""
        return field_names(self.fields or "")

    def writer(self) -> OutputWriter:
        """Return the writer of the output format, which the option or else the profile names."""
        preferred = self._used_profile.output if self._used_profile and not self.jq else None
        return OutputWriter(self.output or preferred, self.selected_fields, program=self.jq)

    @cached_property
    def _profiles(self) -> tuple[Profile | None, Profile | None]:
        """The profile of ``--profile``, and that of PARLEY_PROFILE, or else the default one.

        :raises click.UsageError: there is no profile of this name.
        """
        if self.without_profiles:
            return None, None
        known = read_profiles()
        if self.profile:
            return known.profile(self.profile), None
        name = os.environ.get("PARLEY_PROFILE", "").strip() or known.default
        return None, known.profile(name) if name else None

    @property
    def _used_profile(self) -> Profile | None:
        chosen, preset = self._profiles
        return chosen or preset

    def _of_server(self, profile: Profile | None) -> Profile | None:
        """Return a profile if it is that of the server in use, so that its token may go there."""
        if profile is None:
            return None
        try:
            return profile if url_of(profile.server) == self.server_url() else None
        except click.BadParameter:
            return None

    @property
    def _for_others(self) -> Invocation:
        """The invocation without options, whose server the variables of the environment mean."""
        return Invocation(without_profiles=self.without_profiles)

    @property
    def is_token_borrowed(self) -> bool:
        """Return whether the token of the environment would go to a node it was not set for."""
        if self._token_source() != "PARLEY_TOKEN" or not (self.server or self.profile):
            return False
        try:
            return self._for_others.server_url() != self.server_url()
        except click.BadParameter:
            return True  # PARLEY_SERVER is not an address

    def server_url(self) -> str:
        """Return scheme, host and port of the node to use.

        :raises click.BadParameter: it is not an address.
        :raises click.UsageError: there is no profile of this name.
        """
        if self.server:
            return url_of(self.server)
        chosen, preset = self._profiles
        if chosen:
            return url_of(chosen.server)
        given = os.environ.get("PARLEY_SERVER")
        return url_of(given or (preset.server if preset else DEFAULT_SERVER))

    def access_token(self) -> str | None:
        """Return the token that was given, or that of the profile of the server in use.

        Without one it is this host's own, if the node is on loopback.
        """
        return self._tokens().get(self._token_source(), None)

    def _token_source(self) -> str:
        return next(iter(self._tokens()), "")

    def _tokens(self) -> dict[str, str]:
        """Return the tokens by where they come from, the one to use first."""
        chosen, preset = map(self._of_server, self._profiles)
        found = {
            "--token": self.token,
            "--profile": chosen.access_token() if chosen else None,
            "PARLEY_TOKEN": os.environ.get("PARLEY_TOKEN"),
            "PARLEY_TOKEN_FILE": _read_token(os.environ.get("PARLEY_TOKEN_FILE")),
            "the profile": preset.access_token() if preset else None,
        }
        if is_loopback(urlsplit(self.server_url()).hostname or ""):
            found["a file"] = _stored_token()
        return {place: token.strip() for place, token in found.items() if token}

    def token_refusal(self, detail: str) -> str:
        """Return why a node authenticates nobody, and where the token came from, or was not found.

        ``detail`` is what the node says.
        """
        if (given := self._token_source()) not in {"", "a file"}:
            return f"{detail}; it is that of {given}, and its owner makes others: {_MAKE}"
        if not is_loopback(urlsplit(self.server_url()).hostname or ""):
            return f"the node needs a token; give one with --token or PARLEY_TOKEN: {_MAKE}"
        if (place := _stored_place()) is not None:
            return f"{detail}; it is that of {place}; give another with --token or PARLEY_TOKEN"
        places = " or ".join(str(folder / "token") for folder in _token_folders())
        return (
            "the node needs a token; none is given (--token, PARLEY_TOKEN), and none can be read "
            f"in {places}; with PARLEY_STATE_DIR commands look there first"
        )

    @property
    def expected_identity(self) -> str | None:
        """Return the key that the owner of the server was said to have; None if nobody said."""
        if self.server_identity:
            return self.server_identity.strip()
        chosen, preset = map(self._of_server, self._profiles)
        if chosen and chosen.identity:
            return chosen.identity
        given = os.environ.get("PARLEY_IDENTITY", "").strip()
        try:
            if given and self._for_others.server_url() == self.server_url():
                return given
        except click.BadParameter:
            return None  # PARLEY_SERVER is not an address
        return preset.identity if preset else None

    @property
    def allows_plain_http(self) -> bool:
        """Return whether the user allows that tokens are sent where others can read them."""
        allowed = os.environ.get("PARLEY_PLAIN_HTTP", "").strip().lower()
        profile = self._of_server(self._used_profile)
        by_profile = profile is not None and profile.plain_http
        return self.plain_http or allowed in {"1", "true", "yes", "on"} or by_profile


def url_of(given: str) -> str:
    """Return scheme, host and port of the address of a node.

    :raises click.BadParameter: it is not an address.
    """
    url = given if "://" in given else with_scheme(given)
    try:
        base = _base(url)
    except ValueError:
        base = None
    if base is None:
        msg = f"{given!r} is not the address of a node; write {DEFAULT_SERVER}"
        raise click.BadParameter(msg, param_hint="--server")
    return base


def with_scheme(address: str) -> str:
    """Return the URL of a HOST:PORT: https, and http on this host."""
    host = urlsplit(f"//{address}").hostname or ""
    return f"{'http' if is_loopback(host) else 'https'}://{address}"


def _base(url: str) -> str | None:
    """Return a URL without its trailing slash; None unless it has only scheme, host and port."""
    parts = urlsplit(url)
    complete = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    more = parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if complete and not more else None


def _token_folders() -> list[Path]:
    """Return the state directories in which a node of this host may have left its token."""
    state = os.environ.get("PARLEY_STATE_DIR")
    home = Path("~").expanduser()
    places = [Path(state)] if state else []
    return [*places, home / ".local/state/parley", Path("/var/lib/parley")]


def _stored_place() -> Path | None:
    """Return the first token file of a node of this host that this user can read, or None."""
    for folder in _token_folders():
        if _token_in(folder / "token") is not None:
            return folder / "token"
    return None


def _read_token(file: str | None) -> str | None:
    try:
        return Path(file).read_text(encoding="ascii") if file else None
    except (OSError, UnicodeDecodeError):
        return None


def _stored_token() -> str | None:
    place = _stored_place()
    return None if place is None else _token_in(place) or None


def _token_in(place: Path) -> str | None:
    """Return the token in a file; None if there is none that this user may read."""
    from node.trust.private_files import open_own

    try:
        with open_own(place, os.O_RDONLY, "rb") as file:
            return file.read(_TOKEN_FILE_MAX).decode("ascii").strip()
    except (OSError, UnicodeDecodeError, HostError):
        return None


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None and parameter.name is not None:
        setattr(context.ensure_object(Invocation), parameter.name, value)


global_options = options(
    f"""
    --server URL                   Node [PARLEY_SERVER, else {DEFAULT_SERVER}].
    --profile NAME                 Server, token and key by name [PARLEY_PROFILE].
    --server-identity ed25519:KEY  Key of the node [PARLEY_IDENTITY, else as confirmed before].
    --plain-http                   Send the token over plain HTTP [PARLEY_PLAIN_HTTP].
    --token TEXT                   Access token, see parley token [PARLEY_TOKEN, else the token
                                   file].
    -o, --output [{"|".join(FORMATS)}]  Default: table, or JSON in a pipe.
    --fields A,B.C                 Print only these fields, in this order.
    --jq PROGRAM                   Apply a program of jq to the JSON; texts are bare.
    --timeout SECONDS              Give up waiting after this long (exit code 7).
    -q, --quiet                    Print no progress on standard error.
    """,
    {"SECONDS": SECONDS},
    default=None,
    expose_value=False,
    callback=_remember,
)
"""The options of this module, which a command takes after its verb, too."""


def without_jq(command: AnyCommand) -> AnyCommand:
    """Take ``--jq`` from a command that has an option of its own with this name."""
    parameters = vars(command)["__click_params__"]
    parameters[:] = [each for each in parameters if "--jq" not in each.opts]
    return command
