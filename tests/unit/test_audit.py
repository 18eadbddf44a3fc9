"""The audit: which requests are recorded, as what, and how many of a flood."""

from __future__ import annotations

import pytest

from node.api.app import ROUTES
from node.api.routing import Route
from node.model.audit import (
    LEFT_OUT,
    TEXT_MAX,
    AuditBudget,
    AuditEntry,
    AuditOutcome,
    is_recorded,
    outcome_of,
    storable_text,
)
from node.model.permissions import PERMISSIONS, Access
from node.model.principals import STRANGER, Principal, PrincipalKind, Role
from node.model.times import MINUTE, SECOND

ALICE = Principal(PrincipalKind.TOKEN, "alice", Role.RUN, "1")


def entry(principal: Principal, origin: str = "192.0.2.1") -> AuditEntry:
    """Return the entry of a refused request."""
    return AuditEntry(0, principal, "create_task", AuditOutcome.REFUSED, origin=origin)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_what_is_recorded_of_each_route(route: Route) -> None:
    """Changes of users, begin and end of other nodes' tasks, and all that is refused."""
    unchanging = {"/v1/plans", "/v1/limits/trials", "/v1/checks", "/v1/meshes/trials"}
    changes = route.method != "GET" and route.path not in unchanging
    if route.access is Access.PEER:
        changes = route.path in {"/v1/participant/tasks/{id}", "/v1/participant/tasks/ends"}
    changes = changes or route.operation == "GET /v1/tokens"
    for status in (200, 201, 204, 404, 409, 422, 500, 503):
        assert is_recorded(route.operation, route.access, status) is changes
    for status in (401, 403, 429):
        assert is_recorded(route.operation, route.access, status)


def test_a_trial_is_no_change() -> None:
    """A request with dry_run is recorded only if the caller may not send it."""
    for status, recorded in ((200, False), (422, False), (403, True)):
        assert is_recorded("PATCH /v1/tasks/{id}", Access.RUN_OWN, status, trial=True) is recorded


def test_each_operation_has_a_name_of_its_own() -> None:
    """The names in the audit, which are those of the OpenAPI document, tell all routes apart."""
    assert len({route.name for route in ROUTES}) == len(ROUTES) == len(PERMISSIONS)
    names = {route.operation: route.name for route in ROUTES}
    assert names["DELETE /v1/tokens/{id}"] == "revoke_token"
    assert names["PUT /v1/participant/tasks/{id}"] == "introduce_task"


@pytest.mark.parametrize(
    ("status", "problem", "outcome"),
    [
        (200, None, AuditOutcome.DONE),
        (201, None, AuditOutcome.DONE),
        (200, "refused-by-participant", AuditOutcome.REFUSED),
        (404, "not-found", AuditOutcome.REFUSED),
        (429, "limit-reached", AuditOutcome.REFUSED),
        (502, "peer-unreachable", AuditOutcome.FAILED),
        (503, "database-unavailable", AuditOutcome.FAILED),
    ],
)
def test_the_outcome_follows_from_the_answer(
    status: int, problem: str | None, outcome: AuditOutcome
) -> None:
    """An error of the caller is a refusal, one of a host a failure, whatever else is done."""
    assert outcome_of(status, problem) is outcome


def test_what_a_caller_wrote_can_be_stored() -> None:
    """Long texts are cut, and neither a NUL nor a broken character is left."""
    assert storable_text(None) is None
    assert storable_text("a\x00b") == "a\ufffdb"
    assert storable_text("\udcff") == "?"
    assert len(storable_text("x" * 1000) or "") == TEXT_MAX


@pytest.mark.nightly
def test_a_flood_of_strangers_gets_few_rows() -> None:
    """A million refusals from a thousand addresses give a bounded number of rows, and a sum."""
    budget, origins = AuditBudget(), [f"192.0.{n // 250}.{n % 250}" for n in range(1000)]
    rows = sum(budget.admits(entry(STRANGER, origin), 0) for origin in origins * 100)
    assert rows <= 64 * 20
    [left_out] = budget.take_left_out(5)
    assert (left_out.verb, left_out.count, left_out.at) == (LEFT_OUT, 100_000 - rows, 5)
    assert budget.take_left_out(6) == []


def test_one_flooding_stranger_does_not_hide_the_others() -> None:
    """Most other addresses still get their rows, and the loud one gets some again later."""
    budget = AuditBudget()
    assert sum(budget.admits(entry(STRANGER, "203.0.113.1"), 0) for _ in range(1000)) == 20
    others = [f"198.51.100.{number}" for number in range(100)]
    assert sum(budget.admits(entry(STRANGER, origin), 0) for origin in others) > 80
    assert budget.admits(entry(STRANGER, "203.0.113.1"), 10 * MINUTE)


def test_a_stranger_with_a_whole_network_does_not_hide_the_others() -> None:
    """All addresses of an IPv6 /64, which one host may have, share one rate."""
    budget = AuditBudget()
    origins = [f"2001:db8::{number:x}" for number in range(3000)]
    assert sum(budget.admits(entry(STRANGER, origin), 0) for origin in origins) == 20


def test_each_known_caller_has_a_rate() -> None:
    """A user who is refused too often takes nothing from another one, nor from strangers."""
    budget, bob = AuditBudget(), Principal(PrincipalKind.TOKEN, "bob", Role.OWN, "2")
    assert sum(budget.admits(entry(ALICE), 0) for _ in range(3000)) == 2000
    assert budget.admits(entry(bob), 0)
    assert budget.admits(entry(STRANGER), 0)
    assert budget.admits(entry(ALICE), SECOND)
    [left_out] = budget.take_left_out(0)
    assert (left_out.principal, left_out.count) == (ALICE, 1000)
