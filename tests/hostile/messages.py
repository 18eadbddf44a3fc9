"""One hostile request: what is sent, as whom, and which answers are right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from node.model.permissions import PERMISSIONS, Access
from node.model.principals import Role


class Actor(StrEnum):
    """The credentials of a request."""

    STRANGER = "stranger"
    READ = "read"
    RUN = "run"
    OPERATE = "operate"
    OWN = "own"
    REVOKED = "revoked token"
    EXPIRED = "expired token"
    FOREIGN = "token of another node"
    GARBLED = "garbled token"
    PEER = "peer"
    REMOVED = "removed peer"


ROLES: Mapping[Actor, Role] = {
    Actor.READ: Role.READ,
    Actor.RUN: Role.RUN,
    Actor.OPERATE: Role.OPERATE,
    Actor.OWN: Role.OWN,
}
SIGNING = frozenset({Actor.PEER, Actor.REMOVED})


@dataclass(frozen=True)
class Message:
    """A request to a node by its number; ``target`` is the path and query as sent."""

    family: str
    hostile: str
    """The hostile thing about it, in a few words."""
    method: str
    target: str
    actor: Actor = Actor.STRANGER
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    node: int = 0
    allowed: Collection[int] | None = None
    """The statuses that are right; None: all but faults of the server."""
    signer: int = 0
    """The number of the peer that signs it."""
    forged: Callable[[], Mapping[str, str]] | None = None
    """Makes its credentials when it is sent, if it has others than its actor's."""

    def __str__(self) -> str:
        """Describe it in a line."""
        body = self.body[:200].decode(errors="replace")
        return f"{self.actor}: {self.method} {self.target[:200]} {body} [{self.hostile}]"


def permitted(actor: Actor, route: str) -> frozenset[int] | None:
    """Return the statuses that the table of permissions demands for a caller of this route.

    ``route`` is a row of the table, such as ``GET /v1/tasks``. None means that the caller may
    send such requests, and that the answer depends on the rest.
    """
    access = PERMISSIONS[route]
    if access is Access.OPEN or (access is Access.PEER and actor is Actor.PEER):
        return None
    role = ROLES.get(actor)
    if access.role is None or role is None:
        return frozenset({401})
    narrow = access is Access.READ_WHOLE and actor is Actor.RUN
    return None if role.includes(access.role) and not narrow else frozenset({403})
