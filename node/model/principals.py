"""The callers of a node's API: who sends a request, and the role in which they do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}", re.ASCII)
"""The form of a label."""

OUTSIDE = "pscheduler:"
"""The beginning of the label of a user who is known by address alone; no token has a colon."""

FOLLOWER = "follower"
"""The label of the token by which ``parley-follow`` posts what somebody else has published."""

REQUESTER = re.compile(rf"(?:{LABEL.pattern}|{OUTSIDE}[0-9A-Fa-f:.]{{2,45}})", re.ASCII)
"""The form of the label of any user."""


class Role(StrEnum):
    """The role of a token; each includes those before it."""

    READ = "read"
    RUN = "run"
    OPERATE = "operate"
    OWN = "own"

    def includes(self, other: Role) -> bool:
        """Return whether this role permits everything that the other one does."""
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}


class PrincipalKind(StrEnum):
    """The way in which a caller is known."""

    TOKEN = "token"  # noqa: S105 - a word, no token
    """A user, by a token of this node."""
    HOST = "host"
    """Any program on this host, which may read over loopback without a token."""
    NODE = "node"
    """Another node, by the signature of its pinned key."""
    STRANGER = "stranger"
    """Anybody, on the few routes that are open to all."""


@dataclass(frozen=True)
class Principal:
    """The caller of one request.

    ``name`` is the label of the token, or the name of the node; ``key`` is the id of the token, or
    the identity of the node. Nodes and strangers have no role. A token is valid ``until`` then
    (µs), None if it does not expire.
    """

    kind: PrincipalKind
    name: str
    role: Role | None = None
    key: str | None = None
    until: int | None = None

    @property
    def only(self) -> str | None:
        """The user to whose tasks the caller is confined; None if they reach those of all."""
        return self.name if self.role is Role.RUN else None

    @property
    def bound(self) -> str | None:
        """The user whom the rules for targets and for secrets bind; None if they bind nobody.

        What ``parley-follow`` posts is the word of a publisher, whatever its token may change.
        """
        return self.label if self.name == FOLLOWER else self.only

    @property
    def is_client(self) -> bool:
        """Return whether this is a user who is known by address alone."""
        return self.kind is PrincipalKind.TOKEN and self.name.startswith(OUTSIDE)

    @property
    def label(self) -> str | None:
        """The user as whose request a new task is kept; None if the caller is no user."""
        return self.name if self.kind is PrincipalKind.TOKEN else None


STRANGER = Principal(PrincipalKind.STRANGER, "")
HOST = Principal(PrincipalKind.HOST, "this host", Role.READ)
