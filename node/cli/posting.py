"""Posting of many tasks in lists, while the caller handles each of them for itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from node.model.errors import ParleyError, TooManyRequests
from node.runtime.batching import Batcher

if TYPE_CHECKING:
    from node.client.users import UserClient

LIST = 64
"""Number of tasks in one request at most: as many as a node stores in one transaction."""

_LIST_BYTES = 500_000

_NewTask = tuple[Mapping[str, Any], str]
"""The document of a task, and its Idempotency-Key."""


def task_poster(client: UserClient, at_once: int) -> Batcher[_NewTask, UUID]:
    """Return what posts tasks: those that come while others are posted go in the next list.

    It answers with the id of each task, or raises why it was not created. Up to ``at_once``
    requests are under way at the same time, so ``at_once * LIST`` callers keep it busy.
    """

    async def post(tasks: Sequence[_NewTask]) -> Sequence[UUID | ParleyError]:
        try:
            return await client.create_tasks(tasks)
        except TooManyRequests as error:  # of the whole list: each task comes again
            return [error] * len(tasks)

    return Batcher(post, weight=_length, weight_max=_LIST_BYTES, items_max=LIST, at_once=at_once)


def _length(new: _NewTask) -> int:
    """Return about how many bytes a task takes in a request."""
    return len(json.dumps(new[0]))
