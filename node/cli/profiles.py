"""Profiles: named servers with what belongs to them, in ``config.toml`` of the user.

::

    default = "lab"

    [profiles.lab]
    server = "https://a.example:8642"
    token = "…"                            # or token_file = "~/.parley-token"
    identity = "ed25519:…"
    output = "table"
    plain_http = false

Only its owner may read the file, since it has tokens. It is read without pydantic, because every
command reads it, and lists are to come at once.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from node.model.errors import HostError, reason_of
from node.model.similar import suggestion

_TEXTS = frozenset({"server", "token", "token_file", "identity", "output"})
_GROUP_OR_OTHERS = 0o077
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Profile:
    """A server, and the token, key and output that belong to it."""

    server: str
    token: str | None = None
    token_file: str | None = None
    identity: str | None = None
    output: str | None = None
    plain_http: bool = False

    def access_token(self) -> str | None:
        """Return the token.

        :raises click.UsageError: its file cannot be read.
        """
        if self.token or self.token_file is None:
            return self.token
        try:
            return Path(self.token_file).expanduser().read_text(encoding="ascii").strip() or None
        except (OSError, ValueError) as error:
            raise click.UsageError(
                f"{self.token_file} cannot be read: {reason_of(error)}"
            ) from error


@dataclass(frozen=True)
class Profiles:
    """The profiles of this user by name, and the name of the one to use without another."""

    default: str | None
    by_name: Mapping[str, Profile]

    def profile(self, name: str) -> Profile:
        """Return the profile of this name.

        :raises click.UsageError: there is none of this name.
        """
        if name in self.by_name:
            return self.by_name[name]
        hint = suggestion(name, self.by_name)
        more = "" if self.by_name else "; make one: parley login URL"
        raise click.UsageError(f"there is no profile {name}; {hint}{more}")


def config_path(name: str = "config.toml") -> Path:
    """Return the path of a file of this user's configuration; by default that of the profiles."""
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "parley" / name


def write_config(path: Path, content: bytes) -> None:
    """Replace a file of the configuration, readable by its owner only.

    :raises HostError: it cannot be written.
    """
    from node.trust.private_files import replace_private

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"{path.parent} cannot be created: {error.strerror}") from error
    replace_private(path, content)


def read_profiles() -> Profiles:
    """Return the profiles of this user; none if there is no file.

    :raises click.UsageError: the file cannot be read, is wrong, or has tokens that others may read.
    """
    path = config_path()
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Profiles(None, {})
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {reason_of(error)}") from error
    import tomllib  # slow to load, and many have no profiles

    try:
        document = tomllib.loads(raw.decode())
        profiles = {name: _profile(name, each) for name, each in _tables(document).items()}
    except ValueError as error:
        raise click.UsageError(f"{path} is wrong: {error}") from error
    if any(each.token for each in profiles.values()) and _is_readable_by_others(path):
        raise click.UsageError(f"{path} has tokens and others may read it; type: chmod 600 {path}")
    return Profiles(document.get("default"), profiles)


def _is_readable_by_others(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & _GROUP_OR_OTHERS)


def _tables(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tables of profiles.

    :raises ValueError: the document has something else.
    """
    if unknown := set(document) - {"default", "profiles"}:
        hint = suggestion(min(unknown), ("default", "profiles"))
        raise ValueError(f"{min(unknown)} is no setting; {hint}")
    tables, default = document.get("profiles", {}), document.get("default")
    if not isinstance(tables, dict) or not isinstance(default, str | None):
        raise ValueError(  # noqa: TRY004 - the file is wrong, not the program
            "default is the name of a profile, and profiles are tables"
        )
    return tables


def _profile(name: str, table: object) -> Profile:
    """Return the profile that a table has.

    :raises ValueError: it is no profile.
    """
    known = [each.name for each in fields(Profile)]
    if not isinstance(table, dict) or "server" not in table:
        raise ValueError(f"profiles.{name} needs a server")
    if unknown := set(table) - set(known):
        hint = suggestion(min(unknown), known)
        raise ValueError(f"profiles.{name}.{min(unknown)} is no setting; {hint}")
    for key, value in table.items():
        if not isinstance(value, str if key in _TEXTS else bool):
            raise ValueError(  # noqa: TRY004 - as above
                f"profiles.{name}.{key} is not {'a text' if key in _TEXTS else 'true or false'}"
            )
    return Profile(**table)


def checked_name(name: str) -> str:
    """Return the name unchanged.

    :raises click.UsageError: it has other characters than letters, digits, - and _.
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is no name of a profile; use letters, digits, - and _")
    return name


def write_profiles(profiles: Profiles) -> None:
    """Replace the file, readable by its owner only; comments in it are lost.

    :raises HostError: it cannot be written.
    """
    write_config(config_path(), toml_of(profiles).encode())


def toml_of(profiles: Profiles) -> str:
    """Return the profiles as TOML; a text in JSON is one in TOML, too."""
    lines = [] if profiles.default is None else [f"default = {_quoted(profiles.default)}"]
    for name, profile in profiles.by_name.items():
        lines += ["", f"[profiles.{_quoted(name)}]"]
        lines += [
            f"{key} = {_quoted(value)}"
            for key, value in vars(profile).items()
            if value is not None and value is not False
        ]
    return "\n".join(lines).lstrip("\n") + "\n"


def _quoted(value: str | bool) -> str:
    # DEL may not stand in a text of TOML as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
