"""The right to name an archive, in which a result may reach whatever this host reaches. Pure.

Users with the role ``operate`` name any archive. A client of the façade, who is known by address
alone, names those that the owner has written down, and no other user names one. An owner's word is
a whole URL: it means this one, not what is below it, since two programs that read URLs may differ
in where one begins. What is dropped needs no word.

Whoever names an archive speaks to the log of the host in the name of Parley only: a line of another
program there, such as a login that was refused, makes others act. That is the owner's alone. What
an archive has answered is told to those who could have asked it themselves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from node.model.errors import NotAllowed
from node.model.permissions import require_role
from node.model.principals import Principal, Role
from node.model.wire.archives import ArchiveChoice

SYSLOG = "syslog"
"""The word for the log of the host."""

_SCHEMES = ("http", "https", "tcp", "udp", "kafka", "amqp", "amqps", "postgresql")
_OUR_FACILITIES = frozenset({"user", "daemon", *(f"local{number}" for number in range(8))})
_OURS = re.compile(r"(parley|pscheduler)([-._][!-~]*)?", re.ASCII | re.IGNORECASE)
_STATUS = re.compile(r"[1-5][0-9]{2}\b", re.ASCII)


def fault_of_word(word: str) -> str | None:
    """Return what is wrong with a word of the owner; None if it names an archive."""
    if word == SYSLOG:
        return None
    try:
        parts = urlsplit(word)
        web = parts.scheme in {"http", "https"}
        complete = parts.hostname is not None and (web or parts.port is not None)
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in _SCHEMES or not complete:
        return f"must be {SYSLOG}, or begin with {', '.join(_SCHEMES)}, as in tcp://192.0.2.9:5140"
    if "@" in parts.netloc or parts.fragment or (not web and parts.path):
        return "must have neither user nor fragment; a path only with http and https"
    return None


def comparable_word(word: str) -> str:
    """Return a word as it is compared: only what follows a URL's host may have capital letters."""
    scheme, separator, rest = word.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.lower()}{slash}{path}"


def require_archives(
    principal: Principal, choices: Sequence[ArchiveChoice], named: Collection[str]
) -> None:
    """Return if a user may send results to these archives of a task.

    ``named`` are the words of the owner for clients of the façade, normalised.

    :raises NotAllowed: they may not.
    """
    for choice in choices:
        if not (principal.is_client and _needed_words(choice) <= frozenset(named)):
            _require_role(principal, choice)
        require_own_voice(principal, choice.archiver, choice.spec)


def _require_role(principal: Principal, choice: ArchiveChoice) -> None:
    if principal.is_client:
        words = ", ".join(sorted(_needed_words(choice)))
        msg = (
            f"the archive {words[:200]} is none that clients of this host may name; its owner "
            "names archives with PARLEY_PSCHEDULER_ARCHIVES"
        )
        raise NotAllowed(msg)
    require_role(principal, Role.OPERATE, "naming archives of a task")


def require_own_voice(principal: Principal, archiver: str, spec: Mapping[str, Any]) -> None:
    """Return if what an archive writes is seen to be of Parley, or the owner wants it otherwise.

    :raises NotAllowed: it would be a line of another program in a log.
    """
    if archiver != SYSLOG or (principal.role is not None and principal.role.includes(Role.OWN)):
        return
    facility, ident = spec.get("facility"), spec.get("app_name")
    if facility is not None and facility not in _OUR_FACILITIES:
        msg = f"only the owner of the host may write to the facility {facility} of a log"
        raise NotAllowed(f"{msg}; use user, daemon, or local0 to local7")
    if isinstance(ident, str) and not _OURS.fullmatch(ident):
        msg = f"only the owner of the host may write to a log in the name of {ident[:48]}"
        raise NotAllowed(f"{msg}; begin app_name with parley")


def _needed_words(choice: ArchiveChoice) -> frozenset[str]:
    """Return the words that an owner has to have written for an archive of a client."""
    spec, archiver = choice.spec, choice.archiver
    words: Iterable[str] = [_place(archiver, spec)]
    if archiver == "bitbucket":
        words = ()
    elif archiver == "http":
        words = [comparable_word(str(spec.get("url")))]
    elif archiver == "kafka":
        words = [_place(archiver, broker) for broker in spec.get("brokers") or [{}]]
    elif archiver == "rabbitmq":
        words = [_place("amqps" if spec.get("tls") else "amqp", spec)]
    elif archiver == SYSLOG and spec.get("transport") == "unix" and "path" not in spec:
        words = [SYSLOG]
    elif spec.get("socket") is not None:
        words = [f"{archiver} {spec['socket']}"]
    return frozenset(words)


def _place(scheme: str, spec: Mapping[str, Any]) -> str:
    host = str(spec.get("host")).lower()
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{spec.get('port')}"


def visible_error(principal: Principal | None, error: str | None) -> str | None:
    """Return as much of an archive's last error as a user is told: all, or the status of HTTP.

    ``principal`` is None for one who is known by address alone.
    """
    if error is None or (
        principal is not None
        and principal.role is not None
        and principal.role.includes(Role.OPERATE)
    ):
        return error
    status = _STATUS.match(error)
    what = f"it answered {status[0]}" if status is not None else "it was not delivered"
    return f"{what}; a token with the role operate sees why"
