"""Choose the account of a private Postgres, which refuses to run as root."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from node.model.errors import DatabaseUnavailable

CHOICES = ("postgres", "parley", "nobody")
"""The accounts tried in this order. ``nobody`` is shared with other services, hence last."""


def server_account(data: Path | None = None) -> str | None:
    """Return the account for a server started by root; ``None`` if we are not root.

    An existing data directory stays with its owner.

    :raises DatabaseUnavailable: the owner has no account, or there is no account to choose.
    """
    if os.geteuid() != 0:
        return None
    if data is not None and data.exists() and data.stat().st_uid != 0:
        return _owner(data)
    known = {entry.pw_name for entry in pwd.getpwall() if entry.pw_uid != 0}
    for name in CHOICES:
        if name in known:
            return name
    raise DatabaseUnavailable(
        "Postgres does not run as root, and none of the accounts "
        f"{', '.join(CHOICES)} exists to run it as. Create one: useradd --system parley"
    )


def _owner(data: Path) -> str:
    uid = data.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise DatabaseUnavailable(
            f"the database in {data} belongs to the user id {uid}, which has no account here. "
            "Change its owner: chown -R postgres"
        ) from None
