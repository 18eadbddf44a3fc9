"""Answers with a problem say in their headers when to ask again."""

from __future__ import annotations

import pytest

from node.api.responses import problem_response
from node.model.errors import LimitUsedUp, TooManyRequests


@pytest.mark.parametrize(
    ("error", "policy"),
    [
        (LimitUsedUp("it is used up", 60), None),
        (LimitUsedUp("it is used up", 60, 2), '"limit";q=2'),
        (TooManyRequests("its lead introduces tasks too fast", 60), None),
    ],
)
def test_a_limit_that_is_reached_tells_when_there_is_more(
    error: TooManyRequests, policy: str | None
) -> None:
    """A limit that no number of requests describes has no policy, but it tells the time as well."""
    headers = problem_response(error, "/v1/tasks").headers
    assert (headers["Retry-After"], headers["RateLimit"]) == ("60", '"limit";r=0;t=60')
    assert headers.get("RateLimit-Policy") == policy
