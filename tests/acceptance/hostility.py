"""What the tests of hostile requests have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.acceptance.outsider import Answer, Json, Outsider

IDLE: Json = {"type": "idle", "spec": {"duration": "PT2S"}}
FAR = {"start": "2099-01-01T00:00:00Z"}
NOBODY = "/v1/tasks/00000000-0000-0000-0000-000000000000"


def each(names: str | tuple[str, ...], cases: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrises a test with cases that have numbers, because their contents make bad names."""
    return pytest.mark.parametrize(names, cases, ids=[f"case{n}" for n in range(len(cases))])


async def newest(nodes: list[Outsider]) -> list[list[str]]:
    """The id of the newest task on each node: another one if any was made, for none goes away."""
    pages = [await node.get("/v1/tasks", limit=1) for node in nodes]
    return [[task["id"] for task in page["items"]] for page in pages]


def is_problem(answer: Answer, *statuses: int) -> None:
    """Assert that an answer is a problem document with one of these statuses."""
    assert answer.status in statuses, answer
    assert answer.headers["Content-Type"].startswith("application/problem+json"), answer
    assert {"type", "title", "status", "detail"} <= set(answer.body)
    assert answer.body["status"] == answer.status
    assert len(answer.body["detail"]) > 10


def complains_of(answer: Answer, pointer: str) -> None:
    """Assert that a problem document names this field, one above it or one below it."""
    is_problem(answer, 422)
    assert any(
        said.startswith(pointer) or (said and pointer.startswith(said)) for said in answer.pointers
    ), (pointer, answer.body)
