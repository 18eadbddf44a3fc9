"""Helpers of the tests of hostile requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.acceptance.outsider import Answer, Json, Outsider

IDLE: Json = {"type": "idle", "spec": {"duration": "PT2S"}}
FAR = {"start": "2099-01-01T00:00:00Z"}
NOBODY = "/v1/tasks/00000000-0000-0000-0000-000000000000"


def each(names: str | tuple[str, ...], cases: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrise a test with numbered cases, because their contents are unsuitable as names."""
    return pytest.mark.parametrize(names, cases, ids=[f"case{n}" for n in range(len(cases))])


async def newest(nodes: list[Outsider]) -> list[list[str]]:
    """Return the id of each node's newest task, which changes with every new task."""
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
        field.startswith(pointer) or (field and pointer.startswith(field))
        for field in answer.pointers
    ), (pointer, answer.body)
