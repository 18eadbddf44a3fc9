"""The table of what each role permits: by method and path of the API, the access that it needs.

A user's own tasks are those that were created with a token of their label. With the role ``run``
they see and change these only, with ``read`` they see those of all, and with ``operate`` they
change those of all.

A route of the API without a row here cannot be served.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from node.model.errors import NotAllowed
from node.model.principals import Principal, Role


class Access(StrEnum):
    """The callers that a route permits."""

    OPEN = "open"
    """Anybody."""
    PEER = "peer"
    """Other nodes, by their signature."""
    READ = "read"
    """Tokens of any role, and readers on this host where the owner lets them."""
    READ_OWN = "read-own"
    """The same, but a token with the role ``run`` reads its own tasks and runs only."""
    READ_WHOLE = "read-whole"
    """The same, but no token with the role ``run``: what is read is of the tasks of all."""
    RUN = "run"
    RUN_OWN = "run-own"
    """Tokens with the role ``run``, for their own tasks and runs; higher roles for those of all."""
    OPERATE = "operate"
    OWN = "own"

    @property
    def role(self) -> Role | None:
        """The least role that a token needs; None if a token is no way in."""
        return _ROLES.get(self)

    @property
    def reads(self) -> bool:
        """Return whether programs on this host may need no token."""
        return self.role is Role.READ

    @property
    def is_narrow(self) -> bool:
        """Return whether a token with the role ``run`` reaches its own tasks and runs only."""
        return self in {Access.READ_OWN, Access.RUN_OWN}


_ROLES = {
    Access.READ: Role.READ,
    Access.READ_OWN: Role.READ,
    Access.READ_WHOLE: Role.READ,
    Access.RUN: Role.RUN,
    Access.RUN_OWN: Role.RUN,
    Access.OPERATE: Role.OPERATE,
    Access.OWN: Role.OWN,
}

PERMISSIONS: Mapping[str, Access] = {
    "POST /v1/tasks": Access.RUN,
    "GET /v1/tasks": Access.READ_OWN,
    "POST /v1/tasks/changes": Access.RUN,
    "GET /v1/tasks/{id}": Access.READ_OWN,
    "PATCH /v1/tasks/{id}": Access.RUN_OWN,
    "POST /v1/tasks/{id}/pause": Access.RUN_OWN,
    "POST /v1/tasks/{id}/resume": Access.RUN_OWN,
    "POST /v1/tasks/{id}/release": Access.OPERATE,
    "DELETE /v1/tasks/{id}": Access.RUN_OWN,
    "GET /v1/tasks/{id}/seats": Access.READ_OWN,
    "GET /v1/tasks/{id}/runs": Access.READ_OWN,
    "GET /v1/tasks/{id}/explain": Access.READ_OWN,
    "GET /v1/runs": Access.READ_OWN,
    "GET /v1/runs/{id}": Access.READ_OWN,
    "DELETE /v1/runs/{id}": Access.RUN_OWN,
    "GET /v1/runs/{id}/explain": Access.READ_OWN,
    "GET /v1/runs/{id}/bundle": Access.READ_OWN,
    "GET /v1/schedule": Access.READ_OWN,
    "GET /v1/schedule/changes": Access.READ_OWN,
    "POST /v1/plans": Access.RUN,
    "POST /v1/reservations": Access.OPERATE,
    "GET /v1/reservations": Access.READ,
    "GET /v1/reservations/{id}": Access.READ_WHOLE,
    "PATCH /v1/reservations/{id}": Access.OPERATE,
    "DELETE /v1/reservations/{id}": Access.OPERATE,
    "POST /v1/campaigns": Access.OPERATE,
    "GET /v1/campaigns": Access.READ,
    "GET /v1/campaigns/{name}": Access.READ,
    "PATCH /v1/campaigns/{name}": Access.OPERATE,
    "DELETE /v1/campaigns/{name}": Access.OPERATE,
    "GET /v1/campaigns/{name}/usage": Access.READ,
    "GET /v1/campaigns/{name}/why": Access.READ,
    "GET /v1/usage": Access.READ,
    "GET /v1/policysets": Access.READ,
    "POST /v1/pools": Access.OPERATE,
    "GET /v1/pools": Access.READ,
    "GET /v1/pools/{name}": Access.READ,
    "PATCH /v1/pools/{name}": Access.OPERATE,
    "DELETE /v1/pools/{name}": Access.OPERATE,
    "POST /v1/pools/{name}/policy-plan": Access.OPERATE,
    "GET /v1/runs/{id}/intervals": Access.READ_OWN,
    "GET /v1/meshes": Access.READ_OWN,
    "POST /v1/meshes/trials": Access.RUN,
    "GET /v1/meshes/{name}": Access.READ_OWN,
    "GET /v1/meshes/{name}/pairs": Access.READ_OWN,
    "GET /v1/meshes/{name}/matrix": Access.READ_OWN,
    "GET /v1/meshes/{name}/tasks": Access.READ_OWN,
    "GET /v1/alerts": Access.READ_OWN,
    "GET /v1/alerts/{id}": Access.READ_OWN,
    "PATCH /v1/alerts/{id}": Access.RUN_OWN,
    "GET /v1/archivers": Access.READ,
    "GET /v1/archivers/{name}": Access.READ,
    "POST /v1/archives": Access.OPERATE,
    "GET /v1/archives": Access.READ,
    "GET /v1/archives/{name}": Access.READ,
    "PATCH /v1/archives/{name}": Access.OPERATE,
    "DELETE /v1/archives/{name}": Access.OPERATE,
    "POST /v1/archives/{name}/test": Access.OPERATE,
    "GET /v1/archivings": Access.READ_WHOLE,
    "POST /v1/archivings/retry": Access.OPERATE,
    "GET /v1/archivings/backlog": Access.READ_WHOLE,
    "GET /v1/nodes/self": Access.OPEN,
    "GET /v1/nodes": Access.READ,
    "POST /v1/nodes": Access.OWN,
    "PATCH /v1/nodes/{name}": Access.OWN,
    "DELETE /v1/nodes/{name}": Access.OWN,
    "POST /v1/nodes/{name}/compare": Access.OPERATE,
    "POST /v1/nodes/{name}/pardon": Access.OPERATE,
    "POST /v1/nodes/self/rekey": Access.OWN,
    "POST /v1/nodes/self/revocation": Access.OWN,
    "POST /v1/revocations": Access.OWN,
    "POST /v1/directories": Access.OWN,
    "POST /v1/introductions": Access.OWN,
    "GET /v1/clock": Access.READ,
    "GET /v1/status": Access.READ_WHOLE,
    "GET /v1/outcomes": Access.READ_WHOLE,
    "POST /v1/checks": Access.OPERATE,
    "GET /v1/tests": Access.READ,
    "GET /v1/tests/{name}": Access.READ,
    "GET /v1/tools": Access.READ,
    "GET /v1/shares": Access.READ,
    "POST /v1/limits/trials": Access.OPERATE,
    "GET /v1/nodes/{name}/limits": Access.READ,
    "GET /v1/limits": Access.READ,
    "POST /v1/tokens": Access.OWN,
    "GET /v1/tokens": Access.OWN,
    "GET /v1/tokens/self": Access.READ,
    "DELETE /v1/tokens/{id}": Access.OWN,
    "POST /v1/webhooks": Access.OWN,
    "GET /v1/webhooks": Access.OWN,
    "POST /v1/webhooks/{name}/test": Access.OWN,
    "DELETE /v1/webhooks/{name}": Access.OWN,
    "POST /v1/secrets": Access.OWN,
    "GET /v1/secrets": Access.OPERATE,
    "DELETE /v1/secrets/{name}": Access.OWN,
    "GET /v1/audit": Access.OWN,
    "GET /v1/events": Access.READ_OWN,
    "GET /healthz": Access.OPEN,
    "GET /readyz": Access.OPEN,
    "GET /metrics": Access.READ_WHOLE,
    "GET /v1/openapi.json": Access.OPEN,
    "GET /lists/{name}": Access.READ_OWN,
    "GET /problems": Access.OPEN,
    "GET /problems/{name}": Access.OPEN,
    "PUT /v1/participant/tasks/{id}": Access.PEER,
    "POST /v1/participant/introductions": Access.PEER,
    "GET /v1/participant/limits": Access.PEER,
    "POST /v1/participant/revocations": Access.PEER,
    "POST /v1/participant/considerations": Access.PEER,
    "POST /v1/participant/campaigns/uses": Access.PEER,
    "POST /v1/participant/outlooks": Access.PEER,
    "POST /v1/participant/proposals": Access.PEER,
    "POST /v1/participant/holds": Access.PEER,
    "POST /v1/participant/rulings": Access.PEER,
    "GET /v1/participant/exchanges/{id}": Access.PEER,
    "GET /v1/participant/runs/{id}": Access.PEER,
    "POST /v1/participant/runs/ends": Access.PEER,
    "POST /v1/participant/tasks/ends": Access.PEER,
    "POST /v1/participant/tasks/confirmations": Access.PEER,
    "POST /v1/participant/tasks/freed": Access.PEER,
    "POST /v1/participant/intervals": Access.PEER,
    "POST /v1/participant/parts": Access.PEER,
    "POST /v1/participant/digests": Access.PEER,
    "POST /v1/participant/comparisons": Access.PEER,
    "POST /v1/participant/checks": Access.PEER,
    "GET /v1/participant/facts": Access.PEER,
    "POST /v1/participant/probes": Access.PEER,
    "POST /v1/participant/work": Access.PEER,
    "POST /v1/participant/errands": Access.PEER,
}
"""By method and path, the access that a request needs."""

EVENTS: Mapping[str, Role] = {"token": Role.OWN, "audit": Role.OWN}
"""By kind of event, the least role that sees it, if it is more than to read."""


def require_access(principal: Principal, access: Access, doing: str) -> None:
    """Return if the role of the caller gives this access; whose task it is about is not asked.

    ``doing`` is what they want to do, such as ``POST /v1/pools``.

    :raises NotAllowed: it does not.
    """
    if access.role is not None:
        require_role(principal, access.role, doing)
    if access is Access.READ_WHOLE and principal.only is not None:
        raise NotAllowed(_refusal(principal, Role.OPERATE, doing))


def require_role(principal: Principal, needed: Role, doing: str) -> None:
    """Return if the caller has at least this role.

    :raises NotAllowed: the role of their token does not include it.
    """
    if principal.role is None or not principal.role.includes(needed):
        raise NotAllowed(_refusal(principal, needed, doing))


def require_own(principal: Principal, requester: str | None, what: str) -> None:
    """Return if the caller may see and change what this user requested.

    ``what`` is the task or run, such as ``task 7c1e90ab``.

    :raises NotAllowed: it is not their own, and their role is for their own only.
    """
    if principal.only is not None and requester != principal.only:
        msg = (
            f"{what} was not requested by {principal.only}, and with the role {principal.role} the "
            f"token {principal.name!r} sees and changes its own tasks only; ask the owner of the "
            f"node for a token with the role {Role.OPERATE} (parley token add --role "
            f"{Role.OPERATE} --label {principal.name})"
        )
        raise NotAllowed(msg)


def _refusal(principal: Principal, needed: Role, doing: str) -> str:
    return (
        f"{doing} needs a token with the role {needed}, and the token {principal.name!r} has the "
        f"role {principal.role or 'none'}; ask the owner of the node for a token with the role "
        f"{needed} (parley token add --role {needed} --label {principal.name})"
    )
