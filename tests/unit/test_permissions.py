"""Each route has a row in the table of permissions, and roles include each other in order."""

from __future__ import annotations

import pytest

from node.api.app import ROUTES
from node.model.errors import NotAllowed
from node.model.permissions import PERMISSIONS, Access, require_role
from node.model.principals import STRANGER, Principal, PrincipalKind, Role


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    """A route that nobody placed in the table is not served, and no row is left over."""
    assert {f"{route.method} {route.path}" for route in ROUTES} == set(PERMISSIONS)


def test_nobody_changes_anything_by_reading() -> None:
    """A request that is not a GET needs more than the right to read."""
    for request, access in PERMISSIONS.items():
        if not request.startswith("GET "):
            assert access not in {Access.OPEN, Access.READ}, request


def test_each_role_includes_those_before_it() -> None:
    """The roles are in one order: read, run, operate, own."""
    for place, role in enumerate(Role):
        included = {other for other in Role if role.includes(other)}
        assert included == set(list(Role)[: place + 1])


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Role)
def test_a_role_that_is_not_enough_is_told_what_to_do(role: Role, needed: Role) -> None:
    """A refusal names the role that is needed, the one there is, and whom to ask."""
    principal = Principal(PrincipalKind.TOKEN, "alice", role)
    if role.includes(needed):
        require_role(principal, needed, "POST /v1/pools")
        return
    with pytest.raises(NotAllowed) as refused:
        require_role(principal, needed, "POST /v1/pools")
    assert refused.value.detail == (
        f"POST /v1/pools needs a token with the role {needed}, and the token 'alice' has the role "
        f"{role}; ask the owner of the node for a token with the role {needed} "
        f"(parley token add --role {needed} --label alice)"
    )


def test_strangers_have_no_role() -> None:
    """A caller without a token is refused whatever needs a role."""
    with pytest.raises(NotAllowed):
        require_role(STRANGER, Role.READ, "GET /v1/tasks")
